"""The box of tools that make a training step fit, each readable alone.

| module | tool |
| --- | --- |
| `accumulation` | gradients over micro-batches, weighted by valid tokens; evaluation that keeps nothing |
| `chunked_loss` | cross-entropy over a large vocabulary, a few tokens at a time |
| `eight_bit` | block-wise quantisation and an AdamW on it |
| `backward_step` | an optimizer that steps inside backward |
| `sharding` | ZeRO's bytes a GPU; the price of offload |
| `allocator` | a small caching allocator: allocated, reserved, used, and fragmentation |
| `leaks` | small programs that leak, and the same programs mended |
| `step_bytes` | a step's memory predicted from the configuration |
| `plans` | a `Plan`, a `Level`, and the judge that says whether it fits and what it costs |
| `capstone` | one step of the capstone |
"""

import importlib

_HOME_OF = {
    "accumulate_gradients": "accumulation",
    "mean_loss": "accumulation",
    "chunked_cross_entropy": "chunked_loss",
    "AdamW8bit": "eight_bit",
    "dequantize_blockwise": "eight_bit",
    "quantize_blockwise": "eight_bit",
    "step_in_backward": "backward_step",
    "offload_seconds": "sharding",
    "zero_bytes_per_gpu": "sharding",
    "CachingAllocator": "allocator",
    "activation_norms": "leaks",
    "collect_failures": "leaks",
    "train_and_release": "leaks",
    "StepConfig": "step_bytes",
    "predict_step_bytes": "step_bytes",
    "Level": "plans",
    "Plan": "plans",
    "Trial": "plans",
    "make_optimizer": "plans",
    "predicted_seconds": "plans",
    "step_report": "plans",
    "try_plan": "plans",
    "LEVELS": "levels",
    "fit_on_gpu": "levels",
    "CAPSTONE_CONFIG": "capstone",
    "CAPSTONE_GLOBAL_BATCH": "capstone",
    "CAPSTONE_GPU": "capstone",
    "capstone_plan": "capstone",
    "capstone_step": "capstone",
    "hidden_states": "capstone",
}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str):
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
