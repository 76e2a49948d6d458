# %% accepted: an order of finishing, searched afterwards
def first_nonfinite_module(model, batch):
    finished = []

    def bad(value):
        if torch.is_tensor(value):
            return not torch.isfinite(value).all().item()
        if isinstance(value, (tuple, list)):
            return any(bad(item) for item in value)
        return False

    names = {module: name for name, module in model.named_modules()}
    handles = [m.register_forward_hook(lambda m, i, o: finished.append((names[m], bad(o)))) for m in names]
    try:
        model(batch)
    finally:
        for handle in handles:
            handle.remove()
    return next((name for name, is_bad in finished if is_bad), None)


# %% accepted: a global hook, stopped by an exception
def first_nonfinite_module(model, batch):
    class Found(Exception):
        pass

    def flat(value):
        if isinstance(value, torch.Tensor):
            return [value]
        return sum((flat(v) for v in value), []) if isinstance(value, (tuple, list)) else []

    def hook(module, args, output):
        if any(torch.isnan(t).any() or torch.isinf(t).any() for t in flat(output)):
            raise Found(next(name for name, m in model.named_modules() if m is module))

    handle = nn.modules.module.register_module_forward_hook(hook)
    try:
        model(batch)
    except Found as found:
        return found.args[0]
    finally:
        handle.remove()
    return None


# %% rejected: names_the_outermost_module
def first_nonfinite_module(model, batch):
    bad, handles = {}, []

    def finite(o):
        if torch.is_tensor(o):
            return bool(torch.isfinite(o).all())
        return all(finite(x) for x in o) if isinstance(o, (tuple, list)) else True

    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(lambda m, i, o, n=name: bad.__setitem__(n, not finite(o))))
    model(batch)
    for handle in handles:
        handle.remove()
    for name, _ in model.named_modules():
        if bad.get(name):
            return name
    return None


# %% rejected: names_the_last_module
def first_nonfinite_module(model, batch):
    answer, handles = [None], []

    def finite(o):
        if torch.is_tensor(o):
            return bool(torch.isfinite(o).all())
        return all(finite(x) for x in o) if isinstance(o, (tuple, list)) else True

    for name, module in model.named_modules():

        def hook(m, i, o, n=name):
            if not finite(o):
                answer[0] = n

        handles.append(module.register_forward_hook(hook))
    model(batch)
    for handle in handles:
        handle.remove()
    return answer[0]


# %% rejected: looks_for_nan_only
def first_nonfinite_module(model, batch):
    answer, handles = [], []

    def has_nan(o):
        if torch.is_tensor(o):
            return bool((o != o).any())
        return any(has_nan(x) for x in o) if isinstance(o, (tuple, list)) else False

    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(lambda m, i, o, n=name: answer.append(n) if has_nan(o) else None))
    model(batch)
    for handle in handles:
        handle.remove()
    return answer[0] if answer else None


# %% rejected: ignores_tuples
def first_nonfinite_module(model, batch):
    answer, handles = [], []
    for name, module in model.named_modules():

        def hook(m, i, o, n=name):
            if isinstance(o, torch.Tensor) and not o.isfinite().all():
                answer.append(n)

        handles.append(module.register_forward_hook(hook))
    model(batch)
    for handle in handles:
        handle.remove()
    return answer[0] if answer else None


# %% rejected: leaves_hooks_behind
def first_nonfinite_module(model, batch):
    answer = []

    def finite(o):
        if torch.is_tensor(o):
            return bool(torch.isfinite(o).all())
        return all(finite(x) for x in o) if isinstance(o, (tuple, list)) else True

    for name, module in model.named_modules():
        module.register_forward_hook(lambda m, i, o, n=name: answer.append(n) if not finite(o) else None)
    model(batch)
    return answer[0] if answer else None


