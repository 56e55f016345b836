"""Compare the trained language model with one-shot search and the embedded policy, on held-out questions.

    python benchmarks/smollm2.py --data FOLDER [--sets 2wiki,hotpotqa,musique] [--split dev] [--limit N]
        [--adapter FOLDER] [--embedder static] [--window 2048] [--half] [--skip-bridge] [--timed 10] [--threads 2]
        [--cache FOLDER]

`--data` has a folder for each set, as in `benchmarks/multihop.py`. All answers are greedy. For each set and for all
sets together the program prints:

- recall@5 of BM25, of one-shot hybrid search, of the embedded policy and of the model, with bootstrap 95 % intervals
  over questions, and the model's gain over BM25;
- the share of the gold documents that the model's episodes saw;
- the share of pruned chunks that are not gold;
- the model's mistaken calls by kind. A call that cannot be read is an `invalid_call`. A call that can be read but comes
  when the context is full is a `hard_cutoff`;
- the number of times that the window was exceeded.

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
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from multihop import build, embedders, load_chunks, recall, set_folder

from context_agent._support.question_files import load_questions
from context_agent.agent import SearchAgent
from context_agent.eval.statistics import Figure
from context_agent.harness.policy import Policy
from context_agent.policies import load_policy
from context_agent.policies.controlled import ControlledPolicy, none, prune_by
from context_agent.pruning.view import ToolResult
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.train.demo.scores import DemoScore, score_episode
from context_agent.train.rewards import RewardConfig
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


async def ask(agent: SearchAgent, way: str, questions: Sequence[Question], at_once: int) -> Answers:
    """Return the agent's answers, with their recall@5 under the name `way`. `at_once` episodes sample together."""
    free = asyncio.Semaphore(at_once)
    answers = Answers()

    async def answer(question: Question) -> tuple[float, DemoScore]:
        async with free:
            result = await agent.asearch(question.question, question_id=question.id)
        trajectory = result.trajectories[0]
        answers.mistakes.update(e.mistake for e in trajectory.events if isinstance(e, ToolResult) and e.mistake)
        scored = score_episode(trajectory, question, agent.corpus, RewardConfig())
        return recall((document.id for document in result.documents), question.gold), scored

    scored_answers = await asyncio.gather(*map(answer, questions))
    answers.recalls[way] = [value for value, _ in scored_answers]
    answers.scores = [scored for _, scored in scored_answers]
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
    model = load_policy("tokens", model="smollm2", adapter=options.adapter, threads=options.threads)
    unpruned = ControlledPolicy(model, prune_by(none), "unpruned")
    pooled, pooled_half = Answers(), Answers()
    timed: list[float] = []
    (embedder,) = embedders(options.embedder, options.cache)
    for name in options.sets.split(","):
        folder = set_folder([options.data], name)
        questions = load_questions(folder / f"queries.{options.split}.jsonl")[: options.limit]
        corpus = build(load_chunks(folder), embedder, shuffle=None, only=None)
        answers = Answers(one_shot(corpus, questions))
        if not options.skip_bridge:
            with SearchAgent(corpus) as agent:
                answers.recalls |= asyncio.run(ask(agent, "embedded", questions, 1)).recalls
        answers.add(_answers(corpus, model, questions, options.window, options.at_once))
        show(name, answers)
        pooled.add(answers)
        if options.half:
            half = _answers(corpus, model, questions, options.window // 2, options.at_once)
            without = _answers(corpus, unpruned, questions, options.window // 2, options.at_once)
            half.recalls["unpruned"] = without.recalls["model"]
            show_half(name, half)
            pooled_half.add(half)
        with SearchAgent(corpus, model, profile="lean", budget=options.window) as agent:
            for question in questions[: options.timed]:
                started = time.perf_counter()
                agent.search(question.question)
                timed.append(time.perf_counter() - started)
    show("pooled", pooled)
    if options.half:
        show_half("pooled", pooled_half)
    if timed:
        print(
            f"one answer {statistics.median(timed):.1f} s (median of {len(timed)}), {options.threads or 'all'} threads"
        )


def show_half(name: str, answers: Answers) -> None:
    """Print the lines for half the window."""
    show(f"{name}, half", answers)
    show_difference(f"{name}, half", answers, "unpruned", "worth of pruning")


def _answers(corpus: MemoryCorpus, policy: Policy, questions: Sequence[Question], window: int, at_once: int) -> Answers:
    with SearchAgent(corpus, policy, profile="lean", budget=window) as agent:
        return asyncio.run(ask(agent, "model", questions, at_once))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default="2wiki,hotpotqa,musique")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--adapter", help="a trained adapter; by default the one that ships")
    parser.add_argument("--embedder", default="static", help="embedder of the indexes, such as minilm")
    parser.add_argument("--window", type=int, default=2_048)
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--skip-bridge", action="store_true", help="leave out the embedded policy")
    parser.add_argument("--timed", type=int, default=0, help="questions of each set that are asked one at a time")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=8, help="episodes that sample together")
    parser.add_argument("--cache", type=Path, default=Path(".cache/multihop"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
