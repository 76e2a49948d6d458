# %% accepted: a Function that finds tensors by position and restores the state by hand
class MyCheckpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, flag, *args):
        ctx.fn = fn
        ctx.where = [i for i, a in enumerate(args) if torch.is_tensor(a)]
        ctx.rest = [None if torch.is_tensor(a) else a for a in args]
        ctx.needs = [torch.is_tensor(a) and a.requires_grad for a in args]
        ctx.save_for_backward(*[args[i] for i in ctx.where])
        ctx.rng = torch.random.get_rng_state()
        ctx.amp = (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))
        with torch.no_grad():
            return fn(*args)

    @staticmethod
    def backward(ctx, grad):
        args = list(ctx.rest)
        for i, t in zip(ctx.where, ctx.saved_tensors):
            args[i] = t.detach()
            if ctx.needs[i]:
                args[i].requires_grad_(True)
        now = torch.random.get_rng_state()
        torch.random.set_rng_state(ctx.rng)
        with torch.enable_grad(), torch.autocast("cpu", dtype=ctx.amp[1], enabled=ctx.amp[0]):
            out = ctx.fn(*args)
        torch.random.set_rng_state(now)
        out.backward(grad)
        return (None, None) + tuple(args[i].grad if ctx.needs[i] else None for i in range(len(args)))


def recompute(function, *inputs):
    return MyCheckpoint.apply(function, torch.zeros(1, requires_grad=True), *inputs)


# %% accepted: saved-tensor hooks instead of a Function
def recompute(function, *inputs):
    rng = torch.get_rng_state()
    amp = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    count = [0]
    again = {}

    def pack(tensor):
        count[0] += 1
        return count[0] - 1

    def unpack(index):
        if not again:
            n = [0]

            def pack_again(tensor):
                again[n[0]] = tensor.detach() if tensor.grad_fn is not None else tensor
                n[0] += 1
                return tensor.detach()

            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                torch.set_rng_state(rng)
                with torch.autocast("cpu", dtype=amp[1], enabled=amp[0]):
                    with torch.autograd.graph.saved_tensors_hooks(pack_again, lambda t: t):
                        function(*inputs)
        return again.pop(index)

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return function(*inputs)


# %% accepted: one Function made for each call, with the non-tensors bound by a closure
def recompute(function, *inputs):
    slots = [k for k, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
    state = {}

    def call(tensors):
        full = list(inputs_without_tensors)
        for k, t in zip(slots, tensors):
            full[k] = t
        return function(*full)

    inputs_without_tensors = [None if k in slots else value for k, value in enumerate(inputs)]

    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, _dummy, *tensors):
            state["rng"] = torch.get_rng_state()
            state["autocast"] = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
            ctx.save_for_backward(*tensors)
            return call(tensors)

        @staticmethod
        def backward(ctx, g):
            fresh = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
            enabled, dtype = state["autocast"]
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(state["rng"])
                with torch.set_grad_enabled(True), torch.autocast("cpu", dtype=dtype, enabled=enabled):
                    y = call(fresh)
            torch.autograd.backward([y], [g])
            return (None, *[t.grad for t in fresh])

    return Once.apply(torch.ones((), requires_grad=True), *[inputs[k] for k in slots])


# %% rejected: uses_torch_checkpoint
from torch.utils.checkpoint import checkpoint as torch_checkpoint


def recompute(function, *inputs):
    return torch_checkpoint(function, *inputs, use_reentrant=False)


# %% rejected: keeps_the_graph
def recompute(function, *inputs):
    return function(*inputs)


# %% rejected: keeps_the_graph
class Keeper(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, dummy, *args):
        with torch.enable_grad():
            ctx.args = [a.detach().requires_grad_(a.requires_grad) if torch.is_tensor(a) else a for a in args]
            ctx.out = fn(*ctx.args)
        return ctx.out.detach()

    @staticmethod
    def backward(ctx, g):
        ctx.out.backward(g)
        return (None, None, *[a.grad if torch.is_tensor(a) else None for a in ctx.args])


def recompute(function, *inputs):
    return Keeper.apply(function, torch.zeros(1, requires_grad=True), *inputs)


# %% rejected: gradient_to_inputs_only
class InputsOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, dummy, *args):
        ctx.fn, ctx.args, ctx.rng = fn, args, torch.get_rng_state()
        ctx.amp = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return fn(*args)

    @staticmethod
    def backward(ctx, g):
        args = [a.detach().requires_grad_(a.requires_grad) if torch.is_tensor(a) else a for a in ctx.args]
        wanted = [a for a in args if torch.is_tensor(a) and a.requires_grad]
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.autocast("cpu", dtype=ctx.amp[1], enabled=ctx.amp[0]):
            torch.set_rng_state(ctx.rng)
            out = ctx.fn(*args)
        grads = list(torch.autograd.grad(out, wanted, g, allow_unused=True)) if wanted else []
        return (None, None, *[grads.pop(0) if torch.is_tensor(a) and a.requires_grad else None for a in args])


