"""The messages of logs, without the words that most lines of a log repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from context_agent.pruning.blocks import Passage, is_log_entry
from context_agent.pruning.units import PLAIN_FORMS, VARIABLE
from context_agent.pruning.words import labeled

MIN_LOG_SHARE = 0.3
"""Log entries count as a log if they have at least this share of the tokens."""
COMMON_SHARE, COMMON_LINES = 0.03, 3
"""A word is common if more than this share of the lines have it, and more than this number of lines."""
ENTRY_CHARACTERS = 900
"""The characters of a passage that are read."""


def log_messages(passages: Sequence[Passage]) -> dict[int, str]:
    """Return the rare words of each log entry, by the row of its passage.

    Lines of a log repeat times, ids, levels and names of services. Without these words, the rest of an entry says what
    happened. Entries with the same message become the same text.

    Args:
        passages: The passages of a conversation.

    Returns:
        The texts. If log entries have less than `MIN_LOG_SHARE` of the tokens, the result is empty.
    """
    entries = {
        row: VARIABLE.sub(" ", labeled(passage)[:ENTRY_CHARACTERS])
        for row, passage in enumerate(passages)
        if passage.form in PLAIN_FORMS and is_log_entry(passage.text)
    }
    if sum(passages[row].tokens for row in entries) < MIN_LOG_SHARE * sum(passage.tokens for passage in passages):
        return {}
    lines = [set(line.split()) for text in entries.values() for line in text.split("\n")]
    counts = Counter(word for words in lines for word in words)
    most = max(COMMON_LINES, COMMON_SHARE * len(lines))
    return {row: " ".join(word for word in text.split() if counts[word] <= most) for row, text in entries.items()}
