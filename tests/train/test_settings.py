"""Settings of a run file, each by the result that it changes.

A setting whose effect a test of its own part shows is not repeated here. For the tables that are formulas or that go to
a library, the tests also check that no setting of the table is left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from context_agent import Document, index_documents
from context_agent.errors import CorpusNotFoundError
from context_agent.retrieval import rerankers
from context_agent.testing import tiny_runs
from context_agent.train.config import DataConfig, EpisodeConfig, ExpectedCosts, LoraConfig, OptimizerConfig
from context_agent.train.data import open_corpus
from context_agent.train.estimate import estimate_run
from context_agent.train.outcome import Ending, EpisodeOutcome
from context_agent.train.rewards import RewardConfig, compute_reward
from context_agent.train.run_file import parse_run
from context_agent.train.tiny_model import TinyModelConfig, own_tokenizer, tiny_config
from context_agent.train.toy.environment import WorldConfig, make_environment

LEAST: dict[str, Any] = {"model": {"name": "openai/gpt-oss-20b"}, "data": {"questions": ["q.jsonl"], "path": "x"}}


def names(table: type) -> set[str]:
    return {setting.name for setting in fields(table)}


EPISODE = EpisodeOutcome(
    Ending.FINISHED,
    precision=0.5,
    recall=1.0,
    seen=0.8,
    answered=True,
    answer_ranked=True,
    spent=0.5,
    calls=(2,) * 100,
    finding_calls=(2,) * 100,
    queries=("red mill", "old town"),
    finding_queries=("red mill", "old town"),
    prunes=(1,) * 5,
    mistakes=2,
    clutter=4,
    cleared=2,
    gold_shown=2,
    gold_kept=2,
    judged=0.5,
)
REWARDS: dict[str, float] = {
    "output": 2.0,
    "trajectory": 1.0,
    "answer": 2.0,
    "beta": 2.0,
    "exponent": 1.0,
    "cost": 0.5,
    "prune_call": 0.2,
    "turn_from": 10,
    "turn_to": 200,
    "turn_most": 0.3,
    "mistake": 0.1,
    "prune_accuracy": 1.0,
    "diversity": 1.0,
    "parallel": 1.0,
    "judge": 1.0,
}


@pytest.mark.parametrize(("name", "value"), REWARDS.items())
def test_each_weight_changes_the_reward(name: str, value: float) -> None:
    settings = RewardConfig(turn_most=0.2)
    changed = replace(settings, **{name: value})  # type: ignore[arg-type]
    assert compute_reward(EPISODE, changed).total != compute_reward(EPISODE, settings).total


def test_every_setting_of_the_reward_has_a_test() -> None:
    assert set(REWARDS) == names(RewardConfig) - {"preset", "malformed", "truncated", "gamma"}
    for ending, name in ((Ending.MALFORMED, "malformed"), (Ending.TRUNCATED, "truncated")):
        changed = RewardConfig(**{name: -0.25})  # type: ignore[arg-type]
        assert compute_reward(replace(EPISODE, ending=ending), changed).total == -0.25


EXPECTED = {
    "sampled": 100,
    "row_tokens": 100,
    "longest_row": 1_000,
    "sampled_per_second": 50.0,
    "trained_per_second": 50.0,
    "gpus": 8,
    "gpu_memory": 40.0,
    "server_gpus": 2,
    "server_sequences": 64,
    "sharded": True,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_expected_cost_changes_the_estimate(name: str) -> None:
    assert set(EXPECTED) == names(ExpectedCosts)
    base = {"gpus": 2, "sharded": name == "gpus", "sampled_per_second": 1_000.0, "trained_per_second": 1_000.0}
    tables = LEAST | {"engine": {"kind": "vllm"}}
    before, after = (
        estimate_run(parse_run(tables | {"expected": base | changes})).lines()
        for changes in ({}, {name: EXPECTED[name]})
    )
    assert after != before


EPISODES = {
    "profile": "lean",
    "reserve": 512,
    "window": 16_384,
    "per_call": 1_000,
    "turns": 3,
    "seconds": 9.0,
    "calls": 2,
    "swarm": 2,
    "shown": 3,
}


@pytest.mark.parametrize("name", EPISODES)
def test_each_setting_of_an_episode_reaches_its_agent(name: str) -> None:
    from context_agent import MemoryCorpus, ScriptedPolicy
    from context_agent.train.agents import agent_of

    # `windows` and `searchers` are for training alone: tests/train/rl shows them.
    assert set(EPISODES) == names(EpisodeConfig) - {"windows", "searchers"}
    found = []
    for changes in ({}, {name: EPISODES[name]}):
        run = parse_run(LEAST | {"episodes": changes})
        with agent_of(run, MemoryCorpus([Document("a", "Comets.")]), ScriptedPolicy([])) as agent:
            found.append((agent.profile, agent.budget, agent.limits, agent.swarm))
    assert found[0] != found[1]


WORLD = {"entities": 90, "tasks": 200, "seed": 1, "hops": (2, 2), "worlds": 2, "branches": 2}


@pytest.mark.parametrize("name", WORLD)
def test_each_setting_of_a_toy_environment_changes_it(name: str) -> None:
    assert set(WORLD) == names(WorldConfig)
    small = WorldConfig(entities=120, tasks=300)
    before, after = (make_environment(chosen) for chosen in (small, replace(small, **{name: WORLD[name]})))  # type: ignore[arg-type]
    assert (before.titles, before.questions, len(before.others)) != (after.titles, after.questions, len(after.others))


MODEL: dict[str, Any] = {
    "hidden": ("hidden_size", 64),
    "layers": ("num_hidden_layers", 2),
    "experts": ("num_local_experts", 4),
    "positions": ("max_position_embeddings", 256),
    "deviation": ("initializer_range", 0.5),
    "tied": ("tie_word_embeddings", True),
}
OPTIMIZER: dict[str, Any] = {
    "learning_rate": ("learning_rate", 0.5),
    "betas": ("adam_beta2", (0.1, 0.5)),
    "weight_decay": ("weight_decay", 0.5),
    "max_grad_norm": ("max_grad_norm", 0.5),
    "warmup": ("warmup_steps", 5),
    "schedule": ("lr_scheduler_type", "cosine"),
}
LORA: dict[str, Any] = {
    "rank": ("r", 4, 4),
    "alpha": ("lora_alpha", 8.0, 8.0),
    "modules": ("target_modules", ["q_proj"], {"q_proj"}),
    "parameters": ("target_parameters", ["mlp.experts.down_proj"], ["mlp.experts.down_proj"]),
    "first_layer": ("layers_to_transform", 2, [2, 3]),
}


class TestWithTorch:
    """Settings that go to torch, transformers and peft."""

    @pytest.fixture(autouse=True)
    def libraries(self) -> None:
        for library in ("torch", "trl", "peft"):
            pytest.importorskip(library, reason="needs the train extra")

    @pytest.mark.parametrize("name", MODEL)
    def test_each_setting_of_a_tiny_model_changes_its_config(self, name: str) -> None:
        from context_agent.train.tiny_model import for_transformers

        assert set(MODEL) == names(TinyModelConfig)
        field, value = MODEL[name]
        config = tiny_config(for_transformers(own_tokenizer()), **{name: value})
        assert getattr(config, field) == value

    @pytest.mark.parametrize("name", OPTIMIZER)
    def test_each_setting_of_the_optimizer_reaches_the_trainer(self, name: str, tmp_path: Path) -> None:
        from context_agent.train.trainer_settings import trainer_settings

        assert set(OPTIMIZER) == names(OptimizerConfig)
        field, value = OPTIMIZER[name]
        run = tiny_runs.demonstrations(tmp_path, optimizer={name: list(value) if name == "betas" else value})
        settings = trainer_settings(run, "sft", ())
        assert settings[field] == (value[1] if name == "betas" else value)

    @pytest.mark.parametrize("name", LORA)
    def test_each_setting_of_lora_reaches_peft(self, name: str) -> None:
        from context_agent.train.models import lora_adapter

        assert set(LORA) == names(LoraConfig)
        field, value, expected = LORA[name]
        run = parse_run({**LEAST, "model": {"name": "m", "lora": {name: value}}})
        assert getattr(lora_adapter(run.model, layers=4), field) == expected

    @pytest.mark.parametrize(
        ("setting", "option", "expected"),
        [
            ({"revision": "abc"}, "revision", "abc"),
            ({"attention": "eager"}, "attn_implementation", "eager"),
            ({"dequantize": True}, "quantization_config", True),
            ({"dtype": "float16", "lora": {}}, "dtype", "torch.float16"),
        ],
    )
    def test_how_a_model_is_loaded(
        self, setting: dict[str, Any], option: str, expected: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        import transformers

        from context_agent.train import models

        loaded: list[dict[str, Any]] = []

        def load(folder: str, **options: Any) -> Any:
            loaded.append(options)
            raise OSError("loaded enough")

        monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", load)
        monkeypatch.setattr(models, "load_renderer", lambda *_: (None, None))
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt_oss"}))
        run = parse_run({**LEAST, "model": {"name": str(tmp_path), **setting}})
        with pytest.raises(Exception, match="loaded enough"):
            models.load_model(run)
        value = loaded[0][option]
        assert (value.dequantize if option == "quantization_config" else str(value)) == (
            expected if expected is True else str(expected)
        )

    @pytest.mark.parametrize(("name", "value"), [("reasoning_effort", "low"), ("parallel", True)])
    def test_how_harmony_is_written(self, name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        from context_agent.train import models

        monkeypatch.setattr(models, "_tokenizer", lambda _: None)
        monkeypatch.setattr(models, "harmony_renderer", lambda _, **options: options)
        run = parse_run({**LEAST, "model": {"name": "m", name: value}})
        options: Any = models.load_renderer(run)[1]
        assert value in options.values()

    def test_how_a_run_is_named_in_a_tracker(self, tmp_path: Path) -> None:
        from context_agent.train.trainer_settings import trainer_settings

        run = tiny_runs.demonstrations(tmp_path, logging={"project": "ships", "run": "first"})
        settings = trainer_settings(run, "sft", ())
        assert (settings["project"], settings["run_name"]) == ("ships", "first")

    @pytest.mark.parametrize(
        ("changes", "field", "value"),
        [
            ({"seed": 9}, "seed", 9),
            ({"checkpoints": {"every": 5}}, "save_steps", 5),
            ({"model": {"dtype": "bfloat16"}}, "bf16", True),
            ({"sft": {"learning_rate": 0.25}}, "learning_rate", 0.25),
        ],
    )
    def test_what_every_trainer_is_given(self, changes: dict[str, Any], field: str, value: Any, tmp_path: Path) -> None:
        from context_agent.train.trainer_settings import trainer_settings

        run = tiny_runs.demonstrations(tmp_path, **changes)
        settings = trainer_settings(run, "sft", ())
        assert settings[field] == value

    def test_how_lessons_are_divided_into_updates(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        from context_agent.train import sft

        given: list[dict[str, Any]] = []

        def trainer(**options: Any) -> Any:
            given.append(options)
            raise InterruptedError

        monkeypatch.setattr(sft, "RowSftTrainer", trainer)
        changes = {"epochs": 3, "rows": 32, "rows_per_pass": 4, "demonstrations": 40}
        for held_out in (0.0, 0.2):
            run = tiny_runs.demonstrations(tmp_path / str(held_out), sft={**changes, "held_out": held_out})
            with pytest.raises(InterruptedError):
                sft.train(run, note=lambda _: None)
        arguments = given[0]["args"]
        assert (arguments.num_train_epochs, arguments.per_device_train_batch_size) == (3, 4)
        assert arguments.gradient_accumulation_steps == 8
        assert given[0]["eval_dataset"] is None
        assert len(given[1]["eval_dataset"]) + len(given[1]["train_dataset"]) == len(given[0]["train_dataset"])

    def test_how_the_trainers_own_model_samples(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        from context_agent import MemoryCorpus
        from context_agent.policies.tokens import TokenPolicy
        from context_agent.policies.tokens.engines import FakeEngine
        from context_agent.policies.tokens.harmony import HarmonyRenderer
        from context_agent.train.agents import build_agent
        from context_agent.train.rl import samplers

        monkeypatch.setattr(samplers, "TransformersEngine", lambda model, **options: options)
        run = tiny_runs.demonstrations(tmp_path, engine={"batch": 5, "max_tokens": 7, "temperature": 0.5})
        engine: Any = samplers.local_engine(run, None)
        assert engine["max_batch"] == 5
        corpus = MemoryCorpus([Document("a", "Comets.")])
        with build_agent(run, corpus, FakeEngine([]), HarmonyRenderer(), temperature=run.engine.temperature) as agent:
            assert isinstance(agent.policy, TokenPolicy)
            assert (agent.policy.max_tokens, agent.policy.temperature) == (7, 0.5)

    @pytest.mark.parametrize(("adapters", "folder"), [(None, "adapters"), ("shared", "shared")])
    def test_where_a_server_finds_new_adapters(
        self, adapters: str | None, folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        from context_agent.train.rl import samplers

        monkeypatch.setattr(samplers, "AdapterSync", lambda engine, url, folder, name, **_: folder)
        place = None if adapters is None else str(tmp_path / adapters)
        run = tiny_runs.demonstrations(tmp_path, engine={"kind": "vllm", "adapters": place})
        unused: Any = None
        with samplers.open_sampler(run, unused) as (_, sync):
            assert Path(str(sync)) == tmp_path / folder

    def test_weights_may_go_to_a_server_over_nccl(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        from context_agent.train.rl import row_trainer
        from context_agent.train.training_run import TrainingRun

        monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
        monkeypatch.setattr(row_trainer, "grpo_arguments", lambda **settings: settings)
        found: list[dict[str, Any]] = []
        for sync in ("adapter", "nccl"):
            engine = {"kind": "vllm", "sync": sync, "base_url": "http://sampler:8000/v1", "timeout": 9.0}
            run = tiny_runs.demonstrations(tmp_path, engine=engine)
            session = TrainingRun(run, "rl", resume=False, note=lambda _: None)
            found.append(dict(row_trainer.grpo_config(session)))
        assert "use_vllm" not in found[0]
        assert (found[1]["vllm_server_base_url"], found[1]["vllm_server_timeout"]) == ("http://sampler:8000", 9.0)

    @pytest.mark.parametrize(
        ("setting", "kind"), [({"cap": 1.5}, "cispo"), ({"clip": [0.01, 0.02]}, "grpo"), ({"kl": 0.5}, "cispo")]
    )
    def test_each_bound_of_the_loss_changes_it(self, setting: dict[str, Any], kind: str) -> None:
        import torch

        from context_agent.train.rl.losses import PassInputs, token_losses

        ones = torch.ones(1, 3)
        sampled, logps = -2 * ones, -0.5 * ones
        inputs = PassInputs(ones, ones, ones.bool(), sampled, ones, ones, ones.bool(), reference=-ones)
        before, after = (
            token_losses(parse_run(LEAST | {"loss": {"kind": kind} | changes}).loss, inputs, logps)
            for changes in ({}, setting)
        )
        assert not torch.equal(before, after)


class Backwards:
    """A reranker that prefers the shortest text."""

    name = "backwards"

    def score(self, query: str, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        return np.array([-len(text) for text in texts], dtype=np.float32)


def test_rollouts_have_a_seed_of_their_own_or_that_of_the_run() -> None:
    assert parse_run(LEAST | {"seed": 3}).drawing.seed == 3
    assert parse_run(LEAST | {"seed": 3, "rollouts": {"seed": 4}}).drawing.seed == 4


def test_a_run_may_search_a_server() -> None:
    with (
        pytest.raises(CorpusNotFoundError, match=r"127\.0\.0\.1:9.*does not answer"),
        open_corpus(DataConfig(url="http://127.0.0.1:9")),
    ):
        pass


def test_which_index_a_run_opens_and_how_it_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [Document("a", "Comets, comets and comets."), Document("b", "A comet.")]
    for collection, chosen in (("all", documents), ("one", documents[1:])):
        index_documents(chosen, tmp_path / "index", collection=collection)
    monkeypatch.setattr(rerankers, "load_reranker", lambda name: Backwards() if name else None)

    def found(**settings: Any) -> list[str]:
        with open_corpus(DataConfig(path=str(tmp_path / "index"), **settings)) as corpus:
            return [hit.chunk.document_id for hit in corpus.search("comets", k=2)]

    assert found(collection="all") == ["a", "b"]
    assert found(collection="one") == ["b"]
    assert found(collection="all", reranker="backwards") == ["b", "a"]
    for embedder, has_vectors in ((None, True), ("none", False)):
        data = DataConfig(path=str(tmp_path / "index"), collection="all", embedder=embedder)
        with open_corpus(data) as corpus:
            assert all((hit.dense is not None) is has_vectors for hit in corpus.search("comets", k=2))
