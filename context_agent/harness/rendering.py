"""How things look in a view: chunks and summaries, actions and results. Nothing in a document can pass for either.

A document's text is data. Markers in it that would read as the harness's own words, or as a model's control tokens, are
escaped where a chunk is rendered, never in the stored text. A summary's text, which a model wrote, is escaped as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from context_agent._support.markers import escape_markers
from context_agent.harness.profile import SUMMARY_HEADER, Profile
from context_agent.tokens import TokenCounter
from context_agent.types import Action, Chunk, RankedId, ToolCall

_LINE_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_RANKED = re.compile(
    r"<document\s+id\s*=\s*[\"']?(?P<id>[^>\"']{1,400}?)[\"']?\s*>(?P<body>.*?)(?=</document>|<document\s+id|\Z)",
    re.I | re.S,
)
_JUSTIFICATION = re.compile(r"<justification>(.*?)(?:</justification>|\Z)", re.I | re.S)
LONGEST_RANKING = 1_000_000
"""Characters of a final message that are read."""
MOST_RANKED = 1_000
"""Entries of a ranking that are read."""
_LEAST_BODY = 16
_CACHED = 20_000


@dataclass(frozen=True, slots=True)
class Rendered:
    """A chunk ready to be shown; `tokens` counts header, body and the newline behind it."""

    header: str
    body: str
    tokens: int
    whole: bool = True


def one_line(text: str) -> str:
    """The text on one line, without control characters and with its markers escaped: fit for a header."""
    return escape_markers(_LINE_BREAKS.sub(" ", text)).strip()


class Renderer:
    """Renders chunks for one profile and counter, each chunk once."""

    def __init__(self, profile: Profile, counter: TokenCounter) -> None:
        self.profile = profile
        self.counter = counter
        self._cache: dict[str, Rendered] = {}

    def chunk(self, chunk: Chunk) -> Rendered:
        """The whole chunk with its header. A chunk's own count serves where it was made by the same vocabulary."""
        if (found := self._cache.get(chunk.id)) is not None:
            return found
        body = escape_markers(chunk.text)
        counted = chunk.tokens if body == chunk.text and self.counter.name == "o200k_harmony" else 0
        tokens = counted or self.counter.count(body)
        header = self._header(chunk, tokens)
        made = Rendered(header, body, self.counter.count(header) + tokens + 1)
        if len(self._cache) >= _CACHED:
            self._cache.clear()
        self._cache[chunk.id] = made
        return made

    def fit(self, chunk: Chunk, room: int) -> Rendered | None:
        """The start of the chunk cut to at most `room` tokens, or None where not even a few words would fit."""
        whole = self.chunk(chunk)
        if whole.tokens <= room:
            return whole
        body_tokens = whole.tokens - self.counter.count(whole.header) - 1
        mark = self.profile.cut.format(shown=body_tokens, tokens=body_tokens)
        left = room - self.counter.count(whole.header) - self.counter.count("\n" + mark) - 2
        while left >= _LEAST_BODY:
            part = _start(whole.body, left / body_tokens)
            shown = self.counter.count(part)
            if part and shown <= left:
                body = f"{part}\n{self.profile.cut.format(shown=shown, tokens=body_tokens)}"
                tokens = self.counter.count(whole.header) + self.counter.count(body) + 1
                if tokens <= room:
                    return Rendered(whole.header, body, tokens, whole=False)
            left = left * 4 // 5
        return None

    def summary(self, name: str, ids: Iterable[str], text: str) -> Rendered:
        """A summary with its header, which names the chunks that it stands for."""
        body = escape_markers(text.strip())
        tokens = self.counter.count(body)
        shape = self.profile.summary or SUMMARY_HEADER
        header = shape.format(id=name, tokens=tokens, ids=", ".join(map(one_line, ids)))
        return Rendered(header, body, self.counter.count(header) + tokens + 1)

    def _header(self, chunk: Chunk, tokens: int) -> str:
        header = self.profile.header.format(id=one_line(chunk.id), tokens=tokens)
        title = one_line(chunk.title)
        return header + (self.profile.title.format(title=title) if title and self.profile.title else "")


def _start(text: str, share: float) -> str:
    """The first `share` of the text, ended at a word boundary where one is near."""
    part = text[: int(len(text) * share)]
    space = part.rfind(" ")
    return part[:space] if space > len(part) * 0.8 else part


def action_text(action: Action) -> str:
    """An action as one string: its reasoning and text, then a line a call, or the ranking it ends with."""
    lines = [text for text in (action.reasoning, action.text) if text]
    lines += [call_text(call) for call in action.calls]
    if action.ranking is not None and not action.text:
        lines.append(ranking_text(action.ranking))
    return "\n".join(lines) + "\n"


def call_text(call: ToolCall) -> str:
    """A tool call on one line: its name and its arguments as compact JSON."""
    arguments = call.arguments if isinstance(call.arguments, str) else compact(call.arguments)
    return f"{call.name} {arguments}"


def compact(value: object) -> str:
    """Deterministic JSON without spaces, keys in the order given."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def ranking_text(ranking: Iterable[RankedId]) -> str:
    """A ranking in the published final format, best first."""
    return "\n".join(
        f"<Document id={item.id}><Justification>{item.justification}</Justification></Document>" for item in ranking
    )


def parse_ranking(text: str) -> tuple[RankedId, ...]:
    """The ranking that a final message names, in its order; empty where it names none. Tolerates unclosed tags.

    Reads the first 1,000 entries of the first million characters.
    """
    found = []
    for match in islice(_RANKED.finditer(text, 0, LONGEST_RANKING), MOST_RANKED):
        reason = _JUSTIFICATION.search(match["body"])
        found.append(RankedId(match["id"].strip(), justification=reason[1].strip() if reason else ""))
    return tuple(found)
