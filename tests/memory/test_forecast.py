"""Models by configuration, `course memory`, and its table."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

from course_lib.commands.memory import command
from course_lib.memory import GPUS
from course_lib.memory.decoder import Decoder
from course_lib.memory.forecast import Setup, forecast, measure
from course_lib.memory.models import MODELS, find_model, read_config
from course_lib.memory.table import bar, stacked_bars

PUBLISHED = {  # the models' cards, or counted from their published weights
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-3-8b": 8_030_261_248,
    "qwen3-8b": 8_190_735_360,
    "gpt3": 174_604_259_328,
}

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}
GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100, "n_positions": 64}


@pytest.fixture
def config_file(tmp_path):
    def write(content) -> str:
        path = tmp_path / "config.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write


class TestModels:
    @pytest.mark.parametrize("name", PUBLISHED)
    def test_parameters_are_the_published_ones(self, name):
        with torch.device("meta"):
            model = Decoder(MODELS[name])
        assert MODELS[name].parameters == PUBLISHED[name] == sum(p.numel() for p in model.parameters())
        assert MODELS[name].source

    def test_a_decoder_computes(self):
        for content in (LLAMA, GPT2):
            config = read_config_of(content)
            for attention in ("naive", "sdpa"):
                torch.manual_seed(0)
                model = Decoder(config, attention=attention)
                logits = model(torch.arange(8).view(1, 8))
                assert logits.shape == (1, 8, 100)
                later = model(torch.tensor([[0, 1, 2, 3, 4, 5, 6, 99]]))
                torch.testing.assert_close(logits[:, :7], later[:, :7])  # causal

    @pytest.mark.parametrize("extra", [{}, {"tie_word_embeddings": True}, {"model_type": "qwen3", "head_dim": 32},
                                       {"model_type": "qwen2"}, {"model_type": "mistral"}])  # fmt: skip
    def test_reads_a_hugging_face_configuration(self, config_file, extra):
        config = find_model(config_file({**LLAMA, **extra}))
        assert (config.layers, config.hidden, config.kv_heads, config.vocab) == (2, 64, 2, 100)
        with torch.device("meta"):
            assert sum(p.numel() for p in Decoder(config).parameters()) == config.parameters

    @pytest.mark.parametrize("family, options", [("LlamaConfig", {}), ("Qwen2Config", {}), ("GPT2Config", {})])
    def test_counts_what_transformers_builds(self, config_file, family, options):
        transformers = pytest.importorskip("transformers", reason="needs the hf extra")
        content = GPT2 if family == "GPT2Config" else {k: v for k, v in LLAMA.items() if k != "model_type"}
        theirs = getattr(transformers, family)(**{k: v for k, v in content.items() if k != "model_type"}, **options)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(theirs)
        ours = find_model(config_file(theirs.to_json_string()))
        assert ours.parameters == sum(p.numel() for p in model.parameters())

    @pytest.mark.parametrize("content, message", [
        ("not json", "must be a JSON file"),
        ("[1]", "must hold a JSON object; got list"),
        ({"model_type": "mixtral"}, "model_type must be one of gpt2, llama.*got 'mixtral'"),
        ({}, "got None"),
        ({k: v for k, v in LLAMA.items() if k != "hidden_size"}, "must hold hidden_size"),
        ({**LLAMA, "num_hidden_layers": 0}, "layers must be a whole number"),
        ({**LLAMA, "num_key_value_heads": 3}, "multiple"),
        ({**GPT2, "n_embd": "wide"}, "whole number|unsupported"),
        ({**GPT2, "n_head": 0}, "whole number"),
        ({**GPT2, "n_layer": True}, "whole number"),
        ({**GPT2, "n_embd": 5, "n_head": 2}, "n_embd must be a multiple of n_head"),
        ({**GPT2, "n_layer": 100_000_000}, "layers must be at most"),
        ({**GPT2, "vocab_size": 10**20}, "parameters must be at most"),
        ({**GPT2, "tie_word_embeddings": "no"}, "tie_word_embeddings must be true or false"),
        ({**LLAMA, "head_dim": 3}, "head_dim must be even"),
    ])  # fmt: skip
    def test_refuses_what_it_cannot_build(self, config_file, content, message):
        with pytest.raises(ValueError, match=f"(?s){message}"):
            find_model(config_file(content))

    @pytest.mark.parametrize("text", ["[" * 100_000, '{"n_embd": ' + "9" * 5000 + "}", "{", "\ufeff{}"])
    def test_refuses_what_is_no_json(self, tmp_path, text):
        path = tmp_path / "config.json"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match="must be a JSON file"):
            find_model(str(path))


def read_config_of(content):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(content))
        return read_config(path)


class TestForecast:
    def test_the_t4_and_gpt2_medium(self):
        """The promise of the course's command: it does not fit, and two switches make it fit."""
        result = forecast(Setup(MODELS["gpt2-medium"], "T4", batch=8, seq=1024))
        assert not result.report.fits and result.error is not None
        assert result.error.phase == "forward" and result.error.module.startswith("blocks.")
        assert result.advice[0].change == "--precision fp16"
        assert result.advice[-1].report.fits
        peaks = [result.report.peak_bytes, *(advice.report.peak_bytes for advice in result.advice)]
        assert peaks == sorted(peaks, reverse=True)
        after = measure(Setup(MODELS["gpt2-medium"], "T4", batch=8, precision="fp16", checkpoint="blocks"))
        assert after.fits and after.peak_by_category["parameter"] == result.report.peak_by_category["parameter"]

    def test_accumulation_counts_the_gradients(self):
        tiny = read_config_of(GPT2)
        one, two, three = (measure(Setup(tiny, "T4", batch=2, seq=64, micro_batches=n)).peak_bytes for n in (1, 2, 3))
        assert one < two == three

    def test_the_8bit_optimizer_saves_three_quarters_of_the_moments(self):
        state = {
            name: measure(Setup(MODELS["gpt2"], "T4", seq=8, optimizer=name)).peak_by_category["optimizer state"]
            for name in ("adamw", "adamw8bit", "sgd")
        }
        assert state["adamw8bit"] / state["adamw"] == pytest.approx(0.25, abs=0.01)
        assert state["sgd"] == 0

    @pytest.mark.parametrize("options, message", [
        ({"precision": "bf16"}, "needs compute capability 8.0; T4 has 7.5. Use fp16"),
        ({"seq": 2048}, "seq must be at most 1024"),
        ({"batch": 0}, "batch must be 1 or more"),
        ({"precision": "fp8"}, "precision must be one of"),
        ({"batch": 10**12}, "batch must be at most"),
        ({"batch": 10**30}, "batch must be at most"),
    ])  # fmt: skip
    def test_refuses_impossible_setups(self, options, message):
        with pytest.raises(ValueError, match=message):
            Setup(MODELS["gpt2"], "T4", **options)


