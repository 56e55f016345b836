"""Control strategies, a baseline for a policy's own pruning. Each names the blocks to drop when space is needed.

`none` drops nothing, `oldest` the oldest blocks first, `random` blocks in random order, `oracle` everything that is not
gold. The oracle needs the gold documents, so it cannot serve; nor is it an upper bound if a policy searches less
without its own pruning.

`extract` is a baseline for a policy's own summaries: the sentence of each block that is closest to the question.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from context_agent.errors import ConfigError
from context_agent.pruning.view import Block, Editable, View

LONGEST_SENTENCE = 200
"""Most characters of a sentence."""
SIZE_MARGIN = 1.2
"""Factor by which the size of an extract is overestimated, so that it is never longer than what it replaces."""
ID_FRAME = 24
"""Characters that a summary needs for an id, without the id itself."""
_SENTENCE = re.compile(r"(?<=[.!?。！？])[\s]+|(?<=[。！？])|\n+")
_WORD = re.compile(r"\w{3,}")


Strategy = Callable[[View, int], tuple[str, ...]]
"""(view, tokens to free) -> ids of chunks in view to prune. They may free fewer tokens."""


def none(view: View, need: int) -> tuple[str, ...]:
    """Never prunes."""
    return ()


def oldest(view: View, need: int) -> tuple[str, ...]:
    """The oldest blocks until `need` tokens are free."""
    return _take(view.blocks, need)


def random_order(seed: int) -> Strategy:
    """Blocks in an order drawn from the seed and the turn."""

    def choose(view: View, need: int) -> tuple[str, ...]:
        blocks = list(view.blocks)
        random.Random(f"{seed}:{view.turn}").shuffle(blocks)
        return _take(blocks, need)

    return choose


def oracle(gold: AbstractSet[str]) -> Strategy:
    """Every block whose document (or chunk) is not gold, however many tokens are needed."""

    def choose(view: View, need: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys(b.id for b in view.blocks if b.document_id not in gold and b.id not in gold))

    return choose


def strategy(name: str, *, seed: int = 0, gold: AbstractSet[str] = frozenset()) -> Strategy:
    """The strategy of that name: `none`, `oldest`, `random` or `oracle`. Raises `ConfigError`."""
    table: dict[str, Strategy] = {
        "none": none,
        "oldest": oldest,
        "random": random_order(seed),
        "oracle": oracle(gold),
    }
    if name not in table:
        raise ConfigError(f"unknown pruning strategy {name!r}: choose from {', '.join(table)}")
    return table[name]


def _take(blocks: Iterable[Block], need: int) -> tuple[str, ...]:
    chosen: list[str] = []
    for block in blocks:
        if need <= 0:
            break
        chosen.append(block.id)
        need -= block.tokens
    return tuple(dict.fromkeys(chosen))


@dataclass(frozen=True, slots=True)
class Replacement:
    """Ids in view, and the text that replaces them."""

    ids: tuple[str, ...]
    summary: str


def extract(view: View, need: int, among: AbstractSet[str] | None = None) -> Replacement | None:
    """A summary of the oldest blocks and summaries that frees about `need` tokens; None if it would free none.

    `among` are the ids that it may replace, all in view if None. Each has one line: the title, and the first of the
    sentences that share most words with the question. It replaces nothing that the policy protected, and nothing that
    is as short as its line. Deterministic.
    """
    question_words = frozenset(_WORD.findall(view.question.casefold()))
    ids: list[str] = []
    lines: list[str] = []
    for block in view.editable:
        if need <= 0:
            break
        line = _line(block, question_words)
        freed = _freed(block, line)
        excluded = among is not None and block.id not in among
        if block.key in view.protected or block.id in ids or freed <= 0 or excluded:
            continue
        ids.append(block.id)
        lines.append(line)
        need -= freed
    return Replacement(tuple(ids), "\n".join(lines)) if ids else None


def _line(block: Editable, question_words: frozenset[str]) -> str:
    """The line for a block or a summary. Double brackets become single ones, because they would cite an id."""
    title = " ".join(block.hit.chunk.title.split()) if isinstance(block, Block) else ""
    sentence = _cut(_closest(_SENTENCE.split(block.body), question_words))
    line = f"{title}: {sentence}" if title and not sentence.startswith(title) else sentence
    return line.replace("[[", "[").replace("]]", "]")


def _closest(sentences: Iterable[str], question_words: frozenset[str]) -> str:
    """The first of the sentences that share most words with the question."""
    stripped = [" ".join(sentence.split()) for sentence in sentences]
    return max(
        filter(None, stripped), key=lambda text: len(question_words & {*_WORD.findall(text.casefold())}), default=""
    )


def _cut(sentence: str) -> str:
    if len(sentence) <= LONGEST_SENTENCE:
        return sentence
    return sentence[:LONGEST_SENTENCE].rpartition(" ")[0] or sentence[:LONGEST_SENTENCE]


def _freed(block: Editable, line: str) -> int:
    """Tokens that the line saves, estimated from the block's tokens per character and rounded down."""
    size = len(line) + (len(block.id) + ID_FRAME if isinstance(block, Block) else len(block.header))
    return block.tokens - int(SIZE_MARGIN * size * block.tokens / max(1, len(block.text)))
