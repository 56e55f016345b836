"""Controls of the policies' edits.

A strategy edits in place of a policy, so that the value of the policy's own edits can be measured.

    ControlledPolicy(policy, prune_by(strategy("oldest")), "oldest")

A strategy names the blocks to drop when space is needed. `none` drops nothing. `oldest` drops the oldest blocks first.
`random` drops blocks in random order. `oracle` drops every block that is not gold. The oracle needs the gold documents,
so it cannot serve users. If a policy searches less without its own prunes, the oracle is not an upper bound either.
`extract` is a baseline for a policy's own summaries. It keeps the sentence of each block that is closest to the
question.

A control rewrites each action of the policy. `prune_by` prunes by a strategy. Two controls summarize without a language
model. `summarize_prunes` summarizes the blocks that the policy would prune. `summarize_oldest` keeps the policy's
edits. In turns without edits, it summarizes the oldest blocks.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from context_agent.errors import ConfigError
from context_agent.harness.policy import Actor, Instructions, PartialRanker, Policy
from context_agent.harness.profile import SUMMARIZE, Profile
from context_agent.harness.tools import EDITS, ToolCallError, check_call
from context_agent.harness.tools.prune import PruneArguments
from context_agent.pruning.view import Block, Editable, View
from context_agent.retrieval.corpus import Corpus
from context_agent.text.sentences import sentences
from context_agent.types import Action, RankedId, ToolCall

LONGEST_SENTENCE = 200
"""Maximum number of characters of a sentence."""
SIZE_MARGIN = 1.2
"""The factor by which the size of an extract is overestimated, so that it is never longer than what it replaces."""
ID_FRAME = 24
"""Characters that a summary needs for an id, besides the id itself."""
_WORD = re.compile(r"\w{3,}")


Strategy = Callable[[View, int], tuple[str, ...]]
"""Takes a view and the tokens to free. Returns ids of chunks in view to prune, which may free fewer tokens."""


def none(view: View, need: int) -> tuple[str, ...]:
    """Return no blocks, because this strategy never prunes."""
    return ()


def oldest(view: View, need: int) -> tuple[str, ...]:
    """Return the oldest blocks, as many as are needed to free `need` tokens."""
    return _take(view.blocks, need)


def random_order(seed: int) -> Strategy:
    """Return blocks in an order drawn from the seed and the turn."""

    def choose(view: View, need: int) -> tuple[str, ...]:
        blocks = list(view.blocks)
        random.Random(f"{seed}:{view.turn}").shuffle(blocks)
        return _take(blocks, need)

    return choose


def oracle(gold: AbstractSet[str]) -> Strategy:
    """Return every block whose document or chunk is not gold, however many tokens are needed."""

    def choose(view: View, need: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys(b.id for b in view.blocks if b.document_id not in gold and b.id not in gold))

    return choose


def strategy(name: str, *, seed: int = 0, gold: AbstractSet[str] = frozenset()) -> Strategy:
    """Return the strategy with this name: `none`, `oldest`, `random` or `oracle`.

    Raise `ConfigError` for another name.
    """
    table: dict[str, Strategy] = {
        "none": none,
        "oldest": oldest,
        "random": random_order(seed),
        "oracle": oracle(gold),
    }
    if name not in table:
        raise ConfigError(f"there is no pruning strategy {name!r}. Choose from {', '.join(table)}.")
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
    """The ids of blocks in view, and the text that replaces the blocks."""

    ids: tuple[str, ...]
    summary: str


def extract(view: View, need: int, among: AbstractSet[str] | None = None) -> Replacement | None:
    """Summarize the oldest blocks and summaries to free about `need` tokens.

    If the summary would free no tokens, return None.

    The summary has one line for each replaced block: the block's title, and the sentence that shares most words with
    the question. If several sentences share as many words, the first one is used. Blocks that the policy protected, or
    that are as short as their line, are not replaced. `among` contains the ids that may be replaced. If it is None, all
    ids in view may be replaced.
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
    """Return the line for a block or a summary.

    Double brackets would cite an id, so they are replaced by single brackets.
    """
    title = " ".join(block.hit.chunk.title.split()) if isinstance(block, Block) else ""
    sentence = _cut(_closest(sentences(block.body), question_words))
    line = f"{title}: {sentence}" if title and not sentence.startswith(title) else sentence
    return line.replace("[[", "[").replace("]]", "]")


def _closest(texts: Iterable[str], question_words: frozenset[str]) -> str:
    """Return the sentence that shares most words with the question.

    If several share as many words, return the first.
    """
    stripped = [" ".join(sentence.split()) for sentence in texts]
    return max(
        filter(None, stripped), key=lambda text: len(question_words & {*_WORD.findall(text.casefold())}), default=""
    )


