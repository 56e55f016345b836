"""The reader of transcripts and subtitles (WebVTT and SubRip). Each turn has a speaker and a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, pairwise

from context_agent.errors import DataError
from context_agent.retrieval.loaders.conversations import Turn, conversation
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.markup import unescaped
from context_agent.retrieval.loaders.reading import Reading, content, decoded
from context_agent.types import Document

MAX_TURN_CHARACTERS = 1_000
"""The number of characters after which a turn ends. A lecture may have only one speaker."""
_TIMES = re.compile(r"\s{0,9}((?:\d{1,4}:)?\d{1,2}:\d{1,2}(?:[.,]\d{1,3})?)\s{0,9}-->")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?\s([^<>]*)>")
_TAG = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")
_SPEAKER = re.compile(r"(?:>>\s?)?([^\W\d_][^:<>.!?,\n]{0,38}):\s")


def read_transcript(reading: Reading) -> Iterator[Document]:
    """Yield the transcript as one document. Successive cues of one speaker make one turn."""
    whole = conversation(reading, _turns(unix_lines(decoded(reading, content(reading)).text)))
    if whole is None:
        raise DataError("the file is empty: it has no cue with text")
    yield whole


def _turns(text: str) -> Iterator[Turn]:
    speaker, start, words, size = "", "", list[str](), 0
    for said_by, time, line in _cues(text):
        if words and ((said_by and said_by != speaker) or size > MAX_TURN_CHARACTERS):
            yield Turn(speaker, start, "\n".join(words))
            words, size = [], 0
        speaker = said_by or speaker
        start = start if words else time
        words.append(line)
        size += len(line)
    yield Turn(speaker, start, "\n".join(words))


def _cues(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the speaker, the start time and the text of each line of a cue.

    Lines that do not follow a time, such as notes, are not text. In WebVTT, an empty line ends a cue. In SubRip,
    programs also write empty lines inside a cue, so a cue ends before the number and the time of the next one.
    """
    time, lines = "", text.split("\n")
    is_subrip = not text.startswith("WEBVTT")
    if is_subrip:
        lines = [line for line in lines if line.strip()]
    for line, following in pairwise(chain(lines, ["", ""])):
        if is_subrip and line.strip().isdecimal() and _TIMES.match(following):
            continue
        if begun := _TIMES.match(line):
            time = begun[1].replace(",", ".")
        elif not line.strip():
            time = ""
        elif time:
            voice = _VOICE.search(line)
            words = unescaped(_TAG.sub("", line)).strip()
            named = None if voice else _SPEAKER.match(words)
            speaker = unescaped(voice[1]).strip() if voice else named[1].strip() if named else ""
            if said := words[named.end() :].strip() if named else words:
                yield speaker, time, said
