"""Train the embedded policy's reader, a small cross-encoder, and write it as int8 ONNX.

    python scripts/build_reader.py pools FOLDER/musique FOLDER/covidqa BANK/licenses ... --out train.jsonl [--limit 300]
    python scripts/build_reader.py pools FOLDER/policyqa ... --split dev --measure --out dev.jsonl
    python scripts/build_reader.py train train.jsonl ... --start reader.onnx --out a.pt [--seed 1] [--minutes 40]
        [--bank BANK] [--folds 0,2,4] [--without licenses,covidqa] [--bfloat16]
    python scripts/build_reader.py measure dev.jsonl --model a.pt [b.pt ...]
    python scripts/build_reader.py export a.pt b.pt --out reader.onnx

`pools` lets the embedded policy and every retriever search for the questions of each set, and writes the passages that
they found (`reader_pools.py`). So the hard negatives are passages that real searches find. `--measure` keeps only the
50 best passages of hybrid search, in order.

`train` fits a cross-encoder to groups of pairs of (question and evidence, passage). It uses the judges' grades where
they exist. The evidence is what a search might have found before: the best candidates by noisy scores without some of
the gold, or nothing. `--folds` leaves out the questions of other folds (see `train.bridge.episodes.fold_of`), to get
scores of questions that a reader was not trained on. `--without` leaves out whole sets, to measure the reader on
unknown sets. To use several cores well, start several runs with different seeds at the same time.

`measure` ranks the passages of hybrid search by the reader alone, and prints recall@5 of this ranking and of hybrid
search.

`export` averages the weights of all checkpoints (model soups, Wortsman et al. 2022) and quantizes them.

`--start` is a checkpoint, or an ONNX file that `export` wrote, whose weights are dequantized. The first reader started
from all-MiniLM-L6-v2 (Apache-2.0). A pair is encoded as one text. The log-odds are a linear function of the product of
the mean vectors of its two parts. So before any training they were a scaled cosine, as in the sentence model, and
training only had to improve on that. With a new output layer on the first token, the loss would not fall for thousands
of steps.

The program needs torch, transformers and onnx.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import numpy as np
import onnx
import torch
from build_minilm import quantize
from numpy.typing import NDArray
from onnx.numpy_helper import to_array
from reader_pools import HYBRID, Draws, Pair, Pool, PoolCollector, judged, questions_of, read_pools, single_pairs
from tokenizers import Tokenizer
from torch import Tensor
from transformers import BertConfig, BertModel

from context_agent._support.onnx import FORMAT, MAX_LENGTH, NAME
from context_agent._support.shipped_models import READER_FILE, READER_FORMAT, TOKENIZER_FILE
from context_agent.eval.statistics import Figure
from context_agent.retrieval.embedders import load_embedder
from context_agent.train.bridge.episodes import fold_of

LONGEST = 208
"""The maximum number of word pieces in a pair."""
FROZEN_LAYERS = 2
"""The number of lowest layers that are not trained. The embeddings are not trained either.

