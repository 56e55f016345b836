"""The plain data of one trajectory that the page and the terminal show, and its validation.

The data is validated because files may contain anything. The `text` of a block, a prompt or a passage is an index into
`ViewData.texts`. There, a text that many trajectories share is stored once.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from context_agent._support.validation import explain

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class BudgetData(TypedDict):
    """The token budget of an episode."""

    window: int
    soft: int
    hard: int
    per_call: int


class HeaderData(TypedDict):
    """The facts that were fixed when the episode started.

    Each item of `limits` is a name and a value. Limits that were not set are left out.
    """

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
    """A segment of the first view. Its `text` is an index into `ViewData.texts`."""

    role: str
    tokens: int
    text: int


class BlockData(TypedDict):
    """A chunk as it was shown, or a summary.

    A summary has the source `summary`. Its `chunk` is the summary's id, and its `title` tells how many passages it
    replaces. Its `document` is empty.

    Attributes:
        whole: False if the chunk was truncated to fit the budget.
        gold: True if the chunk is gold evidence. None if gold is unknown.
        text: An index into `ViewData.texts`.
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
    """A text segment of a result, or the usage line."""

    tokens: int
    text: str


class UsageData(TextData):
    """The usage line of a turn.

    Attributes:
        total: The number of tokens in the view, including the usage line.
    """

    total: int


class EditData(TypedDict):
    """An edit of the view.

    Attributes:
        pruned: The keys of the blocks that were pruned.
        replaced: The keys of the blocks that summaries replaced.
        summaries: The keys of the new summaries.
        restored: The keys of the blocks that were restored.
        freed: The number of tokens that the edit removed from the view.
        recomputed: The number of tokens that the model must read again because of the edit.
    """

    pruned: list[int]
    replaced: list[int]
    summaries: list[int]
    restored: list[int]
    freed: int
    recomputed: int


class DelegatedData(TypedDict):
    """A sub-agent that a tool call started. Its `id` is its trajectory's id. If it did not start, `id` is empty."""

    id: str
    task: str
    stop_reason: str
    documents: int
    steps: int
    tokens: int
    error: str | None


class ResultData(TypedDict):
    """A tool call and its result.

    Attributes:
        arguments: The arguments, as pairs of name and text.
        mistake: The fault in the call. None if it was valid.
        segments: The parts of the result. A number is the key of a block.
    """

    call: int
    name: str
    arguments: list[tuple[str, str]]
    mistake: str | None
    seconds: float | None
    segments: list[int | TextData]
    delegated: list[DelegatedData]


class TurnData(TypedDict):
    """An action of the policy, and its results. If `shown` is False, the action did not fit the window."""

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
    """A passage of a ranked document. Its `text` is an index into `ViewData.texts`."""

    id: str
    score: float | None
    text: int


class DocumentData(TypedDict):
    """A document of the final ranking. `gold` is None if gold is unknown."""

    id: str
    title: str
    score: float | None
    justification: str
    gold: bool | None
    chunks: list[PassageData]


class EndData(TypedDict):
    """The end of an episode. `dropped` counts the ids that were dropped from the ranking, by reason."""

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
    """The gold evidence of a trajectory's question.

    Attributes:
        needs: The number of pieces of evidence that the question needs.
        seen: The number of these pieces that were shown.
        ranked: The number of these pieces in the final ranking.
        missing: The ids of the gold documents or chunks that were never shown.
        answer: The answer to the question. Empty if it is unknown.
    """

    needs: int
    seen: int
    ranked: int
    missing: list[str]
    answer: str


class TrajectoryDetail(TypedDict):
    """The details of a trajectory that the viewer shows.

    Attributes:
        end: How the episode ended. None if the file was truncated.
        gold: The gold evidence. None if it is unknown.
    """

    header: HeaderData
    prompt: list[PromptData]
    blocks: list[BlockData]
    turns: list[TurnData]
    critical_steps: int
    end: EndData | None
    gold: GoldData | None


def validated(data: dict[str, Any]) -> TrajectoryDetail:
    """Return the data as a `TrajectoryDetail`.

    Raises:
        ValueError: If a value has the wrong type. The message names the first such value.
    """
    from pydantic import ValidationError

    try:
        return _adapter().validate_python(data, strict=True)
    except ValidationError as error:
        raise ValueError(explain(error)) from None


@cache
def _adapter() -> TypeAdapter[TrajectoryDetail]:
    from pydantic import TypeAdapter

    return TypeAdapter(TrajectoryDetail)
