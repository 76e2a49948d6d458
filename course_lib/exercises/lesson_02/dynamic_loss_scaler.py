"""A loss scaler that finds its own scale, judged by its trace."""

import random

import torch

from course_lib.exercises.lesson_02.tiny import first_difference, snapshot
from course_lib.grading.compare import as_float
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.loss_scaling import DynamicLossScaler

# A step of a schedule: what backward leaves behind, and whether the loop unscales by itself before `step`.
BAD = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}
EXPLICIT, TWICE = ", unscale_ called first", ", unscale_ called twice"


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    soon = {"init_scale": 2.0**10, "growth_interval": 2}
    chosen = [
        ("one good step, defaults", {}, ["good"], None),
        ("overflow at once, defaults", {}, ["inf", "good"], None),
        ("a NaN gradient", {}, ["nan", "good"], None),
        ("two good steps, growth_interval=2", soon, ["good", "good"], None),
        ("growth_interval=1", {"init_scale": 8.0, "growth_interval": 1}, ["good", "good", "inf", "good"], None),
        ("growth twice", soon, ["good"] * 5, None),
        ("overflow on the last step before growth", soon, ["good", "inf", "good", "good"], None),
        ("two overflows in a row", soon, ["good", "-inf", "nan", "good", "good"], None),
        ("unscale_ before step", soon, ["good" + EXPLICIT, "inf" + EXPLICIT, "good" + EXPLICIT], None),
        ("a second unscale_", soon, ["good" + TWICE, "good"], None),
        ("2,000 good steps, defaults", {}, ["good"] * 2000, None),
        ("save and load", {**soon, "growth_factor": 4.0, "backoff_factor": 0.25}, ["good"] * 4 + ["inf", "good"], 1),
    ]
    for _ in range(8):
        options = {
            "init_scale": 2.0 ** draw.randint(-4, 20),
            "growth_factor": draw.choice([2.0, 4.0]),
            "backoff_factor": draw.choice([0.5, 0.25, 0.125]),
            "growth_interval": draw.randint(1, 4),
        }
        chosen.append(("a random schedule", options, random_schedule(draw), draw.choice([None, 2, 3, 5])))
    return [
        Case(label, kwargs={"options": options, "schedule": schedule, "save_after": save})
        for label, options, schedule, save in chosen
    ]


def random_schedule(draw: random.Random) -> list[str]:
    length = draw.randint(7, 14)
    kinds = [draw.choice(["good", "good", "good", *BAD]) for _ in range(length)]
    return [kind + draw.choice(["", "", EXPLICIT, TWICE]) for kind in kinds]


def observe(solution, case: Case) -> list:
    options, schedule, save_after = (case.kwargs[key] for key in ("options", "schedule", "save_after"))
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    idle = torch.nn.Parameter(torch.ones(1))  # takes part in no loss: its gradient stays None
    first, last = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))  # with gradients that are always finite
    used = (first, weight, last)
    optimizer = torch.optim.SGD([{"params": [idle, first]}, {"params": [weight, last]}], lr=2.0**-10)
    scaler = solution(**options)
    is_long = len(schedule) > 100
    trace = []
    for number, kind in enumerate(schedule, start=1):
        if is_long and number < len(schedule) - 1:
            plain_step(scaler, optimizer, weight)
            continue
        trace.append(watched_step(scaler, optimizer, used, kind))
        if number == save_after:
            state = scaler.state_dict()
            other = solution()
            other.load_state_dict(state)
            for going_on in (scaler, other, scaler):  # who saved and who loaded go on; the saved state must not
                watched_step(going_on, optimizer, used, "inf")
            scaler = solution()
            scaler.load_state_dict(state)
    return trace


def plain_step(scaler, optimizer, weight) -> None:
    weight.grad = scaler.scale(torch.ones(2))  # what the backward pass of weight.sum() would leave
    scaler.step(optimizer)
    scaler.update()


def watched_step(scaler, optimizer, used: tuple, kind: str) -> dict:
    optimizer.zero_grad()
    first, weight, last = used
    loss = (weight * torch.tensor([3.0, 5.0])).sum() + 2 * first.sum() - last.sum()
    scaled = scaler.scale(loss)
    scaled.backward()
    word, _, call = kind.partition(", ")
    if word in BAD:
        weight.grad[1] = BAD[word]
    row = {"kind": kind, "scaled_loss": scaled.detach().clone(), "error": None, "gradient": None}
    if call:
        scaler.unscale_(optimizer)
        row["gradient"] = snapshot(p.grad for p in used)
    if "twice" in call:
        try:
            scaler.unscale_(optimizer)
        except RuntimeError as error:
            row["error"] = type(error).__name__
    scaler.step(optimizer)
    row["parameters"] = snapshot(used)
    scaler.update()
    row["scale"] = scaler.get_scale()
    return row


def grade(case: Case, got: object, expected: list) -> Mismatch | None:
    names = {
        "scaled_loss": "what `scale(loss)` returned",
        "gradient": "the gradient after `unscale_`",
        "error": "what the second `unscale_` raised",
        "parameters": "the parameters after `step`",
        "scale": "`get_scale()` after `update`",
    }
    return first_difference(got, expected, names, rel=1e-6)


