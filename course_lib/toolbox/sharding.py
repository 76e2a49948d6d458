"""Model state over several GPUs (ZeRO), and over the PCIe bus (offload)."""

from __future__ import annotations

PARAMETER_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 2, 12  # the paper's 2Ψ + 2Ψ + KΨ, K = 12 for Adam


def zero_bytes_per_gpu(n_params: int, n_gpus: int, stage: int) -> float:
    """Bytes of model state on each GPU under ZeRO.

    Args:
        n_params: the paper's Ψ.
        n_gpus: the paper's N_d, data-parallel.
        stage: 0 plain data parallelism; 1 shards the optimizer state; 2 gradients too; 3 parameters too.
    Raises:
        ValueError: the stage is not 0, 1, 2 or 3.
    Source: Rajbhandari et al. 2020, ZeRO, section 5 and Figure 1 (fp16 training with Adam, K = 12).
    """
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"stage must be 0, 1, 2 or 3; got {stage!r}.")
    optimizer = OPTIMIZER_BYTES / (n_gpus if stage >= 1 else 1)
    gradients = GRADIENT_BYTES / (n_gpus if stage >= 2 else 1)
    parameters = PARAMETER_BYTES / (n_gpus if stage >= 3 else 1)
    return n_params * (parameters + gradients + optimizer)


def offload_seconds(n_bytes: int, pcie_bytes_per_s: float, *, overlapped_s: float = 0.0) -> float:
    """Seconds that moving `n_bytes` to the CPU and back adds, when `overlapped_s` of compute can hide it.

    A model, not a measurement: it assumes pinned memory, and a bus that carries one direction at a time at full rate.
    """
    return max(0.0, 2 * n_bytes / pcie_bytes_per_s - overlapped_s)
