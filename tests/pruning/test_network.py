"""The learned judge: its features, its weights, and what it refuses."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from context_agent.errors import ConfigError
from context_agent.pruning.blocks import Passage
from context_agent.pruning.features import FEATURES, QUICK_FEATURES, QuickFeatures, matrix
from context_agent.pruning.goal import Goal
from context_agent.pruning.network import JUDGE_FORMAT, MAX_FILE_BYTES, JudgeNetwork, shipped_network
from context_agent.pruning.relevance import by_words
from context_agent.pruning.units import units

TEXTS = (
    "web-1   Running   0 restarts   4d",
    "web-2   CrashLoopBackOff   87 restarts   4d",
    "ledger-1   Running   0 restarts   5h",
    "search-9   Running   1 restart   2d",
)
PASSAGES = [Passage(text, 0, len(text), tokens=12) for text in TEXTS]


def test_the_shipped_judge_scores_rows_with_missing_features() -> None:
    rows = np.full((3, len(FEATURES)), np.nan, dtype=np.float32)
    rows[1] = 0.0
    rows[2] = 1e9
    scores = shipped_network()(rows)
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()


def test_the_score_of_a_row_does_not_depend_on_other_rows() -> None:
    rows = np.random.default_rng(0).normal(size=(40, len(FEATURES))).astype(np.float32)
    network = shipped_network()
    assert np.allclose(network(rows)[7], network(rows[7:8])[0], atol=1e-9)


def test_a_judge_comes_back_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "judge.safetensors"
    network = shipped_network()
    file.write_bytes(replace(network, hidden=np.asfortranarray(network.hidden)).to_bytes())
    rows = np.random.default_rng(0).normal(size=(5, len(FEATURES))).astype(np.float32)
    assert (JudgeNetwork.load(file)(rows) == shipped_network()(rows)).all()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"output": np.full(4, np.nan, np.float32)}, "output|shape"),
        ({"mean": np.full(len(FEATURES), np.inf, np.float32)}, "mean has numbers"),
        ({"spread": np.zeros(len(FEATURES), np.float32)}, "spread"),
        ({"hidden": np.zeros((3, 3), np.float32)}, "hidden"),
        ({"optional": np.array([10_000])}, "shape|no input"),
        ({"optional": np.full_like(shipped_network().optional, -1)}, "not the index of an input"),
    ],
)
def test_a_damaged_judge_is_refused(change: dict[str, np.ndarray], problem: str, tmp_path: Path) -> None:
    file = tmp_path / "judge.safetensors"
    file.write_bytes(replace(shipped_network(), **change).to_bytes())
    with pytest.raises(ConfigError, match=problem):
        JudgeNetwork.load(file)


@pytest.mark.parametrize("data", [b"", b"\xff" * 64, save({"mean": np.zeros(2)}), b"x" * (MAX_FILE_BYTES + 1)])
def test_a_file_that_is_no_judge_is_refused(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "judge.safetensors"
    file.write_bytes(data)
    with pytest.raises(ConfigError, match="Reinstall"):
        JudgeNetwork.load(file)


def test_a_judge_for_other_features_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "judge.safetensors"
    network = shipped_network()
    tensors = {name: getattr(network, name) for name in JudgeNetwork.__slots__}
    file.write_bytes(save(tensors, {"format": JUDGE_FORMAT, "features": "length"}))
    with pytest.raises(ConfigError, match="other features"):
        JudgeNetwork.load(file)


def test_the_features_by_words_are_known_of_every_passage() -> None:
    quick = QuickFeatures.of(PASSAGES, Goal("Which instance crashes over and over?", ("I list the pods.",)))
    rows = matrix(quick.columns)
    known = [FEATURES.index(name) for name in QUICK_FEATURES]
    assert np.isfinite(rows[:, known]).all()
    assert np.isnan(rows[:, [number for number in range(len(FEATURES)) if number not in known]]).all()


def test_scores_are_the_same_in_every_run_and_whatever_was_judged_before() -> None:
    goal = Goal("Which instance crashes over and over?")
    first = by_words(PASSAGES, goal)
    by_words(PASSAGES[::-1], Goal("Who is on duty?"))
    assert (by_words(PASSAGES, goal) == first).all()


def test_equal_passages_have_equal_scores() -> None:
    """Of passages with equal scores the earliest is removed first, so neighbors share a stub."""
    passages = [*PASSAGES, *PASSAGES]
    scores = by_words(passages, Goal("Which instance crashes over and over?"))
    assert (scores[:4] == scores[4:]).all()


@pytest.mark.parametrize("text", ["", "\n\n", "a\n" * 500, "word " * 2_000, "x" * 5_000])
def test_the_units_of_a_passage_say_all_of_it(text: str) -> None:
    found = units(Passage(text, 0, len(text)))
    assert found
    assert "".join("".join(found).split()) == "".join(text.split())
    assert len(found) <= 25
