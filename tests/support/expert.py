"""Demonstrations of a toy environment's questions on disk, as `ctx1 synth trajectories` keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from context_agent import SearchAgent
from context_agent.policies.tokens import VocabularyCounter
from context_agent.policies.tokens.prompt import TokenRenderer
from context_agent.train.lessons import KEPT_FOLDER
from context_agent.train.toy.environment import ToyEnvironment
from context_agent.train.toy.expert import ExpertNoise, NoisyExpert
from context_agent.train.toy.word_prompts import words_profile
from context_agent.types import Question

FLAWLESS = ExpertNoise(stop=0.0, stray=0.0, untidy=0.0)


def demonstrate(
    world: ToyEnvironment,
    words: TokenRenderer,
    questions: Sequence[Question],
    folder: Path,
    *,
    window: int = 512,
    profile: str = "words",
    counter: str = "",
) -> str:
    """Have an expert play the questions into the folder, and return it.

    `counter` is recorded in place of the tokenizer's name.
    """
    token_counter = VocabularyCounter(words)
    token_counter.name = counter or token_counter.name
    expert = NoisyExpert(world.questions["train"], world.titles, FLAWLESS, token_counter)
    harness = replace(words_profile(), name=profile)
    trajectories = folder / KEPT_FOLDER
    with SearchAgent(world.corpus, expert, profile=harness, budget=window, trajectories=trajectories) as agent:
        for question in questions:
            agent.search(question.question, question_id=question.id)
    return str(folder)