This is faster, and words keep their meaning.
"""
GROUPS, RATE, HEAD_RATE, WARMUP, DROPOUT = 2, 4e-5, 2e-2, 30, 0.05
"""The groups in a step, the learning rates of the body and of the output layer, the warm-up steps, and the dropout."""
LEVELS = {2: 1.0, 1: 0.5}
"""The weight of the listwise loss of the passages of each grade, against those of lower grades."""
CROSS_ENTROPY, TARGETS = 0.3, (0.0, 0.3, 1.0)
"""The weight of binary cross entropy, which keeps the log-odds interpretable, and the target probability of each grade.
"""
REPORTED, CUTOFF = 20, 5
MEASURED_BATCH = 32
ONNX_MATMUL, ONNX_QUANTIZED = "/MatMul_quant_scales_mul", "_quantized"


def write_pools(options: argparse.Namespace) -> None:
    """Search for every question of the sets, and write a line for each."""
    first, *others = [load_embedder(spec) for spec in options.embedder.split(",")]
    with options.out.open("a", encoding="utf-8") as lines:
        for folder in options.sets:
            if not (questions := questions_of(folder, options.split)[: options.limit]):
                continue
            start = time.monotonic()
            collector = PoolCollector(folder, first, [] if options.measure else others, agent=not options.measure)
            for question in questions:
                lines.write(json.dumps(asdict(collector.pool(question)), ensure_ascii=False) + "\n")
            lines.flush()
            _note(f"{folder.name}: {len(questions)} questions in {time.monotonic() - start:.0f} s")


class ReaderModel(torch.nn.Module):
    """MiniLM over a pair as one text."""

    def __init__(self, attention: str = "sdpa") -> None:
        super().__init__()
        config = BertConfig(hidden_size=384, intermediate_size=1536, num_hidden_layers=6, attn_implementation=attention)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.head = torch.nn.Linear(config.hidden_size, 1)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the log-odds and the product of the two mean vectors, shape (n, 1 + 384). All inputs have shape (n,
        pieces).
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        outputs = self.bert(input_ids=input_ids, token_type_ids=token_type_ids, attention_mask=mask)
        hidden = outputs.last_hidden_state
        first, second = (_mean(hidden, mask * (token_type_ids == part)) for part in (0, 1))
        product = first * second
        return torch.cat([self.head(product), product], dim=1)


def _mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the mean vector of the pieces in the mask, scaled to length 1."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1).clamp(min=1), dim=-1)


def load_states(files: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of checkpoints and ONNX files."""
    states = [_onnx_state(file) if file.suffix == ".onnx" else torch.load(file, weights_only=True) for file in files]
    return {name: sum(state[name] for state in states) / len(states) for name in states[0]}


def _onnx_state(file: Path) -> dict[str, Tensor]:
    """Return the dequantized weights of a file that `export` wrote, by the model's names."""
    graph = onnx.load(file).graph
    arrays = {item.name: to_array(item) for item in graph.initializer}

    def full(name: str) -> NDArray[np.float32]:
        values = arrays[f"{name}{ONNX_QUANTIZED}"].astype(np.float32) - arrays[f"{name}_zero_point"].astype(np.float32)
        return np.asarray(values * arrays[f"{name}_scale"], dtype=np.float32)

    state = {name: array for name, array in arrays.items() if name.endswith((".weight", ".bias"))}
    named = [name.removesuffix(ONNX_QUANTIZED) for name in arrays if name.endswith(f".weight{ONNX_QUANTIZED}")]
    state |= {name: full(name) if "embeddings" in name else full(name).T for name in named}
    for node in graph.node:
        module, mark, _ = node.output[0].partition(ONNX_MATMUL)
        weights = node.input[1].removesuffix("_scale") if mark else ""
        if weights and weights not in named:
            state[f"{module.strip('/').replace('/', '.')}.weight"] = full(weights).T
    return {name: torch.from_numpy(np.array(array)) for name, array in state.items()}


def train(options: argparse.Namespace) -> None:
    """Train the model for `options.minutes`, and save it."""
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    model = ReaderModel()
    model.load_state_dict(load_states([options.start]))
    optimizer = _optimizer(model.train(), options.rate)
    rates = [group["lr"] for group in optimizer.param_groups]
    tokenizer = Tokenizer.from_file(str(TOKENIZER_FILE))
    draws = iter(Draws(_selected(options), options.seed))
    losses: list[float] = []
    pairs, start, saved = 0, time.monotonic(), 0.0
    for step in range(1, sys.maxsize):
        minutes = (time.monotonic() - start) / 60
        if minutes >= options.minutes:
            break
        slope = min(1.0, step / WARMUP) * 0.5 * (1 + math.cos(math.pi * minutes / options.minutes))
        for settings, rate in zip(optimizer.param_groups, rates, strict=True):
            settings["lr"] = rate * slope
        groups = list(islice(draws, GROUPS))
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bfloat16):
            loss = _loss(model, groups, tokenizer)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        pairs += sum(map(len, groups))
        if step % REPORTED == 0:
            recent = np.mean(losses[-5 * REPORTED :])
            _note(f"step {step}, {minutes:.1f} minutes, {pairs / (60 * minutes):.1f} pairs/s: loss {recent:.3f}")
        if minutes - saved >= options.save:
            saved = minutes
            torch.save(model.state_dict(), options.out)
    torch.save(model.state_dict(), options.out)


def _selected(options: argparse.Namespace) -> list[Pool]:
    folds, without = {int(fold) for fold in options.folds.split(",")}, options.without.split(",")
    pools = [pool for pool in read_pools(options.pools) if fold_of(pool.id) in folds and pool.source not in without]
    pools = judged(pools, options.bank)
    _note(f"{len(pools)} questions of {len({pool.source for pool in pools})} sets")
    return pools