def recompute(function, *inputs):
    return InputsOnly.apply(function, torch.zeros(1, requires_grad=True), *inputs)


# %% rejected: other_random_numbers
class NewNumbers(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, dummy, *args):
        ctx.fn, ctx.args = fn, args
        ctx.amp = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return fn(*args)

    @staticmethod
    def backward(ctx, g):
        args = [a.detach().requires_grad_(a.requires_grad) if torch.is_tensor(a) else a for a in ctx.args]
        with torch.enable_grad(), torch.autocast("cpu", dtype=ctx.amp[1], enabled=ctx.amp[0]):
            out = ctx.fn(*args)
        out.backward(g)
        return (None, None, *[a.grad if torch.is_tensor(a) else None for a in args])


def recompute(function, *inputs):
    return NewNumbers.apply(function, torch.zeros(1, requires_grad=True), *inputs)


# %% rejected: other_random_numbers
class Reseeded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, dummy, *args):
        ctx.fn, ctx.args = fn, args
        ctx.amp = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        result = fn(*args)
        ctx.rng = torch.get_rng_state()  # too late
        return result

    @staticmethod
    def backward(ctx, g):
        args = [a.detach().requires_grad_(a.requires_grad) if torch.is_tensor(a) else a for a in ctx.args]
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.autocast("cpu", dtype=ctx.amp[1], enabled=ctx.amp[0]):
            torch.set_rng_state(ctx.rng)
            out = ctx.fn(*args)
        out.backward(g)
        return (None, None, *[a.grad if torch.is_tensor(a) else None for a in args])


def recompute(function, *inputs):
    return Reseeded.apply(function, torch.zeros(1, requires_grad=True), *inputs)


# %% rejected: leaves_the_random_state_changed
class Rewinder(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, dummy, *args):
        ctx.fn, ctx.args, ctx.rng = fn, args, torch.get_rng_state()
        ctx.amp = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return fn(*args)

    @staticmethod
    def backward(ctx, g):
        args = [a.detach().requires_grad_(a.requires_grad) if torch.is_tensor(a) else a for a in ctx.args]
        torch.set_rng_state(ctx.rng)
        with torch.enable_grad(), torch.autocast("cpu", dtype=ctx.amp[1], enabled=ctx.amp[0]):
            out = ctx.fn(*args)
        out.backward(g)
        return (None, None, *[a.grad if torch.is_tensor(a) else None for a in args])


def recompute(function, *inputs):
    return Rewinder.apply(function, torch.zeros(1, requires_grad=True), *inputs)


# %% rejected: forgets_autocast
class NoAutocast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, dummy, *args):
        ctx.fn, ctx.args, ctx.rng = fn, args, torch.get_rng_state()
        return fn(*args)

    @staticmethod
    def backward(ctx, g):
        args = [a.detach().requires_grad_(a.requires_grad) if torch.is_tensor(a) else a for a in ctx.args]
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.rng)
            out = ctx.fn(*args)
        out.backward(g.to(out.dtype))
        return (None, None, *[a.grad if torch.is_tensor(a) else None for a in args])


def recompute(function, *inputs):
    return NoAutocast.apply(function, torch.zeros(1, requires_grad=True), *inputs)


# %% rejected: needs_an_input_with_gradients
class NoAnchor(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, *args):
        ctx.fn, ctx.args, ctx.rng = fn, args, torch.get_rng_state()
        ctx.amp = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return fn(*args)

    @staticmethod
    def backward(ctx, g):
        args = [a.detach().requires_grad_(a.requires_grad) if torch.is_tensor(a) else a for a in ctx.args]
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.autocast("cpu", dtype=ctx.amp[1], enabled=ctx.amp[0]):
            torch.set_rng_state(ctx.rng)
            out = ctx.fn(*args)
        out.backward(g)
        return (None, *[a.grad if torch.is_tensor(a) else None for a in args])


def recompute(function, *inputs):
    return NoAnchor.apply(function, *inputs)


# %% rejected: fails_on_a_non_tensor
class TensorsOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, dummy, *args):
        ctx.save_for_backward(*args)
        ctx.fn, ctx.rng = fn, torch.get_rng_state()
        ctx.amp = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return fn(*args)

    @staticmethod
    def backward(ctx, g):
        args = [a.detach().requires_grad_(a.requires_grad) for a in ctx.saved_tensors]
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.autocast("cpu", dtype=ctx.amp[1], enabled=ctx.amp[0]):
            torch.set_rng_state(ctx.rng)
            out = ctx.fn(*args)
        torch.autograd.backward(out, g)
        return (None, None, *[a.grad for a in args])