# %% rejected: leaves_out_the_root
def first_nonfinite_module(model, batch):
    answer, handles = [], []

    def finite(o):
        if torch.is_tensor(o):
            return bool(torch.isfinite(o).all())
        return all(finite(x) for x in o) if isinstance(o, (tuple, list)) else True

    for name, module in list(model.named_modules())[1:]:
        handles.append(module.register_forward_hook(lambda m, i, o, n=name: answer.append(n) if not finite(o) else None))
    model(batch)
    for handle in handles:
        handle.remove()
    return answer[0] if answer else None


# %% rejected: -
def first_nonfinite_module(model, batch):  # a plain loop over children
    x = batch
    for name, child in model.named_children():
        x = child(x)
        if not torch.isfinite(x).all():
            return name
    return None


# %% rejected: -
def first_nonfinite_module(model, batch):  # looks at weights
    for name, module in model.named_modules():
        for p in module.parameters(recurse=False):
            if not torch.isfinite(p).all():
                return name
    return None


# %% rejected: -
def first_nonfinite_module(model, batch):  # the class instead of the name
    answer, handles = [], []

    def finite(o):
        if torch.is_tensor(o):
            return bool(torch.isfinite(o).all())
        return all(finite(x) for x in o) if isinstance(o, (tuple, list)) else True

    for module in model.modules():
        handles.append(
            module.register_forward_hook(lambda m, i, o: None if finite(o) else answer.append(type(m).__name__))
        )
    model(batch)
    for handle in handles:
        handle.remove()
    return answer[0] if answer else None


# %% rejected: -
def first_nonfinite_module(model, batch):
    found = []

    def bad(o):
        if isinstance(o, torch.Tensor):
            return not bool(torch.isfinite(o).all())
        if isinstance(o, (tuple, list)):
            return any(bad(i) for i in o)
        return False

    for n, m in model.named_modules():
        m.register_forward_hook(lambda mod, i, o, n=n: found.append(n) if bad(o) else None)
    model(batch)
    for m in model.modules():
        m._forward_hooks.clear()
    return found[0] if found else None


# %% rejected: -
def first_nonfinite_module(model, batch):
    order = []

    def bad(o):
        if isinstance(o, torch.Tensor):
            return not bool(torch.isfinite(o).all())
        if isinstance(o, (tuple, list)):
            return any(bad(i) for i in o)
        return False

    hs = [m.register_forward_hook(lambda mod, i, o, n=n: order.append(n)) for n, m in model.named_modules()]
    model(batch)
    for h in hs:
        h.remove()
    for n in order:
        got = []
        h = model.get_submodule(n).register_forward_hook(lambda mod, i, o: got.append(bad(o)))
        model(batch)
        h.remove()
        if got[0]:
            return n
    return None


# %% rejected: looks_at_leaves_only
def first_nonfinite_module(model, batch):
    found = []

    def bad(o):
        if isinstance(o, torch.Tensor):
            return not bool(torch.isfinite(o).all())
        if isinstance(o, (tuple, list)):
            return any(bad(i) for i in o)
        return False

    hs = [
        m.register_forward_hook(lambda mod, i, o, n=n: found.append(n) if bad(o) else None)
        for n, m in model.named_modules()
        if not list(m.children())
    ]
    model(batch)
    for h in hs:
        h.remove()
    return found[0] if found else None


# %% rejected: leaves_hooks_behind
def first_nonfinite_module(model, batch):
    def bad(o):
        if isinstance(o, torch.Tensor):
            return not bool(torch.isfinite(o).all())
        if isinstance(o, (tuple, list)):
            return any(bad(i) for i in o)
        return False

    class Stop(Exception):
        pass

    def hook(m, i, o, n):
        if bad(o):
            raise Stop(n)

    hs = [m.register_forward_hook(lambda m, i, o, n=n: hook(m, i, o, n)) for n, m in model.named_modules()]
    try:
        model(batch)
    except Stop as e:
        return e.args[0]
    for h in hs:
        h.remove()
    return None
