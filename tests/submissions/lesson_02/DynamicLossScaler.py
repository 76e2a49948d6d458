# %% accepted: the state of one optimizer in a small dict, multiplying by the inverse
class DynamicLossScaler:
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        self.s = dict(scale=init_scale, up=growth_factor, down=backoff_factor, every=growth_interval, run=0)
        self.bad = None  # None: not unscaled yet

    def scale(self, loss):
        return self.s["scale"] * loss

    def unscale_(self, optimizer):
        if self.bad is not None:
            raise RuntimeError("already unscaled")
        self.bad = False
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad *= 1 / self.s["scale"]
                    self.bad = self.bad or not math.isfinite(p.grad.abs().sum().item())

    def step(self, optimizer):
        if self.bad is None:
            self.unscale_(optimizer)
        return None if self.bad else optimizer.step()

    def update(self):
        self.s["run"] = 0 if self.bad else self.s["run"] + 1
        if self.bad:
            self.s["scale"] *= self.s["down"]
        elif self.s["run"] >= self.s["every"]:
            self.s["scale"] *= self.s["up"]
            self.s["run"] = 0
        self.bad = None

    def get_scale(self):
        return self.s["scale"]

    def state_dict(self):
        return dict(self.s)

    def load_state_dict(self, state):
        self.s = dict(state)
        self.bad = None


# %% accepted: torch's own scaler inside
class DynamicLossScaler(torch.amp.GradScaler):
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval)


# %% accepted: counting down, with a tensor as scale
class DynamicLossScaler:
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        self.factor = torch.tensor(float(init_scale), dtype=torch.float64)
        self.settings = (growth_factor, backoff_factor, growth_interval)
        self.left = growth_interval
        self.phase = "fresh"

    def scale(self, loss):
        return loss * self.factor.item()

    def unscale_(self, optimizer):
        if self.phase != "fresh":
            raise RuntimeError("unscale_ twice")
        grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        for g in grads:
            g.copy_(g / self.factor.item())
        self.phase = "good" if all(torch.isfinite(g).all().item() for g in grads) else "bad"

    def step(self, optimizer):
        if self.phase == "fresh":
            self.unscale_(optimizer)
        if self.phase == "good":
            optimizer.step()

    def update(self):
        up, down, every = self.settings
        if self.phase == "bad":
            self.factor = self.factor * down
            self.left = every
        else:
            self.left -= 1
            if self.left == 0:
                self.factor = self.factor * up
                self.left = every
        self.phase = "fresh"

    def get_scale(self):
        return self.factor

    def state_dict(self):
        return {"all": (self.factor.clone(), self.settings, self.left)}

    def load_state_dict(self, state):
        self.factor, self.settings, self.left = state["all"]
        self.phase = "fresh"


# %% rejected: keeps_growth_count_on_overflow
class DynamicLossScaler:
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        self.s = dict(scale=init_scale, up=growth_factor, down=backoff_factor, every=growth_interval, run=0)
        self.bad = None

    def scale(self, loss):
        return loss * self.s["scale"]

    def unscale_(self, optimizer):
        if self.bad is not None:
            raise RuntimeError("already unscaled")
        grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        for g in grads:
            g /= self.s["scale"]
        self.bad = not all(bool(torch.isfinite(g).all()) for g in grads)

    def step(self, optimizer):
        if self.bad is None:
            self.unscale_(optimizer)
        if not self.bad:
            optimizer.step()

    def update(self):
        if self.bad:
            self.s["scale"] *= self.s["down"]
        else:
            self.s["run"] += 1
            if self.s["run"] == self.s["every"]:
                self.s["scale"] *= self.s["up"]
                self.s["run"] = 0
        self.bad = None

    def get_scale(self):
        return self.s["scale"]

    def state_dict(self):
        return dict(self.s)

    def load_state_dict(self, state):
        self.s = dict(state)


# %% rejected: tests_for_infinity_only
class DynamicLossScaler:
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        self.s = dict(scale=init_scale, up=growth_factor, down=backoff_factor, every=growth_interval, run=0)
        self.bad = None

    def scale(self, loss):
        return loss * self.s["scale"]

    def unscale_(self, optimizer):
        if self.bad is not None:
            raise RuntimeError("already unscaled")
        grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        for g in grads:
            g /= self.s["scale"]
        self.bad = any(bool((g.abs() == math.inf).any()) for g in grads)

    def step(self, optimizer):
        if self.bad is None:
            self.unscale_(optimizer)
        if not self.bad:
            optimizer.step()

    def update(self):
        if self.bad:
            self.s["scale"] *= self.s["down"]
            self.s["run"] = 0
        else:
            self.s["run"] += 1
            if self.s["run"] == self.s["every"]:
                self.s["scale"] *= self.s["up"]
                self.s["run"] = 0
        self.bad = None

    def get_scale(self):
        return self.s["scale"]

    def state_dict(self):
        return dict(self.s)

    def load_state_dict(self, state):
        self.s = dict(state)


# %% rejected: ignores_loaded_state
class DynamicLossScaler(torch.amp.GradScaler):
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval)

    def load_state_dict(self, state):
        return None


# %% rejected: state_lacks_the_growth_count
class DynamicLossScaler(torch.amp.GradScaler):
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval)

    def load_state_dict(self, state):
        super().load_state_dict({**state, "_growth_tracker": 0})


# %% rejected: state_lacks_the_settings
class DynamicLossScaler(torch.amp.GradScaler):
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval)

    def load_state_dict(self, state):
        mine = self.state_dict()
        super().load_state_dict({**mine, "scale": state["scale"]})


