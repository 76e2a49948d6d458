# %% accepted: a loop
def best_segment_count(n_layers, boundary_bytes, layer_bytes):
    best, best_peak = None, None
    for k in range(1, n_layers + 1):
        peak = k * boundary_bytes + math.ceil(n_layers / k) * layer_bytes
        if best is None or peak < best_peak:
            best, best_peak = k, peak
    return best


# %% accepted: over the layers in a segment
def best_segment_count(n_layers, boundary_bytes, layer_bytes):
    candidates = {}
    for per_segment in range(1, n_layers + 1):
        k = -(-n_layers // per_segment)
        candidates[k] = k * boundary_bytes + -(-n_layers // k) * layer_bytes
    lowest = min(candidates.values())
    return min(k for k, peak in candidates.items() if peak == lowest)


# %% accepted: torch
def best_segment_count(n_layers, boundary_bytes, layer_bytes):
    k = torch.arange(1, n_layers + 1)
    peak = k * boundary_bytes + (n_layers + k - 1) // k * layer_bytes
    return int((peak == peak.min()).nonzero()[0]) + 1


# %% rejected: always_square_root
def best_segment_count(n_layers, boundary_bytes, layer_bytes):
    return max(1, round(n_layers**0.5))


# %% rejected: always_square_root
def best_segment_count(n_layers, boundary_bytes, layer_bytes):
    return math.isqrt(n_layers)


# %% rejected: largest_on_ties
def best_segment_count(n_layers, boundary_bytes, layer_bytes):
    best = 1
    cost = boundary_bytes + n_layers * layer_bytes
    for k in range(2, n_layers + 1):
        here = k * boundary_bytes + math.ceil(n_layers / k) * layer_bytes
        if here <= cost:
            best, cost = k, here
    return best


# %% rejected: layers_divide_evenly
def best_segment_count(n_layers, boundary_bytes, layer_bytes):
    peaks = [k * boundary_bytes + n_layers * layer_bytes / k for k in range(1, n_layers + 1)]
    return peaks.index(min(peaks)) + 1


# %% rejected: layers_divide_evenly
def best_segment_count(n_layers, boundary_bytes, layer_bytes):
    peaks = [k * boundary_bytes + int(n_layers / k) * layer_bytes for k in range(1, n_layers + 1)]
    return peaks.index(min(peaks)) + 1


# %% rejected: layers_divide_evenly
def best_segment_count(n_layers, boundary_bytes, layer_bytes):
    return min(n_layers, max(1, round(math.sqrt(n_layers * layer_bytes / boundary_bytes))))


# %% rejected: returns_layers_in_a_segment
def best_segment_count(n_layers, boundary_bytes, layer_bytes):
    best = min(range(1, n_layers + 1), key=lambda k: k * boundary_bytes + -(-n_layers // k) * layer_bytes)
    return -(-n_layers // best)


# %% rejected: every_layer_its_own_segment
def best_segment_count(n_layers, boundary_bytes, layer_bytes):
    return n_layers


# %% rejected: -
def best_segment_count(n_layers, boundary_bytes, layer_bytes):
    # stops one short
    return min(range(1, n_layers), key=lambda k: k * boundary_bytes + -(-n_layers // k) * layer_bytes)
