"""Trains the embedded policy's reader, a small cross-encoder, and writes it as int8 ONNX.

    python scripts/build_reader.py pools --data FOLDER --sets musique,newsfacts --out pools.jsonl
    python scripts/build_reader.py train pools.jsonl ... --model FOLDER --out reader.pt [--folds 0,2,4]
        [--start reader.pt] [--minutes 40]
    python scripts/build_reader.py export reader.pt ... --model FOLDER --out reader.onnx

`pools` lets the embedded policy search every train question and writes the candidates that it saw, with their scores:
the hard negatives are those that the agent itself collected. `train` fits a cross-encoder to draws of (question and
evidence, passage). The evidence of a draw is what a search might have found by then: the best candidates by noisy
scores, without some of the gold, or nothing. `--folds` leaves out the questions of other folds (see
`train.bridge.fold_of`), for scores of questions that a reader did not learn from. `--start` goes on from a checkpoint.
`export` averages the weights of all checkpoints (model soups, Wortsman et al. 2022) and quantizes them.

The model starts from all-MiniLM-L6-v2 (Apache-2.0; --model is its folder). A pair is encoded as one text; the log-odds
are a linear function of the product of the mean vectors of its two parts. So before any training they are a scaled
cosine, as in the sentence model, and training only has to improve on it: from a new output layer on the first token,
thousands of steps pass before the loss falls at all.

Needs torch, transformers and onnx.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from build_minilm import quantise
from tokenizers import Tokenizer
from torch import Tensor
from transformers import BertModel

from context_agent._support.onnx import FORMAT, MAX_LENGTH, NAME, READER_FORMAT
from context_agent._support.question_files import Question, load_questions
from context_agent.harness.episode import Episode
from context_agent.harness.profile import Renderer, default
from context_agent.policies.bridge import BridgePolicy
from context_agent.policies.bridge.candidates import AnalyzedPassage, AnalyzedQuestion, analyze_question
from context_agent.policies.bridge.policy import BridgeActor
from context_agent.policies.bridge.reader import ReaderInput
from context_agent.pruning.budget import Budget
from context_agent.pruning.relevance import EVIDENCE
from context_agent.retrieval.chunker import SIZE, chunk_document
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.embedders import load_embedder
from context_agent.retrieval.embedders.local import TOKENIZER_FILE
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.tokens import HarmonyCounter
from context_agent.train.bridge import fold_of
from context_agent.types import Document

POOL = 48
"""Candidates of a question that are kept, the best by score."""
DRAWS = {"musique": 3, "newsfacts": 2, "hotpotqa": 1, "2wiki": 0.5}
"""Times that a question is used in an epoch; sets on which names lead less are used more."""
OTHER_DRAWS = 1.5
WITHOUT_EVIDENCE = 0.2
WITHHELD = 0.25
"""Chance that a gold passage is missing from the evidence."""
NOISE = 1.0
"""Spread of the noise on the log-odds that order the evidence."""
NEGATIVES, HARD, HARDEST = 5, 4, 12
"""Wrong passages of a draw, how many of them are among the best, and how many count as the best."""
LONGEST = 208
"""Word pieces of a pair at most."""
FROZEN_LAYERS = 1
"""Embeddings and the lowest layer are not trained: it is quicker, and words keep their meaning."""
BATCH, RATE, HEAD_RATE, WARMUP, DROPOUT = 2, 6e-5, 2e-2, 15, 0.05
SCALE, OFFSET = 12.0, -6.0
"""The log-odds at the start: SCALE times the cosine plus OFFSET."""
CROSS_ENTROPY, REPORTED = 0.3, 20
"""Share of binary cross entropy, which keeps the log-odds readable, beside the softmax loss; steps between reports."""


@dataclass(frozen=True)
class PoolPassage:
    """A passage of a pool. `score` is the policy's probability, 0 for gold that it did not see."""

    document: str
    title: str
    text: str
    score: float


@dataclass(frozen=True)
class Pool:
    """A question with what the policy saw, best first, and its gold. `idf` are the weights of the question's terms."""

    source: str
    id: str
    question: str
    idf: dict[str, float]
    gold: tuple[PoolPassage, ...]
    candidates: tuple[PoolPassage, ...]

    @classmethod
    def parse(cls, line: str) -> Pool:
        """A line of a file of pools."""
        row = json.loads(line)
        gold, candidates = (tuple(PoolPassage(**item) for item in row.pop(name)) for name in ("gold", "candidates"))
        return cls(**row, gold=gold, candidates=candidates)

    def analyzed(self) -> AnalyzedQuestion:
        """The question as the policy reads it. A term without a weight in the pool counts as rare."""
        rare = max(self.idf.values(), default=1.0)
        weights = lambda words: np.array([self.idf.get(word, rare) for word in words], dtype=np.float32)  # noqa: E731
        return analyze_question(self.question, weights)


