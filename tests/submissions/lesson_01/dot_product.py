# %% accepted: element by element
def dot_product(x, y, accumulate_dtype):
    x, y = x.to(accumulate_dtype), y.to(accumulate_dtype)
    total = x[0] * y[0]
    for i in range(1, len(x)):
        total += x[i] * y[i]
    return total

# %% accepted: Python floats, rounded by a cast after each operation
def dot_product(x, y, accumulate_dtype):
    def rounded(value):
        return torch.tensor(value, dtype=torch.float32).to(accumulate_dtype).item()

    total = 0.0
    for a, b in zip(x.to(accumulate_dtype).tolist(), y.to(accumulate_dtype).tolist()):
        total = rounded(total + rounded(a * b))
    return torch.tensor(total, dtype=accumulate_dtype)

# %% accepted: functools.reduce over the products
import functools, operator

def dot_product(x, y, accumulate_dtype):
    products = torch.mul(x.type(accumulate_dtype), y.type(accumulate_dtype)).unbind()
    return functools.reduce(operator.add, products, torch.tensor(0, dtype=accumulate_dtype))

# %% rejected: uses_torch_dot
def dot_product(x, y, accumulate_dtype):
    return x.to(accumulate_dtype) @ y.to(accumulate_dtype)

# %% rejected: uses_torch_sum
def dot_product(x, y, accumulate_dtype):
    return torch.sum(torch.mul(x.to(accumulate_dtype), y.to(accumulate_dtype)))

# %% rejected: rounds_once
def dot_product(x, y, accumulate_dtype):
    a, b = x.to(accumulate_dtype).to(torch.float32), y.to(accumulate_dtype).to(torch.float32)
    total = torch.tensor(0.0)
    for i in range(len(a)):
        total += a[i] * b[i]
    return total.type(accumulate_dtype)

# %% rejected: casts_at_the_end
def dot_product(x, y, accumulate_dtype):
    return (x @ y).to(accumulate_dtype)

# %% rejected: exact_products
def dot_product(x, y, accumulate_dtype):
    x, y = x.to(accumulate_dtype).double(), y.to(accumulate_dtype).double()
    total = torch.zeros((), dtype=accumulate_dtype)
    for i in range(len(x)):
        total = torch.addcmul(total.double(), x[i], y[i]).to(accumulate_dtype)
    return total

# %% rejected: casts_products_only
def dot_product(x, y, accumulate_dtype):
    total = torch.zeros((), dtype=accumulate_dtype)
    for i in range(len(x)):
        total = total + (x[i] * y[i]).to(accumulate_dtype)
    return total

# %% rejected: other_order
def dot_product(x, y, accumulate_dtype):
    x, y = x.to(accumulate_dtype), y.to(accumulate_dtype)
    total = torch.zeros((), dtype=accumulate_dtype)
    for i in reversed(range(len(x))):
        total = total + x[i] * y[i]
    return total

# %% rejected: -
def dot_product(x, y, accumulate_dtype):
    # pairwise
    p = x.to(accumulate_dtype) * y.to(accumulate_dtype)
    while len(p) > 1:
        if len(p) % 2:
            p = torch.cat([p, torch.zeros(1, dtype=p.dtype)])
        p = p[::2] + p[1::2]
    return p[0]

# %% rejected: -
def dot_product(x, y, accumulate_dtype):
    # Kahan: too good
    total = torch.zeros((), dtype=accumulate_dtype)
    lost = torch.zeros((), dtype=accumulate_dtype)
    for p in x.to(accumulate_dtype) * y.to(accumulate_dtype):
        p = p - lost
        new = total + p
        lost = (new - total) - p
        total = new
    return total

# %% rejected: -
def dot_product(x, y, accumulate_dtype):
    total = 0.0
    for a, b in zip(x.to(accumulate_dtype), y.to(accumulate_dtype)):
        total = total + (a * b).item()
    return total

# %% rejected: -
def dot_product(x, y, accumulate_dtype):
    # right, but of shape (1,)
    total = torch.zeros(1, dtype=accumulate_dtype)
    for p in x.to(accumulate_dtype) * y.to(accumulate_dtype):
        total = total + p
    return total


# %% rejected: -
def dot_product(x, y, accumulate_dtype):
    x, y = x.to(accumulate_dtype), y.to(accumulate_dtype)
    x.mul_(y)
    t = torch.zeros((), dtype=accumulate_dtype)
    for a in x:
        t = t + a
    return t
