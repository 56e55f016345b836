"""Weights that are sent as what changed: every bit arrives, and whatever is not whole or skips a version is refused."""

from __future__ import annotations

import hashlib
import multiprocessing
import shutil
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import DataError

torch = pytest.importorskip("torch")
pytest.importorskip("trl", reason="needs the train extra")

from context_agent.train.experimental.async_rollouts.weight_channel import (  # noqa: E402
    WeightChannel,
    WeightReceiver,
    WeightSender,
    selected,
)
from context_agent.train.experimental.async_rollouts.weight_delta import (  # noqa: E402
    DIGEST_BYTES,
    START,
    WHOLE,
    read_changes,
    write_changes,
)


def small_model(kind: Any = None) -> Any:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(500, 16), torch.nn.Linear(16, 64), torch.nn.LayerNorm(64))
    return model.to(kind or torch.float32)


def change(model: Any, share: float = 0.01, seed: int = 1) -> None:
    """Change about this share of the weights."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            hit = torch.rand(parameter.shape, generator=generator) < share
            parameter[hit] += 1.0


class Pair:
    """A sender and a receiver of a model's weights."""

    def __init__(self, folder: Path, kind: Any = None) -> None:
        self.trained, self.sampling = small_model(kind), small_model(kind)
        indices = range(len(list(self.trained.parameters())))
        self.channel = WeightChannel(multiprocessing.get_context("spawn"), folder / "changes", "0")
        self.sender = WeightSender(self.trained, indices, self.channel)
        self.receiver = WeightReceiver(indices, self.channel)
        self.full = sum(parameter.nbytes for parameter in self.trained.parameters())

    def put(self, version: str, **changes: Any) -> int:
        change(self.trained, seed=int(version), **changes)
        return self.sender.put(self.trained, version)

    def equal(self) -> bool:
        pairs = zip(self.trained.parameters(), self.sampling.parameters(), strict=True)
        return all(torch.equal(first, second) for first, second in pairs)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_every_version_arrives_and_few_changes_are_few_bytes(kind: Any, tmp_path: Path) -> None:
    pair = Pair(tmp_path, kind)
    assert pair.receiver.take(pair.sampling) == "0"
    for version in "12345":
        assert pair.put(version) < 0.2 * pair.full
        assert pair.receiver.take(pair.sampling) == version
        assert pair.equal()
    assert pair.receiver.take(pair.sampling) == "5", "taken once"


