"""The GPUs of the course, as data: `GPUS["T4"].usable_bytes`. Every figure and its source: data/gpus.csv."""

from __future__ import annotations

import csv
from dataclasses import dataclass

import torch

from course_lib.data_files import data_path


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Attributes:
        name: key in `GPUS`, such as "A100-80GB".
        usable_bytes: what CUDA reports as total memory: less than the label, since the driver and ECC take a part.
        bandwidth_bytes_per_s: peak traffic between HBM (or GDDR) and the chip.
        fp32_flops, tf32_flops, fp16_flops, bf16_flops: peak dense rates (no sparsity), FLOP/s, with FP32 accumulation;
            0.0 where the hardware has no such units (bf16 on a T4 is emulated).
        capability: CUDA compute capability, such as (7, 5).
        sram_bytes: largest shared memory of one thread block (CUDA C++ Programming Guide, technical specifications).
        source, capacity_source: where the rates and the capacity are from.
    """

    name: str
    usable_bytes: int
    bandwidth_bytes_per_s: float
    fp32_flops: float
    tf32_flops: float
    fp16_flops: float
    bf16_flops: float
    capability: tuple[int, int]
    sram_bytes: int
    source: str
    capacity_source: str = ""

    @property
    def has_bf16(self) -> bool:
        """Whether bf16 runs in hardware: compute capability 8.0 and up.

        `torch.cuda.is_bf16_supported()` also counts emulation, and says yes on a T4.
        """
        return self.capability >= (8, 0)

    def peak_flops(self, dtype: torch.dtype) -> float:
        """Peak dense FLOP/s of matrix products in `dtype`; bf16 without units counts as fp32, which emulation uses."""
        if dtype == torch.float16:
            return self.fp16_flops
        if dtype == torch.bfloat16:
            return self.bf16_flops or self.fp32_flops
        return self.fp32_flops


def read_rows(name: str) -> list[dict[str, str]]:
    """Rows of a CSV file of data/; lines that start with # are comments."""
    with data_path(name).open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def _gpu(row: dict[str, str]) -> Gpu:
    major, minor = row["capability"].split(".")
    tera = 1e12
    return Gpu(
        name=row["name"],
        usable_bytes=int(row["usable_mib"]) * 2**20,
        bandwidth_bytes_per_s=float(row["bandwidth_gb_per_s"]) * 1e9,
        fp32_flops=float(row["fp32_tflops"]) * tera,
        tf32_flops=float(row["tf32_tflops"] or 0) * tera,
        fp16_flops=float(row["fp16_tflops"]) * tera,
        bf16_flops=float(row["bf16_tflops"] or 0) * tera,
        capability=(int(major), int(minor)),
        sram_bytes=int(row["sram_kib"]) * 1024,
        source=row["source"],
        capacity_source=row["capacity_source"],
    )


GPUS: dict[str, Gpu] = {row["name"]: _gpu(row) for row in read_rows("gpus.csv")}


def find_gpu(gpu: str | Gpu) -> Gpu:
    """The `Gpu` of a name, whatever its case; a `Gpu` is returned as it is.

    Raises:
        ValueError: no such GPU; the message lists those that there are.
    """
    if isinstance(gpu, Gpu):
        return gpu
    for name, found in GPUS.items():
        if str(gpu).lower() == name.lower():
            return found
    raise ValueError(f"gpu must be one of {', '.join(GPUS)}; got {gpu!r}.")