def _optimizer(model: ReaderModel, rate: float) -> torch.optim.Optimizer:
    for part in (model.bert.embeddings, *model.bert.encoder.layer[:FROZEN_LAYERS]):
        part.requires_grad_(False)
    for module in model.bert.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = DROPOUT
    body = [parameter for parameter in model.bert.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(
        [
            {"params": body, "lr": rate, "weight_decay": 0.01},
            {"params": model.head.parameters(), "lr": HEAD_RATE, "weight_decay": 0.0},
        ]
    )


def _loss(model: ReaderModel, groups: Sequence[Sequence[Pair]], tokenizer: Tokenizer) -> Tensor:
    """Return the loss of the groups: a listwise loss, averaged over groups, plus cross entropy over all pairs.

    The listwise loss of a passage is the negative log of its softmax share against the passages of lower grades.
    """
    pairs = [pair for group in groups for pair in group]
    odds = _odds(model, pairs, tokenizer)
    targets = torch.tensor([TARGETS[pair.grade] for pair in pairs])
    total = CROSS_ENTROPY * torch.nn.functional.binary_cross_entropy_with_logits(odds, targets)
    for group, group_odds in zip(groups, odds.split([len(group) for group in groups]), strict=True):
        grades = torch.tensor([pair.grade for pair in group])
        for level, weight in LEVELS.items():
            above, below = group_odds[grades == level], group_odds[grades < level]
            if len(above) and len(below):
                shares = torch.nn.functional.softplus(torch.logsumexp(below, 0) - above)
                total = total + weight * shares.mean() / len(groups)
    return total


def _odds(model: ReaderModel, pairs: Sequence[Pair], tokenizer: Tokenizer) -> Tensor:
    """Return the pairs' log-odds, shape (n,). The shorter half and the longer half are computed apart, to need less
    padding.
    """
    order = sorted(range(len(pairs)), key=lambda row: len(pairs[row].premise) + len(pairs[row].passage))
    halves = (order[: len(order) // 2], order[len(order) // 2 :])
    odds = [model(*_columns([pairs[row] for row in half], tokenizer))[:, 0] for half in halves if half]
    return torch.cat(odds).float()[torch.tensor(order).argsort()]


def _columns(pairs: Sequence[Pair], tokenizer: Tokenizer) -> tuple[Tensor, Tensor, Tensor]:
    """Return the ids, types and mask of the pairs, each of shape (n, pieces)."""
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
    """Return the ids and types of a pair, truncated and framed as `OnnxModel.encode_pairs` does."""
    start, end = (tokenizer.token_to_id(mark) for mark in ("[CLS]", "[SEP]"))
    room = LONGEST - 3
    first = first[: max(room - len(second), room // 2)]
    second = second[: room - len(first)]
    return [start, *first, end, *second, end], [0] * (len(first) + 2) + [1] * (len(second) + 1)


def measure(options: argparse.Namespace) -> None:
    """Print recall@5 of hybrid search, and of its passages in the reader's order, for each set."""
    torch.set_num_threads(options.threads)
    odds_of = _measured_odds(options.model)
    print(f"{'set':24} questions  hybrid  reader   reader less hybrid       with half the rank   found")
    gains: dict[str, list[float]] = {"reader": [], "both": []}
    by_source: dict[str, list[Pool]] = {}
    for pool in read_pools(options.pools):
        by_source.setdefault(pool.source, []).append(pool)
    for source, pools in sorted(by_source.items()):
        if source in options.without.split(",") or not any(pool.gold for pool in pools):
            continue
        recalls: dict[str, list[float]] = {name: [] for name in ("hybrid", "reader", "both", "found")}
        for pool in islice((pool for pool in pools if pool.gold), options.limit):
            passages = pool.ranking(HYBRID)
            documents = [passage.document for passage in passages]
            odds = odds_of(single_pairs(pool, passages))
            ranks = -np.log1p(np.arange(len(passages)))
            both = _standardized(odds) + 0.5 * _standardized(ranks)
            for name, scores in (("hybrid", ranks), ("reader", odds), ("both", both)):
                order = np.argsort(-scores, kind="stable")
                recalls[name].append(_recall([documents[row] for row in order], pool.gold, CUTOFF))
            recalls["found"].append(_recall(documents, pool.gold, len(documents)))
        means = {name: float(np.mean(values)) for name, values in recalls.items()}
        for name, values in gains.items():
            values.append(means[name] - means["hybrid"])
        gain = Figure.of([a - b for a, b in zip(recalls["reader"], recalls["hybrid"], strict=True)])
        print(
            f"{source:24} {len(recalls['found']):9}  {means['hybrid']:6.3f}  {means['reader']:6.3f}   {gain!s:22}   "
            f"{means['both']:6.3f} {gains['both'][-1]:+.3f}        {means['found']:6.3f}",
            flush=True,
        )
    for name, values in gains.items():
        count = sum(value >= 0.03 for value in values)
        print(f"{name}: mean gain {np.mean(values):+.3f}, lowest {min(values):+.3f}, {count} of {len(values)} >= +.03")


def _measured_odds(files: Sequence[Path]) -> Callable[[Sequence[Pair]], NDArray[np.float32]]:
    model, tokenizer = ReaderModel().eval(), Tokenizer.from_file(str(TOKENIZER_FILE))
    model.load_state_dict(load_states(files))

    def odds(pairs: Sequence[Pair]) -> NDArray[np.float32]:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            return np.asarray(_odds(model, pairs, tokenizer).numpy())

    return odds


def _standardized(values: NDArray[np.floating]) -> NDArray[np.floating]:
    return (values - values.mean()) / (values.std() + 1e-6)


def _recall(documents: Iterable[str], gold: Sequence[str], cutoff: int) -> float:
    return len(set(list(dict.fromkeys(documents))[:cutoff]) & set(gold)) / len(set(gold))


def export(options: argparse.Namespace) -> None:
    """Write the mean of the checkpoints as int8 ONNX.

    The graph returns the log-odds and the product, shape (1, 385).
    """
    model = ReaderModel(attention="eager").eval()
    model.load_state_dict(load_states(options.checkpoints))
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
        quantize(full, options.out, metadata | {"origin": "trained from sentence-transformers/all-MiniLM-L6-v2"})
    _note(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Run the step that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True)
    pools = steps.add_parser("pools")
    pools.add_argument("sets", type=Path, nargs="+", help="folders of sets")
    pools.add_argument("--split", default="train")
    pools.add_argument(
        "--embedder", default="static,minilm", help="the one of hybrid search and the policy, and others"
    )
    pools.add_argument("--measure", action="store_true", help="keep the hybrid ranking alone")
    pools.add_argument("--limit", type=int, help="questions of a set at most")
    pools.add_argument("--out", type=Path, required=True, help="file to which the pools are added")
    pools.set_defaults(run=write_pools)
    fit = steps.add_parser("train")
    fit.add_argument("pools", type=Path, nargs="+")
    fit.add_argument("--bank", type=Path, action="append", default=[], help="folder of a bank with judges' grades")
    fit.add_argument("--start", type=Path, default=READER_FILE, help="checkpoint or ONNX file to go on from")
    fit.add_argument("--out", type=Path, required=True)
    fit.add_argument("--folds", default="0,1,2,3,4")
    fit.add_argument("--without", default="", help="sets to leave out")
    fit.add_argument("--minutes", type=float, default=40)
    fit.add_argument("--save", type=float, default=4, help="minutes between checkpoints")
    fit.add_argument("--rate", type=float, default=RATE)
    fit.add_argument("--threads", type=int, default=1)
    fit.add_argument("--bfloat16", action="store_true", help="twice as fast on processors with AVX-512 BF16")
    fit.add_argument("--seed", type=int, default=1)
    fit.set_defaults(run=train)
    look = steps.add_parser("measure")
    look.add_argument("pools", type=Path, nargs="+")
    look.add_argument("--model", type=Path, nargs="+", default=[READER_FILE])
    look.add_argument("--without", default="", help="sets to leave out")
    look.add_argument("--limit", type=int, help="questions of a set at most")
    look.add_argument("--threads", type=int, default=1)
    look.set_defaults(run=measure)
    write = steps.add_parser("export")
    write.add_argument("checkpoints", type=Path, nargs="+")
    write.add_argument("--out", type=Path, default=READER_FILE)
    write.set_defaults(run=export)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
