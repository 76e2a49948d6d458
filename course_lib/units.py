"""Units of memory: bytes are integers, GiB is 2**30 of them, GB is 10**9."""

__all__ = ["to_gib"]


def to_gib(num_bytes: int) -> float:
    """Bytes in GiB, the unit in which a GPU's memory and PyTorch's messages are counted.

    >>> to_gib(2**30)
    1.0
    """
    return num_bytes / 2**30
