"""The plain data of one trajectory that the page and the terminal display, and its validation.

The data is validated because files may contain anything. The `text` of a block, a prompt or a passage is a number: an
index into `ViewData.texts`, where a text that many trajectories share is stored once.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from context_agent._support.validation import explain

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class BudgetData(TypedDict):
    """The budget, in tokens."""

    window: int
    soft: int
    hard: int
    per_call: int


class HeaderData(TypedDict):
    """What the episode started with. `limits` are pairs of name and value, without limits that were not set."""

    id: str
    question: str
    question_id: str | None
    policy: str
    corpus: str
    counter: str
    seed: int
    version: str
    started: str
    parent: str | None
    profile: str
    budget: BudgetData
    limits: list[tuple[str, float]]


class PromptData(TypedDict):
    """A segment of the first view."""

    role: str
    tokens: int
    text: int


class BlockData(TypedDict):
    """A chunk as it was shown. `gold` is None if gold is unknown; `whole` is False if the chunk was cut to fit.

    A summary has the source `summary`: `chunk` is its id, `title` tells how many passages it replaces, `document` is
    empty.
    """

    key: int
    chunk: str
    document: str
    title: str
    tokens: int
    turn: int
    call: int
    source: str
    whole: bool
    rank: int
    score: float | None
    dense: float | None
    sparse: float | None
    gold: bool | None
    text: int


class TextData(TypedDict):
    """A text of a result, or the usage line."""

    tokens: int
    text: str


class UsageData(TextData):
    """The usage line and the size of the view with it."""

    total: int


class EditData(TypedDict):
    """Keys of the blocks that were pruned, replaced or restored, and of the new summaries; costs in tokens."""

    pruned: list[int]
    replaced: list[int]
    summaries: list[int]
    restored: list[int]
    freed: int
    recomputed: int


class DelegatedData(TypedDict):
    """A sub-agent that a call started; `id` is that of its trajectory, empty if it did not start."""

    id: str
    task: str
    stop_reason: str
    documents: int
    steps: int
    tokens: int
    error: str | None


class ResultData(TypedDict):
    """A call: `arguments` as pairs of name and text; `segments` are keys of blocks, or texts."""

    call: int
    name: str
    arguments: list[tuple[str, str]]
    mistake: str | None
    seconds: float | None
    segments: list[int | TextData]
    delegated: list[DelegatedData]


class TurnData(TypedDict):
    """An action and what followed. `shown` is False if the action did not fit the window."""

    turn: int
    tokens: int
    seconds: float | None
    shown: bool
    text: str
    reasoning: str
    edit: EditData | None
    results: list[ResultData]
    usage: UsageData | None


class PassageData(TypedDict):
    """A passage of a ranked document."""

    id: str
    score: float | None
    text: int


class DocumentData(TypedDict):
    """A document of the final ranking; `gold` is None if gold is unknown."""

    id: str
    title: str
    score: float | None
    justification: str
    gold: bool | None
    chunks: list[PassageData]


class EndData(TypedDict):
    """How the episode ended; `dropped` counts the ids that were dropped from the ranking, by reason."""

    stop_reason: str
    confidence: float | None
    error: str | None
    seconds: float | None
    turns: int
    tokens: int
    mistakes: int
    dropped: dict[str, int]
    documents: list[DocumentData]


class GoldData(TypedDict):
    """How much evidence was needed, seen and ranked; the ids that were never shown; the answer, empty if unknown."""

    needs: int
    seen: int
    ranked: int
    missing: list[str]
    answer: str


class TrajectoryDetail(TypedDict):
    """Everything that is shown of a trajectory. `end` is None if the file was cut, `gold` if it is unknown."""

    header: HeaderData
    prompt: list[PromptData]
    blocks: list[BlockData]
    turns: list[TurnData]
    critical_steps: int
    end: EndData | None
    gold: GoldData | None


def validated(data: dict[str, Any]) -> TrajectoryDetail:
    """Return the data as a `TrajectoryDetail`. Raises `ValueError` that names the first value of a wrong type."""
    from pydantic import ValidationError

    try:
        return _adapter().validate_python(data, strict=True)
    except ValidationError as error:
        raise ValueError(explain(error)) from None


@cache
def _adapter() -> TypeAdapter[TrajectoryDetail]:
    from pydantic import TypeAdapter

    return TypeAdapter(TrajectoryDetail)
