from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from context_agent._support.suggest import flat_settings
from context_agent.errors import ConfigError
from context_agent.harness.profile import default, named_profile
from context_agent.testing import tiny_runs
from context_agent.train.agents import episode_profile
from context_agent.train.checkpoints import binding_differences, binding_settings, settings_digest
from context_agent.train.config import Loss, ParlForm
from context_agent.train.curriculum import CurriculumStage
from context_agent.train.estimate import estimate_run
from context_agent.train.rewards import RewardConfig, RewardPreset
from context_agent.train.run_file import parse_run, read_run

CONFIGS = Path(__file__).parents[2] / "configs"
LEAST: dict[str, Any] = {"model": {"name": "some/model"}, "data": {"questions": ["tasks.jsonl"], "path": ".ctx1"}}


JUDGE = {"model": "m", "max_calls": 1}
ALONE = {"judge": 1.0, "output": 0.0, "trajectory": 0.0, "answer": 0.0}


def test_the_defaults_are_those_of_the_report() -> None:
    run = parse_run(LEAST)
    assert run.rewards == RewardConfig()
    assert (run.rollouts.groups, run.rollouts.rollouts, run.rollouts.substeps) == (128, 8, 4)
    assert run.curriculum.beta is None
    assert (run.loss.kind, run.loss.cap) == (Loss.CISPO, 5.0)
    assert run.optimizer.betas == (0.9, 0.95)
    assert run.updates == run.rollouts.steps * 4


def test_every_table_is_read_into_its_values() -> None:
    run = parse_run(
        LEAST
        | {
            "curriculum": {"stages": [{"until": 0.25, "hops": 1}, {"until": 0.5, "hops": 2}], "beta": [3, 1]},
            "rewards": {"diversity": 0.1, "gamma": 0.9},
            "loss": {"kind": "dr_grpo", "clip": [0.1, 0.3]},
            "rollouts": {"baseline": "leave_one_out", "keep_negative": 0.5},
        }
    )
    assert run.curriculum.stages == (CurriculumStage(0.25, 1), CurriculumStage(0.5, 2))
    assert run.rewards.gamma == 0.9
    assert run.loss.kind is Loss.DR_GRPO
    assert run.rollouts.baseline == "leave_one_out"


def test_parl_needs_sub_agents_to_pay_for() -> None:
    run = parse_run(LEAST | {"episodes": {"swarm": 4}, "parl": {"parallel": 0.2, "form": "mixed"}})
    assert (run.episodes.swarm, run.parl.parallel, run.parl.form) == (4, 0.2, ParlForm.MIXED)
    with pytest.raises(ConfigError, match=r"episodes\.swarm = 0"):
        parse_run(LEAST | {"parl": {"parallel": 0.2}})


def test_a_model_for_sub_agents_needs_sub_agents_and_a_place_beside_the_trainer() -> None:
    swarm = {"swarm": 2, "searchers": "runs/sft/final"}
    assert parse_run(LEAST | {"episodes": swarm}).episodes.searchers == "runs/sft/final"
    with pytest.raises(ConfigError, match=r"episodes\.searchers"):
        parse_run(LEAST | {"episodes": {"searchers": "runs/sft/final"}})
    with pytest.raises(ConfigError, match=r"engine\.kind"):
        parse_run(LEAST | {"episodes": swarm, "engine": {"kind": "vllm"}})


def test_a_run_says_how_many_hits_a_search_shows() -> None:
    run = parse_run(LEAST | {"episodes": {"shown": 1}})
    assert episode_profile(run).search_limit == 1
    assert episode_profile(parse_run(LEAST)).search_limit == default().search_limit