def _cut(sentence: str) -> str:
    if len(sentence) <= LONGEST_SENTENCE:
        return sentence
    return sentence[:LONGEST_SENTENCE].rpartition(" ")[0] or sentence[:LONGEST_SENTENCE]


def _freed(block: Editable, line: str) -> int:
    """Return the tokens that the line saves, estimated from the block's tokens per character and rounded down."""
    size = len(line) + (len(block.id) + ID_FRAME if isinstance(block, Block) else len(block.header))
    return block.tokens - int(SIZE_MARGIN * size * block.tokens / max(1, len(block.text)))


PRUNE = "prune_chunks"

Control = Callable[[View, Action], Action]
"""Takes a view and an action with calls.

Returns the action to take instead. An action without calls ends the episode.
"""


class ControlledPolicy:
    """A policy whose actions a control rewrites. The label is added to the name of the inner policy."""

    def __init__(self, inner: Policy, control: Control, label: str) -> None:
        self._inner = inner
        self._control = control
        self.name = f"{inner.name}+{label}"
        self.counter = inner.counter
        self.engine: Any = getattr(inner, "engine", None)
        """The inner policy's engine. It is None if it has none."""

    def instructions(self, profile: Profile) -> str | Instructions:
        """Return the instructions of the inner policy."""
        return self._inner.instructions(profile)

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> Actor:
        """Open an actor of the inner policy, and return it with the control."""
        return ControlledActor(self._inner.open(question, corpus, profile=profile, seed=seed), self._control)


class ControlledActor:
    """An actor whose actions a control rewrites."""

    def __init__(self, inner: Actor, control: Control) -> None:
        self._inner = inner
        self._control = control

    async def act(self, view: View) -> Action:
        """Return the rewritten action. If the control removes all calls, the action becomes the final ranking."""
        action = await self._inner.act(view)
        if not action.calls:
            return action
        rewritten = self._control(view, action)
        return rewritten if rewritten.calls else replace(rewritten, ranking=self.partial(view))

    def partial(self, view: View) -> tuple[RankedId, ...]:
        """Return the inner actor's ranking. If the inner actor cannot rank, return the documents in view."""
        if isinstance(self._inner, PartialRanker):
            return self._inner.partial(view)
        return tuple(RankedId(document) for document in dict.fromkeys(b.document_id for b in view.citable_blocks))


def prune_by(strategy: Strategy) -> Control:
    """Return the control that drops the policy's edits and prunes by a strategy.

    Past the soft threshold, the strategy frees tokens until one more call fits below the threshold.
    """

    def control(view: View, action: Action) -> Action:
        calls = tuple(call for call in action.calls if call.name not in EDITS)
        pruned = strategy(view, _excess(view)) if view.tokens >= view.budget.soft else ()
        if not pruned:
            return replace(action, calls=calls)
        # A turn's edits are applied first wherever they stand. At the end they leave the indices of the other calls
        # unchanged. The new call was not sampled, so the action's tokens have to be counted again.
        return replace(action, calls=(*calls, ToolCall(PRUNE, {"chunk_ids": list(pruned)})), tokens=None)

    return control


def summarize_prunes(view: View, action: Action) -> Action:
    """Replace each prune with a summary that has one sentence for each chunk.

    It summarizes the chunks that the prune would hide, and earlier summaries.

    If no summary would be shorter, the prune is kept. The profile must have `summarize_context`.
    """
    if not any(call.name in EDITS for call in action.calls):
        return summarize_oldest(view, action)
    return replace(action, calls=tuple(_summarized(view, call) for call in action.calls), tokens=None)


def summarize_oldest(view: View, action: Action) -> Action:
    """Past the soft threshold, add a summary of the oldest blocks to each action without edits."""
    if view.tokens < view.budget.soft or any(call.name in EDITS for call in action.calls):
        return action
    summary = extract(view, _excess(view))
    return replace(action, calls=(*action.calls, _summary_call(summary)), tokens=None) if summary else action


def _excess(view: View) -> int:
    """Return the number of tokens to free if the view is past the soft threshold.

    When they are freed, one more call fits below the threshold.
    """
    return view.tokens - view.budget.soft + view.budget.per_call


def _summarized(view: View, call: ToolCall) -> ToolCall:
    """Return the summary that replaces a prune.

    If the prune is not valid, or no summary would be shorter, return the prune.
    """
    try:
        arguments = check_call(call, (PRUNE,))
    except ToolCallError:
        return call
    assert isinstance(arguments, PruneArguments)
    pruned, _ = view.select(arguments.chunk_ids, arguments.all_but)
    ids = {block.id for block in (*pruned.blocks, *view.summaries)}
    summary = extract(view, view.tokens, ids)
    return _summary_call(summary) if summary else call


def _summary_call(replacement: Replacement) -> ToolCall:
    return ToolCall(SUMMARIZE, {"chunk_ids": list(replacement.ids), "summary": replacement.summary})
