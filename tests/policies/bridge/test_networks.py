"""The embedded policy's weights: files, missing inputs, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save_file

from context_agent.errors import ConfigError
from context_agent.policies.bridge import BridgePolicy, Scorer
from context_agent.policies.bridge.features import DIRECT
from context_agent.policies.bridge.links import LINKS
from context_agent.policies.bridge.networks import INPUTS, Network, Scaling


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
    again = Scorer.load(tmp_path / "deep" / "weights.safetensors")
    assert again.digest == scorer.digest
    rows = np.random.default_rng(1).normal(size=(7, len(DIRECT))).astype(np.float32)
    np.testing.assert_allclose(again.networks["first"](rows), scorer.networks["first"](rows), atol=0.02)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["weights.safetensors"]


def test_the_name_tells_the_weights_apart(tmp_path):
    names = set()
    for seed in (1, 2):
        made_scorer(seed).save(tmp_path / f"{seed}")
        names.add(BridgePolicy.load(tmp_path / f"{seed}").name)
    assert len(names) == 2
    assert BridgePolicy(untrained=True).name == "bridge@untrained"


def test_what_is_no_weights_is_refused_with_its_name(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere.*No such file"):
        BridgePolicy.load(tmp_path / "nowhere")
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(ConfigError, match=r"junk has no weights of a bridge policy"):
        BridgePolicy.load(tmp_path / "junk")
    save_file({"a": np.zeros(2)}, tmp_path / "other")
    with pytest.raises(ConfigError, match=r"other features.*ctx1 train bridge"):
        BridgePolicy.load(tmp_path / "other")


def test_a_missing_input_counts_as_average_and_raises_a_flag():
    rows = np.array([[1, np.nan], [3, 4], [5, 8]], dtype=np.float32)
    scaling = Scaling.of(rows, np.zeros(2, np.float32))
    scaled = scaling(rows)
    assert scaled.shape == (3, 3)
    assert scaled[0, 1] == 0
    assert scaled[:, 2].tolist() == [1, 0, 0]
    assert np.isfinite(scaling(np.full((2, 2), np.nan, np.float32))).all()


def test_an_optional_input_has_its_flag_even_where_training_never_missed_it():
    scaling = Scaling.of(np.ones((3, 2), np.float32), np.array([0, 1], np.float32))
    assert scaling(np.array([[1, np.nan]], np.float32)).tolist() == [[0, 0, 1]]


def test_probabilities_are_probabilities():
    scores = made_scorer().networks["second"](np.full((3, len(DIRECT + LINKS)), 1e9, np.float32))
    assert ((scores >= 0) & (scores <= 1)).all()


def test_the_shipped_weights_fit_the_features():
    shipped = Scorer.shipped()
    assert shipped is not None
    assert set(shipped.networks) == set(INPUTS)
    for name, inputs in INPUTS.items():
        scores = shipped.networks[name](np.full((2, len(inputs)), np.nan, np.float32))
        assert np.isfinite(scores).all()
