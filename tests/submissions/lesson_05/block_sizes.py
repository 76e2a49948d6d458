# %% accepted: integer arithmetic
def block_sizes(sram_bytes, head_dim, bytes_per_element):
    elements = sram_bytes // bytes_per_element
    columns = -(-elements // (4 * head_dim))
    return (columns if columns < head_dim else head_dim), columns

# %% accepted: a list of tensors' items
def block_sizes(sram_bytes, head_dim, bytes_per_element):
    M = int(sram_bytes / bytes_per_element)
    quotient, rest = divmod(M, 4 * head_dim)
    bc = torch.tensor(quotient + (rest > 0))
    return [torch.minimum(bc, torch.tensor(head_dim)).item(), bc.item()]

# %% rejected: gives_one_tile_the_whole_memory
def block_sizes(sram_bytes, head_dim, bytes_per_element):
    rows = -(-(sram_bytes // bytes_per_element) // head_dim)
    return min(rows, head_dim), rows

# %% rejected: leaves_out_one_tile
def block_sizes(sram_bytes, head_dim, bytes_per_element):
    rows = -(-(sram_bytes // bytes_per_element) // (3 * head_dim))
    return min(rows, head_dim), rows

# %% rejected: takes_bytes_for_elements
def block_sizes(sram_bytes, head_dim, bytes_per_element):
    rows = -(-sram_bytes // (4 * head_dim))
    return min(rows, head_dim), rows

# %% rejected: rounds_down
def block_sizes(sram_bytes, head_dim, bytes_per_element):
    rows = int((sram_bytes / bytes_per_element) / (4 * head_dim))
    return min(rows, head_dim), rows

# %% rejected: swaps_the_pair
def block_sizes(sram_bytes, head_dim, bytes_per_element):
    columns = -(-(sram_bytes // bytes_per_element) // (4 * head_dim))
    return columns, min(columns, head_dim)

# %% rejected: forgets_the_cap
def block_sizes(sram_bytes, head_dim, bytes_per_element):
    columns = -(-(sram_bytes // bytes_per_element) // (4 * head_dim))
    return columns, columns

# %% rejected: -
def block_sizes(sram_bytes, head_dim, bytes_per_element):
    return 64


# %% rejected: -
def block_sizes(sram_bytes, head_dim, bytes_per_element):
    M = sram_bytes / bytes_per_element
    bc = math.ceil(M / (4*head_dim))
    return min(bc, head_dim), bc
