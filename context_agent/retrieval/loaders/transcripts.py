"""The reader of transcripts, subtitles and lyrics. Each turn has a speaker and a time.

The formats are WebVTT, SubRip, SubViewer (`.sbv`), SubStation Alpha (`.ass`, `.ssa`) and LRC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, pairwise
from pathlib import PurePath

from context_agent.errors import DataError
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.html_tags import unescaped
from context_agent.retrieval.loaders.reading import Reading, content, decoded
from context_agent.retrieval.loaders.turns import Turn, conversation
from context_agent.types import Document

MAX_TURN_CHARACTERS = 1_000
"""The number of characters after which a turn ends. A lecture may have only one speaker."""
_TIMES = re.compile(r"\s{0,9}((?:\d{1,4}:)?\d{1,2}:\d{1,2}(?:[.,]\d{1,3})?)\s{0,9}-->")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?\s([^<>]*)>")
_TAG = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")
_VIEWER_TIMES = re.compile(r"(\d{1,4}:\d{1,2}:\d{1,2}\.\d{1,3}),\d{1,4}:\d{1,2}:\d{1,2}\.\d{1,3}")
_LYRICS_TIMES = re.compile(r"\s*+\[(\d{1,4}:\d{1,2}(?:[.:]\d{1,3})?)\](?:\s*+\[\d{1,4}:\d{1,2}(?:[.:]\d{1,3})?\])*+")
_ALPHA_TITLE = re.compile(r"^Title:([^\n]*)", re.MULTILINE)
_TITLES = {".ass": _ALPHA_TITLE, ".lrc": re.compile(r"^\[ti:([^\]\n]*)\]", re.MULTILINE), ".ssa": _ALPHA_TITLE}
"""The title that a file states, by extension."""
_DRAWING = re.compile(r"\{[^{}]*\\p[1-9]")
"""The mark of a cue that is a drawing of points instead of text."""
TITLE_WITHIN = 4_096
"""The number of first characters in which a title is searched."""
MAX_FIELDS = 100
"""Maximum number of fields of a cue that are told apart."""
_Cue = tuple[str, str, str]
"""The speaker, the start time and the text of a line."""
_SPEAKER = re.compile(r"(?:>>\s?)?([^\W\d_][^:<>.!?,\n]{0,38}):\s")


def read_transcript(reading: Reading) -> Iterator[Document]:
    """Yield the transcript as one document. Successive cues of one speaker make one turn."""
    text = unix_lines(decoded(reading, content(reading)).text)
    extension = PurePath(reading.path).suffix.lower()
    cues = _FORMATS.get(extension, _cues)(text)
    stated = _TITLES[extension].search(text, 0, TITLE_WITHIN) if extension in _TITLES else None
    whole = conversation(reading, _turns(cues), stated[1].strip() if stated else "", joins=True)
    if whole is None:
        raise DataError("the file is empty: it has no cue with text")
    yield whole


def _turns(cues: Iterable[_Cue]) -> Iterator[Turn]:
    speaker, start, words, size = "", "", list[str](), 0
    for said_by, time, line in cues:
        if words and ((said_by and said_by != speaker) or size > MAX_TURN_CHARACTERS):
            yield Turn(speaker, start, "\n".join(words))
            words, size = [], 0
        speaker = said_by or speaker
        start = start if words else time
        words.append(line)
        size += len(line)
    yield Turn(speaker, start, "\n".join(words))


def _cues(text: str) -> Iterator[_Cue]:
    """Yield the speaker, the start time and the text of each line of a cue.

    Lines that do not follow a time, such as notes, are not text. In WebVTT, an empty line ends a cue. In SubRip,
    programs also write empty lines inside a cue, so a cue ends before the number and the time of the next one.

    Automatic captions roll: a cue shows the line of the cue before it once more, above its own line. Such a line counts
    once.
    """
    time, lines, last = "", text.split("\n"), ("", "")
    is_subrip = not text.startswith("WEBVTT")
    if is_subrip:
        lines = [line for line in lines if line.strip()]
    for line, following in pairwise(chain(lines, ["", ""])):
        if line.strip().isdecimal() and _TIMES.match(following):
            continue
        if begun := _TIMES.match(line):
            time = begun[1].replace(",", ".")
        elif not line:
            time = ""
        elif time:
            for speaker, start, words in _cue("", time, line):
                if (speaker, words) != last:
                    yield speaker, start, words
                last = speaker, words


def _cue(speaker: str, time: str, line: str) -> Iterator[_Cue]:
    """Yield a line without its tags, unless nothing is left. The line may name its speaker."""
    voice = _VOICE.search(line)
    words = unescaped(_TAG.sub("", line)).strip()
    named = None if voice or speaker else _SPEAKER.match(words)
    if voice or named:
        speaker = unescaped(voice[1]).strip() if voice else named[1].strip() if named else ""
    if said := words[named.end() :].strip() if named else words:
        yield speaker, time, said


def _viewer_cues(text: str) -> Iterator[_Cue]:
    """Yield the cues of SubViewer, in which a comma separates the start and the end of a cue."""
    time = ""
    for line in text.split("\n"):
        if begun := _VIEWER_TIMES.fullmatch(line.strip()):
            time = begun[1]
        elif line.strip():
            yield from _cue("", time, line)


def _alpha_cues(text: str) -> Iterator[_Cue]:
    """Yield the cues of SubStation Alpha. A line of the file names the fields of a cue, of which the text is the last.

    Events may be in any order, because several of them can be shown at once.
    """
    fields, cues = list[str](), list[tuple[str, str, str]]()
    for line in text.split("\n"):
        kind, _, rest = line.partition(":")
        if kind == "Format":
            fields = [field.strip().lower() for field in rest.split(",", MAX_FIELDS)]
        elif kind == "Dialogue" and "text" in fields:
            cue = dict(zip(fields, rest.split(",", len(fields) - 1), strict=False))
            if not _DRAWING.search(cue.get("text", "")):
                cues.append((cue.get("start", "").strip(), cue.get("name", "").strip(), cue.get("text", "")))
    for time, speaker, words in sorted(cues, key=lambda cue: _padded(cue[0])):
        for line in words.replace("\\h", " ").replace("\\n", "\\N").split("\\N"):
            yield from _cue(speaker, time, _TAG.sub("", line))


def _padded(time: str) -> str:
    """Return a time with zeros before its hours, so that texts of times have the order of the times."""
    hours, colon, rest = time.partition(":")
    return f"{hours:0>9}{colon}{rest}"


def _lyrics_cues(text: str) -> Iterator[_Cue]:
    """Yield the lines of lyrics. Each begins with its time, or with several if it is sung again."""
    for line in text.split("\n"):
        times = _LYRICS_TIMES.match(line)
        if times and times[0]:
            yield from _cue("", times[1], line[times.end() :])


_FORMATS: Mapping[str, Callable[[str], Iterator[_Cue]]] = {
    ".ass": _alpha_cues,
    ".lrc": _lyrics_cues,
    ".sbv": _viewer_cues,
    ".ssa": _alpha_cues,
}
"""The readers of cues, by extension."""