def write_pools(options: argparse.Namespace) -> None:
    """Searches every question of the sets and writes a line for each."""
    embedder = load_embedder(options.embedder)
    with options.out.open("a", encoding="utf-8") as lines:
        for name in options.sets.split(","):
            folder, start = options.data / name, time.monotonic()
            corpus = MemoryCorpus(list(_chunks(folder)), embedder=embedder)
            questions = [q for q in load_questions(folder / f"queries.{options.split}.jsonl") if q.gold]
            for pool in _pools(name, corpus, questions[: options.limit]):
                lines.write(json.dumps(asdict(pool), ensure_ascii=False) + "\n")
            _note(f"{name}: {len(questions)} questions in {time.monotonic() - start:.0f} s")


def _chunks(folder: Path) -> Iterator[Any]:
    counter = HarmonyCounter()
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            document = Document(row["id"], row["text"], row["title"])
            yield from chunk_document(document, size=SIZE, counter=counter, overlap=0)


def _pools(name: str, corpus: Corpus, questions: Iterable[Question]) -> Iterator[Pool]:
    policy, renderer = BridgePolicy(effort="fast"), Renderer(default(), HarmonyCounter())
    for question in questions:
        actor = asyncio.run(_search(question.question, corpus, policy, renderer))
        analyzed = actor.notes.question
        candidates = tuple(
            PoolPassage(candidate.document_id, candidate.passage.heading, candidate.passage.text, round(score, 5))
            for candidate, score in actor.ranked()[:POOL]
        )
        by_document = {candidate.document: candidate for candidate in reversed(candidates)}
        gold = tuple(by_document.get(document) or _unseen_passage(corpus, document) for document in question.gold)
        idf = dict(zip(analyzed.terms, map(float, analyzed.idf), strict=True))
        yield Pool(name, question.id, question.question, idf, gold, candidates)


def _unseen_passage(corpus: Corpus, document: str) -> PoolPassage:
    chunk = corpus.read(document)[0]
    return PoolPassage(document, chunk.title, chunk.text, 0.0)


async def _search(question: str, corpus: Corpus, policy: BridgePolicy, renderer: Renderer) -> BridgeActor:
    actor = policy.open(question, corpus, profile=renderer.profile)
    episode = Episode(question, corpus, budget=Budget(), renderer=renderer, instructions="")
    view = episode.open()
    while not episode.done:
        view = await episode.step(await actor.act(view))
    return actor


@dataclass(frozen=True)
class Pair:
    """An example: what the reader sees, and whether the passage is gold."""

    premise: str
    passage: str
    label: float


def pairs_of(pool: Pool, draw: random.Random) -> Iterator[Pair]:
    """One draw: the gold passages and some wrong ones, all with evidence from the same noisy order."""
    texts = ReaderInput(pool.analyzed())
    gold_ids = {passage.document for passage in pool.gold}
    withheld = {document for document in gold_ids if draw.random() < WITHHELD}
    order = sorted(pool.candidates, key=lambda candidate: -_noisy(candidate.score, draw))
    empty = draw.random() < WITHOUT_EVIDENCE
    evidence = [] if empty else [passage for passage in order if passage.document not in withheld]
    negatives = [passage for passage in order if passage.document not in gold_ids]
    easier = negatives[HARDEST:]
    sample = draw.sample(negatives[:HARDEST], min(HARD, len(negatives[:HARDEST])))
    sample += draw.sample(easier, min(NEGATIVES - len(sample), len(easier)))
    for passage in (*pool.gold, *sample):
        context = _distinct(item for item in evidence if item.document != passage.document)
        candidate = AnalyzedPassage(passage.title, passage.text)
        yield Pair(texts.premise(context, candidate), texts.excerpt(candidate), float(passage.document in gold_ids))


def _noisy(score: float, draw: random.Random) -> float:
    odds = min(max(score, 1e-4), 1 - 1e-4)
    return float(np.log(odds / (1 - odds))) + draw.gauss(0, NOISE)


