"""The embedded policy's weights: files, missing inputs, and what is refused."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from context_agent.errors import ConfigError
from context_agent.policies.bridge import BridgePolicy, Scorer
from context_agent.policies.bridge.features import DIRECT
from context_agent.policies.bridge.links import LINK_FEATURES
from context_agent.policies.bridge.networks import FEATURES, INPUTS, Network, Scaling
from tests.support.two_hop_films import TRUSTING, calibrated


def made_scorer(seed=0):
    draw = np.random.default_rng(seed)
    networks = {}
    for name, inputs in INPUTS.items():
        scaling = Scaling.of(draw.normal(size=(50, len(inputs))).astype(np.float32), np.zeros(len(inputs), np.float32))
        layers = (
            (draw.normal(size=(len(inputs), 4)).astype(np.float32), np.zeros(4, np.float32)),
            (draw.normal(size=(4, 1)).astype(np.float32), np.zeros(1, np.float32)),
        )
        networks[name] = Network(scaling, (layers, layers))
    return Scorer.of(networks)


def test_weights_survive_a_file(tmp_path):
    scorer = made_scorer()
    scorer.save(tmp_path / "deep" / "weights.safetensors", {"made": "here"})
    loaded = Scorer.load(tmp_path / "deep" / "weights.safetensors")
    assert loaded.digest == scorer.digest
    rows = np.random.default_rng(1).normal(size=(7, len(DIRECT))).astype(np.float32)
    np.testing.assert_allclose(loaded.networks["first"](rows), scorer.networks["first"](rows), atol=0.02)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["weights.safetensors"]


def test_weights_in_column_order_survive_a_file(tmp_path: Path) -> None:
    scorer = made_scorer()
    networks = {
        name: dataclasses.replace(
            network,
            members=tuple(
                tuple((np.asfortranarray(weight), bias) for weight, bias in layers) for layers in network.members
            ),
        )
        for name, network in scorer.networks.items()
    }
    Scorer.of(networks).save(tmp_path / "weights")
    assert Scorer.load(tmp_path / "weights").digest == scorer.digest


def test_the_name_tells_the_weights_apart(tmp_path):
    names = set()
    for seed in (1, 2):
        made_scorer(seed).save(tmp_path / f"{seed}")
        names.add(BridgePolicy.load(tmp_path / f"{seed}").name)
    assert len(names) == 2
    assert all(re.fullmatch("bridge@[0-9a-f]{8}", name) for name in names)
    assert BridgePolicy(untrained=True).name == "bridge@untrained"


def test_weights_with_another_ranker_have_another_name():
    shipped = Scorer.shipped()
    parts = (shipped.networks, shipped.calibration, shipped.head)
    assert Scorer.of(*parts, shipped.ranker).digest != Scorer.of(*parts).digest


def test_what_is_no_weights_is_refused_with_its_name(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere.*No such file"):
        BridgePolicy.load(tmp_path / "nowhere")
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(ConfigError, match=r"junk has no weights of a bridge policy"):
        BridgePolicy.load(tmp_path / "junk")
    save_file({"a": np.zeros(2)}, tmp_path / "other")
    with pytest.raises(ConfigError, match=r"other features.*ctx1 train bridge"):
        BridgePolicy.load(tmp_path / "other")


@pytest.mark.parametrize("notes", [{"format": "1", "inputs": FEATURES["inputs"]}, {"format": "2"}, {}, None])
def test_weights_of_another_format_are_refused(tmp_path: Path, notes: dict[str, str] | None) -> None:
    save_file({"a": np.zeros(2)}, tmp_path / "weights", notes)
    with pytest.raises(ConfigError, match="was trained on other features"):
        Scorer.load(tmp_path / "weights")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("second.0.0.weight", np.nan, "second.0.0.weight has numbers that are not finite"),
        ("calibration.evidence", np.inf, "calibration.evidence has numbers that are not finite"),
        ("first.spread", 0, "a spread of the network 'first' is not positive"),
        ("ranker.depth", np.inf, "cannot convert float infinity"),
    ],
)
def test_weights_that_give_no_scores_are_refused(tmp_path: Path, name: str, value: float, reason: str) -> None:
    Scorer.shipped().save(tmp_path / "weights")
    with safe_open(tmp_path / "weights", framework="numpy") as file:
        notes, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    save_file(tensors | {name: np.full(tensors[name].shape, value, np.float32)}, tmp_path / "weights", notes)
    with pytest.raises(ConfigError, match=reason):
        Scorer.load(tmp_path / "weights")


def test_others_may_read_the_weights(tmp_path: Path) -> None:
    made_scorer().save(tmp_path / "weights")
    (tmp_path / "plain").touch()
    assert (tmp_path / "weights").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_missing_input_counts_as_average_and_raises_a_flag():
    rows = np.array([[1, np.nan], [3, 4], [5, 8]], dtype=np.float32)
    scaling = Scaling.of(rows, np.zeros(2, np.float32))
    scaled = scaling(rows)
    assert scaled.shape == (3, 3)
    assert scaled[0, 1] == 0
    assert scaled[:, 2].tolist() == [1, 0, 0]
    assert np.isfinite(scaling(np.full((2, 2), np.nan, np.float32))).all()


def test_the_scaling_is_the_mean_and_the_spread_of_the_values_that_are_there() -> None:
    rows = np.array([[1, np.nan, np.nan], [3, 4, np.nan], [5, 8, 7]], dtype=np.float32)
    scaling = Scaling.of(rows, np.zeros(3, np.float32))
    np.testing.assert_allclose(scaling.mean, [3, 6, 7])
    np.testing.assert_allclose(scaling.spread, [np.sqrt(8 / 3) + 0.001, 2.001, 0.001], rtol=1e-5)
    assert scaling.optional.tolist() == [0, 1, 1]
    far = scaling(np.array([[1e9, -1e9, 7]], np.float32))
    assert far.tolist() == [[4, -4, 0, 0, 0]], "a value counts as at most four spreads from the mean"


def test_an_optional_input_has_its_flag_even_where_training_never_missed_it():
    scaling = Scaling.of(np.ones((3, 2), np.float32), np.array([0, 1], np.float32))
    assert scaling(np.array([[1, np.nan]], np.float32)).tolist() == [[0, 0, 1]]


def test_probabilities_are_probabilities():
    scores = made_scorer().networks["second"](np.full((3, len(DIRECT + LINK_FEATURES)), 1e9, np.float32))
    assert ((scores >= 0) & (scores <= 1)).all()


def test_the_shipped_weights_fit_the_features():
    scorer = Scorer.shipped()
    assert set(scorer.networks) == set(INPUTS)
    for name, inputs in INPUTS.items():
        scores = scorer.networks[name](np.full((2, len(inputs)), np.nan, np.float32))
        assert np.isfinite(scores).all()


def damaged(weights: Sequence[int], bias: Sequence[int], *, mean: int = 3, members: int = 1) -> Network:
    """A network with three inputs, of which one may be missing, and two layers. The second layer has these shapes."""
    scaling = Scaling(np.zeros(mean, np.float32), np.ones(3, np.float32), np.array([0, 0, 1], np.float32))
    first = (np.ones((4, 2), np.float32), np.zeros(2, np.float32))
    return Network(scaling, ((first, (np.ones(weights, np.float32), np.zeros(bias, np.float32))),) * members)


@pytest.mark.parametrize(
    ("network", "problem"),
    [
        (damaged((2, 1), (1,)), ""),
        (damaged((2, 1), (1,), members=0), "must have members with 3 inputs"),
        (damaged((2, 1), (1,), mean=4), "must have members with 3 inputs"),
        (damaged((2,), ()), "does not fit the output of the layer before"),
        (damaged((3, 1), (1,)), "does not fit the output of the layer before"),
        (damaged((2, 1), (2,)), "does not fit the output of the layer before"),
        (damaged((2, 0), (0,)), "has no output"),
    ],
)
def test_a_network_whose_layers_do_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: Network, problem: str
) -> None:
    monkeypatch.setattr("context_agent.policies.bridge.networks.INPUTS", {"first": ("a", "b", "c")})
    Scorer.of({"first": network}).save(tmp_path / "weights")
    if problem:
        with pytest.raises(ConfigError, match=problem):
            Scorer.load(tmp_path / "weights")
    else:
        assert set(Scorer.load(tmp_path / "weights").networks) == {"first"}


def test_a_calibration_survives_a_file(tmp_path: Path) -> None:
    policy = calibrated()
    assert policy.scorer is not None
    policy.scorer.save(tmp_path / "weights")
    loaded = Scorer.load(tmp_path / "weights")
    assert loaded.digest == policy.scorer.digest != calibrated(None).name.removeprefix("bridge@")
    assert loaded.calibration is not None
    np.testing.assert_allclose(loaded.calibration.evidence, TRUSTING.evidence, rtol=1e-3)
    np.testing.assert_allclose(loaded.calibration.relevance, TRUSTING.relevance, rtol=1e-3)


@pytest.mark.parametrize("part", FEATURES)
def test_weights_of_other_features_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    scorer = Scorer.shipped()
    monkeypatch.setattr("context_agent.policies.bridge.networks.FEATURES", {**FEATURES, part: '["another", "feature"]'})
    scorer.save(tmp_path / "weights")
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="other features"):
        Scorer.load(tmp_path / "weights")


@pytest.mark.parametrize("part", ["evidence", "relevance", "stopping"])
def test_a_calibration_that_does_not_fit_is_refused(tmp_path: Path, part: str) -> None:
    scorer = Scorer.shipped()
    assert scorer.calibration is not None
    damaged = dataclasses.replace(scorer.calibration, **{part: np.zeros((1, 2), dtype=np.float32)})
    dataclasses.replace(scorer, calibration=damaged).save(tmp_path / "weights")
    with pytest.raises(ConfigError, match="has the wrong number of features"):
        Scorer.load(tmp_path / "weights")


def test_a_network_scales_its_inputs_and_keeps_their_signs() -> None:
    scaling = Scaling(*(np.array(part, np.float32) for part in ([1, -2], [2, 4], [0, 1])))
    hidden = np.array([[1, -1], [0.5, 2], [0.25, 0]], np.float32)
    output = (np.array([[1], [-3]], np.float32), np.array([0.5], np.float32))
    member = ((hidden, np.array([0.1, -0.1], np.float32)), output)
    network = Network(scaling, (member, member))
    # Row 1: inputs (1, 2, flag 0), hidden (2.1, 2.9), logit 2.1 - 3 * 2.9 + 0.5. Row 2: (-1, 0, 1), (-0.65 -> 0, 0.9).
    rows = np.array([[3, 6], [-1, np.nan]], np.float32)
    np.testing.assert_allclose(network.logits(rows), [2.1 - 3 * 2.9 + 0.5, -3 * 0.9 + 0.5], rtol=1e-5)
    assert network(rows) == pytest.approx(1 / (1 + np.exp([6.1, 2.2])), rel=1e-4)
