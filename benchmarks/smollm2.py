"""Compare the trained language model with one-shot search and the embedded policy, on held-out questions.

    python benchmarks/smollm2.py --data FOLDER [--sets 2wiki,hotpotqa,musique] [--split dev] [--limit N]
        [--adapter FOLDER] [--other FOLDER] [--embedder static] [--window 2048] [--half] [--skip-bridge] [--timed 10]
        [--dtype float32] [--threads 2] [--cache FOLDER] [--answers FILE]

`--data` has a folder for each set, as in `benchmarks/multihop.py`. All answers are greedy. For each set and for all
sets together the program prints:

- recall@5 of BM25, of one-shot hybrid search, of the embedded policy and of the model, with bootstrap 95% intervals
  over questions, and the model's gain over BM25;
- the share of the gold documents that the model's episodes saw;
- the share of pruned chunks that are not gold;
- the model's mistaken calls by kind. A call that cannot be read is an `invalid_call`. A call that can be read but comes
  when the context is full is a `hard_cutoff`;
- the number of times that the window was exceeded.

`--other` names another adapter, and may be repeated. It answers the same questions in the whole window. The program
prints its figures, and its recall@5 less that of the first adapter, question by question. With several other adapters,
it also prints the mean of their differences.

`--dtype bfloat16` computes as training does, with the adapter beside the weights and 32 bits for the logits. It is
faster on a processor with AVX-512 BF16. `--answers` keeps the model's answers in a file. A question whose
answer is there is not asked again, so an interrupted run resumes.

`--half` asks again with half the window, once with the policy's prunes and once without carrying them out. It prints
the same figures, and the gain from pruning. `--timed` asks N questions of each set one at a time, and prints the median
time of an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from multihop import build, embedders, load_chunks, recall, set_folder

from context_agent._support.journal import AppendLog
from context_agent._support.question_files import load_questions
from context_agent.agent import SearchAgent
from context_agent.eval.statistics import Figure
from context_agent.harness.policy import Policy
from context_agent.policies.controlled import ControlledPolicy, none, prune_by
from context_agent.policies.tokens import TokenPolicy, local
from context_agent.policies.tokens.engines import BatchingEngine
from context_agent.policies.tokens.packaged import ADAPTERS, LOCAL_MAX_TOKENS, adapter_digest
from context_agent.pruning.view import ToolResult
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.train.config import DataConfig, ModelConfig, RendererKind, RunConfig
from context_agent.train.demo.scores import DemoScore, score_episode
from context_agent.train.models import load_model
from context_agent.train.rewards import RewardConfig
from context_agent.train.rl.samplers import local_engine
from context_agent.types import Question

DEPTH = 50


@dataclass
class Answers:
    """Recall@5 of each question by search method, the measures of the episodes, and their mistakes by kind."""

    recalls: dict[str, list[float]] = field(default_factory=dict)
    scores: list[DemoScore] = field(default_factory=list)
    mistakes: Counter[str] = field(default_factory=Counter)

    def add(self, other: Answers) -> None:
        """Add the answers of another set to these."""
        self.scores += other.scores
        self.mistakes += other.mistakes
        for way, values in other.recalls.items():
            self.recalls.setdefault(way, []).extend(values)


@dataclass(frozen=True, slots=True)
class Answer:
    """Recall@5 of one answer, the measures of its episode, and its mistakes by kind."""

    recall: float
    score: DemoScore
    mistakes: Mapping[str, int]


class AnswerFile:
    """Answers by a key, kept in a log. Without a log, they are kept in memory."""

    def __init__(self, log: AppendLog | None) -> None:
        self._log = log
        self._answers: dict[str, Answer] = {}
        for row in log.contents.records if log else ():
            self._answers[row["key"]] = Answer(row["recall"], DemoScore(**row["score"]), row["mistakes"])

    def __contains__(self, key: str) -> bool:
        return key in self._answers

    def __getitem__(self, key: str) -> Answer:
        return self._answers[key]

    def keep(self, key: str, answer: Answer) -> None:
        """Store an answer."""
        self._answers[key] = answer
        if self._log is not None:
            self._log.append({"key": key, **asdict(answer)})


async def ask(
    agent: SearchAgent, questions: Sequence[Question], *, at_once: int, kept: AnswerFile, settings: str
) -> Answers:
    """Return the agent's answers, with their recall@5 under the name `model`. `at_once` episodes sample together.

    `settings` names what an answer depends on besides the question.
    """
    engine = getattr(agent.policy, "engine", None)

    async def answer(question: Question) -> None:
        result = await agent.asearch(question.question, question_id=question.id)
        trajectory = result.trajectories[0]
        found = Answer(
            recall((document.id for document in result.documents), question.gold),
            score_episode(trajectory, question, agent.corpus, RewardConfig()),
            dict(Counter(e.mistake for e in trajectory.events if isinstance(e, ToolResult) and e.mistake)),
        )
        kept.keep(f"{settings} {question.id}", found)

    def expect(episodes: int) -> None:
        # The engine waits for all running episodes. Otherwise the first one would sample alone, and the others later.
        if isinstance(engine, BatchingEngine):
            engine.expect(episodes)

    async def work() -> None:
        try:
            for question in waiting:
                await answer(question)
        finally:
            expect(-1)

    unknown = [question for question in questions if f"{settings} {question.id}" not in kept]
    waiting, workers = iter(unknown), min(at_once, len(unknown))
    expect(workers)
    await asyncio.gather(*(work() for _ in range(workers)))
    found = [kept[f"{settings} {question.id}"] for question in questions]
    answers = Answers({"model": [item.recall for item in found]}, [item.score for item in found])
    for item in found:
        answers.mistakes.update(item.mistakes)
    return answers


def one_shot(corpus: MemoryCorpus, questions: Sequence[Question]) -> dict[str, list[float]]:
    """Return recall@5 of BM25 and of hybrid search with the question alone."""
    owner = {chunk.id: chunk.document_id for chunk in corpus.chunks}
    bm25 = next(retriever for retriever in corpus.retrievers if retriever.name == "bm25")
    recalls: dict[str, list[float]] = {"bm25": [], "hybrid": []}
    for question in questions:
        hits = bm25.search(question.question, DEPTH)
        recalls["bm25"].append(recall((owner[name] for name, _ in hits), question.gold))
        fused = corpus.search(question.question, k=DEPTH)
        recalls["hybrid"].append(recall((hit.chunk.document_id for hit in fused), question.gold))
    return recalls


def show(name: str, answers: Answers) -> None:
    """Print a line for each search method, and one for the model's episodes."""
    for way, values in answers.recalls.items():
        print(f"{name:14} {way:10} recall@5 {Figure.of(values)}  {len(values)} questions")
    show_difference(name, answers, "bm25", "gain over BM25")
    scores = answers.scores
    pruned, calls = sum(score.pruned for score in scores), sum(score.calls for score in scores)
    wrong, mistaken = sum(score.pruned_gold for score in scores), answers.mistakes.total()
    kinds = ", ".join(f"{number} {kind}" for kind, number in answers.mistakes.most_common())
    print(
        f"{name:14} seen {statistics.mean(s.seen for s in scores):.3f}; "
        f"{statistics.mean(s.searches for s in scores):.1f} searches; prune accuracy "
        f"{f'{1 - wrong / pruned:.3f} of {pruned}' if pruned else 'none pruned'}; mistaken calls "
        f"{mistaken / max(1, calls):.3f} of {calls}{f' ({kinds})' if kinds else ''}; not finished "
        f"{statistics.mean(s.ending != 'finished' for s in scores):.3f}; budget violations "
        f"{sum(s.violations for s in scores)}",
        flush=True,
    )


