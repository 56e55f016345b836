"""Summaries without a language model, as a control: of each block the sentence closest to the question.

It is to a policy's own summaries what dropping the oldest blocks is to its prunes: what can be had for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from context_agent.pruning.view import Block, Editable, View

LONGEST = 200
"""Characters of a sentence that are taken at most."""
MARGIN = 1.2
"""By how much the size of an extract is overestimated, so that it does not come out longer than what it replaces."""
FRAME = 24
"""Characters that an id takes in a summary beside its own."""
_SENTENCE = re.compile(r"(?<=[.!?。！？])[\s]+|(?<=[。！？])|\n+")
_WORD = re.compile(r"\w{3,}")


@dataclass(frozen=True, slots=True)
class Replacement:
    """Ids in view, and the text that is to take their place."""

    ids: tuple[str, ...]
    summary: str


def extract(view: View, need: int, among: AbstractSet[str] | None = None) -> Replacement | None:
    """A summary of the oldest blocks, and summaries, that frees about `need` tokens; None where none would free any.

    `among` are the ids it may take the place of, all in view if None.

    A line each: the title, and the first of the sentences that share most words with the question. What the policy
    kept explicitly, and what is as short as its line, is left alone. Deterministic.
    """
    asked = frozenset(_WORD.findall(view.question.casefold()))
    ids: list[str] = []
    lines: list[str] = []
    for one in view.editable:
        if need <= 0:
            break
        line = _line(one, asked)
        freed = _freed(one, line)
        if one.key in view.protected or one.id in ids or freed <= 0 or not (among is None or one.id in among):
            continue
        ids.append(one.id)
        lines.append(line)
        need -= freed
    return Replacement(tuple(ids), "\n".join(lines)) if ids else None


def _line(one: Editable, asked: frozenset[str]) -> str:
    """What stays of a block or a summary. Brackets that would read as the citation of an id are single ones."""
    title = " ".join(one.hit.chunk.title.split()) if isinstance(one, Block) else ""
    found = _cut(_closest(_SENTENCE.split(one.body), asked))
    line = f"{title}: {found}" if title and not found.startswith(title) else found
    return line.replace("[[", "[").replace("]]", "]")


def _closest(sentences: Iterable[str], asked: frozenset[str]) -> str:
    """The first of the sentences that share most words with the question."""
    stripped = [" ".join(sentence.split()) for sentence in sentences]
    return max(filter(None, stripped), key=lambda one: len(asked & {*_WORD.findall(one.casefold())}), default="")


def _cut(sentence: str) -> str:
    if len(sentence) <= LONGEST:
        return sentence
    return sentence[:LONGEST].rpartition(" ")[0] or sentence[:LONGEST]


def _freed(one: Editable, line: str) -> int:
    """Tokens that its line saves, by the tokens that its own text has a character; a guess on the safe side."""
    kept = len(line) + (len(one.id) + FRAME if isinstance(one, Block) else len(one.header))
    return one.tokens - int(MARGIN * kept * one.tokens / max(1, len(one.text)))
