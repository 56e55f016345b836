"""The text in which a policy sees chunks and summaries.

A document's text is data. Some markers in it would read as the harness's own words or as a model's control tokens. They
are escaped where a chunk is rendered, never in the stored text. A summary's text, which a model wrote, is escaped as
well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from context_agent.harness.profile import SUMMARY_HEADER, Profile
from context_agent.text.markers import escape_markers, escaped_line
from context_agent.tokens import HarmonyCounter, TokenCounter
from context_agent.types import Chunk

_MIN_BODY_TOKENS = 16
_WIDEST_NUMBER = 9_999
"""The number by which the tokens of a block's label are estimated."""
_LABEL = re.compile(r"#(?=\d)")
_CACHED_CHUNKS = 20_000


@dataclass(frozen=True, slots=True)
class Rendered:
    """A chunk ready to be shown. `tokens` counts the header, the body and the newline behind it."""

    header: str
    body: str
    tokens: int
    complete: bool = True


class Renderer:
    """A renderer of chunks for one profile and one token counter. It renders each text of a chunk only once."""

    def __init__(self, profile: Profile, counter: TokenCounter) -> None:
        self.profile = profile
        self.counter = counter
        self._cache: dict[tuple[str, str, str], Rendered] = {}
        self._label_tokens = counter.count(profile.label.format(number=_WIDEST_NUMBER)) if profile.label else 0

    def fitting(self, chunks: Sequence[Chunk], room: int) -> list[Rendered]:
        """Return the first chunks that fit into `room` tokens together.

        A first chunk that does not fit is cut, so that a small window still shows something. If the profile has a
        longest length, the chunks share the room: each takes at most that length, and its part of what is left.
        """
        fitting: list[Rendered] = []
        for left, chunk in zip(range(len(chunks), 0, -1), chunks, strict=True):
            rendered = self._shared(chunk, room, left) if self.profile.longest else self.chunk(chunk)
            if rendered is not None and rendered.tokens > room:
                rendered = None if fitting else self.fit(chunk, room)
            if rendered is None:
                break
            room -= rendered.tokens
            fitting.append(rendered)
        return fitting

    def _shared(self, chunk: Chunk, room: int, left: int) -> Rendered | None:
        """Return the chunk cut to its part of the room.

        If its header fills that part, the chunk may take the longest length, or the whole room.
        """
        longest = self.profile.longest
        lengths = (min(longest, room // left), min(longest, room), room)
        return next(filter(None, (self.fit(chunk, length) for length in lengths)), None)

    def chunk(self, chunk: Chunk) -> Rendered:
        """Return the whole chunk with its header.

        If the same vocabulary counted the chunk before, its own token count is used.
        """
        # A corpus may change a document while its agent runs, and its chunks keep their ids.
        key = (chunk.id, chunk.title, chunk.text)
        if (cached := self._cache.get(key)) is not None:
            return cached
        body = escape_markers(" ".join(chunk.text.split()) if self.profile.one_line else chunk.text)
        title = escaped_line(chunk.title) if self.profile.title and chunk.title else ""
        if self.profile.label:  # Text that would read as the label of a block is broken up.
            body, title = _LABEL.sub("# ", body), _LABEL.sub("# ", title)
        counted = chunk.tokens if body == chunk.text and self.counter.name == HarmonyCounter.name else 0
        tokens = counted or self.counter.count(body)
        header = self.profile.header.format(id=escaped_line(chunk.id), tokens=tokens)
        if title:
            header += self.profile.title.format(title=title)
        rendered = Rendered(header, body, self.counter.count(header) + tokens + self._label_tokens + 1)
        if len(self._cache) >= _CACHED_CHUNKS:
            self._cache.clear()
        self._cache[key] = rendered
        return rendered

    def fit(self, chunk: Chunk, room: int) -> Rendered | None:
        """Return the start of the chunk, cut to at most `room` tokens. Return None if not even a few words fit."""
        uncut = self.chunk(chunk)
        if uncut.tokens <= room:
            return uncut
        count = self.counter.count
        header_tokens = count(uncut.header) + self._label_tokens
        body_tokens = uncut.tokens - header_tokens - 1
        gap = " " if self.profile.one_line else "\n"
        mark = self.profile.cut.format(shown=body_tokens, tokens=body_tokens)
        body_room = room - header_tokens - count(gap + mark) - 2
        while body_room >= _MIN_BODY_TOKENS:
            part = _start(uncut.body, body_room / body_tokens)
            if part:
                body = f"{part}{gap}{self.profile.cut.format(shown=count(part), tokens=body_tokens)}"
                tokens = header_tokens + count(body) + 1
                if tokens <= room:
                    return Rendered(uncut.header, body, tokens, complete=False)
            body_room = body_room * 4 // 5
        return None

    def summary(self, name: str, ids: Iterable[str], text: str) -> Rendered:
        """Return a summary with its header, which names the chunks that it replaces."""
        body = escape_markers(text.strip())
        tokens = self.counter.count(body)
        template = self.profile.summary or SUMMARY_HEADER
        header = template.format(id=name, tokens=tokens, ids=", ".join(map(escaped_line, ids)))
        return Rendered(header, body, self.counter.count(header) + tokens + 1)


def _start(text: str, share: float) -> str:
    """Return the first part of the text, as long as `share` says. If a word boundary is near, the part ends there."""
    part = text[: int(len(text) * share)]
    space = part.rfind(" ")
    return part[:space] if space > len(part) * 0.8 else part
