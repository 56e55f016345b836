"""The data of a run: corpus, questions, demonstrations, and the agent that plays episodes. No torch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from context_agent._support.question_files import load_questions
from context_agent.agent import EpisodeRequest, SearchAgent
from context_agent.errors import ConfigError, ContextAgentError, DataError
from context_agent.eval.gold import MissingGold, missing_gold
from context_agent.harness.episode import Limits
from context_agent.harness.policy import Policy
from context_agent.harness.profile import Profile
from context_agent.harness.profile import profile as named_profile
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import read
from context_agent.policies.controlled import ControlledPolicy, none, prune_by
from context_agent.policies.tokens import TokenPolicy, VocabularyCounter
from context_agent.policies.tokens.engines import Engine
from context_agent.policies.tokens.prompt import TokenRenderer
from context_agent.retrieval.corpus import Corpus
from context_agent.swarm import Swarm
from context_agent.train import environment as words
from context_agent.train.config import DataConfig, Notify, RendererKind, RunConfig
from context_agent.train.environment import (
    LEADING_NOISE,
    SUBAGENT_NOISE,
    SWARM_WORDS,
    NoisyExpert,
    ToyEnvironment,
    make_environment,
)
from context_agent.train.rows import TrainingRow, demonstrated_rows
from context_agent.types import Question

KEPT_FOLDER = "kept"
"""The folder in which `ctx1 synth trajectories` keeps its demonstrations."""
EPISODES_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Corpus and questions of the episodes. `world` is the toy environment that they come from, if any."""

    corpus: Corpus
    questions: Sequence[Question]
    dev: Sequence[Question]
    world: ToyEnvironment | None = None


def environment_of(data: DataConfig) -> ToyEnvironment | None:
    """Return the toy environment of the run file; None if it has none."""
    return None if data.world is None else make_environment(data.world)


def environment_texts(world: ToyEnvironment, *, swarm: bool = False) -> Iterator[str]:
    """Yield the texts that a vocabulary of whole words must cover; with `swarm` also those about sub-agents."""
    if swarm:
        yield SWARM_WORDS
    for item in (world, *world.others):
        for chunk in item.corpus.chunks:
            yield chunk.indexed_text
        for questions in item.questions.values():
            for question in questions:
                yield question.question


@contextmanager
def open_data(data: DataConfig, note: Notify, world: ToyEnvironment | None = None) -> Iterator[TrainingData]:
    """Corpus and questions, checked against each other.

    Raises `ConfigError` if the run file names no questions, and `DataError` for gold that is not in the index, unless
    such questions are to be dropped.
    """
    if world is not None:
        yield TrainingData(world.corpus, world.questions["train"], world.questions["dev"], world)
        return
    if not data.questions:
        raise ConfigError("the run file names no questions: set data.questions to question files")
    with ExitStack() as stack:
        corpus = stack.enter_context(open_corpus(data))
        questions, dev = (_questions(files, note) for files in (data.questions, data.dev))
        yield TrainingData(
            corpus, _with_indexed_gold(corpus, questions, data, note), _with_indexed_gold(corpus, dev, data, note)
        )


@contextmanager
def open_corpus(data: DataConfig) -> Iterator[Corpus]:
    """Yield the index, or the documents in memory. Raise `ConfigError` if the run file names neither."""
    from context_agent.retrieval.rerankers import load_reranker

    if data.documents:
        from context_agent.retrieval.loaders import load
        from context_agent.retrieval.memory import MemoryCorpus

        yield MemoryCorpus(load(data.documents), embedder=data.embedder, reranker=load_reranker(data.reranker))
        return
    from context_agent.retrieval.chroma.corpus import ChromaCorpus

    if data.path is None and data.url is None:
        raise ConfigError(
            "the run file names no index: set data.path (a folder of `ctx1 index`), data.url, or data.documents"
        )
    with ChromaCorpus.open(
        data.path,
        url=data.url,
        collection=data.collection,
        embedder=data.embedder,
        reranker=load_reranker(data.reranker),
    ) as corpus:
        yield corpus


def demonstration_rows(
    run: RunConfig, renderer: TokenRenderer, note: Notify, world: ToyEnvironment | None = None
) -> Iterator[TrainingRow]:
    """Yield the rows of stored trajectories, or of the expert in a toy environment; one episode is in memory at a time.

    An episode that cannot be read is reported and skipped. Raises `DataError` if there is no file.
    """
    skipped = 0
    stored = stored_trajectories(run.data)
    for trajectory in stored if world is None else _expert_trajectories(run, renderer, world):
        try:
            episode = read(trajectory) if isinstance(trajectory, Path) else trajectory
            yield from demonstrated_rows(episode, renderer)
        except ContextAgentError as error:
            skipped += 1
            note(f"skipped: {error}")
    if skipped:
        note(f"{skipped} trajectories could not be made into rows")


def stored_trajectories(data: DataConfig) -> Iterator[Path]:
    """Yield the files of `data.trajectories`, folder by folder.

    Raises `ConfigError` if the run file names none, and `DataError` for a folder without a file.
    """
    if data.trajectories is None:
        raise ConfigError(
            "the run file names no trajectories: set data.trajectories to a folder of `ctx1 synth trajectories`"
        )
    trajectories = data.trajectories
    for folder in map(Path, [trajectories] if isinstance(trajectories, str) else trajectories):
        kept = folder / KEPT_FOLDER if (folder / KEPT_FOLDER).is_dir() else folder
        files = sorted(kept.glob("*.jsonl"))
        if not files:
            raise DataError(f"{kept} contains no trajectory: create some with `ctx1 synth trajectories`")
        yield from files


