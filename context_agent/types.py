"""The values that pass between the layers: frozen, slotted, standard library only.

Ids are strings. A chunk's id is `<document id>_<chunk index>`. Token counts are o200k_harmony tokens unless a
policy brings its own tokenizer. Scores are higher-is-better everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MetadataValue = str | int | float | bool
Metadata = Mapping[str, MetadataValue]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document that is chunked on its own: characters [start, end), and the title of its chunks."""

    start: int
    end: int
    title: str


@dataclass(frozen=True, slots=True)
class Document:
    """One source text before chunking. `id` is unique in a corpus; `title` may be empty and is no key; None is empty.

    `sections` are in order of their starts, an outer one before those in it; they may nest but not overlap.
    """

    id: str
    text: str
    title: str = ""
    metadata: Metadata = field(default_factory=dict)
    sections: tuple[Section, ...] = ()

    def __post_init__(self) -> None:
        # Rows of a database have None where there is no title.
        if self.title is None:
            object.__setattr__(self, "title", "")  # type: ignore[unreachable]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of a document: `document.text[start:end] == text` (offsets in characters)."""

    id: str
    document_id: str
    index: int
    text: str
    start: int
    end: int
    tokens: int
    title: str = ""
    metadata: Metadata = field(default_factory=dict)

    @property
    def indexed_text(self) -> str:
        """What BM25 and the embedder see: the title on a line of its own, then the text."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that a search, grep or read brought up.

    `score` orders the hits of one result. `dense` is the cosine similarity and `sparse` the BM25 score of the chunk
    for that query; None where that retriever did not return it. `rank` counts from 1 in the fused order.
    """

    chunk: Chunk
    score: float
    rank: int
    dense: float | None = None
    sparse: float | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as the policy made it. `arguments` is what it wrote, unchecked: a mapping, or the raw text."""

    name: str
    arguments: Mapping[str, Any] | str
    id: str = ""


@dataclass(frozen=True, slots=True)
class RankedId:
    """One line of a policy's final ranking: a document id or a chunk id, and why."""

    id: str
    score: float | None = None
    justification: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """What a policy answers to a view: tool calls, or the final ranking.

    `text` is what it wrote beside the calls (or the final message as it stood); `reasoning` its hidden reasoning.
    `tokens` is the size of the whole action where the policy knows it, else the episode counts `text` and calls.
    An action without calls ends the episode; `ranking=None` then means that the ranking is parsed from `text`.
    """

    calls: tuple[ToolCall, ...] = ()
    ranking: tuple[RankedId, ...] | None = None
    text: str = ""
    reasoning: str = ""
    tokens: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RankedChunk:
    """A passage that earned its document the place in the ranking."""

    id: str
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """A document of the result, best first; `chunks` are the passages in the final view, best first."""

    id: str
    title: str
    score: float
    chunks: tuple[RankedChunk, ...]
    justification: str = ""
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Question:
    """A question. `gold` are the ids of the documents that answer it, in hop order if the data has one.

    `facts` is gold by fact, for corpora with repetitions: a fact is a tuple of chunk ids, any one of which is enough.
    An empty `answer`, `gold`, `facts` or `type`, and `hops` of 0, mean that the row does not have the field.
    """

    id: str
    question: str
    answer: str = ""
    gold: tuple[str, ...] = ()
    type: str = ""
    hops: int = 0
    facts: tuple[tuple[str, ...], ...] = ()
