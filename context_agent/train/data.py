"""The corpus, the questions and the trajectories that a run's file names. No torch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from context_agent.agent import SearchAgent
from context_agent.episode import Limits
from context_agent.errors import ConfigError, ContextAgentError, DataError
from context_agent.eval.checks import MissingGold, missing_gold
from context_agent.policies.controlled import ControlledPolicy
from context_agent.policies.engines.protocol import Engine
from context_agent.policies.protocol import Policy
from context_agent.policies.renderers.protocol import TokenRenderer
from context_agent.policies.tokens import PromptCounter, TokenPolicy
from context_agent.profiles import Profile
from context_agent.profiles import profile as named_profile
from context_agent.pruning.strategies import strategy
from context_agent.questions import Question, load_questions
from context_agent.retrieval.protocol import Corpus
from context_agent.swarm import Swarm
from context_agent.train.config import Data, Note, Rendering, Run
from context_agent.train.demo import words
from context_agent.train.demo.environment import LEADING, LED, Gym, Teacher, gym
from context_agent.train.demo.words import SWARM
from context_agent.train.rows import Row, taught
from context_agent.trajectory import Trajectory
from context_agent.trajectory_file import read

KEPT = "kept"
"""Where `ctx1 synth trajectories` puts what is worth imitating."""
LESSONS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Material:
    """What episodes are run on. `world` is where both came from, if they were made on the spot."""

    corpus: Corpus
    questions: Sequence[Question]
    dev: Sequence[Question]
    world: Gym | None = None


def world_of(data: Data) -> Gym | None:
    """The closed world, where the file asks for one."""
    if data.world is None:
        return None
    made = data.world
    return gym(**made.model_dump())


def texts_of(world: Gym, *, swarm: bool = False) -> Iterator[str]:
    """All that a vocabulary of whole words has to cover, with what is said to and of sub-agents or without."""
    if swarm:
        yield SWARM
    for one in (world, *world.others):
        for chunk in one.corpus.chunks:
            yield chunk.indexed_text
        for asked in one.questions.values():
            for question in asked:
                yield question.question


@contextmanager
def opened(data: Data, note: Note, world: Gym | None = None) -> Iterator[Material]:
    """Corpus and questions, checked against each other.

    Raises `ConfigError` for a file that names none, and `DataError` for gold that is not in the index, unless
    questions without theirs are to be dropped.
    """
    if world is not None:
        yield Material(world.corpus, world.questions["train"], world.questions["dev"], world)
        return
    if not data.questions:
        raise ConfigError("name files of questions: data.questions")
    with ExitStack() as stack:
        corpus = stack.enter_context(corpus_of(data))
        asked, dev = (_questions(files, note) for files in (data.questions, data.dev))
        yield Material(corpus, _findable(corpus, asked, data, note), _findable(corpus, dev, data, note))


@contextmanager
def corpus_of(data: Data) -> Iterator[Corpus]:
    """The index alone, its questions unread. Raises `ConfigError` for a file that names none."""
    from context_agent.retrieval.chroma import ChromaCorpus
    from context_agent.retrieval.rerankers import load_reranker

    if data.path is None and data.url is None:
        raise ConfigError("name the index: data.path (a folder of `ctx1 index`) or data.url")
    with ChromaCorpus.open(
        data.path,
        url=data.url,
        collection=data.collection,
        embedder=data.embedder,
        reranker=load_reranker(data.reranker),
    ) as corpus:
        yield corpus


def lessons(run: Run, renderer: TokenRenderer, note: Note, world: Gym | None = None) -> Iterator[Row]:
    """The rows of a folder's kept trajectories, or of a world's teacher, one episode in memory at a time.

    An episode that cannot be read is told and left out; raises `DataError` where no file is there.
    """
    skipped = 0
    for trajectory in _taught(run, renderer, world) if world is not None else _stored(run):
        try:
            whole = read(trajectory) if isinstance(trajectory, Path) else trajectory
            yield from taught(whole, renderer)
        except ContextAgentError as error:
            skipped += 1
            note(f"left out: {error}")
    if skipped:
        note(f"{skipped} trajectories could not be made into rows")


def _stored(run: Run) -> Iterator[Path]:
    if run.data.trajectories is None:
        raise ConfigError("name a folder of trajectories: data.trajectories (ctx1 synth trajectories makes one)")
    folder = Path(run.data.trajectories)
    folder = folder / KEPT if (folder / KEPT).is_dir() else folder
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise DataError(f"there is no trajectory in {folder}: `ctx1 synth trajectories` makes them")
    yield from files


def _taught(run: Run, renderer: TokenRenderer, world: Gym) -> Iterator[Trajectory]:
    """Episodes of the teachers of a world and of its others, each in turn, under ids that say which they are."""
    worlds = (world, *world.others)
    agents = [_teaching(run, renderer, one) for one in worlds]
    for first in range(0, run.sft.lessons, LESSONS_AT_ONCE * len(worlds)):
        for place, (agent, one) in enumerate(zip(agents, worlds, strict=True)):
            asked = one.questions["train"]
            numbers = range(first + place, min(first + LESSONS_AT_ONCE * len(worlds), run.sft.lessons), len(worlds))
            yield from asyncio.run(
                _played(agent, [(asked[n // len(worlds) % len(asked)], run.seed + n) for n in numbers])
            )


def _teaching(run: Run, renderer: TokenRenderer, world: Gym) -> SearchAgent:
    """A teacher in the run's harness; where that has a swarm, one that leads, with careless sub-agents."""
    asked, counter = world.questions["train"], PromptCounter(renderer)
    breadth = run.episodes.swarm
    led = Teacher(asked, world.titles, LED, counter)
    return SearchAgent(
        world.corpus,
        Teacher(asked, world.titles, LEADING if breadth else None, counter),
        profile=profile_of(run),
        budget=run.episodes.budget,
        swarm=Swarm(breadth=breadth, policy=led) if breadth else None,
    )


