# %% accepted: format, None by hand, a context of handles
def collect_failures(model, batches):
    found = []
    for x in batches:
        with torch.no_grad():
            try:
                model(x)
            except RuntimeError as e:
                found += [f"{e}"]
        del x
    return found


def train_and_release(model, optimizer, batches, loss_fn):
    out = []
    for x, y in batches:
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        for p in model.parameters():
            p.grad = None
        out.append(float(loss))
        del loss
    return out


def activation_norms(model, inputs):
    result, handles = {}, []
    for name, m in model.named_modules():
        if type(m) is nn.Linear:
            handles.append(m.register_forward_hook(lambda m, a, o, name=name: result.update({name: o.norm().item()})))
    model(inputs)
    [h.remove() for h in handles]
    return result

# %% accepted: e.args, autograd.grad, wrapped forward
def collect_failures(model, batches):
    def message(x):
        try:
            model(x)
        except RuntimeError as e:
            return e.args[0]

    return [m for m in map(message, batches) if m is not None]


def train_and_release(model, optimizer, batches, loss_fn):
    def one(x, y):
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return [one(x, y) for x, y in batches]


def activation_norms(model, inputs):
    norms = {}
    try:
        handles = {n: m.register_forward_hook(lambda m, i, o, n=n: norms.__setitem__(n, float(o.detach().double().pow(2).sum().sqrt()))) for n, m in model.named_modules() if isinstance(m, nn.Linear)}
        with torch.inference_mode():
            model(inputs)
    finally:
        for h in handles.values():
            h.remove()
    return norms

# %% rejected: keeps_the_exception
def collect_failures(model, batches):
    kept = []
    for x in batches:
        try:
            model(x)
        except RuntimeError as e:
            kept.append(e)
    return kept


def train_and_release(model, optimizer, batches, loss_fn):
    out = []
    for x, y in batches:
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        out.append(loss.item())
        del loss
    return out


def activation_norms(model, inputs):
    result, handles = {}, []
    for name, m in model.named_modules():
        if isinstance(m, nn.Linear):
            handles.append(m.register_forward_hook(lambda m, a, o, name=name: result.update({name: o.norm().item()})))
    model(inputs)
    [h.remove() for h in handles]
    return result

# %% rejected: zeroes_instead_of_releasing
def collect_failures(model, batches):
    return [m for m in (_try(model, x) for x in batches) if m]


def _try(model, x):
    try:
        model(x)
    except RuntimeError as e:
        return str(e)


def train_and_release(model, optimizer, batches, loss_fn):
    out = []
    for x, y in batches:
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        out.append(loss.item())
        del loss
    return out


def activation_norms(model, inputs):
    result, handles = {}, []
    for name, m in model.named_modules():
        if isinstance(m, nn.Linear):
            handles.append(m.register_forward_hook(lambda m, a, o, name=name: result.update({name: o.norm().item()})))
    model(inputs)
    [h.remove() for h in handles]
    return result

# %% rejected: leaves_the_hooks
def collect_failures(model, batches):
    return [m for m in (_try(model, x) for x in batches) if m]


def _try(model, x):
    try:
        model(x)
    except RuntimeError as e:
        return str(e)


def train_and_release(model, optimizer, batches, loss_fn):
    out = []
    for x, y in batches:
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        out.append(loss.item())
        del loss
    return out


def activation_norms(model, inputs):
    result = {}
    for name, m in model.named_modules():
        if isinstance(m, nn.Linear):
            m.register_forward_hook(lambda m, a, o, name=name: result.update({name: o.norm().item()}))
    model(inputs)
    return result

# %% rejected: -
# Everything is kept: exceptions, losses with their graphs, activations.
def collect_failures(model, batches):
    kept = []
    for x in batches:
        try:
            model(x)
        except RuntimeError as e:
            kept.append(e)
    return kept


def train_and_release(model, optimizer, batches, loss_fn):
    out = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        out.append(loss)
    return out


def activation_norms(model, inputs):
    result = {}
    for name, m in model.named_modules():
        if isinstance(m, nn.Linear):
            m.register_forward_hook(lambda m, a, o, name=name: result.update({name: o}))
    model(inputs)
    return {k: v.norm() for k, v in result.items()}


# %% rejected: -
def train_and_release(model, optimizer, batches, loss_fn):
    losses = []
    for x, t in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(model(x), t); loss.backward(); optimizer.step()
        losses.append(loss.item()); del loss
        optimizer.zero_grad(set_to_none=True)
    return losses


def activation_norms(model, inputs):
    norms, handles = {}, []
    def mk(name):
        def hook(m, a, o): norms[name] = o.detach().norm().item()
        return hook
    for name, m in model.named_modules():
        if isinstance(m, nn.Linear): handles.append(m.register_forward_hook(mk(name)))
    try:
        with torch.no_grad(): model(inputs)
    finally:
        for h in handles: h.remove()
    return norms


def collect_failures(model, batches):
    out = []
    for b in batches:
        try: model(b)
        except Exception as e: out.append(str(e))
    return out


# %% rejected: -
def collect_failures(model, batches):
    out = []
    for b in batches:
        try: model(b)
        except RuntimeError as e: out.append(str(e))
    return out


def train_and_release(model, optimizer, batches, loss_fn):
    losses = []
    for x, t in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(model(x), t); loss.backward(); optimizer.step()
        losses.append(loss.item()); del loss
        optimizer.zero_grad(set_to_none=True)
    return losses


def activation_norms(model, inputs):
    norms, handles = {}, []
    def mk(name):
        def hook(m, a, o): norms[name] = o.detach().norm().item()
        return hook
    for name, m in model.named_children():
        if isinstance(m, nn.Linear): handles.append(m.register_forward_hook(mk(name)))
    model(inputs)
    for h in handles: h.remove()
    return norms


# %% rejected: -
def collect_failures(model, batches):
    out = []
    for b in batches:
        try: model(b)
        except RuntimeError as e: out.append(str(e))
    return out


def train_and_release(model, optimizer, batches, loss_fn):
    losses = []
    for x, t in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(model(x), t); loss.backward(); optimizer.step()
        losses.append(loss.item()); del loss
        optimizer.zero_grad(set_to_none=True)
    return losses


def activation_norms(model, inputs):
    norms = {}
    for name, m in model.named_modules():
        if isinstance(m, nn.Linear):
            def hook(mm, a, o, name=name): norms[name] = o.detach().norm().item()
            h = m.register_forward_hook(hook); model(inputs); h.remove()
    return norms


# %% rejected: -
def collect_failures(model, batches):
    out = []
    for b in batches:
        try: model(b)
        except RuntimeError as e: out.append(str(e))
    return out


def train_and_release(model, optimizer, batches, loss_fn):
    losses = []
    for x, t in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(model(x), t); loss.backward(); optimizer.step()
        losses.append(loss.item()); del loss
        optimizer.zero_grad(set_to_none=True)
    return losses


def activation_norms(model, inputs):
    norms, handles = {}, []
    torch.set_grad_enabled(False)
    def mk(name):
        def hook(m, a, o): norms[name] = o.detach().norm().item()
        return hook
    for name, m in model.named_modules():
        if isinstance(m, nn.Linear): handles.append(m.register_forward_hook(mk(name)))
    model(inputs)
    for h in handles: h.remove()
    return norms
