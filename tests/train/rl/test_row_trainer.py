"""The gradient of the trainer is that of the formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError, DataError, PolicyError
from context_agent.policies.tokens.recorded_calls import TokenCall
from context_agent.train.batches import WeightedRow
from context_agent.train.config import Loss
from context_agent.train.rows import TrainingRow, rows_of_calls
from tests.support.row_trainer import Fixed, gradients, made_rows, model, small_tokenizer, trainer

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return small_tokenizer()


def by_hand(
    model: Any,
    items: Sequence[WeightedRow],
    weigh: Callable[[Any], Any],
    *,
    loss: Loss = Loss.CISPO,
    temperature: float = 1.0,
    reference: Any = None,
    beta: float = 0.0,
) -> dict[str, Any]:
    """The gradient row by row, without anything of TRL's.

    CISPO and REINFORCE: -(1/N) sum mask * weigh(ratio) * A * log p. The clipped surrogates: `weigh` is not used, and
    N is GRPO's number of episodes, each a mean over the tokens of its rows, or Dr. GRPO's number of episodes times a
    constant. The ratio of a demonstrated row is 1. The divergence from the reference is Schulman's estimate, added
    with `beta` to each token.
    """
    from context_agent.train.rl.losses import DR_GRPO_TOKENS

    model.zero_grad()
    tokens = sum(item.row.trained for item in items)
    episodes = {item.row.episode_id for item in items}
    divisor = {Loss.GRPO: len(episodes), Loss.DR_GRPO: len(episodes) * DR_GRPO_TOKENS}.get(loss, tokens)
    for item in items:
        ids = torch.tensor([item.row.input_ids])
        logps = logps_of(model, ids, temperature)
        ratio = torch.exp(logps - torch.tensor([item.row.logprobs])[:, 1:])
        scale = torch.tensor([item.weights or (1.0,) * item.length])[:, 1:] * item.advantage
        mask = torch.tensor([item.row.loss_mask])[:, 1:]
        ratio = torch.exp(logps - logps.detach()) if item.demonstrated else ratio
        if loss in {Loss.GRPO, Loss.DR_GRPO}:
            losses = -torch.min(ratio * scale, ratio.clamp(0.8, 1.28) * scale)
        else:
            losses = -weigh(ratio).detach() * scale * logps
        if beta:
            with torch.no_grad():
                first = logps_of(reference, ids, temperature)
            losses = losses + beta * (torch.exp(first - logps) - (first - logps) - 1)
        own = sum(other.row.trained for other in items if other.row.episode_id == item.row.episode_id)
        total = (losses * mask).sum() / (own if loss is Loss.GRPO else 1)
        (total / divisor).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def logps_of(model: Any, ids: Any, temperature: float = 1.0) -> Any:
    logits = model(input_ids=ids).logits[:, :-1].float() / temperature
    return torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])[..., 0]


def difference(first: dict[str, Any], second: dict[str, Any]) -> float:
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def weigh_cispo(ratio: Any) -> Any:
    return ratio.clamp(max=5.0)


def weigh_reinforce(ratio: Any) -> Any:
    return ratio * 0 + 1


@pytest.mark.parametrize("most_tokens", [0, 60, 120, 10_000])
@pytest.mark.parametrize("loss", list(Loss))
def test_the_gradient_is_the_formula_s_whatever_the_passes(
    loss: Loss, most_tokens: int, tokenizer: Any, tmp_path: Path
) -> None:
    """Demonstrated rows are among them, and rows whose ids weigh differently."""
    weigh = weigh_reinforce if loss is Loss.REINFORCE else weigh_cispo
    tiny = model(tokenizer)
    items = [
        replace(item, demonstrated=number % 4 == 0)
        for number, item in enumerate([*made_rows(), *made_rows(seed=1, count=3, weights=True)])
    ]
    actual = gradients(trainer(tiny, items, tokenizer, tmp_path, loss=loss, pass_tokens=most_tokens))
    assert max(float(value.abs().max()) for value in actual.values()) > 1e-4
    assert difference(actual, by_hand(tiny, items, weigh, loss=loss)) <= 1e-6


@pytest.mark.parametrize("loss", [Loss.GRPO, Loss.DR_GRPO])
def test_an_episode_with_more_rows_does_not_count_more(loss: Loss, tokenizer: Any, tmp_path: Path) -> None:
    """An episode of one row and the same episode with a row for each half of its tokens have the same gradient."""
    tiny = model(tokenizer)
    ids = [7, 8, 9, 10, 11, 12]
    whole = TrainingRow(ids, [0, 0, 1, 1, 1, 1], [0.0, 0.0, -5.0, -5.0, -5.0, -5.0], "e1", "g")
    halves = [
        TrainingRow(ids[:4], [0, 0, 1, 1], [0.0, 0.0, -5.0, -5.0], "e1", "g"),
        TrainingRow(ids, [0, 0, 0, 0, 1, 1], [0.0, 0.0, 0.0, 0.0, -5.0, -5.0], "e1", "g"),
    ]
    other = WeightedRow(TrainingRow([5, 6, 7], [0, 1, 1], [0.0, -5.0, -5.0], "e2", "g"), -0.5)
    one, two = (
        gradients(trainer(tiny, [other, *(WeightedRow(row, 0.5) for row in rows)], tokenizer, tmp_path, loss=loss))
        for rows in ([whole], halves)
    )
    assert difference(one, two) <= 1e-6


def test_the_loss_is_at_the_temperature_at_which_was_sampled(tokenizer: Any, tmp_path: Path) -> None:
    tiny, items = model(tokenizer), made_rows()
    actual = gradients(trainer(tiny, items, tokenizer, tmp_path, temperature=0.5))
    assert difference(actual, by_hand(tiny, items, weigh_cispo, temperature=0.5)) <= 1e-6
    assert difference(actual, by_hand(tiny, items, weigh_cispo)) > 1e-4


@pytest.mark.parametrize("loss", [Loss.CISPO, Loss.GRPO])
def test_the_divergence_is_from_the_first_weights(loss: Loss, tokenizer: Any, tmp_path: Path) -> None:
    """All weights are trained, of a model that has no name; the second step's gradient is that of the formula."""
    tiny, first, items = model(tokenizer), model(tokenizer), made_rows()
    taken: list[tuple[dict[str, Any], dict[str, Any]]] = []

    class CaptureStep(transformers.TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
            weights = {name: value.clone() for name, value in model.state_dict().items()}
            taken.append(
                (weights, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
            )

    settings = {"kl": 0.5, "max_steps": 2, "learning_rate": 0.01, "lr_scheduler_type": "constant"}
    row_trainer = trainer(tiny, items, tokenizer, tmp_path, loss=loss, pass_tokens=120, **settings)
    row_trainer.add_callback(CaptureStep())
    row_trainer.train()
    weights, actual = taken[1]
    moved = model(tokenizer)
    moved.load_state_dict(weights)
    expected = by_hand(moved, items, weigh_cispo, loss=loss, reference=first, beta=0.5)
    assert difference(actual, expected) <= 1e-6
    assert difference(actual, by_hand(moved, items, weigh_cispo, loss=loss)) > 1e-4
    divergences = [entry["kl"] for entry in row_trainer.state.log_history if "kl" in entry]
    assert divergences[0] == 0
    assert divergences[1] > 1e-6


def sampled_by(tiny: Any, items: Sequence[WeightedRow], shift: float = 0.0) -> list[WeightedRow]:
    """The rows with the model's own log-probabilities, all of them higher by `shift`."""
    sampled = []
    for item in items:
        with torch.no_grad():
            logps = [0.0, *(logps_of(tiny, torch.tensor([item.row.input_ids]))[0] + shift).tolist()]
        sampled.append(replace(item, row=replace(item.row, logprobs=logps, policy_version="0")))
    return sampled


def test_rows_that_have_become_unlikely_are_not_trained_away_from(tokenizer: Any, tmp_path: Path) -> None:
    tiny = model(tokenizer)
    near, far = sampled_by(tiny, made_rows()), sampled_by(tiny, made_rows(seed=1), shift=0.3)
    masked = [item for item in far if item.advantage < 0]
    assert 0 < len(masked) < len(far)
    row_trainer = trainer(tiny, [*near, *far], tokenizer, tmp_path, pass_tokens=120, mask_above=0.2)
    actual = gradients(row_trainer)
    still = [replace(item, advantage=0.0) if item in masked else item for item in [*near, *far]]
    assert difference(actual, by_hand(tiny, still, weigh_cispo)) <= 1e-6
    assert row_trainer.state.log_history[0]["rows_masked"] == len(masked)


@pytest.mark.parametrize(
    ("loss", "ratio", "clipped"),
    [
        (Loss.CISPO, 7.0, {-1.0, 1.0}),
        (Loss.CISPO, 4.0, set()),
        (Loss.CISPO, 0.1, set()),
        (Loss.GRPO, 7.0, {1.0}),
        (Loss.GRPO, 0.1, {-1.0}),
        (Loss.DR_GRPO, 1.1, set()),
    ],
)
def test_the_clip_ratio_counts_the_tokens_whose_ratio_the_loss_bounds(
    loss: Loss, ratio: float, clipped: set[float], tokenizer: Any, tmp_path: Path
) -> None:
    """CISPO caps the ratio whatever the sign of the advantage. The surrogate clips where the minimum is constant."""
    tiny = model(tokenizer)
    rows = [replace(item, advantage=1.0 if at % 3 else -1.0) for at, item in enumerate(made_rows())]
    items = sampled_by(tiny, rows, shift=-math.log(ratio))
    row_trainer = trainer(tiny, items, tokenizer, tmp_path, loss=loss, pass_tokens=120)
    row_trainer.train()
    counted = sum(item.row.trained for item in items if item.advantage in clipped)
    share = counted / sum(item.row.trained for item in items)
    assert row_trainer.state.log_history[0]["clip_ratio"] == pytest.approx(share)


def test_a_sampler_of_other_log_probabilities_stops_the_run_and_the_weights_stay(
    tokenizer: Any, tmp_path: Path
) -> None:
    """Only rows that the present weights sampled count: older ones may differ, and demonstrated ones have none."""
    tiny = model(tokenizer)
    right, wrong = sampled_by(tiny, made_rows()), sampled_by(tiny, made_rows(seed=1), shift=0.3)
    older = [replace(item, row=replace(item.row, policy_version="-1"), demonstrated=True) for item in wrong]
    # Weights of an interrupted process have the same number as the present ones.
    lost = [replace(item, lost=True) for item in wrong]
    row_trainer = trainer(tiny, [*right, *older, *lost], tokenizer, tmp_path, mismatch=0.01)
    row_trainer.train()
    reported = row_trainer.state.log_history[0]
    assert reported["sampler/logp_difference_mean"] < reported["sampler/logp_difference_max"] < 1e-5
    assert reported["sampler/ratio_mean"] == pytest.approx(1, abs=1e-5)
    before = {name: value.clone() for name, value in tiny.state_dict().items()}
    with pytest.raises(PolicyError, match=r"in update 0, .* differ from the trainer's by 0\.\d+ on average"):
        trainer(tiny, [*right, *wrong], tokenizer, tmp_path, mismatch=0.01, learning_rate=0.1).train()
    assert all(torch.equal(before[name], value) for name, value in tiny.state_dict().items())


def test_only_trained_positions_get_logits(tokenizer: Any, tmp_path: Path) -> None:
    """Each row has a pass of its own here."""
    from trl.trainer import utils

    items, sizes = made_rows(), []
    chunked = utils._ChunkedLogProbFunction

    class Spy:
        @staticmethod
        def apply(hidden: Any, *rest: Any) -> Any:
            sizes.append(len(hidden))
            return chunked.apply(hidden, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "_ChunkedLogProbFunction", Spy)
        gradients(trainer(model(tokenizer), items, tokenizer, tmp_path))
    assert sorted(sizes) == sorted(item.row.trained for item in items)


@pytest.mark.parametrize("most_tokens", [0, 120])
def test_demonstrated_rows_weigh_by_their_advantage_alone(most_tokens: int, tokenizer: Any, tmp_path: Path) -> None:
    """Their log-probabilities do not matter; the sampled rows of the same update keep their ratios."""
    tiny = model(tokenizer)
    items = [replace(item, demonstrated=number % 3 == 0) for number, item in enumerate(made_rows())]
    actual = gradients(trainer(tiny, items, tokenizer, tmp_path, pass_tokens=most_tokens))
    assert difference(actual, by_hand(tiny, items, lambda ratio: ratio.clamp(max=5.0))) <= 1e-6
    sampled = [replace(item, demonstrated=False) for item in items]
    assert difference(actual, by_hand(tiny, sampled, lambda ratio: ratio.clamp(max=5.0))) > 1e-4


def test_a_row_that_two_versions_sampled_has_the_ratio_of_each_token(tokenizer: Any, tmp_path: Path) -> None:
    """An episode that was parked and went on under newer weights: its calls carry each sampler's log-probabilities."""
    tiny, older = model(tokenizer), model(tokenizer)
    with torch.no_grad():
        for value in older.parameters():
            value.add_(torch.randn_like(value) * 0.02)
    ids = list(range(20, 32))

    def logprobs(sampler: Any, start: int, end: int) -> tuple[float, ...]:
        with torch.no_grad():
            token_logprobs = torch.log_softmax(sampler(input_ids=torch.tensor([ids])).logits[0].float(), -1)
        return tuple(float(token_logprobs[position - 1, ids[position]]) for position in range(start, end))

    calls = [
        TokenCall(0, tuple(ids[:4]), tuple(ids[4:7]), logprobs(older, 4, 7), version="3"),
        TokenCall(7, tuple(ids[7:9]), tuple(ids[9:]), logprobs(tiny, 9, 12), version="4"),
    ]
    (row,) = rows_of_calls(calls, episode_id="e", group_id="g")
    assert row.policy_version == "3"
    items = [WeightedRow(row, 0.7)]
    actual = gradients(trainer(tiny, items, tokenizer, tmp_path))
    ratios: list[Any] = []
    by_formula = by_hand(tiny, items, lambda ratio: ratios.append(ratio.detach()) or ratio.clamp(max=5.0))
    assert difference(actual, by_formula) <= 1e-6
    assert max(abs(float(ratios[0][0, position - 1]) - 1) for position in (9, 10, 11)) < 1e-5
    assert min(abs(float(ratios[0][0, position - 1]) - 1) for position in (4, 5, 6)) > 1e-4


def test_ids_may_weigh_differently(tokenizer: Any, tmp_path: Path) -> None:
    tiny, items = model(tokenizer), made_rows(weights=True)
    actual = gradients(trainer(tiny, items, tokenizer, tmp_path, pass_tokens=120))
    assert difference(actual, by_hand(tiny, items, lambda ratio: ratio.clamp(max=5.0))) <= 1e-6


def test_the_divergence_of_adapters_is_from_the_first_ones(tokenizer: Any, tmp_path: Path) -> None:
    from peft import LoraConfig

    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    settings = {"kl": 0.1, "max_steps": 3, "learning_rate": 0.01, "peft_config": lora}
    row_trainer = trainer(model(tokenizer), made_rows(), tokenizer, tmp_path, **settings)
    row_trainer.train()
    divergences = [entry["kl"] for entry in row_trainer.state.log_history if "kl" in entry]
    assert divergences[0] == pytest.approx(0, abs=1e-6), "also where the first adapters already do something"
    assert divergences[-1] > 1e-6


def test_rows_that_the_model_cannot_read_are_refused(tokenizer: Any, tmp_path: Path) -> None:
    long = WeightedRow(TrainingRow([1] * 200, [0] + [1] * 199, [0.0] * 200, "e", "g"), 1.0)
    with pytest.raises(DataError, match="200 token ids, but the model takes at most 128"):
        trainer(model(tokenizer), [long], tokenizer, tmp_path).train()
    strange = WeightedRow(TrainingRow([1, 5_000], [0, 1], [0.0, -1.0], "e", "g"), 1.0)
    with pytest.raises(DataError, match="another tokenizer"):
        trainer(model(tokenizer), [strange], tokenizer, tmp_path).train()


def test_a_step_without_rows_changes_nothing(tokenizer: Any, tmp_path: Path) -> None:
    tiny = model(tokenizer)
    before = {name: value.clone() for name, value in tiny.state_dict().items()}
    trainer(tiny, [], tokenizer, tmp_path, learning_rate=0.1).train()
    assert all(torch.equal(before[name], value) for name, value in tiny.state_dict().items())


def test_gradient_accumulation_by_trl_is_refused(tokenizer: Any, tmp_path: Path) -> None:
    from context_agent.train.rl.row_trainer import RowTrainer, grpo_arguments

    args = grpo_arguments(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[])
    args.gradient_accumulation_steps = 4
    with pytest.raises(ConfigError, match="accumulates the rows itself"):
        RowTrainer(model(tokenizer), Fixed([]), args=args, tokenizer=tokenizer)
