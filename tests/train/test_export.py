"""Trained models for other programs: merged and exported folders load in transformers and in this package."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from context_agent import MemoryCorpus, SearchAgent
from context_agent.cli.app import run as ctx1
from context_agent.errors import ConfigError, DataError
from context_agent.eval.gold import gold_of
from context_agent.eval.systems import Answerer, AnswerSettings, find_systems
from context_agent.policies import default_profile, default_window, load_policy
from context_agent.policies.scripted import ScriptedPolicy
from context_agent.policies.tokens import TokenPolicy, local
from context_agent.policies.tokens.engines import SampleRequest
from context_agent.policies.tokens.trained import PolicyDescription
from context_agent.types import Document, Question
from tests.support.missing_packages import need

torch = pytest.importorskip("torch")
need("peft")

IDS = [[5, 6, 7, 8, 9]]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of SmolLM2's architecture."""
    from context_agent.train.tiny_model import tiny_llama

    return tiny_llama(tmp_path_factory.mktemp("base") / "base-model")


@pytest.fixture(scope="module")
def adapters(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose best model are adapters that change what the model says."""
    import peft
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run = tmp_path_factory.mktemp("runs") / "lessons"
    for seed, name in enumerate(("final", "best")):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        peft.get_peft_model(model, config).save_pretrained(run / name)
        AutoTokenizer.from_pretrained(base).save_pretrained(run / name)
        description = PolicyDescription(str(base), renderer="lines", profile="lean", window=1_024, max_tokens=24)
        description.save(run / name)
        (run / name / "training_args.bin").write_bytes(b"x")
    return run


def logits(model: Any) -> Any:
    with torch.no_grad():
        return model(input_ids=torch.tensor(IDS)).logits


def adapted(base: Path, folder: Path) -> Any:
    import peft
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    return logits(peft.PeftModel.from_pretrained(model, str(folder)))


def test_merged_weights_say_what_the_best_adapters_say(base: Path, adapters: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from context_agent.train.export import merge

    out = tmp_path / "merged"
    merged = merge(adapters, out)
    assert (merged.base, merged.has_chat_template, merged.source) == ("", True, adapters / "best")
    loaded = logits(AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32))
    assert torch.allclose(loaded, adapted(base, adapters / "best"), atol=1e-5)
    assert not torch.allclose(loaded, adapted(base, adapters / "final"), atol=1e-3)
    assert AutoTokenizer.from_pretrained(out).chat_template == AutoTokenizer.from_pretrained(base).chat_template
    assert not (out / "adapter_config.json").exists()
    half = merge(adapters, tmp_path / "half", dtype="bfloat16")
    assert json.loads((half.folder / "config.json").read_text())["dtype"] == "bfloat16"
    with pytest.raises(ConfigError, match=r"nothing to merge\. Use `ctx1 train export`"):
        merge(out, tmp_path / "again")


def test_exported_adapters_name_their_base_and_load_by_themselves(base: Path, adapters: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    from context_agent.train.export import export

    out = export(adapters / "final", tmp_path / "adapter").folder
    assert json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"] == str(base)
    assert {"adapter_model.safetensors", "tokenizer.json", "chat_template.jinja", "policy.json"} <= {
        path.name for path in out.iterdir()
    }
    assert not (out / "training_args.bin").exists()
    loaded = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    assert torch.allclose(logits(loaded), adapted(base, adapters / "final"), atol=1e-5)


def test_an_export_is_whole_or_not_there(adapters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from context_agent.train import export

    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes").write_text("mine")
    with pytest.raises(ConfigError, match="exists and is not empty"):
        export.export(adapters, tmp_path / "taken")
    with pytest.raises(ConfigError, match="no model"):
        export.export(tmp_path / "taken", tmp_path / "out")

    def full(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(DataError, match="No space left on device"):
        export.export(adapters, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def sampled(policy: TokenPolicy) -> Any:
    return asyncio.run(policy.engine.generate(SampleRequest(tuple(IDS[0]), 4, (), 0.0, 1.0, 0)))


def test_a_folder_is_a_policy_in_this_process_as_it_was_trained(base: Path, adapters: Path, tmp_path: Path) -> None:
    """A run, one of its models, a merged copy and the base all load; the adapters count."""
    from context_agent.train.export import merge

    merge(adapters, tmp_path / "merged")
    policies = [local(str(path)) for path in (adapters, adapters / "final", tmp_path / "merged")]
    policies.append(local(str(base), adapter=adapters / "best"))
    best, final, merged, named = (sampled(policy).logprobs for policy in policies)
    assert best == pytest.approx(merged, abs=1e-5)
    assert best == pytest.approx(named, abs=1e-5)
    assert best != pytest.approx(final, abs=1e-3)
    assert (policies[0].renderer.name, policies[0].max_tokens, policies[0].temperature) == ("lines", 24, 0.0)
    assert default_profile("tokens", str(adapters)).name == "lean"
    assert (default_window("tokens", str(adapters)), default_window("tokens", str(base))) == (1_024, None)
    with pytest.raises(ConfigError, match="is an adapter itself"):
        local(str(adapters), adapter=adapters / "final")
    for policy in policies:
        policy.engine.close()  # type: ignore[attr-defined]


def test_an_episode_of_a_trained_folder_has_its_profile_and_window(
    adapters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line runs it in this process: no address is asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CTX1_BASE_URL", "http://127.0.0.1:9/v1")
    (tmp_path / "note.md").write_text("# Rope\n\nRope is a film by Hitchcock.\n")
    assert ctx1(["index", "note.md"]) == 0
    arguments = ["--policy", "tokens", "--model", str(adapters), "--save", "kept", "--max-turns", "2", "--json"]
    assert ctx1(["search", "Who directed Rope?", *arguments]) == 0
    header = json.loads(next((tmp_path / "kept").glob("*.jsonl")).read_text().splitlines()[0])
    assert header["profile"]["name"] == "lean"
    assert header["budget"]["window"] == 1_024
    assert "127.0.0.1:9" not in capsys.readouterr().err


def test_a_trained_model_searches_and_is_evaluated_with_the_hits_and_results_of_its_training(
    base: Path, adapters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other numbers would show it other views than those that it has learned from."""
    from context_agent.train.run_file import parse_run
    from context_agent.train.saved_models import policy_description

    trained = tmp_path / "trained"
    shutil.copytree(adapters / "best", trained)
    run = parse_run(
        {
            "out": str(trained),
            "model": {"name": str(base), "renderer": "lines"},
            "data": {"trajectories": "trajectories"},
            "episodes": {"profile": "lean", "window": 1_000, "per_call": 300, "shown": 1},
            "engine": {"max_tokens": 24},
        }
    )
    policy_description(run).save(trained)
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        (tmp_path / f"note{number}.md").write_text(f"# Rope {number}\n\nRope is a film by Hitchcock.\n")
    assert ctx1(["index", *map(str, tmp_path.glob("*.md"))]) == 0
    model = ["--policy", "tokens", "--model", str(trained), "--save", "kept", "--max-turns", "1"]
    assert ctx1(["search", "Who directed Rope?", *model]) == 0
    (system,) = find_systems(["agent"])
    settings = AnswerSettings(default_profile("tokens", str(trained)), trajectories=Path("kept"))
    answerer = Answerer(MemoryCorpus([Document("note", "Rope")]), ScriptedPolicy([]), settings)
    question = Question("q", "Who directed Rope?", gold=("note",))
    answerer.answer(system, question, gold_of(question), window=1_000, seed=0)
    headers = [json.loads(path.read_text().splitlines()[0]) for path in Path("kept").rglob("*.jsonl")]
    assert len(headers) == 2
    for header in headers:
        assert header["profile"]["search_limit"] == 1
        assert header["budget"] == {**header["budget"], "window": 1_000, "per_call": 300}


def test_a_model_of_the_toy_world_says_why_it_searches_no_index(base: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((base / "config.json").read_text())
    PolicyDescription(renderer="words").save(tmp_path)
    with pytest.raises(ConfigError, match="knows only the words of its toy environment, so it cannot search an index"):
        local(str(tmp_path))


def test_adapters_never_fetch_the_base_that_they_name(
    adapters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder from someone else decides no connection: its base has to be here already."""
    from context_agent.train.export import merge

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("a connection was made"))
    shutil.copytree(adapters / "best", tmp_path / "theirs")
    PolicyDescription("someone/model", renderer="lines").save(tmp_path / "theirs")
    with pytest.raises(ConfigError, match="hf download someone/model"):
        local(str(tmp_path / "theirs"))
    with pytest.raises(ConfigError, match=r"(?s)cannot load the base model .*hf download someone/model"):
        merge(tmp_path / "theirs", tmp_path / "out")


def test_a_tiny_model_that_speaks_harmony_searches_with_its_own_vocabulary(tmp_path: Path) -> None:
    from context_agent.train.tiny_model import tiny_gpt_oss

    policy = load_policy("tokens", model=str(tiny_gpt_oss(tmp_path / "tiny")), max_tokens=8)
    assert isinstance(policy, TokenPolicy)
    assert policy.renderer.name == "harmony"
    with SearchAgent(MemoryCorpus([Document("a", "Rope is a film.", "Rope")]), policy, budget=16_384) as agent:
        result = agent.search("Who directed Rope?")
    assert result.error is None
