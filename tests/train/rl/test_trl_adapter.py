"""The gradient of the trainer is that of the formula."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError, DataError
from context_agent.policies.tokens.prompt import TokenCall
from context_agent.train.config import Loss
from context_agent.train.rows import TrainingRow, WeightedRow, rows_of_calls

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
transformers = pytest.importorskip("transformers")

VOCABULARY = 320


class Fixed:
    """A source with the same rows at each step."""

    def __init__(self, items: Sequence[WeightedRow]) -> None:
        self.items = items

    def rows(self, step: int) -> Sequence[WeightedRow]:
        return self.items


def made_rows(seed: int = 0, count: int = 9, *, weights: bool = False) -> list[WeightedRow]:
    rng = random.Random(seed)
    return [_row(rng, f"e{number % 3}", rng.randrange(5, 40), weights=weights) for number in range(count)]


def _row(rng: random.Random, episode: str, length: int, *, weights: bool) -> WeightedRow:
    ids = [rng.randrange(VOCABULARY) for _ in range(length)]
    mask = [0, 1, *(int(rng.random() < 0.4) for _ in range(length - 2))]
    logprobs = [-3 - 4 * rng.random() if sampled else 0.0 for sampled in mask]
    scale = tuple(rng.random() * sampled for sampled in mask) if weights else ()
    return WeightedRow(TrainingRow(ids, mask, logprobs, episode, "g"), rng.uniform(-1, 1), scale)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return small_tokenizer()


def small_tokenizer() -> Any:
    from context_agent.train.tiny_model import for_transformers, tiny_tokenizer

    return for_transformers(tiny_tokenizer(["search the corpus for comets and operas"] * 9, size=VOCABULARY))


def model(tokenizer: Any) -> Any:
    from context_agent.train.tiny_model import tiny_config

    torch.manual_seed(0)
    config = tiny_config(tokenizer, positions=128, yarn=False)
    config.vocab_size = VOCABULARY
    return transformers.GptOssForCausalLM(config)


def trainer(model: Any, items: Sequence[WeightedRow], tokenizer: Any, out: Path, **options: Any) -> Any:
    from context_agent.train.rl.trl_adapter import RowTrainer, grpo_arguments

    loss = options.pop("loss", Loss.CISPO)
    most_tokens = options.pop("most_tokens", 0)
    settings = {"max_steps": 1, "learning_rate": 0.0, "max_grad_norm": 0.0, "save_strategy": "no"} | options
    args = grpo_arguments(
        loss, output_dir=str(out), use_cpu=True, bf16=False, report_to=[], disable_tqdm=True, **settings
    )
    return RowTrainer(model, Fixed(items), args=args, tokenizer=tokenizer, loss=loss, most_tokens=most_tokens)


def gradients(row_trainer: Any) -> dict[str, Any]:
    """Trains one step and returns the gradients that reach the optimiser."""
    captured: dict[str, Any] = {}

    class CaptureGradients(transformers.TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
            captured.update({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})

    row_trainer.add_callback(CaptureGradients())
    row_trainer.train()
    return captured


def by_hand(model: Any, items: Sequence[WeightedRow], weigh: Callable[[Any], Any]) -> dict[str, Any]:
    """-(1/N) sum mask * weigh(ratio) * A * log p, row by row; the ratio of a demonstrated row is 1."""
    model.zero_grad()
    total = sum(item.row.trained for item in items)
    for item in items:
        ids = torch.tensor([item.row.input_ids])
        logps = torch.log_softmax(model(input_ids=ids).logits[:, :-1].float(), -1).gather(-1, ids[:, 1:, None])[..., 0]
        ratio = torch.exp(logps - torch.tensor([item.row.logprobs])[:, 1:])
        scale = torch.tensor([item.weights or (1.0,) * item.length])[:, 1:] * item.advantage
        mask = torch.tensor([item.row.loss_mask])[:, 1:]
        ratio = torch.ones_like(ratio) if item.demonstrated else ratio
        (-(weigh(ratio).detach() * scale * logps * mask).sum() / total).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def difference(first: dict[str, Any], second: dict[str, Any]) -> float:
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


@pytest.mark.parametrize("most_tokens", [0, 120])
@pytest.mark.parametrize(
    ("loss", "weigh"),
    [(Loss.CISPO, lambda ratio: ratio.clamp(max=5.0)), (Loss.REINFORCE, lambda ratio: ratio * 0 + 1)],
)
def test_the_gradient_is_the_formula_s(
    loss: Loss, weigh: Callable[[Any], Any], most_tokens: int, tokenizer: Any, tmp_path: Path
) -> None:
    tiny, items = model(tokenizer), made_rows()
    actual = gradients(trainer(tiny, items, tokenizer, tmp_path, loss=loss, most_tokens=most_tokens))
    assert max(float(value.abs().max()) for value in actual.values()) > 1e-3
    assert difference(actual, by_hand(tiny, items, weigh)) <= 1e-6


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
    actual = gradients(trainer(tiny, items, tokenizer, tmp_path, most_tokens=most_tokens))
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
    actual = gradients(trainer(tiny, items, tokenizer, tmp_path, most_tokens=120))
    assert difference(actual, by_hand(tiny, items, lambda ratio: ratio.clamp(max=5.0))) <= 1e-6


def test_grpo_averages_a_row_and_then_the_rows(tokenizer: Any, tmp_path: Path) -> None:
    tiny, items = model(tokenizer), made_rows()
    actual = gradients(trainer(tiny, items, tokenizer, tmp_path, loss=Loss.GRPO))
    tiny.zero_grad()
    for item in items:
        ids = torch.tensor([item.row.input_ids])
        logps = torch.log_softmax(tiny(input_ids=ids).logits[:, :-1].float(), -1).gather(-1, ids[:, 1:, None])[..., 0]
        ratio = torch.exp(logps - torch.tensor([item.row.logprobs])[:, 1:])
        mask = torch.tensor([item.row.loss_mask])[:, 1:]
        surrogate = torch.min(ratio * item.advantage, ratio.clamp(0.8, 1.28) * item.advantage)
        (-(surrogate * mask).sum() / mask.sum() / len(items)).backward()
    assert difference(actual, {n: p.grad for n, p in tiny.named_parameters() if p.grad is not None}) <= 1e-6


def test_a_kl_penalty_towards_the_first_weights_is_there_when_asked_for(tokenizer: Any, tmp_path: Path) -> None:
    from peft import LoraConfig

    tiny, items = model(tokenizer), made_rows()
    from context_agent.train.rl.trl_adapter import RowTrainer, grpo_arguments

    args = grpo_arguments(
        Loss.CISPO, output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[], disable_tqdm=True, beta=0.1,
        max_steps=3, learning_rate=0.01, save_strategy="no", logging_steps=1,
    )  # fmt: skip
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"])
    row_trainer = RowTrainer(tiny, Fixed(items), args=args, tokenizer=tokenizer, peft_config=lora)
    row_trainer.train()
    divergences = [entry["kl"] for entry in row_trainer.state.log_history if "kl" in entry]
    assert divergences[0] == pytest.approx(0, abs=1e-6)
    assert divergences[-1] > 1e-6


def test_rows_that_the_model_cannot_read_are_refused(tokenizer: Any, tmp_path: Path) -> None:
    long = WeightedRow(TrainingRow([1] * 200, [0] + [1] * 199, [0.0] * 200, "e", "g"), 1.0)
    with pytest.raises(DataError, match="200 ids; the model takes 128"):
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
    from context_agent.train.rl.trl_adapter import RowTrainer, grpo_arguments

    args = grpo_arguments(Loss.CISPO, output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[])
    args.gradient_accumulation_steps = 4
    with pytest.raises(ConfigError, match="accumulates the rows itself"):
        RowTrainer(model(tokenizer), Fixed([]), args=args, tokenizer=tokenizer)