def show_difference(name: str, answers: Answers, other: str, label: str) -> None:
    """Print the model's recall@5 minus that of another method, if these answers have it."""
    if other in answers.recalls:
        paired = zip(answers.recalls["model"], answers.recalls[other], strict=True)
        print(f"{name:14} {label} {Figure.of([a - b for a, b in paired])}", flush=True)


def main() -> None:
    """Ask every question and print the tables."""
    options = _options()
    with AppendLog(options.answers, sync=False) if options.answers else nullcontext() as log:
        Comparison(options, AnswerFile(log)).run()


class Comparison:
    """The systems that answer the questions of each set."""

    def __init__(self, options: argparse.Namespace, kept: AnswerFile) -> None:
        self._options, self._kept = options, kept
        self._adapters = [Path(folder) for folder in (options.adapter or ADAPTERS / "smollm2", *options.other)]
        self._models = [_load(folder, options.dtype, options.threads) for folder in self._adapters]

    def run(self) -> None:
        """Ask every question and print the tables."""
        options = self._options
        unpruned = ControlledPolicy(self._models[0], prune_by(none), "unpruned")
        pooled, pooled_half, pooled_others = Answers(), Answers(), [Answers() for _ in options.other]
        timed: list[float] = []
        (embedder,) = embedders(options.embedder, options.cache)
        for name in options.sets.split(","):
            folder = set_folder([options.data], name)
            questions = load_questions(folder / f"queries.{options.split}.jsonl")[: options.limit]
            corpus = build(load_chunks(folder), embedder, shuffle=None, only=None)
            answers = Answers(one_shot(corpus, questions))
            if not options.skip_bridge:
                with SearchAgent(corpus) as agent:
                    found = asyncio.run(ask(agent, questions, at_once=1, kept=AnswerFile(None), settings=""))
                answers.recalls["embedded"] = found.recalls["model"]
            answers.add(self._ask(0, corpus, name, questions, window=options.window))
            show(name, answers)
            pooled.add(answers)
            others = []
            for number, pool in enumerate(pooled_others, start=1):
                others.append(self._ask(number, corpus, name, questions, window=options.window))
                others[-1].recalls["first"] = answers.recalls["model"]
                pool.add(others[-1])
            self._show_others(name, others)
            if options.half:
                half = self._ask(0, corpus, name, questions, window=options.window // 2)
                without = self._ask(0, corpus, name, questions, window=options.window // 2, policy=unpruned)
                half.recalls["unpruned"] = without.recalls["model"]
                show_half(name, half)
                pooled_half.add(half)
            with SearchAgent(corpus, self._models[0], profile="lean", budget=options.window) as agent:
                for question in questions[: options.timed]:
                    started = time.perf_counter()
                    agent.search(question.question)
                    timed.append(time.perf_counter() - started)
        show("pooled", pooled)
        self._show_others("pooled", pooled_others)
        if options.half:
            show_half("pooled", pooled_half)
        if timed:
            threads = options.threads or "all"
            print(f"one answer {statistics.median(timed):.1f} s (median of {len(timed)}), {threads} threads")

    def _ask(
        self,
        number: int,
        corpus: MemoryCorpus,
        name: str,
        questions: Sequence[Question],
        *,
        window: int,
        policy: Policy | None = None,
    ) -> Answers:
        """Return the answers of an adapter, or of a policy that changes its decisions."""
        options = self._options
        policy = policy or self._models[number]
        settings = (
            f"{adapter_digest(self._adapters[number])} {options.dtype} {policy.name} {name} {options.split} "
            f"{options.embedder} {window}"
        )
        with SearchAgent(corpus, policy, profile="lean", budget=window) as agent:
            return asyncio.run(ask(agent, questions, at_once=options.at_once, kept=self._kept, settings=settings))

    def _show_others(self, name: str, others: Sequence[Answers]) -> None:
        """Print the figures of the other adapters, and their differences from the first."""
        for folder, answers in zip(self._options.other, others, strict=True):
            title = f"{name}, {folder}"
            show(title, answers)
            show_difference(title, answers, "first", "gain over the first adapter")
        if len(others) > 1:
            gains = [[a - b for a, b in zip(one.recalls["model"], one.recalls["first"], strict=True)] for one in others]
            means = [statistics.mean(values) for values in zip(*gains, strict=True)]
            print(f"{name:14} mean gain of {len(others)} adapters {Figure.of(means)}", flush=True)


def show_half(name: str, answers: Answers) -> None:
    """Print the lines for half the window."""
    show(f"{name}, half", answers)
    show_difference(f"{name}, half", answers, "unpruned", "worth of pruning")


def _load(adapter: Path, dtype: Literal["float32", "bfloat16"], threads: int) -> TokenPolicy:
    """Return the model with an adapter, which answers greedily."""
    if dtype == "float32":
        return local("smollm2", adapter=adapter, threads=threads)
    chosen = ModelConfig(name="smollm2", adapter=str(adapter), dtype=dtype, renderer=RendererKind.LINES)
    run = RunConfig(model=chosen, data=DataConfig(), threads=threads)
    loaded = load_model(run)
    engine = local_engine(run, loaded.model.eval())
    return TokenPolicy(engine, loaded.renderer, temperature=0.0, top_p=1.0, max_tokens=LOCAL_MAX_TOKENS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default="2wiki,hotpotqa,musique")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--adapter", help="a trained adapter; by default the one that ships")
    parser.add_argument("--other", action="append", default=[], help="another adapter, to compare with the first")
    parser.add_argument("--embedder", default="static", help="embedder of the indexes, such as minilm")
    parser.add_argument("--window", type=int, default=2_048)
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--skip-bridge", action="store_true", help="leave out the embedded policy")
    parser.add_argument("--timed", type=int, default=0, help="questions of each set that are asked one at a time")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=8, help="episodes that sample together")
    parser.add_argument("--cache", type=Path, default=Path(".cache/multihop"))
    parser.add_argument("--answers", type=Path, help="file that keeps the model's answers, for a run that resumes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
