# %% accepted: a list of storages, made unique by address at the end
def saved_activation_bytes(forward):
    storages = []

    def pack(tensor):
        base = tensor._base
        is_weight = (tensor.is_leaf and tensor.requires_grad) or (base is not None and base.is_leaf and base.requires_grad)
        if not is_weight:
            storages.append(tensor.untyped_storage())
        return tensor

    def unpack(tensor):
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = forward()
    unique = {}
    for storage in storages:
        unique[storage.data_ptr()] = storage.nbytes()
    del y
    return sum(unique.values())


# %% accepted: a class that remembers tensors
class Memory:
    def __init__(self):
        self.tensors = {}

    def pack(self, t):
        self.tensors.setdefault(t.untyped_storage().data_ptr(), []).append(t)
        return t


def saved_activation_bytes(forward):
    memory = Memory()
    with torch.autograd.graph.saved_tensors_hooks(memory.pack, lambda t: t):
        out = forward()
    assert out is not None
    total = 0
    for tensors in memory.tensors.values():
        owners = [t if t._base is None else t._base for t in tensors]
        if any(o.requires_grad and o.is_leaf for o in owners):
            continue
        total += tensors[0].untyped_storage().size()
    return float(total)


# %% accepted: walks the graph afterwards instead of hooking
def saved_activation_bytes(forward):
    seen = {}
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (t, seen.setdefault(id(t), t))[0], lambda t: t):
        root = forward()
    bytes_of = {}
    for t in seen.values():
        owner = t._base if t._is_view() else t
        if owner.requires_grad and owner.grad_fn is None:
            continue
        storage = t.untyped_storage()
        bytes_of[storage.data_ptr()] = storage.nbytes()
    return sum(bytes_of.values()) if root is not None else 0


# %% rejected: counts_views_twice
def saved_activation_bytes(forward):
    total = [0]

    def pack(t):
        owner = t if t._base is None else t._base
        if not (owner.is_leaf and owner.requires_grad):
            total[0] += t.numel() * t.element_size()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        forward()
    return total[0]


# %% rejected: counts_views_twice
def saved_activation_bytes(forward):
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (sizes.append((t, t.untyped_storage().nbytes())), t)[1], lambda t: t):
        out = forward()
    return sum(n for t, n in sizes if not (t.is_leaf and t.requires_grad) and not (t._base is not None and t._base.is_leaf and t._base.requires_grad))


# %% rejected: counts_parameters
def saved_activation_bytes(forward):
    kept = {}

    def pack(t):
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = forward()
    return sum(s.nbytes() for s in kept.values())


# %% rejected: counts_views_of_parameters
def saved_activation_bytes(forward):
    kept = {}

    def pack(t):
        if t.is_leaf and t.requires_grad:
            return t
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = forward()
    return sum(s.nbytes() for s in kept.values())


# %% rejected: counts_the_view_not_the_storage
def saved_activation_bytes(forward):
    kept = {}

    def pack(t):
        owner = t._base if t._base is not None else t
        if not (owner.is_leaf and owner.requires_grad) and t.untyped_storage().data_ptr() not in kept:
            kept[t.untyped_storage().data_ptr()] = t
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = forward()
    return sum(t.numel() * t.element_size() for t in kept.values())


# %% rejected: lets_addresses_be_reused
def saved_activation_bytes(forward):
    sizes = {}

    def pack(t):
        owner = t._base if t._base is not None else t
        if not (owner.is_leaf and owner.requires_grad):
            sizes[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return None

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        forward()
    return sum(sizes.values())


# %% rejected: -
def saved_activation_bytes(forward):
    return forward().untyped_storage().nbytes()


# %% rejected: -
def saved_activation_bytes(forward):
    # elements, not bytes
    kept = {}

    def pack(t):
        owner = t._base if t._base is not None else t
        if not (owner.is_leaf and owner.requires_grad):
            kept[t.untyped_storage().data_ptr()] = (t, t.untyped_storage().nbytes() // t.element_size())
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = forward()
    return sum(n for _, n in kept.values())


# %% rejected: counts_floats_only
def saved_activation_bytes(forward):
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        out = forward()
    total, seen = 0, set()
    for t in saved:
        base = t._base if t._base is not None else t
        if (base.is_leaf and base.requires_grad) or t.dtype in (torch.bool, torch.int64):
            continue
        storage = t.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            total += storage.nbytes()
    return total
