"""Unbiased rounding: shares counted on millions of draws, so that a sixteenth random bit is missed if it is missing."""

import math
from collections.abc import Callable
from typing import Any

import torch

from course_lib.formats import stochastic_round
from course_lib.grading.compare import INPUTS_CHANGED, as_tensor_problem, describe, inputs_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch

# Three million draws of 1 in 65,536: 46 are due, and 6 sigmas are 41, so none at all is too few.
DRAWS = {"share": 200_000, "rare": 3_000_000}
SIGMAS = 6.0  # of a right solution's counts, two in a thousand million lie beyond
BF16_MAX = torch.finfo(torch.bfloat16).max


def cases(seed: int) -> list[Case]:
    generator = torch.Generator().manual_seed(seed)

    def random_bits(n: int) -> torch.Tensor:
        bits = torch.randint(-(2**31), 2**31, (n,), generator=generator, dtype=torch.int64).to(torch.int32)
        x = bits.view(torch.float32)
        return x[x.isfinite() & (x.abs() <= BF16_MAX)]

    every = torch.arange(1 << 16).to(torch.uint16).view(torch.bfloat16).float()
    payloads = torch.tensor([0x7F800001, 0x7FFFFFFF, -1, -8388607, 0x7FC00000], dtype=torch.int32).view(torch.float32)
    special = torch.cat([torch.tensor([math.inf, -math.inf, 0.0, -0.0, BF16_MAX, -BF16_MAX]), payloads])
    listed = [
        Case("exact values stay", ("exact", torch.tensor([1.0, -2.5, 0.0, 256.0]), seed)),
        Case("infinities, NaN and the largest values stay", ("exact", special, seed)),
        Case("every bfloat16 value stays", ("exact", every, seed)),
        Case("a column of a matrix", ("neighbours", random_bits(60)[:24].reshape(4, 6).T, seed)),
        Case("a 0-d tensor", ("neighbours", torch.tensor(1.001), seed)),
        Case("an empty tensor", ("neighbours", torch.empty(0, 3), seed)),
        Case("20,000 floats land on a neighbour", ("neighbours", random_bits(20_000), seed)),
    ]
    usual = torch.randn(3, generator=generator) * 10.0 ** torch.tensor([0.0, -6.0, 6.0])
    # a quarter, three quarters and 1 in 341 of a step
    shares = torch.cat([torch.tensor([1 + 2.0**-9, -(1 + 3 * 2.0**-9), 1 + 1.5 * 2.0**-16]), usual])
    rare = torch.tensor([1.0, 1 + 2.0**-23])  # no step at all, and the smallest share there is
    several = torch.randn(500, generator=generator)
    listed += [
        Case(f"how often {len(shares)} floats go away from zero", ("share", shares, seed)),
        Case("how often 1.0 and 1 + 2**-23 go away from zero", ("rare", rare, seed)),
        Case("the same seed gives the same bits, another seed others", ("seeds", several, seed)),
    ]
    return listed


def observe(solution: Any, case: Case) -> Any:
    kind, x, seed = case.args
    before = torch.get_rng_state()

    def run(values: torch.Tensor, seed: int) -> Any:
        given = values.clone(memory_format=torch.preserve_format)
        result = solution(given, torch.Generator().manual_seed(seed))
        is_kept = torch.equal(given.view(torch.int32), values.view(torch.int32))  # bits, since there are NaNs
        return result if is_kept else INPUTS_CHANGED

    if kind == "seeds":
        results = [run(x, seed), run(x, seed), run(x, seed + 1)]
        usual = all(isinstance(result, torch.Tensor) and result.shape == x.shape for result in results)
        same = [torch.equal(results[0], other) for other in results[1:]] if usual else None
        return {"same": same, "global": torch.equal(before, torch.get_rng_state()), "seeds": True}
    if kind not in DRAWS:
        return {"result": run(x, seed), "global": torch.equal(before, torch.get_rng_state())}
    draws = DRAWS[kind]
    result = run(x.repeat_interleave(draws), seed)
    if not isinstance(result, torch.Tensor) or result.shape != (draws * len(x),):
        return {"result": result, "global": True}
    shares = [_counts(row) for row in result.reshape(len(x), draws)]
    return {"shares": shares, "global": torch.equal(before, torch.get_rng_state())}