def _distinct(passages: Iterable[PoolPassage]) -> list[AnalyzedPassage]:
    by_document: dict[str, PoolPassage] = {}
    for passage in passages:
        by_document.setdefault(passage.document, passage)
        if len(by_document) == EVIDENCE:
            break
    return [AnalyzedPassage(passage.title, passage.text) for passage in by_document.values()]


def batches(pools: Sequence[Pool], draw: random.Random) -> Iterator[list[list[Pair]]]:
    """Draws without end, `BATCH` at a time."""
    shares = [DRAWS.get(pool.source, OTHER_DRAWS) for pool in pools]
    while True:
        epoch = [
            pool
            for pool, share in zip(pools, shares, strict=True)
            for _ in range(int(share) + (draw.random() < share % 1))
        ]
        draw.shuffle(epoch)
        for start in range(0, len(epoch) - BATCH + 1, BATCH):
            yield [list(pairs_of(pool, draw)) for pool in epoch[start : start + BATCH]]


class ReaderModel(torch.nn.Module):
    """MiniLM over a pair as one text; returns the log-odds and what they are computed from, shape (n, 1 + 384)."""

    def __init__(self, folder: Path, attention: str = "sdpa") -> None:
        super().__init__()
        self.bert = BertModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation=attention)
        self.head = torch.nn.Linear(self.bert.config.hidden_size, 1)
        torch.nn.init.constant_(self.head.weight, SCALE)
        torch.nn.init.constant_(self.head.bias, OFFSET)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """All inputs have shape (n, pieces)."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        outputs = self.bert(input_ids=input_ids, token_type_ids=token_type_ids, attention_mask=mask)
        hidden = outputs.last_hidden_state
        first, second = (_mean(hidden, mask * (token_type_ids == part)) for part in (0, 1))
        product = first * second
        return torch.cat([self.head(product), product], dim=1)


def _mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """The mean vector of the pieces in the mask, scaled to length 1."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1).clamp(min=1), dim=-1)


def train(options: argparse.Namespace) -> None:
    """Fits the model for some minutes and saves it."""
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    model = ReaderModel(options.model).train()
    if options.start:
        model.load_state_dict(torch.load(options.start, weights_only=True))
    optimizer = _optimizer(model)
    rates = [group["lr"] for group in optimizer.param_groups]
    tokenizer = Tokenizer.from_file(str(TOKENIZER_FILE))
    losses: list[float] = []
    start = time.monotonic()
    for step, groups in enumerate(batches(_selected(options), random.Random(options.seed)), start=1):
        share = (time.monotonic() - start) / (60 * options.minutes)
        if share >= 1:
            break
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * min(1.0, step / WARMUP) * 0.5 * (1 + math.cos(math.pi * share))
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bfloat16):
            loss = _loss(model, groups, tokenizer)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % REPORTED == 0:
            _note(f"step {step}, {60 * options.minutes * share:.0f} s: loss {np.mean(losses[-REPORTED:]):.3f}")
            torch.save(model.state_dict(), options.out)
    torch.save(model.state_dict(), options.out)


def _selected(options: argparse.Namespace) -> list[Pool]:
    folds = {int(fold) for fold in options.folds.split(",")}
    pools = [Pool.parse(line) for file in options.pools for line in file.read_text("utf-8").split("\n") if line]
    pools = [pool for pool in pools if fold_of(pool.id) in folds and pool.source not in options.without.split(",")]
    _note(f"{len(pools)} questions")
    return pools