def test_a_call_shows_the_profile_s_share_of_the_window_as_in_serving() -> None:
    lean = parse_run(LEAST | {"episodes": {"profile": "lean", "window": 2_048}}).episodes
    assert lean.budget == named_profile("lean").budget(2_048)
    assert lean.budget.per_call == 2_048 * 3 // 4
    assert parse_run(LEAST).episodes.budget.per_call == parse_run(LEAST).episodes.window // 8
    assert parse_run(LEAST | {"episodes": {"per_call": 100}}).episodes.budget.per_call == 100


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"rollout": {}}, r"unknown table \[rollout\]. Did you mean 'rollouts'"),
        ({"rewards": {"trajectry": 1}}, r"unknown key 'trajectry' in \[rewards\]. Did you mean 'trajectory'"),
        ({"curriculum": {"stages": [{"until": 1, "hop": 1}]}}, "unknown key 'hop' in .*Did you mean 'hops'"),
        ({"rollouts": {"groups": 0}}, "rollouts.groups must be at least 1"),
        ({"rollouts": {"groups": "many"}}, "rollouts.groups: Input should be a valid integer"),
        ({"rollouts": {"steps": 10**400}}, r"rollouts.steps must be at most 9.2e\+18; got a larger number"),
        ({"loss": {"clip": [0.2, 1e300]}}, r"loss.clip must be at most 3.4e\+38"),
        ({"rewards": {"gamma": 2}}, "gamma must be in"),
        ({"loss": {"kind": "ppo"}}, "loss.kind: Input should be 'cispo', 'grpo', 'dr_grpo' or 'reinforce'"),
        ({"loss": {"staleness": 1}}, "With rollouts.substeps = 4, set loss.staleness to at least 3"),
        (
            {"async_rollouts": {"max_steps_ahead": 2}},
            "max_steps_ahead = 2 and rollouts.substeps = 4, set loss.staleness to at least 11",
        ),
        ({"async_rollouts": {"max_steps_ahead": 0}}, "async_rollouts.max_steps_ahead: Input should be greater than 0"),
        ({"async_rollouts": {"quota": 1.5}}, "async_rollouts.quota: Input should be less than or equal to 1"),
        (
            {"async_rollouts": {"max_step_ahead": 1}},
            r"unknown key 'max_step_ahead' in \[async_rollouts\]. Did you mean",
        ),
        ({"model": {}}, "Set model.name, or describe a tiny model in .model.tiny."),
        ({"model": {"name": "m", "tiny": {}}}, "Remove one of them"),
        ({"model": {"name": "m", "renderer": "words"}}, ".data.world. need each other"),
        ({"data": {"world": {}, "path": "x"}}, "data.world has its own corpus"),
        ({"data": {"world": {}, "dev": ["x"], "embedder": "e"}}, "Leave out data.dev, data.embedder"),
        (
            {"data": {"documents": ["x"], "embedder": "none"}},
            'Set data.embedder = "static", which needs neither a model nor a network',
        ),
        ({"checkpoints": {"keep": 1}}, "checkpoints.keep: Input should be greater than or equal to 2"),
        ({"sft": {"rows": 10, "rows_per_pass": 4}}, "must be a multiple"),
        ({"judge": {"model": "m", "max_calls": 1}}, "a model in judge.model and a weight in rewards.judge"),
        ({"rewards": {"judge": 1.0}}, "a model in judge.model and a weight in rewards.judge"),
        ({"judge": {"model": "m"}, "rewards": {"judge": 1.0}}, "the judge has no cap"),
        ({"judge": {"modle": "m"}}, r"unknown key 'modle' in \[judge\]. Did you mean 'model'"),
        ({"judge": JUDGE, "rewards": ALONE}, "rewards.judge is the only gain that counts"),
        (
            {"judge": JUDGE | {"questions": "some"}, "rewards": {"judge": 1.0}},
            "judge.questions: .*'without_gold' or 'all'",
        ),
        ({"episodes": {"window": 100}}, "episodes.window must be at least 512"),
        (
            {"episodes": {"window": 60, "reserve": 8}},
            "episodes.window must be at least 64, which is 8 times the reserve",
        ),
        (
            {"episodes": {"window": 512, "reserve": 8, "windows": [32, 512]}},
            r"episodes.windows must be between 64 \(8 times the reserve\) and episodes.window = 512; got \[32, 512\]",
        ),
        (
            {"episodes": {"window": 512, "reserve": 8, "windows": [1024]}},
            r"episodes.windows must be between 64 \(8 times the reserve\) and episodes.window = 512; got \[1024\]",
        ),
        ({"episodes": {"reserve": 0}}, "episodes.reserve: .* greater than 0"),
        ({"optimizer": {"learning_rate": math.inf}}, "optimizer.learning_rate must be a finite number; got inf"),
        ({"curriculum": {"beta": [4.0, math.nan]}}, "curriculum.beta must be a finite number; got nan"),
        ({"seed": -1}, "seed: Input should be greater than or equal to 0"),
        ({"rollouts": {"seed": 2**31}}, "rollouts.seed: Input should be less than 2147483648"),
        ({"rollouts": {"keep_negative": 1.5}}, "rollouts.keep_negative: Input should be less than or equal to 1"),
        ({"optimizer": {"betas": [0.9, 1.0]}}, "optimizer.betas.1: Input should be less than 1"),
        ({"optimizer": {"schedule": "constant", "warmup": 5}}, "optimizer.warmup = 5 has no effect"),
        ({"model": {"name": "m", "lora": {"modules": []}}}, "name no layer, so nothing would be trained"),
        ({"model": {"name": "m", "lora": {"modules": ["q_proj", ""]}}}, "model.lora.modules = .* have an empty name"),
        ({"model": {"name": "m", "lora": {"rank": 10**11}}}, "model.lora.rank: .* less than or equal to 4096"),
        ({"model": {"name": "m", "adapter": ""}}, "model.adapter must not be empty"),
        ({"episodes": {"swarm": 1, "searchers": ""}}, "episodes.searchers must not be empty; .* or leave it out"),
        (
            {"episodes": {"window": 4096, "per_call": 3073}},
            "episodes.per_call must be at most 3072, three quarters of episodes.window = 4096; got 3073",
        ),
        ({"judge": {"timeout": -1.0}}, "judge.timeout: Input should be greater than 0"),
        ({"judge": {"retries": -1}}, "judge.retries: Input should be greater than or equal to 0"),
        ({"judge": {"price_in": -0.1}}, "judge.price_in: Input should be greater than or equal to 0"),
        ({"judge": {"max_cost": math.nan}}, "judge.max_cost must be a finite number; got nan"),
        ({"threads": 2**40}, "threads: Input should be less than or equal to 10000"),
        ({"judge": {"max_cost": 0.0}}, "judge.max_cost: Input should be greater than 0"),
        ({"judge": {"max_calls": -1}}, "judge.max_calls: Input should be greater than 0"),
        ({"judge": {"max_tokens_total": 0}}, "judge.max_tokens_total: Input should be greater than 0"),
        ({"rollouts": {"save_every": -1}}, "rollouts.save_every: Input should be greater than or equal to 0"),
        ({"rewards": {"output": -1.0}}, "rewards.output must be at least 0, because it is a weight; got -1.0"),
        (
            {"rewards": {"mistake": -0.1}},
            "rewards.mistake must be at least 0, because it is subtracted from the reward",
        ),
        ({"rewards": {"prune_call": -0.1}}, "rewards.prune_call must be at least 0"),
        ({"rewards": {"turn_most": -0.5}}, "rewards.turn_most must be at least 0"),
        ({"out": ""}, "out must be the path of a folder; got ''"),
        ({"out": "a\0b"}, "out must be the path of a folder"),
    ],
)
def test_invalid_settings_are_refused_by_name(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_run(LEAST | change)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[optimizer]\nwarmup = true", "optimizer.warmup"),
        ("[optimizer]\nlearning_rate = true", "optimizer.learning_rate"),
        ("[sft]\nepochs = '2'", "sft.epochs"),
        ("[sft]\nepochs = 2.0", "sft.epochs"),
        ("[parl]\nparallel = '0.5'", "parl.parallel"),
        ("[curriculum]\nstages = [{until = '1', hops = 2}]", "curriculum.stages.0.until"),
        ("[loss]\nrouter_replay = 1", "loss.router_replay"),
        ("[loss]\nrouter_replay = 'yes'", "loss.router_replay"),
        ("[engine]\nbase_url = 2024-01-01", "engine.base_url"),
    ],
)
def test_no_value_changes_its_type(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(f'seed = 1\n[model]\nname = "m"\n[data]\n{text}\n')
    with pytest.raises(ConfigError, match=re.escape(f"{path}: {key}")):
        read_run(path)


def test_a_whole_number_is_a_number() -> None:
    assert parse_run(LEAST | {"minutes": 2, "optimizer": {"learning_rate": 1}}).minutes == 2.0


def test_a_judge_may_be_the_only_gain_where_that_is_meant() -> None:
    run = parse_run(LEAST | {"judge": JUDGE | {"alone": True}, "rewards": ALONE})
    assert run.rewards.judge == 1.0
    parse_run(LEAST | {"judge": JUDGE, "rewards": ALONE | {"diversity": 0.1}})


def test_a_run_without_a_judge_binds_nothing_of_it() -> None:
    plain = parse_run(LEAST).plain()
    older = {key: value for key, value in plain.items() if key != "judge"}
    older["rewards"] = {key: value for key, value in older["rewards"].items() if key != "judge"}
    assert binding_differences(older, plain) == []
    assert settings_digest(older) == settings_digest(plain)
    judged = parse_run(LEAST | {"judge": JUDGE, "rewards": {"judge": 0.5}})
    dearer = parse_run(LEAST | {"judge": JUDGE | {"max_calls": 9, "calibration": "x"}, "rewards": {"judge": 0.5}})
    other = parse_run(LEAST | {"judge": JUDGE | {"model": "n"}, "rewards": {"judge": 0.5}})
    assert binding_differences(judged.plain(), dearer.plain()) == []
    assert binding_differences(judged.plain(), other.plain()) == ["judge.model was 'm' and is 'n'"]


def test_a_missing_or_invalid_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the run file"):
        read_run(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("model = ")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_run(tmp_path / "bad.toml")


def test_changes_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('out = "a"\n[model]\nname = "m"\n[data]\n')
    run = read_run(path, {"out": "b", "rollouts.groups": 4})
    assert (run.out, run.rollouts.groups) == ("b", 4)


def test_changes_stay_as_the_caller_passed_them(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[model]\nname = "m"\n[data]\nquestions = ["q.jsonl"]\npath = "x"\n')
    changes = {"rollouts": {"groups": 2}, "rollouts.groups": 4}
    assert read_run(path, changes).rollouts.groups == 4
    assert changes == {"rollouts": {"groups": 2}, "rollouts.groups": 4}


def test_a_run_is_made_again_from_its_plain_data() -> None:
    run = parse_run(
        LEAST | {"model": {"name": "m", "lora": {"rank": 8}}, "curriculum": {"stages": [{"until": 1, "hops": 2}]}}
    )
    assert parse_run(run.plain()) == run


def test_what_decides_what_is_learned_is_in_the_digest_and_the_rest_is_not() -> None:
    run = parse_run(LEAST)
    unbound = parse_run(LEAST | {"out": "other", "checkpoints": {"every": 9}, "logging": {"to": ["tensorboard"]}})
    assert settings_digest(run.plain()) == settings_digest(unbound.plain())
    assert binding_differences(run.plain(), unbound.plain()) == []
    other = parse_run(LEAST | {"rollouts": {"groups": 64}, "seed": 3})
    assert settings_digest(run.plain()) != settings_digest(other.plain())
    assert binding_differences(run.plain(), other.plain()) == [
        "seed was 0 and is 3",
        "rollouts.groups was 128 and is 64",
    ]


def test_all_of_a_run_binds_but_what_is_named_free() -> None:
    plain = parse_run(LEAST).plain()
    free = {key.split(".")[0] for key, _ in flat_settings(plain)} - {
        key.split(".")[0] for key in binding_settings(plain)
    }
    # This run has no judge; a run with one binds the model, the rubric and whatever else decides a verdict.
    assert free == {"out", "minutes", "threads", "checkpoints", "evaluation", "logging", "expected", "judge"}


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_configurations_that_come_with_it_fit_their_machines(path: Path) -> None:
    run = read_run(path)
    if run.model.tiny is None and run.model.renderer == "words":
        run = read_run(path, {"model.name": "", "model.tiny": {}})
    estimate = estimate_run(run, kind="sft" if path.stem.endswith("-sft") else "rl")
    assert estimate.room is None or estimate.memory.peak <= estimate.room, estimate.lines()
    assert estimate.memory.peak > 0


def test_there_is_one_for_each_machine_that_is_promised() -> None:
    names = {path.stem for path in CONFIGS.glob("*.toml")}
    assert {"gpt-oss-20b-1gpu", "gpt-oss-20b-2gpu", "gpt-oss-20b-8gpu", "qwen3-4b-1gpu", "tiny-laptop"} <= names


def test_a_run_does_not_overlap_unless_it_says_so_and_older_checkpoints_go_on() -> None:
    plain = parse_run(LEAST).plain()
    assert plain["async_rollouts"] is None
    older = {key: value for key, value in plain.items() if key != "async_rollouts"}
    assert binding_differences(older, plain) == []
    assert binding_differences(plain, parse_run(LEAST | {"async_rollouts": {}}).plain())


def test_a_row_may_be_as_old_as_the_steps_ahead_and_what_a_server_misses() -> None:
    assert parse_run(LEAST).oldest == 3
    assert parse_run(LEAST | {"async_rollouts": {}}).oldest == 7
    server = {"engine": {"kind": "vllm", "every": 2}, "async_rollouts": {}, "loss": {"staleness": 11}}
    assert parse_run(LEAST | server).oldest == 11


def test_the_preset_decides_the_rewards_that_a_run_file_leaves_out() -> None:
    run = parse_run(LEAST | {"rewards": {"preset": "context-1", "answer": 0.2}})
    assert run.rewards == RewardConfig(preset=RewardPreset.CONTEXT_1, answer=0.2)
    assert (run.rewards.output, run.rewards.answer, run.rewards.cost) == (0.7, 0.2, 0.0)
    assert parse_run(run.plain()) == run
    with pytest.raises(ConfigError, match=r"rewards\.preset: .*default.*context-1"):
        parse_run(LEAST | {"rewards": {"preset": "context-2"}})


def test_the_bound_on_the_mismatch_follows_the_type(tmp_path: Path) -> None:
    def bound(dtype: str, **loss: float) -> float:
        return parse_run(LEAST | {"model": {"name": "m", "dtype": dtype}, "loss": loss}).mismatch_bound

    assert bound("float32") < bound("float16") < bound("bfloat16")
    assert bound("float32", mismatch=0.3) == 0.3


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"loss": {"kind": "reinforce", "mask_above": 0.1}}, r"loss\.mask_above = 0\.1 has no effect"),
        ({"loss": {"cap": 0.28}}, r"loss\.cap.*greater than or equal to 1"),
        ({"rollouts": {"refill": 2}, "async_rollouts": {}}, r"rollouts\.refill needs the rewards"),
        ({"rollouts": {"refill": -1}}, r"rollouts\.refill must be at least 0"),
        ({"engine": {"temperature": 0.0}}, r"engine\.temperature"),
        ({"engine": {"top_p": 0.9}}, r"unknown key 'top_p'"),
    ],
)
def test_settings_that_the_loss_could_not_follow_are_refused(tables: dict[str, Any], message: str) -> None:
    """The sampler reports log-probabilities before top-p, so a nucleus would train with wrong ratios."""
    with pytest.raises(ConfigError, match=message):
        parse_run(LEAST | tables)


@pytest.mark.parametrize(
    "change",
    [
        {"rollouts": {"rollouts": 10**9}},
        {"rollouts": {"groups": 10**12}},
        {"data": {"world": {"worlds": 10**9}}},
        {"model": {"tiny": {"hidden": 10**7}}},
        {"model": {"tiny": {"layers": 10**8}}},
    ],
)
def test_a_number_that_no_memory_holds_is_refused_at_the_start(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        tiny_runs.demonstrations(tmp_path, **change)