class KeepsCount(DynamicLossScaler):
    def update(self):
        good = self._good_steps
        bad = self._found_nonfinite
        super().update()
        if bad:
            self._good_steps = good


def _grows_at_once(case: Case, got: object, expected: list) -> bool:
    """Every good step raises the scale. (After 2,000 of them the scale itself is anything.)"""
    if len(case.kwargs["schedule"]) > 100:
        return True
    scales = [as_float(row.get("scale")) for row in got if isinstance(row, dict)] if isinstance(got, list) else []
    if len(scales) != len(expected) or None in scales:
        return False
    before = [case.kwargs["options"].get("init_scale", 2.0**16), *scales]
    is_good = [row["kind"].startswith("good") for row in expected]
    return all(now > old for old, now, good in zip(before, scales, is_good, strict=False) if good)


class StepsAnyway(DynamicLossScaler):
    def step(self, optimizer):
        if not self._is_unscaled:
            self.unscale_(optimizer)
        optimizer.step()


class UnscalesTwice(DynamicLossScaler):
    def unscale_(self, optimizer):
        self._is_unscaled = False
        super().unscale_(optimizer)


class UnscalesAgainInStep(DynamicLossScaler):
    def step(self, optimizer):
        self._is_unscaled = False
        super().step(optimizer)


class SecondUnscaleIsIgnored(DynamicLossScaler):
    def unscale_(self, optimizer):
        if not self._is_unscaled:
            super().unscale_(optimizer)


class _Sees(DynamicLossScaler):
    def unscale_(self, optimizer):
        super().unscale_(optimizer)
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self._found_nonfinite = any(bool(self.is_bad(gradient)) for gradient in gradients)


class InfinityOnly(_Sees):
    def is_bad(self, gradient):
        return gradient.isinf().any()


class NanOnly(_Sees):
    def is_bad(self, gradient):
        return gradient.isnan().any()


class LastGradientDecides(DynamicLossScaler):
    def unscale_(self, optimizer):
        super().unscale_(optimizer)
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self._found_nonfinite = not bool(gradients[-1].isfinite().all())


class FirstGroupOnly(DynamicLossScaler):
    def unscale_(self, optimizer):
        groups = optimizer.param_groups
        optimizer.param_groups = groups[:1]
        try:
            super().unscale_(optimizer)
        finally:
            optimizer.param_groups = groups


class NeverForgetsOverflow(DynamicLossScaler):
    def update(self):
        found = self._found_nonfinite
        super().update()
        self._found_nonfinite = found


class GrowsForEver(DynamicLossScaler):
    def update(self):
        if self._good_steps >= self._growth_interval - 1 and not self._found_nonfinite:
            self._scale *= self._growth_factor
            self._good_steps += 1
            self._start_iteration()
        else:
            super().update()


class GrowsOneLate(DynamicLossScaler):
    def update(self):
        self._growth_interval += 1
        super().update()
        self._growth_interval -= 1


class NeverGrows(DynamicLossScaler):
    def update(self):
        scale = self._scale
        super().update()
        self._scale = min(scale, self._scale)


class NeverBacksOff(DynamicLossScaler):
    def update(self):
        scale, found = self._scale, self._found_nonfinite
        super().update()
        self._scale = scale if found else self._scale


class LoadsNothing(DynamicLossScaler):
    def load_state_dict(self, state):
        pass


class LoadsScaleOnly(DynamicLossScaler):
    def load_state_dict(self, state):
        self._scale = state["scale"]


class LoadsNoCount(DynamicLossScaler):
    def load_state_dict(self, state):
        super().load_state_dict({**state, "good_steps": 0})


class LiveState(DynamicLossScaler):
    def state_dict(self):
        return vars(self)

    def load_state_dict(self, state):
        vars(self).update(state)


class LivesInTheLoadedState(DynamicLossScaler):
    def state_dict(self):
        return dict(vars(self))

    def load_state_dict(self, state):
        self.__dict__ = state


class SharesOneState(LivesInTheLoadedState):
    def state_dict(self):
        return vars(self)


class NeverUnscales(DynamicLossScaler):
    def unscale_(self, optimizer):
        scale, self._scale = self._scale, 1.0
        super().unscale_(optimizer)
        self._scale = scale


