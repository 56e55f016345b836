"""Chats that WhatsApp exports as text. Each message begins on a line with its date, its time and its speaker."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime

from context_agent.retrieval.loaders.turns import Turn

SAMPLE_CHARACTERS = 4_000
"""The number of first characters that are examined."""
_CLOCK = r"\d{1,2}:\d\d(?::\d\d)?(?:[ \u202f][AaPp]\.?[ \u202f]?[Mm]\.?)?"
_MESSAGE = re.compile(
    rf"[\u200e\u200f]?(\[)?(\d{{1,4}})([./-])(\d{{1,2}})[./-](\d{{1,4}}),[ ]({_CLOCK})(?(1)\]|[ ]-)[ ]"
    r"(?:[\u200e\u200f]?([^:\n]{1,100}):(?:[ ]|$))?(.*)"
)
"""The first line of a message, on Android or on an iPhone. A notice of the program has no speaker."""
_Numbers = tuple[int, int, int]


def read_turns(text: str) -> Iterator[Turn]:
    """Yield the messages of a chat. If the text is not a chat, yield nothing.

    The text is read twice, so that the messages of a long chat need not be in memory.
    """
    first = [line for line in text[:SAMPLE_CHARACTERS].split("\n") if line.strip()]
    begun = [head for line in first if (head := _MESSAGE.match(line))]
    if not first or not _MESSAGE.match(first[0]) or len(begun) < 2 or not any(head[7] for head in begun):
        return
    order = _order((numbers for _, numbers, _ in _messages(text)), begun[0][3])
    for head, numbers, words in _messages(text):
        yield Turn(head[7] or "", _time(head, numbers, order), "\n".join(words))


def _messages(text: str) -> Iterator[tuple[re.Match[str], _Numbers, list[str]]]:
    """Yield the first line of each message, the numbers of its date, and its words."""
    current: tuple[re.Match[str], _Numbers, list[str]] | None = None
    for line in _lines(text):
        if head := _MESSAGE.match(line):
            if current:
                yield current
            current = head, (int(head[2]), int(head[4]), int(head[5])), [head[8].strip("\u200e\r")]
        elif current:
            current[2].append(line)
    if current:
        yield current


def _lines(text: str) -> Iterator[str]:
    """Yield one line at a time. A list of all lines could take many times the memory of the text."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


def _order(dates: Iterable[_Numbers], sign: str) -> str:
    """Return `ymd`, `dmy` or `mdy`. If the dates do not show their order, return ""."""
    first = second = 0
    for numbers in dates:
        first, second = max(first, numbers[0]), max(second, numbers[1])
    if first > 31:
        return "ymd"
    if sign == "." or first > 12:
        return "dmy"
    return "mdy" if second > 12 else ""


def _time(head: re.Match[str], numbers: _Numbers, order: str) -> str:
    """Return the time of a message in ISO 8601. If that is unknown, return it as it is written."""
    stated = f"{head[2]}{head[3]}{head[4]}{head[3]}{head[5]}, {head[6]}"
    if not order:
        return stated
    day = dict(zip(order, numbers, strict=True))
    clock = re.sub(r"[.\s\u202f]", "", head[6]).upper()
    form = f"%{'I' if clock.endswith('M') else 'H'}:%M{':%S' * (clock.count(':') - 1)}{'%p' * clock.endswith('M')}"
    try:
        at = datetime.strptime(clock, form)  # noqa: DTZ007 - the file states no zone
        year = day["y"] + 2_000 * (day["y"] < 100)
        return at.replace(year=year, month=day["m"], day=day["d"]).isoformat()
    except ValueError:
        return stated