def recompute(function, *inputs):
    return TensorsOnly.apply(function, torch.zeros(1, requires_grad=True), *inputs)


# %% rejected: keeps_more_than_the_inputs
class GraphInForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, dummy, *args):
        ctx.rng = torch.get_rng_state()
        ctx.amp = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        ctx.fn, ctx.args = fn, args
        with torch.enable_grad():
            ctx.result = fn(*args)
        return ctx.result.detach()

    @staticmethod
    def backward(ctx, g):
        args = [a.detach().requires_grad_(a.requires_grad) if torch.is_tensor(a) else a for a in ctx.args]
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.autocast("cpu", dtype=ctx.amp[1], enabled=ctx.amp[0]):
            torch.set_rng_state(ctx.rng)
            out = ctx.fn(*args)
        torch.autograd.backward(out, g)
        return (None, None, *[a.grad if torch.is_tensor(a) else None for a in args])


def recompute(function, *inputs):
    return GraphInForward.apply(function, torch.zeros(1, requires_grad=True), *inputs)


# %% accepted: copies of the inputs instead of the inputs
class Copies(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, dummy, *args):
        ctx.args = [a.clone().requires_grad_(a.requires_grad) if torch.is_tensor(a) else a for a in args]
        ctx.fn, ctx.rng = fn, torch.get_rng_state()
        ctx.amp = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return fn(*args)

    @staticmethod
    def backward(ctx, g):
        args = [a.detach().requires_grad_(a.requires_grad) if torch.is_tensor(a) else a for a in ctx.args]
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.autocast("cpu", dtype=ctx.amp[1], enabled=ctx.amp[0]):
            torch.set_rng_state(ctx.rng)
            out = ctx.fn(*args)
        torch.autograd.backward(out, g)
        return (None, None, *[a.grad if torch.is_tensor(a) else None for a in args])


def recompute(function, *inputs):
    return Copies.apply(function, torch.zeros(1, requires_grad=True), *inputs)


# %% rejected: does_not_detach
class Attached(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, dummy, *args):
        ctx.args, ctx.fn, ctx.rng = args, fn, torch.get_rng_state()
        ctx.amp = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return fn(*args)

    @staticmethod
    def backward(ctx, g):
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.autocast("cpu", dtype=ctx.amp[1], enabled=ctx.amp[0]):
            torch.set_rng_state(ctx.rng)
            out = ctx.fn(*ctx.args)
        torch.autograd.backward(out, g)
        return (None, None, *[a.grad if torch.is_tensor(a) else None for a in ctx.args])


def recompute(function, *inputs):
    return Attached.apply(function, torch.zeros(1, requires_grad=True), *inputs)


# %% rejected: -
def recompute(function, *inputs):
    # computes twice in forward, keeps the second graph
    with torch.no_grad():
        function(*inputs)
    return function(*inputs)


# %% rejected: replaces_gradients
class Replaces(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, weights, dummy, *args):
        ctx.rng = torch.get_rng_state()
        ctx.amp = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        ctx.fn, ctx.weights, ctx.args = fn, weights, args
        return fn(*args)

    @staticmethod
    def backward(ctx, g):
        args = [a.detach().requires_grad_(a.requires_grad) if torch.is_tensor(a) else a for a in ctx.args]
        for w in ctx.weights:
            w.grad = None
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.autocast("cpu", dtype=ctx.amp[1], enabled=ctx.amp[0]):
            torch.set_rng_state(ctx.rng)
            out = ctx.fn(*args)
        torch.autograd.backward(out, g)
        return (None, None, None, *[a.grad if torch.is_tensor(a) else None for a in args])


def find_weights(value, seen):
    # the weights that a function reaches through its closures
    if torch.is_tensor(value):
        seen[id(value)] = value
    elif callable(value) and id(value) not in seen:
        seen[id(value)] = None
        for cell in getattr(value, "__closure__", None) or ():
            try:
                find_weights(cell.cell_contents, seen)
            except ValueError:
                pass
    return [t for t in seen.values() if t is not None and t.is_leaf and t.requires_grad]


def recompute(function, *inputs):
    weights = [w for w in find_weights(function, {}) if all(w is not a for a in inputs)]
    return Replaces.apply(function, weights, torch.zeros(1, requires_grad=True), *inputs)