EXERCISE = Exercise(
    name="DynamicLossScaler",
    points=5,
    minutes=40,
    difficulty=3,
    checks="the trace of a dynamic loss scaler over good and bad steps, saved and loaded on the way",
    reference=DynamicLossScaler,
    cases=cases,
    grade=grade,
    observe=observe,
    hints=(
        "Four numbers are settings and one is the scale. What else must be remembered: within an iteration, and from "
        "one iteration to the next?",
        "Within an iteration: whether the gradients are unscaled already, and whether one of them is not finite; "
        "`update` clears both. Across iterations: "
        "how many good steps in a row.",
        "`update`: after a bad step multiply by `backoff_factor` and set the count to 0; after a good one add 1, and "
        "when the count reaches "
        "`growth_interval` multiply by `growth_factor` and set it to 0. The state holds all of it.",
    ),
    explanation=(
        "The scaler probes: it doubles until something overflows, halves, and so stays within a factor of a few of "
        "the largest scale that works. The count "
        "is of good steps in a row, so an overflow starts it again. A state that lacks the count changes the moment "
        "of the next growth after a restart, "
        "and with it the whole trajectory; one that lacks the settings goes on with the defaults."
    ),
    next_step="Write down scale and count after each step of this schedule on paper, then print yours beside it.",
    misconceptions=(
        Misconception(
            "state_lacks_the_growth_count",
            "Scale and settings survive, but the next growth comes late: the run of good steps has to survive as well.",
            solution=LoadsNoCount,
        ),
        Misconception(
            "keeps_growth_count_on_overflow",
            "After an overflow your scaler still remembers the good steps before it. Growth needs that many in a row: "
            "what does an overflow do to the row?",
            solution=KeepsCount,
        ),
        Misconception(
            "grows_at_once",
            "Your scale grows after every good step. It should wait for `growth_interval` of them.",
            matches=_grows_at_once,
        ),
        Misconception(
            "backs_off_but_still_steps",
            "Your scale goes down after an overflow, but the optimizer has already stepped with the bad gradient. "
            "Which of the two has to be decided first?",
            solution=StepsAnyway,
        ),
        Misconception(
            "unscales_twice",
            "Your gradients can be divided by the scale twice within one iteration. Remember that it has happened: "
            "`step` needs to know, and a second "
            "`unscale_` must be refused with a RuntimeError.",
            solution=UnscalesTwice,
        ),
        Misconception(
            "unscales_twice",
            "`step` divides by the scale although `unscale_` has been called before. Remember that it has happened.",
            solution=UnscalesAgainInStep,
        ),
        Misconception(
            "second_unscale_is_ignored",
            "A second `unscale_` passes in silence. It is a mistake in the loop, and a RuntimeError is what tells its "
            "author.",
            solution=SecondUnscaleIsIgnored,
        ),
        Misconception(
            "tests_for_infinity_only",
            "A NaN gradient passes your test. Infinity minus infinity is NaN, so an overflow can arrive as either.",
            solution=InfinityOnly,
        ),
        Misconception(
            "tests_for_nan_only",
            "An infinite gradient passes your test. Overflow is infinite first, and NaN only where two infinities "
            "meet.",
            solution=NanOnly,
        ),
        Misconception(
            "last_gradient_decides",
            "Only the last gradient is asked in the end: an infinite one before it is forgotten.",
            solution=LastGradientDecides,
        ),
        Misconception(
            "first_group_only",
            "An optimizer can have several parameter groups, and you unscale those of the first only.",
            solution=FirstGroupOnly,
        ),
        Misconception(
            "never_forgets_an_overflow",
            "After one overflow every later step counts as bad. What has to be cleared when an iteration ends?",
            solution=NeverForgetsOverflow,
        ),
        Misconception(
            "does_not_reset_count_after_growth",
            "Once your scale has grown it grows again at every step. What should the count be after a growth?",
            solution=GrowsForEver,
        ),
        Misconception(
            "grows_one_step_late",
            "Your scale grows one good step too late. Count on paper: after which step is the count equal to "
            "`growth_interval`?",
            solution=GrowsOneLate,
        ),
        Misconception(
            "never_grows", "Your scale never grows. Good steps in a row should raise it.", solution=NeverGrows
        ),
        Misconception(
            "never_backs_off",
            "Your scaler skips the bad step but keeps the scale, so the next step overflows too.",
            solution=NeverBacksOff,
        ),
        Misconception(
            "ignores_loaded_state",
            "After `load_state_dict` your scaler starts from the beginning. Compare scale, settings and count before "
            "and after.",
            solution=LoadsNothing,
        ),
        Misconception(
            "state_lacks_the_settings",
            "The scale survives saving and loading, but the new scaler goes on with its own factors and interval. Save "
            "those too, and whatever else decides when the scale changes.",
            solution=LoadsScaleOnly,
        ),
        Misconception(
            "state_is_not_a_copy",
            "Your saved state changes when the scaler goes on. Return a copy, so that a checkpoint stays what it was.",
            solution=LiveState,
        ),
        Misconception(
            "state_is_not_a_copy",
            "The state that you load changes when the scaler goes on: you keep the dict itself. Copy out of it, so that a "
            "checkpoint can be loaded twice.",
            solution=LivesInTheLoadedState,
        ),
        Misconception(
            "state_is_not_a_copy",
            "Saver, state and loader share one dict, so each changes the others. Copy when you save and when you load.",
            solution=SharesOneState,
        ),
        Misconception(
            "never_unscales",
            "The optimizer sees gradients that are still multiplied by the scale.",
            solution=NeverUnscales,
        ),
    ),
)