def _optimizer(model: ReaderModel) -> torch.optim.Optimizer:
    for part in (model.bert.embeddings, *model.bert.encoder.layer[:FROZEN_LAYERS]):
        part.requires_grad_(False)
    for module in model.bert.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = DROPOUT
    body = [parameter for parameter in model.bert.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(
        [
            {"params": body, "lr": RATE, "weight_decay": 0.01},
            {"params": model.head.parameters(), "lr": HEAD_RATE, "weight_decay": 0.0},
        ]
    )


def _loss(model: ReaderModel, groups: Sequence[Sequence[Pair]], tokenizer: Tokenizer) -> Tensor:
    """For each draw the mean negative log of the gold passages' softmax shares against the wrong ones."""
    pairs = [pair for group in groups for pair in group]
    odds = _odds(model, pairs, tokenizer)
    labels = torch.tensor([pair.label for pair in pairs])
    total = CROSS_ENTROPY * torch.nn.functional.binary_cross_entropy_with_logits(odds, labels)
    parts = zip(*(values.split([len(group) for group in groups]) for values in (odds, labels)), strict=True)
    for group_odds, group_labels in parts:
        negatives = torch.logsumexp(group_odds[group_labels == 0], 0)
        total = total + torch.nn.functional.softplus(negatives - group_odds[group_labels == 1]).mean() / len(groups)
    return total


def _odds(model: ReaderModel, pairs: Sequence[Pair], tokenizer: Tokenizer) -> Tensor:
    """The pairs' log-odds, shape (n,): the shorter and the longer half apart, which spares padding."""
    order = sorted(range(len(pairs)), key=lambda row: len(pairs[row].premise) + len(pairs[row].passage))
    halves = (order[: len(order) // 2], order[len(order) // 2 :])
    odds = [model(*_columns([pairs[row] for row in half], tokenizer))[:, 0] for half in halves if half]
    return torch.cat(odds).float()[torch.tensor(order).argsort()]


def _columns(pairs: Sequence[Pair], tokenizer: Tokenizer) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, types and mask of the pairs, each of shape (n, pieces)."""
    firsts, seconds = (
        [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
        for texts in ([pair.premise for pair in pairs], [pair.passage for pair in pairs])
    )
    framed = [_frame(first, second, tokenizer) for first, second in zip(firsts, seconds, strict=True)]
    padded = [
        torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
        for rows in zip(*((ids, types, [1] * len(ids)) for ids, types in framed), strict=True)
    ]
    return padded[0], padded[1], padded[2]


def _frame(first: Sequence[int], second: Sequence[int], tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Ids and types of a pair, cut and framed as `OnnxModel.encode_pairs` does."""
    start, end = (tokenizer.token_to_id(mark) for mark in ("[CLS]", "[SEP]"))
    room = LONGEST - 3
    first = first[: max(room - len(second), room // 2)]
    second = second[: room - len(first)]
    return [start, *first, end, *second, end], [0] * (len(first) + 2) + [1] * (len(second) + 1)


def export(options: argparse.Namespace) -> None:
    """Writes the mean of the checkpoints as int8 ONNX: from a pair to its log-odds and the product, shape (1, 385)."""
    model = ReaderModel(options.model, attention="eager").eval()
    states = [torch.load(file, weights_only=True) for file in options.checkpoints]
    model.load_state_dict({name: sum(state[name] for state in states) / len(states) for name in states[0]})
    with tempfile.TemporaryDirectory() as folder:
        full = Path(folder) / "full.onnx"
        example = torch.arange(1000, 1040)[None]
        torch.onnx.export(
            model,
            (example, (example > 1020).long()),
            str(full),
            input_names=["input_ids", "token_type_ids"],
            output_names=["row"],
            dynamic_axes={"input_ids": {1: "pieces"}, "token_type_ids": {1: "pieces"}},
            opset_version=17,
            dynamo=False,
        )
        metadata = {FORMAT: READER_FORMAT, NAME: "reader@{digest}", MAX_LENGTH: str(LONGEST), "license": "Apache-2.0"}
        quantise(full, options.out, metadata | {"origin": "trained from sentence-transformers/all-MiniLM-L6-v2"})
    _note(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Runs one of the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True)
    pools = steps.add_parser("pools")
    pools.add_argument("--data", type=Path, required=True)
    pools.add_argument("--sets", required=True)
    pools.add_argument("--split", default="train")
    pools.add_argument("--embedder", default="static")
    pools.add_argument("--limit", type=int)
    pools.add_argument("--out", type=Path, required=True)
    pools.set_defaults(run=write_pools)
    fit = steps.add_parser("train")
    fit.add_argument("pools", type=Path, nargs="+")
    fit.add_argument("--model", type=Path, required=True)
    fit.add_argument("--out", type=Path, required=True)
    fit.add_argument("--start", type=Path, help="checkpoint to go on from")
    fit.add_argument("--folds", default="0,1,2,3,4")
    fit.add_argument("--without", default="", help="sets to leave out")
    fit.add_argument("--minutes", type=float, default=40)
    fit.add_argument("--threads", type=int, default=1)
    fit.add_argument("--bfloat16", action="store_true", help="faster on processors with AVX-512 BF16")
    fit.add_argument("--seed", type=int, default=1)
    fit.set_defaults(run=train)
    write = steps.add_parser("export")
    write.add_argument("checkpoints", type=Path, nargs="+")
    write.add_argument("--model", type=Path, required=True)
    write.add_argument("--out", type=Path, required=True)
    write.set_defaults(run=export)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