# %% rejected: state_is_not_a_copy
class DynamicLossScaler:
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        self.s = dict(scale=init_scale, up=growth_factor, down=backoff_factor, every=growth_interval, run=0)
        self.bad = None

    def scale(self, loss):
        return loss * self.s["scale"]

    def unscale_(self, optimizer):
        if self.bad is not None:
            raise RuntimeError("already unscaled")
        grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        for g in grads:
            g /= self.s["scale"]
        self.bad = not all(bool(torch.isfinite(g).all()) for g in grads)

    def step(self, optimizer):
        if self.bad is None:
            self.unscale_(optimizer)
        if not self.bad:
            optimizer.step()

    def update(self):
        if self.bad:
            self.s["scale"] *= self.s["down"]
            self.s["run"] = 0
        else:
            self.s["run"] += 1
            if self.s["run"] == self.s["every"]:
                self.s["scale"] *= self.s["up"]
                self.s["run"] = 0
        self.bad = None

    def get_scale(self):
        return self.s["scale"]

    def state_dict(self):
        return self.s

    def load_state_dict(self, state):
        self.s = state


# %% rejected: grows_at_once
class DynamicLossScaler(torch.amp.GradScaler):
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, 1)

    def load_state_dict(self, state):
        super().load_state_dict({**state, "growth_interval": 1})


# %% rejected: backs_off_but_still_steps
class DynamicLossScaler(torch.amp.GradScaler):
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval)
        self.done = False

    def unscale_(self, optimizer):
        super().unscale_(optimizer)
        self.done = True

    def step(self, optimizer):
        if not self.done:
            super().unscale_(optimizer)
        self.done = False
        optimizer.step()


# %% rejected: second_unscale_is_ignored
class DynamicLossScaler(torch.amp.GradScaler):
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval)

    def unscale_(self, optimizer):
        try:
            super().unscale_(optimizer)
        except RuntimeError:
            pass


# %% rejected: never_grows
class DynamicLossScaler(torch.amp.GradScaler):
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        super().__init__("cpu", init_scale, 2.0, backoff_factor, 10**9)

    def load_state_dict(self, state):
        super().load_state_dict({**state, "growth_interval": 10**9})


# %% rejected: -
class DynamicLossScaler(torch.amp.GradScaler):  # other defaults
    def __init__(self, init_scale=2.0**15, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval)


# %% rejected: -
class DynamicLossScaler(torch.amp.GradScaler):  # growth after 1,000 steps by default
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=1000):
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval)


# %% rejected: -
class DynamicLossScaler(torch.amp.GradScaler):  # switched off
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled=False)


# %% rejected: last_gradient_decides
class DynamicLossScaler:
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        self.s = init_scale
        self.g = growth_factor
        self.b = backoff_factor
        self.i = growth_interval
        self.n = 0
        self.bad = False
        self.un = False

    def scale(self, loss):
        return loss * self.s

    def unscale_(self, optimizer):
        if self.un:
            raise RuntimeError("twice")
        self.un = True
        for g in optimizer.param_groups:
            for p in g["params"]:
                if p.grad is not None:
                    p.grad /= self.s
                    self.bad = not torch.isfinite(p.grad).all()

    def step(self, optimizer):
        if not self.un:
            self.unscale_(optimizer)
        if not self.bad:
            optimizer.step()

    def update(self):
        if self.bad:
            self.s *= self.b
            self.n = 0
        else:
            self.n += 1
            if self.n == self.i:
                self.s *= self.g
                self.n = 0
        self.bad = self.un = False

    def get_scale(self):
        return self.s

    def state_dict(self):
        return dict(self.__dict__)

    def load_state_dict(self, state):
        self.__dict__.update(state)


# %% rejected: first_group_only
class DynamicLossScaler:
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        self.s = init_scale
        self.g = growth_factor
        self.b = backoff_factor
        self.i = growth_interval
        self.n = 0
        self.bad = False
        self.un = False

    def scale(self, loss):
        return loss * self.s

    def unscale_(self, optimizer):
        if self.un:
            raise RuntimeError("twice")
        self.un = True
        for p in optimizer.param_groups[0]["params"]:
            if p.grad is not None:
                p.grad /= self.s
                if not torch.isfinite(p.grad).all():
                    self.bad = True

    def step(self, optimizer):
        if not self.un:
            self.unscale_(optimizer)
        if not self.bad:
            optimizer.step()

    def update(self):
        if self.bad:
            self.s *= self.b
            self.n = 0
        else:
            self.n += 1
            if self.n == self.i:
                self.s *= self.g
                self.n = 0
        self.bad = self.un = False

    def get_scale(self):
        return self.s

    def state_dict(self):
        return dict(self.__dict__)

    def load_state_dict(self, state):
        self.__dict__.update(state)


# %% rejected: state_is_not_a_copy
class DynamicLossScaler:
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        self.s = init_scale
        self.g = growth_factor
        self.b = backoff_factor
        self.i = growth_interval
        self.n = 0
        self.bad = False
        self.un = False

    def scale(self, loss):
        return loss * self.s

    def unscale_(self, optimizer):
        if self.un:
            raise RuntimeError("twice")
        self.un = True
        for g in optimizer.param_groups:
            for p in g["params"]:
                if p.grad is not None:
                    p.grad /= self.s
                    if not torch.isfinite(p.grad).all():
                        self.bad = True

    def step(self, optimizer):
        if not self.un:
            self.unscale_(optimizer)
        if not self.bad:
            optimizer.step()

    def update(self):
        if self.bad:
            self.s *= self.b
            self.n = 0
        else:
            self.n += 1
            if self.n == self.i:
                self.s *= self.g
                self.n = 0
        self.bad = self.un = False

    def get_scale(self):
        return self.s

    def state_dict(self):
        return dict(self.__dict__)

    def load_state_dict(self, state):
        self.__dict__ = state
