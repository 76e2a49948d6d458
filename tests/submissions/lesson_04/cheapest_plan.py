# %% accepted: all subsets by itertools
from itertools import combinations


def cheapest_plan(layer_bytes, layer_flops, budget):
    n = len(layer_bytes)
    best, best_cost = None, None
    total = sum(layer_bytes)
    for size in range(n + 1):
        for plan in combinations(range(n), size):
            cost = sum(layer_flops[i] for i in plan)
            if (best_cost is None or cost < best_cost) and total - sum(layer_bytes[i] for i in plan) <= budget:
                best, best_cost = set(plan), cost
    return best


# %% accepted: dynamic programming over bytes
def cheapest_plan(layer_bytes, layer_flops, budget):
    table = {0: (0.0, frozenset())}  # bytes kept -> most work spared, layers kept
    for i, (size, flops) in enumerate(zip(layer_bytes, layer_flops)):
        for kept, (spared, layers) in sorted(table.items(), reverse=True):
            if kept + size <= budget:
                old = table.get(kept + size, (-1.0, frozenset()))
                table[kept + size] = max(old, (spared + flops, layers | {i}), key=lambda pair: pair[0])
    _, keep = max(table.values(), key=lambda pair: pair[0])
    return set(range(len(layer_bytes))) - keep


# %% accepted: recursion, returns a list
def cheapest_plan(layer_bytes, layer_flops, budget):
    def search(i, left):
        if i == len(layer_bytes):
            return 0.0, []
        cost, plan = search(i + 1, left)
        best = cost + layer_flops[i], [i, *plan]
        if layer_bytes[i] <= left:
            other = search(i + 1, left - layer_bytes[i])
            best = min(best, other, key=lambda pair: pair[0])
        return best

    return sorted(search(0, budget)[1])


# %% rejected: greedy_by_size
def cheapest_plan(layer_bytes, layer_flops, budget):
    order = sorted(enumerate(layer_bytes), key=lambda pair: pair[1], reverse=True)
    kept, plan = sum(layer_bytes), set()
    while kept > budget:
        i, size = order.pop(0)
        plan.add(i)
        kept -= size
    return plan


# %% rejected: greedy_by_ratio
def cheapest_plan(layer_bytes, layer_flops, budget):
    order = sorted(range(len(layer_bytes)), key=lambda i: layer_flops[i] / layer_bytes[i] if layer_bytes[i] else float("inf"))
    kept, plan = sum(layer_bytes), set()
    for i in order:
        if kept > budget:
            plan.add(i)
            kept -= layer_bytes[i]
    return plan


# %% rejected: names_what_is_kept
def cheapest_plan(layer_bytes, layer_flops, budget):
    n = len(layer_bytes)
    fits = [m for m in range(2**n) if sum(layer_bytes[i] for i in range(n) if m >> i & 1) <= budget]
    best = max(fits, key=lambda m: sum(layer_flops[i] for i in range(n) if m >> i & 1))
    return {i for i in range(n) if best >> i & 1}


# %% rejected: recomputes_everything
def cheapest_plan(layer_bytes, layer_flops, budget):
    return set(range(len(layer_bytes)))


# %% rejected: budget_for_the_recomputed
def cheapest_plan(layer_bytes, layer_flops, budget):
    plan, used = set(), 0
    for i in sorted(range(len(layer_bytes)), key=lambda i: layer_flops[i]):
        if used + layer_bytes[i] <= budget:
            plan.add(i)
            used += layer_bytes[i]
    return plan


# %% rejected: -
def cheapest_plan(layer_bytes, layer_flops, budget):
    # fewest layers, whatever they cost; smallest that is enough
    n = len(layer_bytes)
    for size in range(n + 1):
        for plan in __import__("itertools").combinations(range(n), size):
            if sum(layer_bytes) - sum(layer_bytes[i] for i in plan) <= budget:
                return set(plan)


# %% rejected: recomputes_nothing
def cheapest_plan(layer_bytes, layer_flops, budget):
    return set()


# %% rejected: -
def cheapest_plan(layer_bytes, layer_flops, budget):
    return budget