def _expert_trajectories(run: RunConfig, renderer: TokenRenderer, world: ToyEnvironment) -> Iterator[Trajectory]:
    """Episodes of the experts of all environments, in turn."""
    worlds = (world, *world.others)
    agents = [_expert_agent(run, renderer, world) for world in worlds]
    for first in range(0, run.sft.demonstrations, EPISODES_AT_ONCE * len(worlds)):
        last = min(first + EPISODES_AT_ONCE * len(worlds), run.sft.demonstrations)
        for index, (agent, environment) in enumerate(zip(agents, worlds, strict=True)):
            numbers = range(first + index, last, len(worlds))
            requests = [_expert_request(run, environment, number, number // len(worlds)) for number in numbers]
            yield from asyncio.run(_play_requests(agent, requests))


def _expert_request(run: RunConfig, environment: ToyEnvironment, number: int, turn: int) -> EpisodeRequest:
    """Return the demonstration of that number in the run, the `turn`th in its environment, both from 0."""
    questions = environment.questions["train"]
    question = questions[turn % len(questions)]
    return EpisodeRequest(
        question.question,
        seed=run.seed + number,
        question_id=question.id,
        budget=run.episodes.training_budget(turn),
    )


def _expert_agent(run: RunConfig, renderer: TokenRenderer, world: ToyEnvironment) -> SearchAgent:
    """Return an expert in the run's harness; with a swarm it leads noisy sub-agents."""
    questions, counter = world.questions["train"], VocabularyCounter(renderer)
    breadth = run.episodes.swarm
    led = NoisyExpert(questions, world.titles, SUBAGENT_NOISE, counter)
    return SearchAgent(
        world.corpus,
        NoisyExpert(questions, world.titles, LEADING_NOISE if breadth else None, counter),
        profile=episode_profile(run),
        budget=run.episodes.budget,
        swarm=Swarm(breadth=breadth, policy=led) if breadth else None,
    )


async def _play_requests(agent: SearchAgent, requests: Sequence[EpisodeRequest]) -> list[Trajectory]:
    searches = [
        agent.asearch(request.question, question_id=request.question_id, seed=request.seed, budget=request.budget)
        for request in requests
    ]
    results = await asyncio.gather(*searches)
    return [trajectory for result in results for trajectory in (*result.trajectories, *result.searchers)]


def _questions(files: Sequence[str], note: Notify) -> list[Question]:
    problems: list[str] = []
    questions = [question for file in files for question in load_questions(file, problems=problems)]
    for problem in problems:
        note(f"skipped: {problem}")
    return questions


def _with_indexed_gold(corpus: Corpus, questions: Sequence[Question], data: DataConfig, note: Notify) -> list[Question]:
    """Return the questions whose gold is in the index. Raises `DataError` unless the others are to be dropped."""
    lost: MissingGold = missing_gold(corpus, questions)
    if lost and data.missing_gold == "refuse":
        raise DataError(
            f"{lost}. No episode can retrieve it: index the documents, or set data.missing_gold to drop these questions"
        )
    if lost:
        note(f"{len(lost.questions)} of {len(questions)} questions dropped: {lost}")
    return [question for question in questions if question.id not in lost.questions]


def episode_profile(run: RunConfig) -> Profile:
    """Return the profile that the run's episodes use."""
    profile = words.words_profile() if run.model.renderer is RendererKind.WORDS else named_profile(run.episodes.profile)
    return replace(profile, search_limit=run.episodes.shown) if run.episodes.shown else profile


def build_agent(
    run: RunConfig,
    corpus: Corpus,
    engine: Engine,
    renderer: TokenRenderer,
    *,
    temperature: float,
    top_p: float = 1.0,
    prunes: bool = True,
    searchers: Engine | None = None,
) -> SearchAgent:
    """Return an agent with the run's profile, window and limits, sampling at that temperature; close it.

    Without `prunes` the policy's edits of its context are not carried out. `searchers` samples in sub-agents, by
    default the same engine.
    """

    def sampled(engine: Engine, *, record_experts: bool = False) -> Policy:
        return TokenPolicy(
            engine,
            renderer,
            temperature=temperature,
            top_p=top_p,
            max_tokens=run.engine.max_tokens,
            record_experts=record_experts,
        )

    policy = sampled(engine, record_experts=run.loss.router_replay)
    policy = policy if prunes else ControlledPolicy(policy, prune_by(none), "none")
    return agent_of(run, corpus, policy, None if searchers is None else sampled(searchers))


def agent_of(run: RunConfig, corpus: Corpus, policy: Policy, searchers: Policy | None = None) -> SearchAgent:
    """Return an agent of that policy with the run's profile, window, limits and swarm; close it."""
    episodes = run.episodes
    return SearchAgent(
        corpus,
        policy,
        profile=episode_profile(run),
        budget=episodes.budget,
        limits=Limits(turns=episodes.turns, seconds=episodes.seconds, calls=episodes.calls),
        workers=episodes.workers,
        swarm=Swarm(breadth=episodes.swarm, policy=searchers) if episodes.swarm else None,
    )
