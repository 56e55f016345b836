"""Train the pruner's judge: a small network over the features of a conversation's passages.

    python scripts/build_pruner.py collect benchmarks/data/tool-results/train --out FEATURES [--each 60] [--minutes 30]
    python scripts/build_pruner.py collect --sets DATA/musique DATA/policyqa ... --out FEATURES [--each 40]
    python scripts/build_pruner.py compare FEATURES
    python scripts/build_pruner.py export FEATURES [--out judge.safetensors]

`collect` composes a conversation for each labeled result, as `benchmarks/prune_tools.py` does, and writes the features
of its passages: by words, with similarity, and with the reader. With `--sets`, it plays an agent on the train questions
of question sets, as `benchmarks/prune_any.py` does on the dev questions. It takes turns among the kinds, with at
most `--each` conversations of a kind. It skips conversations that the folder already has, so you can use several runs.
Delete the folder when the features change. The shipped judge chooses what the reader reads, so another judge gives
slightly other weights.

`compare` leaves out each fold of kinds in turn, so that a kind is judged by a network that did not learn from it. It
prints an estimate of the share of the evidence that the prior alone keeps, and of the share that the network keeps. The
estimate reserves a fixed part of the room for stubs.

`export` trains on all conversations and writes the weights that ship with the package.

The network orders the passages of one conversation: each needed passage should score above all that are not needed (a
softmax loss over the conversation). It learns from all three stages, with the later features missing in the earlier
ones.

Needs torch.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from prune_any import ALWAYS  # noqa: E402
from prune_conversations import COUNTER, Message, QuestionSet  # noqa: E402
from prune_rivals import results_of  # noqa: E402
from prune_tools import LabeledResult, ToolConversations, load_results  # noqa: E402

from context_agent.pruning import ContextPruner, relevance  # noqa: E402
from context_agent.pruning.blocks import Passage  # noqa: E402
from context_agent.pruning.features import FEATURES, matrix  # noqa: E402
from context_agent.pruning.goal import Goal  # noqa: E402
from context_agent.pruning.network import MOST_DEVIATIONS, SHIPPED_JUDGE, JudgeNetwork  # noqa: E402
from context_agent.pruning.passages import cut  # noqa: E402
from context_agent.pruning.relevance import combined, stages  # noqa: E402

SHARES = (0.25, 0.1)
"""Shares of the tokens. The room decides which passages are read, so conversations take turns."""
STYLES, SET_TOKENS = ("dump", "run", "mixed"), 8_000
"""Styles of the agent that is played on a question, in turns, and the tokens of its conversation."""
STAGES = ("words", "similarity", "reader")
HIDDEN, EPOCHS, BATCH, MEMBERS = 32, 5, 24, 4
"""Hidden units of a member, passes over the conversations, stages in a step, and networks that are averaged."""
RATE, DECAY, DROPOUT = 3e-3, 1e-2, 0.1
FOLDS = 5
STUB_ROOM = {0.25: 0.88, 0.1: 0.75}
"""The estimated part of the room that stubs leave, for each share of the tokens."""
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Example:
    """The features of one conversation.

    Attributes:
        kind: The kind of tool.
        share: The share of the tokens that may remain.
        room: The tokens beside the passages that stay anyway.
        inputs: The features at each stage, shape (n_stages, n_passages, n_features).
        prior: The prior at each stage, shape (n_stages, n_passages).
        evidence: The characters of evidence in each passage, shape (n_passages,).
        tokens: The tokens of each passage, shape (n_passages,).
    """

    kind: str
    share: float
    room: int
    inputs: Floats
    prior: Floats
    evidence: Floats
    tokens: Floats


@dataclass(frozen=True, slots=True)
class Source:
    """A conversation to learn from.

    Attributes:
        id: The name of the conversation.
        kind: The kind of tool, or the question set.
        messages: The messages, in OpenAI's chat format.
        evidence: A function that returns how many characters of evidence each passage has, shape (n_passages,).
    """

    id: str
    kind: str
    messages: list[Message]
    evidence: Callable[[Sequence[Passage]], Floats]


def judged(messages: list[Message], share: float) -> tuple[Sequence[Passage], Goal] | None:
    """Return the passages and the goal that a judge gets. If nothing is pruned, return None."""
    seen: list[tuple[Sequence[Passage], Goal]] = []

    def judge(passages: Sequence[Passage], goal: Goal) -> NDArray[np.float64]:
        seen.append((passages, goal))
        return np.zeros(len(passages))

    shipped, relevance.READER_JUDGES["careful"] = relevance.READER_JUDGES["careful"], judge
    try:
        total = sum(map(COUNTER.count, results_of(messages)))
        ContextPruner(max(1, int(share * total)), effort="careful", prices=ALWAYS).prune(messages)
    finally:
        relevance.READER_JUDGES["careful"] = shipped
    return seen[0] if seen else None


def evidence_of(labeled: LabeledResult, passages: Sequence[Passage]) -> Floats:
    """Return how many characters of evidence each passage has, shape (n_passages,)."""
    spans = [(start, start + len(part)) for part in labeled.evidence if (start := labeled.result.find(part)) >= 0]
    own = {(passage.start, passage.end, passage.text) for passage in cut(labeled.result)}
    return np.array(
        [
            sum(max(0, min(passage.end, end) - max(passage.start, start)) for start, end in spans)
            * ((passage.start, passage.end, passage.text) in own)
            for passage in passages
        ],
        dtype=np.float32,
    )


def sentences_in(evidence: Sequence[str], passages: Sequence[Passage]) -> Floats:
    """Return how many characters of these sentences each passage has, shape (n_passages,)."""
    return np.array(
        [
            sum(len(part) if part in passage.text else len(passage.text) * (passage.text in part) for part in evidence)
            for passage in passages
        ],
        dtype=np.float32,
    )


def example_of(source: Source, share: float) -> Example | None:
    """Return the features of a conversation. If no passage that may be removed has evidence, return None."""
    found = judged(source.messages, share)
    if found is None:
        return None
    passages, goal = found
    free = [row for row in range(len(passages)) if row not in goal.staying and not passages[row].binary]
    evidence = source.evidence(passages)[free]
    if not 0 < (evidence > 0).sum() < len(free):
        return None
    known = [*stages(passages, goal)]
    return Example(
        source.kind,
        share,
        goal.room,
        np.stack([matrix(stage.columns)[free] for stage in known]),
        np.stack([stage.prior[free] for stage in known]).astype(np.float32),
        evidence,
        np.array([passages[row].tokens for row in free], dtype=np.float32),
    )


def tool_sources(folders: Sequence[Path], each: int) -> Iterator[Source]:
    """Yield a conversation for each labeled result, at most `each` of a kind, with the kinds in turns."""
    composed = ToolConversations(load_results(folders))
    by_kind: dict[str, list[LabeledResult]] = {}
    for labeled in composed.labeled:
        by_kind.setdefault(labeled.kind, []).append(labeled)
    for own in by_kind.values():
        random.Random(0).shuffle(own)
    for turn in zip_longest(*(own[:each] for own in by_kind.values())):
        for labeled in filter(None, turn):
            messages = composed.conversation(labeled).messages
            yield Source(labeled.id.replace("/", "_"), labeled.kind, messages, partial(evidence_of, labeled))


def set_sources(folders: Sequence[Path], each: int) -> Iterator[Source]:
    """Yield a conversation for each of the first train questions of every set, with the sets in turns."""
    sets = {folder.name: QuestionSet(folder, "train") for folder in folders}
    for number in range(each):
        for name, questions in sets.items():
            if number < len(questions.questions):
                played = questions.conversation(number, STYLES[number % len(STYLES)], SET_TOKENS, 0)
                yield Source(f"{name}-{number}", name, played.messages, partial(sentences_in, played.evidence))


def collect(sources: Iterator[Source], out: Path, minutes: float) -> None:
    """Write the features of the conversations, a file each."""
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * minutes
    for number, source in enumerate(sources):
        file = out / f"{source.id}.npz"
        if file.exists():
            continue
        if time.monotonic() > end:
            break
        if (example := example_of(source, SHARES[number % len(SHARES)])) is not None:
            values = {name: getattr(example, name) for name in Example.__slots__}
            part = file.with_suffix(".part")
            with part.open("wb") as stream:
                np.savez_compressed(stream, **values)
            part.replace(file)
    print(f"{len([*out.glob('*.npz')])} conversations")


def load_examples(folder: Path) -> list[Example]:
    """Return the conversations in a folder of features."""
    examples = []
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as stored:
            kind, share, room = (stored[name].item() for name in ("kind", "share", "room"))
            arrays = (stored[name] for name in ("inputs", "prior", "evidence", "tokens"))
            examples.append(Example(str(kind), float(share), int(room), *arrays))
    return examples


def fit(examples: Sequence[Example]) -> JudgeNetwork:
    """Return a network that learned from the conversations. Its hidden layer joins those of several members."""
    rows = np.concatenate([example.inputs.reshape(-1, len(FEATURES)) for example in examples])
    mean = np.nan_to_num(np.nanmean(rows, axis=0)).astype(np.float32)
    spread = np.nan_to_num(np.nanstd(rows, axis=0), nan=1.0).astype(np.float32)
    spread[spread < 1e-3] = 1.0
    optional = np.flatnonzero(np.isnan(rows).any(axis=0))
    inputs = []
    for example in examples:
        for stage in example.inputs:
            scaled = np.nan_to_num(np.clip((stage - mean) / spread, -MOST_DEVIATIONS, MOST_DEVIATIONS))
            inputs.append(torch.tensor(np.concatenate([scaled, np.isnan(stage[:, optional])], axis=1)).float())
    needed = [torch.tensor(example.evidence > 0) for example in examples for _ in STAGES]
    members = [_member(inputs, needed, seed) for seed in range(MEMBERS)]
    hidden, bias, output = (np.concatenate(parts, axis=-1) for parts in zip(*members, strict=True))
    return JudgeNetwork(mean, spread, optional, hidden, bias, (output / MEMBERS).astype(np.float32))


def _member(inputs: Sequence[torch.Tensor], needed: Sequence[torch.Tensor], seed: int) -> tuple[Floats, Floats, Floats]:
    """Return the hidden weights, the hidden biases and the output weights of one network."""
    torch.manual_seed(seed)
    order = list(range(len(inputs)))
    hidden, output = nn.Linear(inputs[0].shape[1], HIDDEN), nn.Linear(HIDDEN, 1, bias=False)
    network = nn.Sequential(hidden, nn.ReLU(), nn.Dropout(DROPOUT), output)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    steps = EPOCHS * -(-len(order) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=RATE, total_steps=steps)
    for epoch in range(EPOCHS):
        random.Random(f"{seed}:{epoch}").shuffle(order)
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            scores = network(torch.cat([inputs[row] for row in batch]))[:, 0].split([len(inputs[row]) for row in batch])
            losses = [
                nn.functional.softplus(torch.logsumexp(own[~needed[row]], 0) - own[needed[row]]).mean()
                for row, own in zip(batch, scores, strict=True)
            ]
            optimizer.zero_grad()
            torch.autograd.backward(torch.stack(losses).mean())
            optimizer.step()
            schedule.step()
    parts = (hidden.weight.T, hidden.bias, output.weight[0])
    weights, constants, outputs = (part.detach().numpy().astype(np.float32) for part in parts)
    return weights, constants, outputs


def kept(example: Example, scores: NDArray[np.float64]) -> float:
    """Return the share of the evidence in the best passages that fit the room."""
    order = np.argsort(-scores, kind="stable")
    room = STUB_ROOM[example.share] * example.room
    fitting = int(np.searchsorted(np.cumsum(example.tokens[order]), room, side="right"))
    return float(example.evidence[order[:fitting]].sum() / example.evidence.sum())


def scores_of(example: Example, stage: int, network: JudgeNetwork | None) -> NDArray[np.float64]:
    """Return the scores at a stage as the pruner computes them. Without a network, return the prior."""
    prior = example.prior[stage].astype(np.float64)
    if network is None:
        return prior
    return combined(network(example.inputs[stage]), np.log1p(example.tokens), prior)


def fold_of(kind: str) -> int:
    """Return the fold of a kind."""
    return crc32(kind.encode()) % FOLDS


def compared(examples: Sequence[Example]) -> Iterator[tuple[Example, list[tuple[float, float]]]]:
    """Yield each conversation with the shares of the evidence that the prior and the network keep at each stage."""
    for fold in range(FOLDS):
        network = fit([example for example in examples if fold_of(example.kind) != fold])
        for example in examples:
            if fold_of(example.kind) == fold:
                yield (
                    example,
                    [
                        (
                            kept(example, scores_of(example, stage, None)),
                            kept(example, scores_of(example, stage, network)),
                        )
                        for stage in range(len(STAGES))
                    ],
                )


def compare(folder: Path) -> None:
    """Print the share of the evidence that networks keep for kinds that they did not learn from."""
    rows = [*compared(load_examples(folder))]
    for share in SHARES:
        print(f"\n{share:.0%} of the tokens{'':11}n" + "".join(f"{it:>22}" for it in STAGES))
        own = [(example.kind, values) for example, values in rows if example.share == share]
        for kind in [*sorted({kind for kind, _ in own}), "all"]:
            values = np.array([values for it, values in own if kind in (it, "all")])
            means = "".join(f"{prior:11.3f} to {network:.3f}  " for prior, network in values.mean(axis=0))
            print(f"{kind:22}{len(values):6}{means}")


def main() -> None:
    """Run one step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("collect")
    step.add_argument("data", type=Path, nargs="*", help="folders of labeled results")
    step.add_argument("--sets", type=Path, nargs="*", default=[], help="folders of question sets")
    step.add_argument("--out", type=Path, required=True)
    step.add_argument("--each", type=int, default=60, help="the most conversations of a kind")
    step.add_argument("--minutes", type=float, default=60.0)
    step = steps.add_parser("compare")
    step.add_argument("features", type=Path)
    step = steps.add_parser("export")
    step.add_argument("features", type=Path)
    step.add_argument("--out", type=Path, default=ROOT / "context_agent" / "pruning" / SHIPPED_JUDGE)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.step == "collect":
        sources = chain(tool_sources(options.data, options.each), set_sources(options.sets, options.each))
        collect(sources, options.out, options.minutes)
    elif options.step == "compare":
        compare(options.features)
    else:
        examples = load_examples(options.features)
        options.out.write_bytes(fit(examples).to_bytes())
        kinds = len({example.kind for example in examples})
        print(f"{options.out}: learned from {len(examples)} conversations of {kinds} kinds")


if __name__ == "__main__":
    main()
