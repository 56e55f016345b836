"""The estimate against what is known of gpt-oss-20b, and against transformers' own count."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError
from context_agent.train.config import LoraConfig
from context_agent.train.estimate import (
    GB,
    MOMENT_BYTES,
    TRAINED_BYTES,
    activation_bytes,
    adapter_parameters,
    attention_score_bytes,
    estimate_run,
    lessons_cost,
    memory_needs,
    step_cost,
)
from context_agent.train.model_shape import KNOWN
from context_agent.train.row_files import write_row_folder
from context_agent.train.rows import TrainingRow
from context_agent.train.run_file import parse_run, read_run

OSS = KNOWN["openai/gpt-oss-20b"]
EXPERTS = LoraConfig(parameters=("mlp.experts.gate_up_proj", "mlp.experts.down_proj"))


def run(**tables: Any) -> Any:
    base = {"model": {"name": "openai/gpt-oss-20b", "lora": asdict(EXPERTS)}, "data": {}}
    return parse_run({**base, **tables})


def test_weights_as_they_are_published() -> None:
    assert OSS.parameters / 1e9 == pytest.approx(20.9, abs=0.05)
    assert OSS.parameters * 2 / GB == pytest.approx(41.8, abs=0.1), "dequantised, in BF16"
    assert OSS.active / 1e9 == pytest.approx(3.6, abs=0.05), "as its makers say"
    assert KNOWN["openai/gpt-oss-120b"].parameters / 1e9 == pytest.approx(116.8, abs=0.3)
    assert KNOWN["Qwen/Qwen3-4B"].parameters / 1e9 == pytest.approx(4.02, abs=0.02)


def test_states_of_a_full_fine_tune_and_the_scores_of_eager_attention() -> None:
    assert OSS.parameters * (2 * TRAINED_BYTES + MOMENT_BYTES) / GB == pytest.approx(335, abs=1)
    assert attention_score_bytes(OSS, 8_192, 2) / 2**30 == pytest.approx(8)
    full = run(model={"name": "openai/gpt-oss-20b", "attention": "flash_attention_4"})
    parts = memory_needs(full, OSS, ranks=8, sharded=True).parts
    assert (parts["weights"] + parts["gradients"] + parts["optimizer"]) * 8 / GB == pytest.approx(335, abs=1)


def test_the_peak_of_lora_at_the_whole_window_is_what_was_estimated_by_hand() -> None:
    model = {"name": "openai/gpt-oss-20b", "lora": asdict(EXPERTS), "attention": "flash_attention_4"}
    needs = memory_needs(run(model=model, engine={"kind": "vllm"}), OSS)
    assert 55 <= sum(needs.parts.values()) / GB <= 70
    assert needs.server["weights"] / GB == pytest.approx(42, abs=0.5)
    assert needs.shared


def test_a_sync_sends_the_adapters_and_not_the_model() -> None:
    estimate = estimate_run(read_run(Path(__file__).parents[2] / "configs" / "gpt-oss-20b-1gpu.toml"))
    assert estimate.adapter_bytes is not None
    assert estimate.adapter_bytes / estimate.full_bytes <= 0.05
    assert "a weight sync: 1.48 GB of adapters, 3.5% of all weights (41.8 GB)" in estimate.lines()
    assert estimate.to_json()["sync_bytes"] == estimate.adapter_bytes
    full = estimate_run(run(model={"name": "openai/gpt-oss-20b"}))
    assert full.adapter_bytes is None
    assert not any("weight sync" in line for line in full.lines())


def test_a_sampler_beside_the_trainer_has_a_copy_of_what_is_trained() -> None:
    tables = {"engine": {"kind": "transformers"}, "async_rollouts": {}}
    parts = memory_needs(run(**tables), OSS).parts
    assert parts["sampler's copy"] == parts["adapters"] > 0
    assert (
        memory_needs(run(**tables, model={"name": "openai/gpt-oss-20b"}), OSS).parts["sampler's copy"]
        == OSS.parameters * 4
    )


def test_attention_that_holds_its_scores_does_not_fit_long_rows() -> None:
    eager = activation_bytes(OSS, 32_768, 2, "eager", checkpointed=True)
    flash = activation_bytes(OSS, 32_768, 2, "flash_attention_4", checkpointed=True)
    assert eager - flash == 2 * attention_score_bytes(OSS, 32_768, 2) > 250 * GB


def test_lessons_cost_their_rows_and_hold_several_at_a_time(tmp_path: Path) -> None:
    expected = {"row_tokens": 8_000, "trained_per_second": 4_000}
    tables = {"out": str(tmp_path), "sft": {"demonstrations": 50, "epochs": 2, "rows_per_pass": 2}}
    world = {"data": {"world": {}}, "model": {"name": "m", "renderer": "words", "lora": asdict(EXPERTS)}}
    lessons = run(**tables, **world, expected=expected)
    cost = lessons_cost(lessons, OSS)
    assert (cost.episodes, cost.tokens, cost.seconds) == (50, 800_000, 200)
    assert cost.flops == OSS.active * 8.0 * 800_000
    held, sampled = (memory_needs(lessons, OSS, kind=kind).parts for kind in ("sft", "rl"))
    assert held["activations"] == 2 * sampled["activations"]
    assert "sampling cache" in sampled.keys() - held.keys()
    rows = [TrainingRow([1] * 30, [0] * 30, [0.0] * 30, "e", "q")] * 4
    write_row_folder(rows, tmp_path / "rows", tokenizer="t")
    assert lessons_cost(lessons, OSS).tokens == 240, "counted, once the rows are made"


def test_a_step_s_cost_is_its_tokens_over_the_rates() -> None:
    expected = {"sampled": 1_000, "row_tokens": 8_000, "sampled_per_second": 2_000, "trained_per_second": 4_000}
    cost = step_cost(run(rollouts={"groups": 16, "rollouts": 8}, expected=expected), OSS)
    assert (cost.episodes, cost.sampled, cost.trained) == (128, 128_000, 1_024_000)
    assert cost.seconds == 64 + 256
    assert cost.flops == OSS.active * (2 * 128_000 + 8 * 1_024_000)
    assert step_cost(run(), OSS).seconds is None
    tables = {"data": {"trajectories": "lessons"}, "rollouts": {"groups": 16, "rollouts": 8, "demonstrations": 2}}
    mixed = step_cost(run(**tables, expected=expected), OSS)
    assert (mixed.episodes, mixed.sampled, mixed.trained) == (128, 96_000, 1_024_000), "demonstrations are not sampled"


def test_a_shape_comes_from_a_config_too(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    data = {
        "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "vocab_size": 201088,
        "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128, "tie_word_embeddings": False,
    }  # fmt: skip
    path.write_text(json.dumps(data))
    other = run(model={"name": "some/one"})
    assert estimate_run(other, path).shape == OSS
    with pytest.raises(ConfigError, match="the shape of 'some/one' is unknown"):
        estimate_run(other)
    without_head = {name: value for name, value in data.items() if name != "head_dim"}
    endless = json.dumps(data | {"hidden_size": 0}).replace('"hidden_size": 0', '"hidden_size": 1e999')
    for text in ("{}", "[]", endless):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"not the config\.json of a language model"):
            estimate_run(other, path)
    path.write_text(json.dumps(without_head | {"num_attention_heads": 0}))
    with pytest.raises(ConfigError, match="the shape of a model of the type 'gpt_oss' is unknown"):
        estimate_run(other, path)


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        # Published configurations. transformers leaves out `tie_word_embeddings` where it is true.
        ({"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 48, "vocab_size": 50257}, 1.56),
        ({"model_type": "gpt_neox", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
          "intermediate_size": 16384, "vocab_size": 50432, "tie_word_embeddings": False}, 6.86),
        ({"model_type": "gemma2", "hidden_size": 2304, "num_attention_heads": 8, "num_key_value_heads": 4,
          "head_dim": 256, "num_hidden_layers": 26, "intermediate_size": 9216, "vocab_size": 256000}, 2.61),
        ({"model_type": "bloom", "hidden_size": 4096, "n_head": 32, "n_layer": 30, "vocab_size": 250880}, 7.07),
    ],
)  # fmt: skip
def test_the_weights_of_published_models_are_counted(tmp_path: Path, config: dict[str, Any], billions: float) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    shape = estimate_run(run(model={"name": "some/one"}), path).shape
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_adapters_that_are_trained_further_count_as_adapters(tmp_path: Path) -> None:
    lora = LoraConfig(rank=4, modules=("q_proj", "v_proj"), first_layer=20)
    stored = {
        "peft_type": "LORA",
        "r": 4,
        "target_modules": ["q_proj", "v_proj"],
        "layers_to_transform": [20, 21, 22, 23],
    }
    (tmp_path / "adapter_config.json").write_text(json.dumps(stored))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    model = {"name": "openai/gpt-oss-20b"}
    further = estimate_run(run(model={**model, "adapter": str(tmp_path)}))
    assert further == estimate_run(run(model={**model, "lora": asdict(lora)}))
    assert further.memory.parts["optimizer"] == adapter_parameters(OSS, lora) * MOMENT_BYTES
    with pytest.raises(ConfigError, match="must be one of the model's layers, 0 to 23; got 24"):
        estimate_run(run(model={**model, "lora": {"first_layer": 24}}))


@pytest.mark.parametrize("tied", [False, True])
def test_a_tiny_model_counts_as_transformers_counts_it(tied: bool) -> None:
    transformers = pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")
    from context_agent.train.model_shape import _read
    from context_agent.train.tiny_model import for_transformers, own_tokenizer, tiny_config

    config = tiny_config(for_transformers(own_tokenizer()), positions=128, yarn=False, tied=tied)
    model = transformers.GptOssForCausalLM(config)
    path = Path("config.json")
    shape = _shape(config, path, _read)
    assert shape.parameters == model.num_parameters()
    lora = LoraConfig(rank=4, parameters=("mlp.experts.gate_up_proj", "mlp.experts.down_proj"))
    adapted = peft.get_peft_model(
        model,
        peft.LoraConfig(r=4, target_modules=list(lora.modules), target_parameters=list(lora.parameters)),
    )
    assert adapter_parameters(shape, lora) == sum(p.numel() for p in adapted.parameters() if p.requires_grad)


def _shape(config: Any, path: Path, read: Any) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        return read(Path(folder) / path)