def test_all_weights_that_change_cost_no_more_than_all_weights(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    assert pair.put("1", share=2.0) < 1.05 * pair.full
    assert pair.receiver.take(pair.sampling) == "1"
    assert pair.equal()


def test_versions_that_the_sampler_had_no_time_for_are_not_missed(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    for version in "123":
        pair.put(version)
    assert pair.receiver.take(pair.sampling) == "3"
    assert pair.equal()
    pair.put("4")
    pair.put("5")
    assert pair.receiver.take(pair.sampling) == "5"
    assert pair.equal()


def test_bits_count_not_values(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    with torch.no_grad():
        pair.trained[1].bias[:2] = torch.tensor([-0.0, float("nan")])
    pair.sender.put(pair.trained, "1")
    pair.receiver.take(pair.sampling)
    assert pair.sampling[1].bias[:2].view(torch.int32).tolist() == pair.trained[1].bias[:2].view(torch.int32).tolist()


def half_written(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def one_bit_off(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [half_written, one_bit_off, empty, Path.unlink])
def test_a_damaged_file_is_refused_and_all_weights_are_sent(damage: Any, tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.put("1")
    pair.receiver.take(pair.sampling)
    before = [parameter.clone() for parameter in pair.sampling.parameters()]
    pair.put("2")
    damage(pair.channel.path)
    assert pair.receiver.take(pair.sampling) == "1", "what samples names the weights that it has"
    assert all(map(torch.equal, before, pair.sampling.parameters())), "nothing of it is applied"
    assert pair.put("3") > pair.full, "all weights"
    assert pair.receiver.take(pair.sampling) == "3"
    assert pair.equal()
    assert pair.put("4") < 0.2 * pair.full, "changes again"
    assert pair.receiver.take(pair.sampling) == "4"
    assert pair.equal()


def test_a_file_that_is_damaged_after_it_was_taken_costs_all_weights_once(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.put("1")
    pair.receiver.take(pair.sampling)
    half_written(pair.channel.path)
    assert pair.put("2") > pair.full
    assert pair.receiver.take(pair.sampling) == "2"
    assert pair.equal()


def test_a_file_on_top_of_a_missed_version_is_refused(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    known = [tensor.clone() for tensor in selected(pair.trained, range(5))]
    change(pair.trained)
    first = write_changes(tmp_path / "1", selected(pair.trained, range(5)), known, version="1", base=START)
    between = [tensor.clone() for tensor in selected(pair.trained, range(5))]
    change(pair.trained, seed=2)
    write_changes(tmp_path / "2", selected(pair.trained, range(5)), between, version="2", base=first.digest)
    target = selected(pair.sampling, range(5))
    with pytest.raises(DataError, match="A version is missing"):
        read_changes(tmp_path / "2", target, base=START)
    assert read_changes(tmp_path / "1", target, base=START) == ("1", first.digest)
    read_changes(tmp_path / "2", target, base=first.digest)
    assert pair.equal()
    with pytest.raises(DataError, match="A version is missing"):
        read_changes(tmp_path / "1", target, base=first.digest)


def test_an_older_file_that_is_put_back_is_refused(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.put("1")
    shutil.copy(pair.channel.path, tmp_path / "old")
    pair.receiver.take(pair.sampling)
    pair.put("2")
    shutil.copy(tmp_path / "old", pair.channel.path)
    assert pair.receiver.take(pair.sampling) == "1"
    assert pair.channel.refused.value
    pair.put("3")
    assert pair.receiver.take(pair.sampling) == "3"
    assert pair.equal()


@pytest.mark.parametrize("content", [b"", b"not safetensors", (2**62).to_bytes(8, "little") + b"{}"])
def test_a_file_of_something_else_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "changes").write_bytes(hashlib.sha256(content).digest() + content)
    with pytest.raises(DataError, match="does not fit the model"):
        read_changes(tmp_path / "changes", selected(small_model(), range(5)), base=START)


def test_weights_of_another_model_are_refused_before_anything_changes(tmp_path: Path) -> None:
    other = torch.nn.Linear(16, 64)
    written = write_changes(tmp_path / "changes", [other.bias.detach()], [], version="1", base=WHOLE)
    assert written.size == (tmp_path / "changes").stat().st_size > DIGEST_BYTES
    model = small_model()
    before = model[0].weight.clone()
    with pytest.raises(DataError, match="weight 0 has another shape or type"):
        read_changes(tmp_path / "changes", selected(model, range(5)), base=START)
    assert torch.equal(model[0].weight, before)


def test_changes_of_another_model_are_refused_before_anything_changes(tmp_path: Path) -> None:
    narrow, wide = torch.ones(1), torch.ones(7)
    write_changes(tmp_path / "changes", [narrow + 1], [narrow], version="1", base=START)
    with pytest.raises(DataError, match="weight 0 has another shape"):
        read_changes(tmp_path / "changes", [wide], base=START)
    assert torch.equal(wide, torch.ones(7))


def test_a_small_step_of_every_weight_costs_its_low_bytes(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    with torch.no_grad():
        for parameter in pair.trained.parameters():
            parameter.add_(1e-5 * torch.randn_like(parameter).sign())
    assert pair.sender.put(pair.trained, "1") < 0.75 * pair.full
    assert pair.receiver.take(pair.sampling) == "1"
    assert pair.equal()


def test_the_receiver_can_be_sent_to_another_process(tmp_path: Path, forked: ForkServerContext) -> None:
    pair = Pair(tmp_path)
    receiving, sending = forked.Pipe(duplex=False)
    pair.put("1")
    process = forked.Process(target=_receive, args=(pair.receiver, sending))
    process.start()
    version, weights = receiving.recv()
    process.join(120)
    assert version == "1"
    assert weights == [parameter.tolist() for parameter in pair.trained.parameters()]
    assert pair.put("2") < 0.2 * pair.full, "the sender knows that it was taken"
    assert pair.sender._base != START


def _receive(receiver: WeightReceiver, answer: Any) -> None:
    model = small_model()
    answer.send((receiver.take(model), [parameter.tolist() for parameter in model.parameters()]))
