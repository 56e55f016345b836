"""What the episodes of a worker process share: the corpus, the way prompts are spelled, gold that was looked up."""

from __future__ import annotations

import atexit
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from context_agent.eval.gold import Gold, gold_of
from context_agent.policies.renderers.protocol import TokenRenderer
from context_agent.questions import Question
from context_agent.retrieval.protocol import Corpus
from context_agent.train.config import Run
from context_agent.train.data import corpus_of, world_of
from context_agent.train.run_file import made


@dataclass(frozen=True, slots=True)
class Stage:
    """A run's corpus, open, and its renderer. Safe to share between the tasks of an event loop."""

    run: Run
    corpus: Corpus
    renderer: TokenRenderer
    _gold: dict[str, Gold] = field(default_factory=dict)

    def gold(self, question: Question) -> Gold:
        """The question's gold in the corpus, looked up once."""
        if question.id not in self._gold:
            self._gold[question.id] = gold_of(question, self.corpus)
        return self._gold[question.id]


def stage(plain: Mapping[str, Any]) -> Stage:
    """The stage of a run given as plain data (`Run.plain`): opened once a process, closed when that ends."""
    return _opened(json.dumps(plain, sort_keys=True))


@lru_cache(maxsize=1)
def _opened(plain: str) -> Stage:
    from context_agent.train.models import spoken

    run = made(json.loads(plain))
    world = world_of(run.data)
    _, renderer = spoken(run, world)
    if world is not None:
        return Stage(run, world.corpus, renderer)
    stack = ExitStack()
    atexit.register(stack.close)
    return Stage(run, stack.enter_context(corpus_of(run.data)), renderer)