def _counts(row: torch.Tensor) -> list:
    """The first few different values of a long vector, and how often each occurs."""
    if row.dtype != torch.bfloat16:
        values, counts = row.unique(return_counts=True)
        return [values[:4], counts[:4].tolist()]
    counts = torch.bincount(row.view(torch.uint16).int(), minlength=1 << 16)  # many times faster than sorting
    codes = counts.nonzero().flatten()[:4]
    return [codes.to(torch.uint16).view(torch.bfloat16), counts[codes].tolist()]


def _neighbours(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The bfloat16 towards zero and the one away from zero, as float32 (equal where x is exact)."""
    bits = x.contiguous().view(torch.int32)
    low = bits & -(1 << 16)
    high = torch.where(bits == low, low, low + (1 << 16))
    return low.view(torch.float32), high.view(torch.float32)


def grade(case: Case, observation: Any, expected: dict) -> Mismatch | None:
    kind, x, _ = case.args
    if not isinstance(observation, dict):
        return Mismatch("a bfloat16 tensor", describe(observation))
    if observation.get("global") is not True:
        note = "Pass `generator=generator` to the function that draws."
        return Mismatch("the global generator untouched", "it has moved", note)
    if kind == "seeds":
        if observation.get("same") == [True, False]:
            return None
        got = {(False, False): "other bits at each call", (True, True): "always the same bits"}
        same = observation.get("same")
        text = got.get(tuple(same), describe(same)) if isinstance(same, list) and len(same) == 2 else "no tensors"
        return Mismatch("randomness from the generator alone", text)
    changed = inputs_mismatch(observation.get("result"))
    if changed:
        return changed
    if kind in DRAWS and "shares" in observation:
        counted = _away_shares(x, observation, DRAWS[kind])
        return counted if isinstance(counted, Mismatch) else _share_mismatch(x, counted, DRAWS[kind])
    result = observation.get("result")
    problem = as_tensor_problem(result, (DRAWS[kind] * len(x),) if kind in DRAWS else x.shape, torch.bfloat16)
    if problem:
        return Mismatch(f"bf16{list(x.shape)}", describe(result), problem)
    if kind == "exact":
        low = high = x.float()
    else:
        low, high = _neighbours(x)
    wide = result.float()
    is_right = (_same(wide, low) | _same(wide, high)).flatten()
    if bool(is_right.all()):
        return None
    at = int((~is_right).nonzero()[0, 0])
    due = f"{low.flatten()[at].item():.9g}"
    if kind != "exact":
        due += f" or {high.flatten()[at].item():.9g}"
    return Mismatch(
        f"{due} for {x.flatten()[at].item():.9g}", f"{wide.flatten()[at].item():.9g}", _bits(x.flatten()[at])
    )


def _same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return ((a == b) & (a.signbit() == b.signbit())) | (a.isnan() & b.isnan())


def _bits(x: torch.Tensor) -> str:
    return f"float32 bits {x.reshape(1).contiguous().view(torch.int32).item() & 0xFFFFFFFF:#010x}."


def _due_shares(x: torch.Tensor) -> list[float]:
    low, high = _neighbours(x)
    return ((x.double() - low.double()) / (high.double() - low.double())).nan_to_num(0.0).tolist()


def _away_shares(x: torch.Tensor, observation: dict, draws: int) -> list[float] | Mismatch:
    """How often each x went to its neighbour away from zero, or what else came."""
    shares, found = [], observation["shares"]
    if not isinstance(found, list) or len(found) != len(x):
        return Mismatch("bfloat16 results", describe(found))
    for one, low, high, pair in zip(x.tolist(), *(side.tolist() for side in _neighbours(x)), found, strict=True):
        values, counts = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        problem = as_tensor_problem(values, None, torch.bfloat16)
        if problem or not isinstance(counts, list) or len(counts) != len(values):
            return Mismatch("bfloat16 results", describe(values), problem or "")
        seen = dict(zip(values.float().tolist(), counts, strict=True))
        strange = [value for value in seen if value not in (low, high)]
        if strange:
            due = f"{low:.9g} or {high:.9g}" if low != high else f"always {low:.9g}"
            return Mismatch(f"{due} for {one:.9g}", f"{strange[0]:.9g}")
        shares.append(seen.get(high, 0) / draws if low != high else 0.0)
    return shares


def _share_mismatch(x: torch.Tensor, shares: list[float], draws: int) -> Mismatch | None:
    for one, share, got in zip(x.tolist(), _due_shares(x), shares, strict=True):
        allowed = SIGMAS * math.sqrt(share * (1 - share) / draws)
        if not abs(got - share) <= allowed:
            note = f"x is {one:.9g}, {share:.4g} of a step from its neighbour towards zero; "
            note += f"chance explains {allowed * draws:,.0f}."
            return Mismatch(f"{share * draws:,.0f} of {draws:,} draws away from zero", f"{got * draws:,.0f}", note)
    return None


# Wrong ideas, by how often they round away from zero.


def _rounds_with(probability: Callable[[float], float]) -> Callable[[Case, Any, Any], bool]:
    def matches(case: Case, observation: Any, expected: dict) -> bool:
        kind, x, _ = case.args
        if not isinstance(observation, dict) or kind == "seeds":
            return probability is _nearest and isinstance(observation, dict) and observation.get("same") == [True, True]
        if kind == "rare":
            return True
        shares = _away_shares(x, observation, DRAWS[kind]) if kind in DRAWS and "shares" in observation else None
        return isinstance(shares, list) and all(
            abs(got - probability(due)) < 0.005 for got, due in zip(shares, _due_shares(x), strict=True)
        )

    return matches


def _nearest(share: float) -> float:
    return 1.0 if share > 0.5 else 0.0


def _damages_specials(case: Case, observation: Any, expected: dict) -> bool:
    return "every" in case.label or "infinities" in case.label


EXERCISE = Exercise(
    name="stochastic_round",
    points=3,
    minutes=30,
    difficulty=3,
    checks="rounding to bfloat16 that is right on average, keeps exact and special values, and draws from your generator only",
    reference=stochastic_round,
    cases=cases,
    grade=grade,
    observe=observe,
    bonus=True,
    time_limit_s=20.0,
    hints=(
        "A float32 is a bfloat16 with 16 more bits behind it. `x.view(torch.int32)` lets you see and change them.",
        "Add a random integer from 0 to 2**16 - 1 to those bits: how often does it carry into the upper half? Then clear the "
        "lower half (`& -65536`) and view as float32 again.",
        "Infinity and NaN have the largest exponent, where a carry or a cleared payload changes their kind: keep x itself "
        "where `x.isfinite()` is False. Draw with torch.randint(0, 1 << 16, x.shape, generator=generator, dtype=torch.int32).",
    ),
    explanation="The lower 16 bits, divided by 2**16, say how far x lies between two bfloat16 neighbours. Adding a uniform "
    "16-bit number carries with exactly that probability, so the mean is x. The same addition serves both signs, because "
    "codes grow with the magnitude. Exact values have nothing to add to; infinity and NaN are kept apart.",
    next_step="Count by hand: of the 65,536 values that the random number can take, how many should round this x up?",
    misconceptions=(
        Misconception(
            "ignores_the_generator",
            "The bits are the same whatever the seed: draw from the generator that you are given.",
            matches=lambda case, observation, expected: (
                isinstance(observation, dict) and observation.get("same") == [True, True]
            ),
        ),
        Misconception(
            "not_sixteen_random_bits",
            "Ordinary shares come out right, but not the smallest, 1 in 65,536, or none at all. How many different values does "
            "your random number take, and which is the largest?",
            matches=lambda case, observation, expected: (
                case.args[0] == "rare" and isinstance(observation, dict) and "shares" in observation
            ),
        ),
        Misconception(
            "rounds_to_nearest",
            "You always take the nearest value. Then a small update is lost every time, which is what this exercise is about.",
            matches=_rounds_with(_nearest),
        ),
        Misconception(
            "fair_coin",
            "You round up half of the time wherever x lies. The chance must be the share of the step that x has gone.",
            matches=_rounds_with(lambda share: 0.5),
        ),
        Misconception(
            "rounds_the_wrong_way",
            "Your chance is the other way round: near the lower neighbour x should mostly go down.",
            matches=_rounds_with(lambda share: 1 - share),
        ),
        Misconception(
            "damages_specials",
            "Ordinary numbers are right. Infinity and NaN have the largest exponent, and adding to their bits or clearing "
            "them changes what they are.",
            matches=_damages_specials,
        ),
        Misconception(
            "uses_global_generator",
            "Your random numbers come from torch's global generator. Use the one you are given.",
            matches=lambda case, observation, expected: (
                isinstance(observation, dict)
                and (observation.get("global") is False or observation.get("seeds") is True)
            ),
        ),
    ),
)
