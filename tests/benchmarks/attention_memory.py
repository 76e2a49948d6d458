"""Peak bytes of standard and of tiled attention over sequence lengths, forward and backward.

    python tests/benchmarks/attention_memory.py

One head of dimension 16, float32, tiles of 32 rows, causal: bytes of tensor storage beside q, k and v. Standard
attention grows with the square of the length, tiled attention with the length.
"""

import torch

from course_lib.attention import FlashAttention, naive_attention
from course_lib.memory import MemoryLedger

LENGTHS = (256, 512, 1024, 2048, 4096)


def peak_bytes(attend, length: int) -> int:
    """Peak through forward and backward beside the inputs."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, length, 16, generator=generator).requires_grad_() for _ in range(3))
    with MemoryLedger() as ledger:
        attend(q, k, v).backward(torch.ones(1, 1, length, 16))
    return ledger.peak_bytes


def main() -> None:
    ways = {
        "standard": lambda q, k, v: naive_attention(q, k, v, True),
        "tiled": lambda q, k, v: FlashAttention.apply(q, k, v, True, 32, 32),
    }
    print(f"{'length':>7} {'standard':>13} {'growth':>7} {'tiled':>13} {'growth':>7} {'ratio':>7}")
    before: dict[str, int] = {}
    for length in LENGTHS:
        peaks = {name: peak_bytes(attend, length) for name, attend in ways.items()}
        cells = [f"{peaks[name]:13,} {f'x{peaks[name] / before[name]:.2f}' if before else '':>7}" for name in ways]
        print(f"{length:7,} {cells[0]} {cells[1]} {peaks['standard'] / peaks['tiled']:7.1f}")
        before = peaks


if __name__ == "__main__":
    main()
