"""The metadata that a question names, such as the status of a ticket or the person it is assigned to.

If a table has a column of text, its other columns are metadata. A question for the open tickets about a pump then finds
open and closed ones alike. So the policy reads each text together with those of its fields that the question names.
"""

from __future__ import annotations

from collections.abc import Iterator

from context_agent.policies.bridge.candidates import AnalyzedPassage, AnalyzedQuestion
from context_agent.text.identifiers import identifiers
from context_agent.text.record_fields import short_fields
from context_agent.text.words import key, words
from context_agent.types import Chunk


def named_fields(question: AnalyzedQuestion, chunk: Chunk, passage: AnalyzedPassage) -> Iterator[str]:
    """Yield a line such as `status: open` for each field of a chunk that the question names.

    A field is named if its value has a word of the question that the text and the title lack. The document's id is
    named if an identifier of the question is in it, and is not in the text.
    """
    asked = frozenset(spelling for one in question.identifiers for spelling in one.spellings)
    if asked and not asked.intersection(identifiers(chunk.document_id)) <= passage.identifiers:
        yield f"id: {chunk.document_id}"
    missing = question.key_set - passage.keys
    if not missing:
        return
    for name, value in short_fields(chunk.metadata):
        if not missing.isdisjoint(key(word) for word in words(value) if not word.isdigit()):
            yield f"{name}: {value}"
