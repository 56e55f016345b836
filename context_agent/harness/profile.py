"""The wire format of an episode: profiles as data, and how chunks, actions and rankings are written and read.

The profile `context-1` speaks the published format (the report, and for what the report leaves open the published
baseline), so that the published weights run in the harness they know. `default` improves on it: titles in the headers,
pruned chunks can be restored, a search can ask for fewer results, and results say what was left out. `summary` is the
default with `summarize_context`, which any profile can be given. `lean` is for small models: instructions of a few
lines, a passage a line, and numbers in place of ids.

A document's text is data. Markers in it that would read as the harness's own words, or as a model's control tokens, are
escaped where a chunk is rendered, never in the stored text. A summary's text, which a model wrote, is escaped as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError
from context_agent.pruning.budget import RESERVE, WINDOW, Budget
from context_agent.text.markers import escape_markers, escaped_line
from context_agent.tokens import HarmonyCounter, TokenCounter
from context_agent.types import Action, Chunk, RankedId

SUMMARIZE = "summarize_context"
"""The tool that replaces chunks by a summary; only in profiles that list it."""
SUMMARY_HEADER = "# SUMMARY ID: {id} ({tokens} tokens), stands for {ids}\n"
NAMES = ("default", "context-1", "summary", "lean")
LONGEST_RANKING = 1_000_000
"""Characters of a final message that are read."""
MOST_RANKED = 1_000
"""Entries of a ranking that are read."""
_LEAST_BODY = 16
_WIDEST_NUMBER = 9_999
"""What a block's number counts as."""
_LABEL = re.compile(r"#(?=\d)")
_CACHED = 20_000
_RANKED = re.compile(
    r"<document\s++id\s*+=\s*+[\"']?(?P<id>[^>\"']{1,400}+)[\"']?\s*+>(?P<body>.*?)(?=</document>|<document\s+id|\Z)",
    re.I | re.S,
)
_JUSTIFICATION = re.compile(r"<justification>(.*?)(?:</justification>|\Z)", re.I | re.S)


