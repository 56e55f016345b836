"""The types that models are trained and sampled in, and where frozen models are."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from context_agent.errors import ConfigError, ContextAgentError, DataError
from context_agent.policies.tokens.engines import SampleRequest
from context_agent.testing import tiny_runs
from context_agent.train.config import ModelConfig, RendererKind
from context_agent.train.run_file import parse_run
from context_agent.train.tiny_model import tiny_llama

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from context_agent.train import reinforcement, sft  # noqa: E402
from context_agent.train.models import (  # noqa: E402
    LoadedModel,
    hub_commit,
    initial_weights_digest,
    load_frozen,
    load_model,
    load_renderer,
)
from context_agent.train.output_layer import Float32Head, only_positions  # noqa: E402
from context_agent.train.rl.samplers import local_engine, subagent_engine  # noqa: E402

LORA = {"lora": {"rank": 4}}


def loaded(student: Path, **model: Any) -> LoadedModel:
    run = tiny_runs.rewards(student, student, model=model)
    return load_model(run)


NOWHERE = "/nowhere/model"
"""A model that cannot be loaded, so that an error about anything else came before the weights."""


def test_adapters_that_are_missing_are_refused_before_the_weights_are_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no LoRA adapter"):
        load_model(parse_run({"model": {"name": NOWHERE, "adapter": str(tmp_path)}, "data": {}}))


def test_the_commit_of_a_model_is_the_one_in_the_cache_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import try_to_load_from_cache

    from context_agent.train import models

    cached = tmp_path / "models--maker--model"
    for commit in ("a" * 40, "b" * 40):
        (cached / "snapshots" / commit).mkdir(parents=True)
        (cached / "snapshots" / commit / "config.json").write_text("{}")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("b" * 40)
    monkeypatch.setattr(models, "try_to_load_from_cache", partial(try_to_load_from_cache, cache_dir=tmp_path))
    assert hub_commit(ModelConfig(name="maker/model")) == "b" * 40
    assert hub_commit(ModelConfig(name="maker/model", revision="a" * 40)) == "a" * 40
    for chosen in (ModelConfig(name="maker/other"), ModelConfig(name=str(tmp_path))):
        assert hub_commit(chosen) == ""


@pytest.mark.parametrize("name", [NOWHERE, "./nowhere", "~/model", "a/b/c"])
def test_a_folder_that_does_not_exist_is_told_with_what_is_expected(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} does not exist. Name the folder of a model, .* or a model on the"):
        load_model(parse_run({"model": {"name": name}, "data": {}}))


def test_an_attention_that_does_not_exist_is_told_also_for_a_tiny_model(student: Path) -> None:
    with pytest.raises(ConfigError, match=r"Check model\.name and model\.attention"):
        loaded(student, attention="none-such")
    tiny = {"renderer": "template", "tiny": {}}
    with pytest.raises(ConfigError, match=r"the tiny model cannot be made .* Check model\.attention"):
        load_model(parse_run({"model": {**tiny, "attention": "none-such"}, "data": {}}))


def test_the_digest_of_initial_weights_is_that_of_their_contents(student: Path, tmp_path: Path) -> None:
    def digest() -> str:
        return initial_weights_digest(ModelConfig(name=str(tmp_path / "copy"), renderer=RendererKind.WORDS))

    assert digest() == initial_weights_digest(ModelConfig(name="a/model", renderer=RendererKind.WORDS))
    weights = Path(shutil.copytree(student, tmp_path / "copy"), "model.safetensors")
    before = digest()
    os.utime(weights, (1, 1))
    assert digest() == before
    content = weights.read_bytes()
    weights.write_bytes(content[:-4] + bytes(value ^ 1 for value in content[-4:]))
    assert digest() != before


def test_missing_demonstrations_are_refused_before_the_weights_are_loaded(tmp_path: Path) -> None:
    run = parse_run(
        {"out": str(tmp_path / "out"), "model": {"name": NOWHERE}, "data": {"trajectories": str(tmp_path / "none")}}
    )
    with pytest.raises(DataError, match="none contains no trajectory"):
        sft.train(run)


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"rollouts": {"demonstrations": 1}}, "none contains no trajectory"),
        ({"judge": {"model": "m", "max_calls": 1}, "rewards": {"judge": 1.0}}, "this judge is not calibrated"),
    ],
)
def test_what_a_run_of_rewards_lacks_is_told_before_the_weights_are_loaded(
    tables: dict[str, Any], told: str, tmp_path: Path
) -> None:
    (tmp_path / "d1.txt").write_text("Comets met the bridge.")
    question = {"id": "q", "question": "What met the bridge?", "gold": ["d1.txt"]}
    (tmp_path / "questions.jsonl").write_text(json.dumps(question))
    data = {
        "questions": [str(tmp_path / "questions.jsonl")],
        "documents": [str(tmp_path / "d1.txt")],
        "embedder": "static",
        "trajectories": str(tmp_path / "none"),
    }
    with pytest.raises(ContextAgentError, match=told):
        reinforcement.train(
            parse_run({"out": str(tmp_path / "out"), "model": {"name": NOWHERE}, "data": data, **tables})
        )


def test_a_window_that_the_model_cannot_read_is_refused_before_an_episode(student: Path, tmp_path: Path) -> None:
    run = tiny_runs.rewards(student, tmp_path, episodes={"window": 4096})
    with pytest.raises(ConfigError, match=r"episodes\.window = 4096 is larger .* has 1024 tokens"):
        reinforcement.train(run)


def share_changed(model: Any, dtype: Any) -> float:
    """The share of the weights that three updates of AdamW at 1e-5 change."""
    weights = [parameter.detach().clone() for parameter in model.to(dtype).parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
    torch.manual_seed(0)
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    changed = sum(int((now != before).sum()) for now, before in zip(model.parameters(), weights, strict=True))
    return changed / sum(weight.numel() for weight in weights)


def test_all_weights_have_32_bits_if_they_are_trained_and_the_base_of_adapters_does_not(
    student: Path, record_property: Callable[[str, object], None]
) -> None:
    """In bfloat16 most updates of 1e-5 disappear in the rounding."""
    full = loaded(student, dtype="bfloat16").model
    assert {parameter.dtype for parameter in full.parameters()} == {torch.float32}
    assert {parameter.dtype for parameter in loaded(student, dtype="bfloat16", **LORA).model.parameters()} == {
        torch.bfloat16
    }
    kept = share_changed(full, torch.float32)
    lost = share_changed(full, torch.bfloat16)
    record_property("share of the weights that change, float32, bfloat16", f"{kept:.3f}, {lost:.3f}")
    assert kept > 0.99
    assert lost < 0.5


def test_a_tokenizer_that_cannot_pad_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = {"hidden": 32, "layers": 1, "positions": 1024}
    run = tiny_runs.demonstrations(tmp_path, model={"tiny": tiny})
    tokenizer, renderer = load_renderer(run)
    tokenizer.pad_token = tokenizer.eos_token = None
    monkeypatch.setattr("context_agent.train.models.load_renderer", lambda _: (tokenizer, renderer))
    with pytest.raises(ConfigError, match="neither a padding token nor an end token"):
        load_model(run)


@pytest.mark.parametrize(
    ("lora", "told"),
    [
        ({"modules": ["q_proj", "lm_head"]}, r"names 'lm_head', which is the output layer.*Remove 'lm_head'"),
        ({"modules": ["embed_tokens"]}, r"names 'embed_tokens', which .* shares its weights"),
        ({"modules": [], "parameters": ["embed_tokens.weight"]}, r"parameters names 'embed_tokens.weight', which is"),
        ({"modules": ["q_prj"]}, r"the model has no 'q_prj', which model\.lora\.modules names. Did you mean 'q_proj'"),
        ({"modules": ["zzz"]}, r"has no 'zzz', .* Choose from (?!.*lm_head).*v_proj"),
        (
            {"parameters": ["mlp.experts.gate_up"]},
            r"model\.lora\.parameters names. Did you mean .mlp",
        ),
    ],
)
def test_layers_that_adapters_cannot_train_are_refused(lora: dict[str, Any], told: str, tmp_path: Path) -> None:
    """Here the embedding and the output layer share one table."""
    tiny = {"hidden": 32, "layers": 1, "positions": 1024, "experts": 2, "tied": True}
    with pytest.raises(ConfigError, match=told):
        load_model(tiny_runs.demonstrations(tmp_path, model={"tiny": tiny, "lora": lora}))


def test_the_trained_model_is_written_in_the_type_of_the_run(student: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from context_agent.train import reinforcement

    run = tiny_runs.rewards(
        student,
        tmp_path,
        model={"dtype": "bfloat16"},
        rollouts={"steps": 1},
        evaluation={"every": 0},
        checkpoints={"every": 1},
    )
    reinforcement.train(run, note=lambda _: None)
    assert {value.dtype for value in load_file(tmp_path / "final" / "model.safetensors").values()} == {torch.bfloat16}
    (checkpoint, *_) = sorted((tmp_path / "checkpoints").glob("step-*/trainer/model.safetensors"))
    assert {value.dtype for value in load_file(checkpoint).values()} == {torch.float32}


def test_training_goes_on_with_32_bits_once_a_model_is_written(student: Path) -> None:
    from context_agent.train.saved_models import _rounded_weights

    model = loaded(student, dtype="bfloat16").model
    before = [parameter.detach().clone() for parameter in model.parameters()]
    accelerator = SimpleNamespace(unwrap_model=lambda wrapped: wrapped, distributed_type="NO")
    with _rounded_weights(SimpleNamespace(model=model, accelerator=accelerator), "bfloat16"):
        assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert all(torch.equal(now, was) for now, was in zip(model.parameters(), before, strict=True))


def test_the_output_layer_computes_in_32_bits(student: Path) -> None:
    model = loaded(student, dtype="bfloat16", **LORA).model.eval()
    head = model.get_output_embeddings()
    assert type(head) is Float32Head
    hidden = torch.randn(3, head.in_features).bfloat16()
    logits = head(hidden)
    assert torch.equal(logits, hidden.float() @ head.weight.float().T)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(head(hidden), logits)
    assert type(loaded(student).model.get_output_embeddings()) is torch.nn.Linear, "float32 needs nothing"


def test_llama_4_without_images_has_layers_below_its_head(tmp_path: Path) -> None:
    """Its model class names the layers that it has with images only, so that transformers finds none."""
    import transformers

    folder = tiny_llama(tmp_path / "base")
    sizes = {"hidden_size": 32, "intermediate_size": 32, "intermediate_size_mlp": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
    config: Any = transformers.Llama4TextConfig
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    transformers.Llama4ForCausalLM(
        config(**sizes, **heads, vocab_size=len(tokenizer), num_local_experts=2)
    ).save_pretrained(folder)
    chosen = {"name": str(folder), "dtype": "float32", "renderer": "lines"}
    model = load_model(parse_run({"model": chosen, "data": {}})).model
    with only_positions(model, torch.tensor([1, 3])):
        assert model.base_model(torch.zeros(1, 5, dtype=torch.long)).last_hidden_state.shape == (1, 2, 32)


def test_an_output_layer_of_many_tokens_is_converted_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from context_agent.train import output_layer

    head = torch.nn.Linear(8, 50, bias=True).bfloat16()
    hidden = torch.randn(2, 3, 8).bfloat16()
    expected = hidden.float() @ head.weight.float().T + head.bias.float()
    head.__class__ = Float32Head
    monkeypatch.setattr(output_layer, "HEAD_TILE", 16)
    assert torch.allclose(head(hidden), expected, atol=1e-6)


@pytest.mark.parametrize("adapters", [LORA, {}])
def test_the_sampler_computes_in_the_type_of_training(adapters: dict[str, Any], student: Path, tmp_path: Path) -> None:
    """Its log-probabilities in bfloat16 are those of a forward pass under the trainer's autocast."""
    run = tiny_runs.rewards(student, tmp_path, model={"dtype": "bfloat16", **adapters})
    part = load_model(run)
    model = part.model.eval()
    engine = local_engine(run, model)
    prompt = list(range(5, 45))
    sample = asyncio.run(engine.generate(SampleRequest(prompt, 12, seed=3)))
    scored = asyncio.run(engine.score([*prompt, *sample.ids]))
    engine.close()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        logits = model(torch.tensor([[*prompt, *sample.ids]])).logits[0, :-1]
    assert logits.dtype is torch.float32
    expected = torch.log_softmax(logits, -1)[len(prompt) - 1 :].gather(1, torch.tensor(sample.ids)[:, None])[:, 0]
    assert (torch.tensor(scored.logprobs[len(prompt) - 1 :]) - expected).abs().max() < 1e-6
    assert (torch.tensor(sample.logprobs) - expected).abs().mean() < 0.05, "a prompt read at once and token by token"


def test_frozen_sub_agents_without_a_tokenizer_are_refused(student: Path, tmp_path: Path) -> None:
    run = tiny_runs.rewards(student, tmp_path)
    tokenizer, _ = load_renderer(run)
    with pytest.raises(ConfigError, match=r"missing does not exist"):
        load_frozen(run.model, str(tmp_path / "missing"), tokenizer)


def test_frozen_sub_agents_are_where_the_trainer_is(student: Path, tmp_path: Path) -> None:
    run = tiny_runs.rewards(student, tmp_path, episodes={"swarm": 2, "searchers": str(student)})
    tokenizer, _ = load_renderer(tiny_runs.rewards(student, tmp_path))
    with subagent_engine(run, tokenizer, torch.device("meta")) as engine:
        assert {parameter.device.type for parameter in engine.model.parameters()} == {"meta"}