# %% rejected: other_random_numbers
class Reseeds(torch.autograd.Function):
    # the seed, as if nothing had been drawn since
    @staticmethod
    def forward(ctx, fn, dummy, *args):
        out = fn(*args)
        ctx.fn, ctx.where = fn, [i for i, a in enumerate(args) if torch.is_tensor(a)]
        ctx.plain = [None if torch.is_tensor(a) else a for a in args]
        ctx.save_for_backward(*[a for a in args if torch.is_tensor(a)])
        ctx.amp = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return out

    @staticmethod
    def backward(ctx, g):
        args = list(ctx.plain)
        for i, t in zip(ctx.where, ctx.saved_tensors):
            args[i] = t.detach().requires_grad_(t.requires_grad)
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.autocast("cpu", dtype=ctx.amp[1], enabled=ctx.amp[0]):
            torch.manual_seed(torch.initial_seed())
            out = ctx.fn(*args)
        torch.autograd.backward(out, g)
        return (None, None, *[a.grad if torch.is_tensor(a) else None for a in args])


def recompute(function, *inputs):
    return Reseeds.apply(function, torch.zeros(1, requires_grad=True), *inputs)


# %% rejected: forgets_autocast
class OnlyBfloat16(torch.autograd.Function):
    # whether autocast is on, but not in which dtype
    @staticmethod
    def forward(ctx, fn, dummy, *args):
        ctx.rng = torch.get_rng_state()
        out = fn(*args)
        ctx.fn, ctx.where = fn, [i for i, a in enumerate(args) if torch.is_tensor(a)]
        ctx.plain = [None if torch.is_tensor(a) else a for a in args]
        ctx.save_for_backward(*[a for a in args if torch.is_tensor(a)])
        ctx.is_on = torch.is_autocast_enabled("cpu")
        return out

    @staticmethod
    def backward(ctx, g):
        args = list(ctx.plain)
        for i, t in zip(ctx.where, ctx.saved_tensors):
            args[i] = t.detach().requires_grad_(t.requires_grad)
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=ctx.is_on):
            torch.set_rng_state(ctx.rng)
            out = ctx.fn(*args)
        torch.autograd.backward(out, g)
        return (None, None, *[a.grad if torch.is_tensor(a) else None for a in args])


def recompute(function, *inputs):
    return OnlyBfloat16.apply(function, torch.zeros(1, requires_grad=True), *inputs)


# %% rejected: forgets_autocast
class NeverOff(torch.autograd.Function):
    # autocast is put on again, and never off
    @staticmethod
    def forward(ctx, fn, dummy, *args):
        ctx.rng = torch.get_rng_state()
        out = fn(*args)
        ctx.fn, ctx.where = fn, [i for i, a in enumerate(args) if torch.is_tensor(a)]
        ctx.plain = [None if torch.is_tensor(a) else a for a in args]
        ctx.save_for_backward(*[a for a in args if torch.is_tensor(a)])
        ctx.amp = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return out

    @staticmethod
    def backward(ctx, g):
        args = list(ctx.plain)
        for i, t in zip(ctx.where, ctx.saved_tensors):
            args[i] = t.detach().requires_grad_(t.requires_grad)
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.autocast("cpu", dtype=ctx.amp[1]) if ctx.amp[0] else torch.enable_grad():
            torch.set_rng_state(ctx.rng)
            out = ctx.fn(*args)
        torch.autograd.backward(out, g)
        return (None, None, *[a.grad if torch.is_tensor(a) else None for a in args])


def recompute(function, *inputs):
    return NeverOff.apply(function, torch.zeros(1, requires_grad=True), *inputs)


# %% rejected: keeps_more_than_the_inputs
class KeepsOutput(torch.autograd.Function):
    # the output waits for backward as well, for nothing
    @staticmethod
    def forward(ctx, fn, dummy, *args):
        ctx.rng = torch.get_rng_state()
        out = fn(*args)
        ctx.fn, ctx.where = fn, [i for i, a in enumerate(args) if torch.is_tensor(a)]
        ctx.plain = [None if torch.is_tensor(a) else a for a in args]
        ctx.save_for_backward(*[a for a in args if torch.is_tensor(a)], out)
        ctx.amp = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return out

    @staticmethod
    def backward(ctx, g):
        args = list(ctx.plain)
        for i, t in zip(ctx.where, ctx.saved_tensors):
            args[i] = t.detach().requires_grad_(t.requires_grad)
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.autocast("cpu", dtype=ctx.amp[1], enabled=ctx.amp[0]):
            torch.set_rng_state(ctx.rng)
            out = ctx.fn(*args)
        torch.autograd.backward(out, g)
        return (None, None, *[a.grad if torch.is_tensor(a) else None for a in args])


def recompute(function, *inputs):
    return KeepsOutput.apply(function, torch.zeros(1, requires_grad=True), *inputs)
