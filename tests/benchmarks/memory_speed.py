"""How long a dry run takes, beside torch's own MemTracker doing the same work in the same process.

    python tests/benchmarks/memory_speed.py [--skip-mem-tracker] [--json FILE]

Aims, on two cores: a step of the 36-layer 8B model at 8,192 tokens below 5 s, one of GPT-2 medium below 1.5 s, both at
least five times as fast as MemTracker, with the same peak. This is a measurement, not a test: no test has a clock.

Both sides run the same step under fake tensors with CUDA's rules; ours also makes the model and the optimizer's state,
which MemTracker gets for nothing: its time counts one step.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from course_lib.memory import dry_run
from course_lib.memory.cuda_rules import cuda_rules
from course_lib.memory.decoder import Decoder
from course_lib.memory.models import MODELS

# name: (model, tokens, sequences, dtype of the weights, checkpointed, most seconds aimed at)
WORK = {
    "8B": ("qwen3-8b", 8192, 1, torch.bfloat16, False, 5.0),
    "8B, checkpointed": ("qwen3-8b", 8192, 1, torch.bfloat16, True, 5.0),
    "GPT-2 medium": ("gpt2-medium", 1024, 8, torch.float32, False, 1.5),
    "GPT-2 medium, checkpointed": ("gpt2-medium", 1024, 8, torch.float32, True, 1.5),
}
AIMED_RATIO = 5.0


def clocks():
    return time.perf_counter(), time.process_time()


def since(start):
    """(wall, CPU) seconds: on a busy machine the second is the one to compare."""
    return tuple(now - then for now, then in zip(clocks(), start, strict=True))


def make_step(name):
    """(build, step) of one row of `WORK`."""
    model_name, seq, batch, dtype, is_checkpointed, _ = WORK[name]

    def build():
        model = Decoder(MODELS[model_name], is_checkpointed=is_checkpointed, dtype=dtype)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        return model, optimizer, torch.zeros(batch, seq + 1, dtype=torch.long)

    def step(model, optimizer, tokens):
        optimizer.zero_grad()
        F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    return build, step


def time_mem_tracker(name):
    """((wall, CPU) seconds of one step, bytes at its peak) under torch.distributed._tools.mem_tracker."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    build, step = make_step(name)
    with cuda_rules(), FakeTensorMode():
        model, optimizer, tokens = build()
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()  # the optimizer's state, outside the measurement
        optimizer.zero_grad()
        tracker = MemTracker()
        tracker.track_external(model, optimizer, tokens)
        start = clocks()
        with tracker:
            step(model, optimizer, tokens)
        return since(start), tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]


def time_dry_run(name, tries=3):
    """((wall, CPU) seconds of the fastest whole dry run, bytes at its peak)."""
    build, step = make_step(name)
    seconds = []
    for _ in range(tries):
        start = clocks()
        report = dry_run(build, step)
        seconds.append(since(start))
    return min(seconds), report.peak_bytes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skip-mem-tracker", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(2)
    time_dry_run("GPT-2 medium", tries=1)  # the first optimizer imports a second's worth of modules
    rows = []
    for name, (*_, aim) in WORK.items():
        ours, our_peak = time_dry_run(name)
        row = {"work": name, "dry_run_s": round(ours[0], 2), "dry_run_cpu_s": round(ours[1], 2), "aim_s": aim}
        row["peak_bytes"] = our_peak
        line = f"{name:<27} dry run {ours[0]:5.2f} s ({ours[1]:5.2f} CPU; aim {aim}), {our_peak / 1e9:6.2f} GB"
        if not options.skip_mem_tracker:
            theirs, their_peak = time_mem_tracker(name)
            row |= {"mem_tracker_s": round(theirs[0], 2), "mem_tracker_cpu_s": round(theirs[1], 2)}
            row |= {"ratio": round(theirs[1] / ours[1], 1), "mem_tracker_peak_bytes": their_peak}
            line += f" | MemTracker {theirs[0]:6.2f} s ({theirs[1]:6.2f} CPU), {their_peak / 1e9:6.2f} GB"
            line += f" | ratio {theirs[1] / ours[1]:.1f} in CPU time (aim {AIMED_RATIO})"
        print(line, flush=True)
        rows.append(row)
    if options.json:
        machine = {"python": platform.python_version(), "torch": torch.__version__, "machine": platform.machine()}
        options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
