# %% accepted: a table of operations
def attention_traffic_bytes(seq, head_dim, bytes_per_element):
    small, large = seq * head_dim, seq * seq
    table = {"scores": (2 * small, large), "softmax": (large, large), "out": (large + small, small)}
    return sum(reads + writes for reads, writes in table.values()) * bytes_per_element

# %% accepted: factored
def attention_traffic_bytes(seq, head_dim, bytes_per_element):
    return 4 * bytes_per_element * seq * (seq + head_dim)

# %% rejected: counts_scores_once
def attention_traffic_bytes(seq, head_dim, bytes_per_element):
    return seq * bytes_per_element * (4 * head_dim + seq)

# %% rejected: counts_scores_twice
def attention_traffic_bytes(seq, head_dim, bytes_per_element):
    qkv = 3 * seq * head_dim
    scores = seq**2
    return bytes_per_element * (qkv + scores + scores + seq * head_dim)

# %% rejected: counts_elements
def attention_traffic_bytes(seq, head_dim, bytes_per_element):
    return 4 * seq * (seq + head_dim)

# %% rejected: forgets_the_vectors
def attention_traffic_bytes(seq, head_dim, bytes_per_element):
    return (2 * seq) ** 2 * bytes_per_element

# %% rejected: forgets_the_output
def attention_traffic_bytes(seq, head_dim, bytes_per_element):
    return bytes_per_element * (3 * seq * head_dim + (2 * seq) ** 2)

# %% rejected: counts_flops
def attention_traffic_bytes(seq, head_dim, bytes_per_element):
    return 2 * (2 * seq * seq * head_dim)

# %% rejected: -
def attention_traffic_bytes(seq, head_dim, bytes_per_element):
    return (4 * seq * head_dim + 3 * seq * seq) * bytes_per_element

# %% rejected: -
def attention_traffic_bytes(seq, head_dim, bytes_per_element):
    return "4Nd + 4N^2"
