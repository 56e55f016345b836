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

from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError
from context_agent.pruning.budget import RESERVE, WINDOW, Budget

SUMMARIZE = "summarize_context"
"""The tool that replaces chunks by a summary; only in profiles that list it."""
SUMMARY_HEADER = "# SUMMARY ID: {id} ({tokens} tokens), stands for {ids}\n"
NAMES = ("default", "context-1", "summary", "lean")


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