@dataclass(frozen=True, slots=True)
class Profile:
    """What a policy is told and how results look. Every string is a `str.format` template of the fields it names."""

    name: str
    tools: tuple[str, ...]
    prompt: str
    """Instructions ahead of the question; may use `{max_ranking}`."""
    question: str = "Question: {question}\n"
    header: str = "# DOCUMENT ID: {id} ({tokens} tokens)\n"
    title: str = ""
    """A further header line for a chunk with a title; uses `{title}`."""
    summary: str = ""
    """Header of a summary; uses `{id}`, `{tokens}`, and the `{ids}` that it stands for. Empty: the usual one."""
    label: str = ""
    """Ends a chunk's header; uses `{number}`, the block's key in the record. A call or a ranking may name a block as
    `#` and its number, and write anything ahead of that: a small model copies the title first."""
    cut: str = "[cut: {shown} of {tokens} tokens shown]"
    nothing: str = "No results found"
    usage: str = "[Token usage: {used:,}/{window:,}]"
    """Uses `{used}`, `{window}`, and `{share}`, the first over the second."""
    soft_advice: str = ""
    """Added to the usage line when the view passes the soft threshold, not at every turn past it: constant warnings
    are reported to make policies stop early."""
    hard_refusal: str = (
        "Error: the context is past its hard limit ({used:,} of {window:,} tokens). "
        "Only prune_chunks and the final answer are accepted until space is freed."
    )
    notes: bool = False
    """Whether results say what they left out: more hits, chunks in view or pruned."""
    extended_arguments: bool = False
    """Whether `search_corpus` declares `limit` and `prune_chunks` declares `all_but`."""
    one_line: bool = False
    """Whether a chunk's text is shown on one line. A text can then not spell another chunk's header."""
    longest: int = 0
    """Tokens to which a longer chunk is cut; the chunks of a result share its room. 0 shows chunks whole where they
    fit."""
    search_limit: int = 10
    grep_limit: int = 5
    max_ranking: int = 30
    fill_ranking: bool = False
    """Whether the other documents that were shown, pruned or not, follow those that a ranking names, in the order of
    their first hits."""
    window: int = WINDOW
    """The window of an episode that names none."""
    result_share: float = 1 / 8
    """The share of the window that the results of one call may take."""
    turns: int = 64
    """The most turns of an episode whose limits name none."""

    @property
    def numbered(self) -> bool:
        """Whether blocks are shown by number, so that calls and rankings name them by label."""
        return bool(self.label)

    def budget(self, window: int | None = None, *, reserve: int = RESERVE) -> Budget:
        """Return the budget of an episode. Raises `ConfigError` for a window that is too small."""
        window = self.window if window is None else window
        return Budget(window, per_call=int(window * self.result_share), reserve=reserve)

    def instructions(self) -> str:
        """Return the prompt with its fields filled in."""
        return self.prompt.replace("{max_ranking}", str(self.max_ranking))

    def with_prompt(self, path: str | Path) -> Profile:
        """Return the same profile with the prompt of a file. Raises `ConfigError` when it cannot be read."""
        try:
            return replace(self, prompt=Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the prompt file {path}: {error}") from error

    def with_summaries(self) -> Profile:
        """Return the same profile with `summarize_context`, under another name. If it gives advice past the soft
        threshold, the advice is to summarise."""
        if SUMMARIZE in self.tools:
            return self
        advice = " Over half full: summarise or prune what you no longer need in full, or finish."
        refusal = self.hard_refusal.replace("Only prune_chunks and", f"Only prune_chunks, {SUMMARIZE} and")
        return replace(
            self,
            name=f"{self.name}+summary",
            tools=(*self.tools, SUMMARIZE),
            summary=self.summary or SUMMARY_HEADER,
            soft_advice=advice if self.soft_advice else "",
            hard_refusal=refusal,
        )

    def without(self, tools: AbstractSet[str]) -> Profile:
        """Return the same profile, which does not offer these tools."""
        return replace(self, tools=tuple(name for name in self.tools if name not in tools))

    def to_json(self) -> dict[str, Any]:
        """Return the profile as plain data, as a trajectory's header holds it."""
        data = {**asdict(self), "tools": list(self.tools)}
        added = ("summary", "label", "fill_ranking", "one_line", "longest", "window", "result_share", "turns")
        usual = {field.name: field.default for field in fields(Profile) if field.name in added}
        return {name: value for name, value in data.items() if name not in usual or value != usual[name]}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Profile:
        """Return the profile of a trajectory's header; fields that this version does not know are left out.

        Raises `KeyError` or `TypeError` for data that is no profile.
        """
        if not isinstance(data, dict):
            raise TypeError("the profile is no JSON object")
        field_names = {field.name for field in fields(Profile)}
        values = {key: value for key, value in data.items() if key in field_names}
        return Profile(**{**values, "tools": tuple(values["tools"])})


def profile(name: str) -> Profile:
    """Return the profile of one of the `NAMES`. Raises `ConfigError` for another name."""
    table = dict(zip(NAMES, (default, context_1, summary, lean), strict=True))
    if name not in table:
        raise ConfigError(f"no harness profile {name!r}: choose one of {', '.join(table)}")
    return table[name]()


@cache
def default() -> Profile:
    """This project's own profile."""
    return Profile(
        name="default",
        tools=("search_corpus", "grep_corpus", "read_document", "prune_chunks", "restore_chunks", "multi_tool_use"),
        prompt=_prompt("default.md"),
        title="# TITLE: {title}\n",
        soft_advice=" Over half full: prune what does not help, or finish.",
        notes=True,
        extended_arguments=True,
    )


@cache
def context_1() -> Profile:
    """Return the published wire format."""
    return Profile(
        name="context-1",
        tools=("search_corpus", "grep_corpus", "read_document", "prune_chunks", "multi_tool_use"),
        prompt=_prompt("context-1.md"),
        title="{title}\n",
    )


@cache
def summary() -> Profile:
    """Return the default with `summarize_context` as a second way to make room."""
    return replace(default().with_summaries(), name="summary", prompt=_prompt("summary.md"))


@cache
def lean() -> Profile:
    """For small models in small windows: every token that is not a passage's is one less to read and to learn from."""
    return Profile(
        name="lean",
        tools=("search_corpus", "prune_chunks", "restore_chunks"),
        prompt=_prompt("lean.md"),
        question="{question}",
        header="",
        title="{title} ",
        label="#{number}: ",
        cut="[cut]",
        usage="[{share:.0%} full]",
        hard_refusal="Error: the context is full: prune, or answer.",
        extended_arguments=True,
        one_line=True,
        longest=128,
        search_limit=10,
        max_ranking=10,
        fill_ranking=True,
        window=2_048,
        result_share=3 / 4,
        turns=12,
    )


def _prompt(name: str) -> str:
    return (files("context_agent.harness") / "prompts" / name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A chunk ready to be shown; `tokens` counts header, body and the newline behind it."""

    header: str
    body: str
    tokens: int
    complete: bool = True


class Renderer:
    """Renders chunks for one profile and counter, each chunk once."""

    def __init__(self, profile: Profile, counter: TokenCounter) -> None:
        self.profile = profile
        self.counter = counter
        self._cache: dict[str, Rendered] = {}
        self._label_tokens = counter.count(profile.label.format(number=_WIDEST_NUMBER)) if profile.label else 0

    def fitting(self, chunks: Sequence[Chunk], room: int) -> list[Rendered]:
        """Return the first chunks that fit into `room` tokens together.

        A first chunk that does not fit whole is cut, so that a small window still shows something. In a profile with a
        longest length the chunks share the room: each takes at most that length, and its part of what is left.
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
        """Return the chunk in its part of the room, in the longest length if its header fills that part, or as it
        fits.
        """
        longest = self.profile.longest
        lengths = (min(longest, room // left), min(longest, room), room)
        return next(filter(None, (self.fit(chunk, length) for length in lengths)), None)

    def chunk(self, chunk: Chunk) -> Rendered:
        """Return the whole chunk with its header. A chunk's own count is used if the same vocabulary counted it."""
        if (cached := self._cache.get(chunk.id)) is not None:
            return cached
        body = escape_markers(" ".join(chunk.text.split()) if self.profile.one_line else chunk.text)
        title = escaped_line(chunk.title) if self.profile.title and chunk.title else ""
        if self.profile.label:  # What would read as a block's label is broken up.
            body, title = _LABEL.sub("# ", body), _LABEL.sub("# ", title)
        counted = chunk.tokens if body == chunk.text and self.counter.name == HarmonyCounter.name else 0
        tokens = counted or self.counter.count(body)
        header = self.profile.header.format(id=escaped_line(chunk.id), tokens=tokens)
        if title:
            header += self.profile.title.format(title=title)
        rendered = Rendered(header, body, self.counter.count(header) + tokens + self._label_tokens + 1)
        if len(self._cache) >= _CACHED:
            self._cache.clear()
        self._cache[chunk.id] = rendered
        return rendered

    def fit(self, chunk: Chunk, room: int) -> Rendered | None:
        """Return the start of the chunk cut to at most `room` tokens, or None if not even a few words would fit."""
        uncut = self.chunk(chunk)
        if uncut.tokens <= room:
            return uncut
        count = self.counter.count
        header_tokens = count(uncut.header) + self._label_tokens
        body_tokens = uncut.tokens - header_tokens - 1
        gap = " " if self.profile.one_line else "\n"
        mark = self.profile.cut.format(shown=body_tokens, tokens=body_tokens)
        body_room = room - header_tokens - count(gap + mark) - 2
        while body_room >= _LEAST_BODY:
            part = _start(uncut.body, body_room / body_tokens)
            part_tokens = count(part)
            if part and part_tokens <= body_room:
                body = f"{part}{gap}{self.profile.cut.format(shown=part_tokens, tokens=body_tokens)}"
                tokens = header_tokens + count(body) + 1
                if tokens <= room:
                    return Rendered(uncut.header, body, tokens, complete=False)
            body_room = body_room * 4 // 5
        return None

    def summary(self, name: str, ids: Iterable[str], text: str) -> Rendered:
        """Return a summary with its header, which names the chunks that it stands for."""
        body = escape_markers(text.strip())
        tokens = self.counter.count(body)
        template = self.profile.summary or SUMMARY_HEADER
        header = template.format(id=name, tokens=tokens, ids=", ".join(map(escaped_line, ids)))
        return Rendered(header, body, self.counter.count(header) + tokens + 1)


def _start(text: str, share: float) -> str:
    """Return the first `share` of the text, ended at a word boundary if there is one near."""
    part = text[: int(len(text) * share)]
    space = part.rfind(" ")
    return part[:space] if space > len(part) * 0.8 else part


def action_text(action: Action) -> str:
    """Return an action as one string: its reasoning and text, then a line for each call, or the ranking it ends
    with.
    """
    lines = [text for text in (action.reasoning, action.text) if text]
    for call in action.calls:
        arguments = call.arguments if isinstance(call.arguments, str) else compact(call.arguments)
        lines.append(f"{call.name} {arguments}")
    if action.ranking is not None and not action.text:
        lines.append(ranking_text(action.ranking))
    return "\n".join(lines) + "\n"


def compact(value: object) -> str:
    """Deterministic JSON without spaces, keys in insertion order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def ranking_text(ranking: Iterable[RankedId]) -> str:
    """Return a ranking in the published final format, best first."""
    return "\n".join(
        f"<Document id={item.id}><Justification>{item.justification}</Justification></Document>" for item in ranking
    )


def parse_ranking(text: str) -> tuple[RankedId, ...]:
    """Return the ranking that a final message names, in its order; empty if it names none. Tolerates unclosed tags.

    Reads the first 1,000 entries of the first million characters.
    """
    ranking = []
    for match in islice(_RANKED.finditer(text, 0, LONGEST_RANKING), MOST_RANKED):
        reason = _JUSTIFICATION.search(match["body"])
        ranking.append(RankedId(match["id"].strip(), justification=reason[1].strip() if reason else ""))
    return tuple(ranking)