class TestCommand:
    def run(self, *arguments: str):
        return CliRunner().invoke(command, list(arguments))

    def test_says_that_it_fits(self, config_file):
        result = self.run(config_file(LLAMA), "--gpu", "A100-80GB", "--seq", "64", "--precision", "bf16")
        assert result.exit_code == 0, result.output
        assert "fits A100-80GB" in result.output and "P parameter" in result.output

    def test_says_where_it_does_not_fit_and_what_to_try(self):
        result = self.run("gpt2-medium", "--gpu", "T4", "--batch", "8", "--seq", "1024", "--precision", "fp32")
        assert result.exit_code == 0, result.output
        for part in ("does not fit T4: aten.", "asks for", "what to try", "--precision fp16", "usable on T4"):
            assert part in result.output

    def test_json(self, config_file):
        result = self.run(config_file(GPT2), "--seq", "64", "--json")
        data = json.loads(result.output)
        assert data["fits"] is True and data["out_of_memory"] is None and data["advice"] == []
        assert sum(data["peak_by_category"].values()) == data["peak_bytes"]
        assert data["setup"]["gpu"] == "T4" and data["capacity_bytes"] == GPUS["T4"].usable_bytes
        assert [phase["phase"] for phase in data["phases"]] == ["forward", "backward", "step"]

    @pytest.mark.parametrize("arguments, message", [
        (["nothing"], "model must be one of gpt2"),
        (["gpt2", "--gpu", "T5"], "gpu must be one of T4"),
        (["gpt2", "--batch", "0"], "batch"),
        (["gpt2", "--precision", "bf16"], "needs compute capability"),
        (["gpt2", "--seq", "5000"], "at most 1024"),
        (["gpt2", "--optimizer", "lion"], "lion"),
        (["gpt2", "--batch", "9" * 30], "batch must be at most"),
    ])  # fmt: skip
    def test_bad_input_ends_with_an_error_and_a_status(self, arguments, message):
        result = self.run(*arguments)
        assert result.exit_code != 0 and message in result.output
        assert "Traceback" not in result.output


class TestTable:
    def test_a_bar_is_as_wide_as_it_says(self):
        sizes = {"parameter": 10, "activation": 20}
        assert bar(sizes, 40, width=8) == "PPAAAA.."
        assert bar(sizes, 30, width=9) == "PPPAAAAAA"

    def test_the_figure_draws_each_category_once_and_the_capacity(self):
        reports = {
            name: measure(Setup(MODELS["gpt2"], "T4", batch=2, seq=256, checkpoint=name)) for name in ("none", "blocks")
        }
        figure = stacked_bars(reports, title="Checkpointing keeps less")
        axes = figure.axes[0]
        assert axes.get_xlim()[0] == 0
        assert {text.get_text() for text in figure.legends[0].get_texts()} <= set(reports["none"].peak_by_category)
        assert len(axes.lines) == 1