async def _played(agent: SearchAgent, asked: Sequence[tuple[Question, int]]) -> list[Trajectory]:
    searches = [agent.asearch(one.question, question_id=one.id, seed=seed) for one, seed in asked]
    results = await asyncio.gather(*searches)
    return [one for result in results for one in (*result.trajectories, *result.searchers)]


def _questions(files: Sequence[str], note: Note) -> list[Question]:
    problems: list[str] = []
    found = [question for file in files for question in load_questions(file, problems=problems)]
    for problem in problems:
        note(f"left out: {problem}")
    return found


def _findable(corpus: Corpus, asked: Sequence[Question], data: Data, note: Note) -> list[Question]:
    """The questions whose gold can be found. Raises `DataError` unless the others are to be dropped."""
    lost: MissingGold = missing_gold(corpus, asked)
    if lost and data.missing_gold == "refuse":
        raise DataError(
            f"{lost}. No episode could find that: index the documents, or set data.missing_gold to drop such questions"
        )
    if lost:
        note(f"{len(lost.questions)} of {len(asked)} questions dropped: {lost}")
    return [one for one in asked if one.id not in lost.questions]


def profile_of(run: Run) -> Profile:
    """The profile that the run's episodes use."""
    profile = words.profile() if run.model.renderer is Rendering.WORDS else named_profile(run.episodes.profile)
    return replace(profile, search_limit=run.episodes.shown) if run.episodes.shown else profile


def agent_of(
    run: Run,
    corpus: Corpus,
    engine: Engine,
    renderer: TokenRenderer,
    *,
    temperature: float,
    top_p: float | None = None,
    prunes: bool = True,
    searchers: Engine | None = None,
) -> SearchAgent:
    """An agent with the run's profile, window and limits, sampling at that temperature; close it.

    Without `prunes` the policy's edits of its context are not carried out. `searchers` samples in sub-agents, by
    default the same engine.
    """
    episodes = run.episodes
    top_p = run.engine.top_p if top_p is None else top_p

    def sampled(engine: Engine) -> Policy:
        return TokenPolicy(engine, renderer, temperature=temperature, top_p=top_p, max_tokens=run.engine.max_tokens)

    policy = sampled(engine) if prunes else ControlledPolicy(sampled(engine), strategy("none"), "none")
    theirs = None if searchers is None else sampled(searchers)
    return SearchAgent(
        corpus,
        policy,
        profile=profile_of(run),
        budget=episodes.budget,
        limits=Limits(turns=episodes.turns, seconds=episodes.seconds, calls=episodes.calls),
        workers=episodes.workers,
        swarm=Swarm(breadth=episodes.swarm, policy=theirs) if episodes.swarm else None,
    )
