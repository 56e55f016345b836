"""The plain data of one trajectory, as the page and the terminal read it; checked, because files may hold anything.

A `text` of a block, a prompt or a passage is a number: its place among the texts of an `Exhibit`, where what many
trajectories share is kept once.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class BudgetData(TypedDict):
    """Tokens."""

    window: int
    soft: int
    hard: int
    per_call: int


class HeaderData(TypedDict):
    """What the episode started from. `limits` are pairs of name and value, those that were set."""

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
    """A chunk as it was shown. `gold` is None where gold is unknown; `whole` is False where it was cut to fit.

    A summary is one of the source `summary`: `chunk` is its id, `title` says of how many passages it is, `document` is
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


class SaidData(TypedDict):
    """A text of a result, or the usage line."""

    tokens: int
    text: str


class UsageData(SaidData):
    """The usage line and the size of the view with it."""

    total: int


class EditData(TypedDict):
    """Keys of the blocks that were pruned, came back, were replaced by summaries, and of these summaries; and the bill
    in tokens."""

    pruned: list[int]
    replaced: list[int]
    summaries: list[int]
    restored: list[int]
    freed: int
    recomputed: int


class DelegatedData(TypedDict):
    """A sub-agent that a call started; `id` is its trajectory's, empty where none was begun."""

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
    segments: list[int | SaidData]
    delegated: list[DelegatedData]


class TurnData(TypedDict):
    """An action and what followed. `shown` is False where the window could not hold the action."""

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
    """A document of the final ranking; `gold` is None where gold is unknown."""

    id: str
    title: str
    score: float | None
    justification: str
    gold: bool | None
    chunks: list[PassageData]


class EndData(TypedDict):
    """How it ended; `dropped` counts the ids that the ranking could not stand on, by reason."""

    stop_reason: str
    error: str | None
    seconds: float | None
    turns: int
    tokens: int
    mistakes: int
    dropped: dict[str, int]
    documents: list[DocumentData]


class GoldData(TypedDict):
    """How many things were needed, seen and ranked; the ids that were never shown; the answer, empty where unknown."""

    needs: int
    seen: int
    ranked: int
    missing: list[str]
    answer: str


class Detail(TypedDict):
    """All that is shown of a trajectory. `end` is None where the file was cut, `gold` where it is unknown."""

    header: HeaderData
    prompt: list[PromptData]
    blocks: list[BlockData]
    turns: list[TurnData]
    critical_steps: int
    end: EndData | None
    gold: GoldData | None


def checked(data: dict[str, Any]) -> Detail:
    """The data as a `Detail`. Raises `ValueError` that names the first value of the wrong kind."""
    from pydantic import ValidationError

    try:
        return _adapter().validate_python(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


@cache
def _adapter() -> TypeAdapter[Detail]:
    from pydantic import TypeAdapter

    return TypeAdapter(Detail)
