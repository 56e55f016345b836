"""The values that pass between the layers.

They are frozen dataclasses, and this module imports only the standard library.

Ids are strings. A chunk's id is `<document id>_<chunk index>`. Tokens are counted in o200k_harmony unless a policy
brings its own tokenizer. A higher score is better everywhere.
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
class Caption:
    """The name of a part of a document, such as the heading above it: characters [start, end), and what it says.

    The part begins with its name. A chunk that begins inside the part, or that is mostly in it, gets the name in its
    title.
    """

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """One source text before it is cut into chunks.

    Attributes:
        id: The id, which is unique in a corpus.
        text: The whole text.
        title: A name for readers. It may be empty, and two documents may have the same title. None counts as empty.
        metadata: Fields that filters may use.
        sections: Parts that are chunked on their own, in order of their starts. A section comes before the sections
            inside it. Sections may nest but not overlap.
        captions: Names of parts, in order of their starts. They nest like sections, but chunks may cross their borders.
        pages: Offsets at which the pages of a printed document begin, in ascending order.
    """

    id: str
    text: str
    title: str = ""
    metadata: Metadata = field(default_factory=dict)
    sections: tuple[Section, ...] = ()
    captions: tuple[Caption, ...] = ()
    pages: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        # A row of a database has None if there is no title.
        if self.title is None:
            object.__setattr__(self, "title", "")  # type: ignore[unreachable]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of a document: `document.text[start:end] == text`.

    Attributes:
        id: `<document id>_<chunk index>`.
        document_id: The document that the chunk is from.
        index: The number of the chunk in its document, from 0.
        text: The chunk as written.
        start: Offset of the first character in the document's text.
        end: Offset behind the last character.
        tokens: Size of the text in tokens.
        title: The title of the document or the section, with the captions of the parts that the chunk is in, and the
            pages that it is on.
        metadata: The fields of the document.
    """

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
        """The text that BM25 and the embedder see: the title on a line of its own, then the text."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that a search, grep or read found.

    Attributes:
        chunk: The chunk.
        score: The number that orders the hits of one result.
        rank: The rank in the fused order, from 1.
        dense: Cosine similarity to the query. It is None if the dense retriever did not return the chunk.
        sparse: BM25 score for the query. It is None if BM25 did not return the chunk.
    """

    chunk: Chunk
    score: float
    rank: int
    dense: float | None = None
    sparse: float | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as the policy made it.

    Attributes:
        name: The name of the tool.
        arguments: The arguments, which are not checked yet. If they cannot be parsed, they are the raw text.
        id: The id that a model's API gave the call. It may be empty.
    """

    name: str
    arguments: Mapping[str, Any] | str
    id: str = ""


@dataclass(frozen=True, slots=True)
class RankedId:
    """One line of a policy's final ranking.

    Attributes:
        id: The id of a document or a chunk.
        score: The score that the policy states, if any.
        justification: The reason why the policy ranks it. It may be empty.
    """

    id: str
    score: float | None = None
    justification: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """A policy's answer to a view.

    It is a set of tool calls, or the final ranking. An action without calls ends the episode.

    Attributes:
        calls: The tool calls.
        ranking: The final ranking, best first. If there are no calls and it is None, the ranking is parsed from `text`.
        text: The text that the policy wrote in addition to the calls, or its final message.
        reasoning: Its hidden reasoning.
        tokens: Size of the whole action, if the policy knows it. Otherwise the episode counts the text and the calls.
        extra: The data that the policy stores with the action in the trajectory.
    """

    calls: tuple[ToolCall, ...] = ()
    ranking: tuple[RankedId, ...] | None = None
    text: str = ""
    reasoning: str = ""
    tokens: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RankedChunk:
    """A passage of a document in the ranking.

    Attributes:
        id: The id of the chunk.
        text: The text as the final view shows it.
        score: The score, as in `RankedDocument`.
    """

    id: str
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """A document of a result.

    Attributes:
        id: The document's id.
        title: Its title, which may be empty.
        score: The probability that it belongs to the evidence, if the policy gives probabilities. Otherwise it only
            orders.
        chunks: The passages of the document in the final view, best first.
        justification: The reason why the policy ranked it. It may be empty.
        metadata: The fields of the document.
    """

    id: str
    title: str
    score: float
    chunks: tuple[RankedChunk, ...]
    justification: str = ""
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a data set, with its answer and gold documents if they are known.

    Attributes:
        id: The id, which is unique in the data set.
        question: The text.
        answer: The answer. It is empty if the data have none.
        gold: Ids of the documents that answer the question, in hop order if the data have one.
        type: The kind of question. It is empty if the data have none.
        hops: The number of documents that the answer takes. It is 0 if the data do not say.
        facts: Gold by fact, for corpora that repeat themselves. A fact is a tuple of chunk ids, any one of which is
            enough.
    """

    id: str
    question: str
    answer: str = ""
    gold: tuple[str, ...] = ()
    type: str = ""
    hops: int = 0
    facts: tuple[tuple[str, ...], ...] = ()
