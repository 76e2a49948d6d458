"""Models by configuration, to ask how much memory they need: the GPT-2 family, GPT-3, and Llama-like ones.

`MODELS["qwen3-8b"]` comes from data/models.csv; `read_config` reads a Hugging Face config.json. `Decoder` is one model
for all of them, in the style of the `transformers` library: RMSNorm in float32, eager attention with a float32 softmax.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.memory.gpus import read_rows


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder.

    Attributes:
        name: key in `MODELS`, or the file's name.
        kind: "gpt2" (learned positions, LayerNorm, GELU, biases) or "llama" (rotary positions, RMSNorm, SwiGLU).
        layers, hidden, heads, kv_heads, head_dim, mlp_hidden, vocab: sizes in the papers' letters: L, h, a, -, d, f, v.
        positions: the longest sequence that it was made for, in tokens.
        tied: whether embedding and head are one tensor.
        qk_norm: whether queries and keys are normalised by head (Qwen 3).
        qkv_bias: biases in q, k and v of a llama kind (Qwen 2).
        source: where the sizes are from.
    """

    name: str
    kind: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_hidden: int
    vocab: int
    positions: int
    tied: bool
    qk_norm: bool = False
    qkv_bias: bool = False
    source: str = ""

    @property
    def parameters(self) -> int:
        """Number of parameters; a tied head counts once."""
        h, f = self.hidden, self.mlp_hidden
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        embeddings = self.vocab * h * (1 if self.tied else 2)
        if self.kind == "gpt2":
            block = h * (q + 2 * kv) + q + 2 * kv + q * h + h + 2 * h * f + f + h + 4 * h
            return embeddings + self.positions * h + self.layers * block + 2 * h
        block = h * (q + 2 * kv) + q * h + 3 * h * f + 2 * h
        block += 2 * self.head_dim if self.qk_norm else 0
        block += q + 2 * kv if self.qkv_bias else 0
        return embeddings + self.layers * block + h


def _model(row: dict[str, str]) -> ModelConfig:
    sizes = ("layers", "hidden", "heads", "kv_heads", "head_dim", "mlp_hidden", "vocab", "positions")
    flags = ("tied", "qk_norm")
    return ModelConfig(
        name=row["name"],
        kind=row["kind"],
        source=row["source"],
        **{name: int(row[name]) for name in sizes},  # type: ignore[arg-type]
        **{name: row[name] == "1" for name in flags},  # type: ignore[arg-type]
    )


MODELS: dict[str, ModelConfig] = {row["name"]: _model(row) for row in read_rows("models.csv")}

# Families whose blocks are what `Decoder` builds. Gemma, Phi, and mixtures of experts are not.
LLAMA_LIKE = ("llama", "mistral", "qwen2", "qwen3", "smollm3")


# Beyond these a configuration is broken rather than large; PyTorch counts bytes in 63 bits.
MAX_LAYERS = 10_000
MAX_PARAMETERS = 10**15


def find_model(name: str) -> ModelConfig:
    """A row of `MODELS` by its name, whatever its case, or a Hugging Face configuration by its path.

    Raises:
        ValueError: neither; or a configuration that `Decoder` cannot build.
    """
    for known, config in MODELS.items():
        if name.lower() == known.lower():
            return config
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.is_file():
        return read_config(path)
    raise ValueError(f"model must be one of {', '.join(MODELS)}, or the path of a config.json; got {name!r}.")


def read_config(path: str | Path) -> ModelConfig:
    """The shape in a Hugging Face config.json.

    Raises:
        ValueError: not JSON, a family that `Decoder` cannot build, or a size missing.
    """
    path = Path(path)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be a JSON file; {error}.") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path} must hold a JSON object; got {type(config).__name__}.")
    family = config.get("model_type")
    name = str(config.get("_name_or_path") or path.parent.name or family)
    if family == "gpt2":
        shape = _gpt2_shape(config, path)
    elif family in LLAMA_LIKE:
        shape = _llama_shape(config, path, str(family))
    else:
        raise ValueError(
            f"{path}: model_type must be one of gpt2, {', '.join(LLAMA_LIKE)}; got {family!r}. "
            "Other families have other blocks; use dry_run with the model itself."
        )
    for size in ("layers", "hidden", "heads", "kv_heads", "head_dim", "mlp_hidden", "vocab", "positions"):
        _size(shape[size], path, size)
    if shape["heads"] % shape["kv_heads"]:
        raise ValueError(
            f"{path}: heads must be a multiple of key-value heads; got {shape['heads']}, {shape['kv_heads']}."
        )
    if shape["kind"] == "llama" and shape["head_dim"] % 2:
        raise ValueError(f"{path}: head_dim must be even for rotary positions; got {shape['head_dim']}.")
    if not isinstance(shape["tied"], bool):
        raise ValueError(f"{path}: tie_word_embeddings must be true or false; got {shape['tied']!r}.")
    if shape["layers"] > MAX_LAYERS:
        raise ValueError(f"{path}: layers must be at most {MAX_LAYERS:,}; got {shape['layers']}.")
    model = ModelConfig(name=name, source=str(path), **shape)
    if model.parameters > MAX_PARAMETERS:
        raise ValueError(f"{path}: parameters must be at most {MAX_PARAMETERS:,}; got {model.parameters}.")
    return model


def _need(config: dict[str, Any], path: Path, key: str) -> int:
    """A size that must be there."""
    if key not in config:
        raise ValueError(f"{path} must hold {key}; it is missing.")
    return _size(config[key], path, key)


def _size(value: Any, path: Path, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{path}: {key} must be a whole number of 1 or more; got {value!r}.")
    return value


def _gpt2_shape(config: dict[str, Any], path: Path) -> dict[str, Any]:
    hidden, heads = _need(config, path, "n_embd"), _need(config, path, "n_head")
    if hidden % heads:
        raise ValueError(f"{path}: n_embd must be a multiple of n_head; got {hidden}, {heads}.")
    return {
        "kind": "gpt2",
        "layers": _need(config, path, "n_layer"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": hidden // heads,
        "mlp_hidden": config.get("n_inner") or 4 * hidden,
        "vocab": _need(config, path, "vocab_size"),
        "positions": config.get("n_positions") or config.get("n_ctx") or 1024,
        "tied": config.get("tie_word_embeddings", True),
    }


def _llama_shape(config: dict[str, Any], path: Path, family: str) -> dict[str, Any]:
    hidden, heads = _need(config, path, "hidden_size"), _need(config, path, "num_attention_heads")
    return {
        "kind": "llama",
        "layers": _need(config, path, "num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or hidden // heads,
        "mlp_hidden": _need(config, path, "intermediate_size"),
        "vocab": _need(config, path, "vocab_size"),
        "positions": config.get("max_position_embeddings") or 2048,
        "tied": config.get("tie_word_embeddings", False),
        "qk_norm": family == "qwen3",
        "qkv_bias": family == "qwen2" or bool(config.get("attention_bias", False)),
    }
