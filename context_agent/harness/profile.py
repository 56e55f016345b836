"""Profiles of the harness as data: the tools of an episode, its prompt, and how results look.

The profile `context-1` follows the report on Context-1 (Chroma, "Context-1: Training a Self-Editing Search Agent",
2026), so that the published weights run in the harness that they know. What the report leaves open follows the
published baseline, which is the copy of that harness that Harness-1 published. `default` improves on it: headers have
titles, pruned chunks can be restored, a search can return fewer results, and results say what was left out. `summary`
is the default with `summarize_context`, which can be added to any profile. `lean` is for small models: instructions of
a few lines, a passage on each line, and numbers in place of ids.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from context_agent._support.arguments import whole_number
from context_agent.budget import RESERVE, WINDOW, Budget
from context_agent.errors import ConfigError, reason_of

SUMMARIZE = "summarize_context"
"""The tool that replaces chunks with a summary. Only profiles that list it have it."""
SUMMARY_HEADER = "# SUMMARY ID: {id} ({tokens} tokens), stands for {ids}\n"
PROFILE_NAMES = ("default", "context-1", "summary", "lean")


@dataclass(frozen=True, slots=True)
class Profile:
    """The tools of an episode, its texts, and how results look.

    Texts with fields in braces are `str.format` templates. Their descriptions or defaults name the fields.

    Example:
        >>> from dataclasses import replace
        >>> from context_agent.harness.profile import default
        >>> shorter = replace(default(), search_limit=3)
        >>> shorter.budget().window
        32768
    """

    name: str
    tools: tuple[str, ...]
    prompt: str
    """Instructions before the question. May use `{max_ranking}`."""
    question: str = "Question: {question}\n"
    header: str = "# DOCUMENT ID: {id} ({tokens} tokens)\n"
    title: str = ""
    """A second header line for a chunk with a title. Uses `{title}`."""
    summary: str = ""
    """Header of a summary.

    Uses `{id}`, `{tokens}`, and `{ids}`, the chunks that it replaces. Empty for the default header.
    """
    label: str = ""
    """The end of a chunk's header. Uses `{number}`, the block's key in the record.

    A call or a ranking may name a block by `#` and its number, with any text before it: a small model copies the title
    first.
    """
    cut: str = "[cut: {shown} of {tokens} tokens shown]"
    """The end of a chunk that was cut."""
    nothing: str = "No results found"
    """The result of a call that found nothing."""
    usage: str = "[Token usage: {used:,}/{window:,}]"
    """The line that closes a turn. Uses `{used}`, `{window}`, and `{share}`, the quotient of both."""
    soft_advice: str = ""
    """Added to the usage line when the view passes the soft threshold, but not at every later turn.

    Constant warnings are reported to make policies stop early.
    """
    hard_refusal: str = (
        "Error: the context is past its hard limit ({used:,} of {window:,} tokens). "
        "Only prune_chunks and the final answer are accepted until space is freed."
    )
    notes: bool = False
    """True if results say what they left out: further hits, and chunks that are in view or pruned."""
    extended_arguments: bool = False
    """True if `search_corpus` declares `limit` and `prune_chunks` declares `all_but`."""
    one_line: bool = False
    """True if a chunk's text is shown on one line, so that no text can imitate the header of another chunk."""
    longest: int = 0
    """A longer chunk is cut to this many tokens, and the chunks of a result share its room.

    With 0, chunks are shown whole if they fit.
    """
    search_limit: int = 10
    """The number of chunks that a search shows if the call does not say."""
    grep_limit: int = 5
    """Maximum number of chunks that a grep shows."""
    max_ranking: int = 30
    """Maximum number of documents in a ranking."""
    fill_ranking: bool = False
    """True if the other documents that were shown follow the ranked ones, in the order of their first hits.

    Pruned documents count as shown.
    """
    window: int = WINDOW
    """The window of an episode, in tokens, if none is given."""
    result_share: float = 1 / 8
    """The share of the window that the results of one call may take."""
    turns: int = 64
    """Maximum number of turns of an episode whose limits do not say."""

    @property
    def numbered(self) -> bool:
        """True if blocks are shown by number, so that calls and rankings name them by label."""
        return bool(self.label)

    def budget(self, window: Budget | int | None = None, *, reserve: int = RESERVE) -> Budget:
        """Return the budget of an episode.

        Args:
            window: The window in tokens, or a budget, which is returned unchanged. Defaults to the profile's window.
            reserve: The tokens that stay free after every action.

        Raises:
            ConfigError: If the window is too small or not a number.
        """
        if isinstance(window, Budget):
            return window
        window = self.window if window is None else whole_number(window, "budget")
        return Budget(window, per_call=int(window * self.result_share), reserve=reserve)

    def instructions(self) -> str:
        """Return the prompt with its fields filled in."""
        return self.prompt.replace("{max_ranking}", str(self.max_ranking))

    def with_prompt(self, path: str | Path) -> Profile:
        """Return the same profile with the prompt of a file.

        Raises:
            ConfigError: If the file cannot be read.
        """
        try:
            return replace(self, prompt=Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = reason_of(error)
            raise ConfigError(f"cannot read the prompt file {path} ({reason}). Pass a text file in UTF-8.") from error

    def with_summaries(self) -> Profile:
        """Return the same profile with `summarize_context`, under another name.

        If the profile gives advice past the soft threshold, the new advice is to summarize.
        """
        if SUMMARIZE in self.tools:
            return self
        advice = " Over half full: summarize or prune what you no longer need in full, or finish."
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
        """Return the same profile without these tools."""
        return replace(self, tools=tuple(name for name in self.tools if name not in tools))

    def to_json(self) -> dict[str, Any]:
        """Return the profile as plain data, as a trajectory's header stores it."""
        data = {**asdict(self), "tools": list(self.tools)}
        # Fields that profiles may leave out.
        optional = ("summary", "label", "fill_ranking", "one_line", "longest", "window", "result_share", "turns")
        usual = {field.name: field.default for field in fields(Profile) if field.name in optional}
        return {name: value for name, value in data.items() if name not in usual or value != usual[name]}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Profile:
        """Return the profile from a trajectory's header. Unknown fields are ignored.

        Raises:
            KeyError: If a field without a default is missing.
            TypeError: If the data are not a profile.
        """
        if not isinstance(data, dict):
            raise TypeError(f"the profile must be a JSON object; got {type(data).__name__}")
        field_names = {field.name for field in fields(Profile)}
        values = {key: value for key, value in data.items() if key in field_names}
        return Profile(**{**values, "tools": tuple(values["tools"])})


def named_profile(name: str) -> Profile:
    """Return the profile with one of the `PROFILE_NAMES`.

    Raises:
        ConfigError: If there is no profile with this name.
    """
    table = dict(zip(PROFILE_NAMES, (default, context_1, summary, lean), strict=True))
    if name not in table:
        raise ConfigError(f"there is no harness profile {name!r}. Choose one of {', '.join(table)}.")
    return table[name]()


@cache
def default() -> Profile:
    """Return this project's own profile."""
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
    """Return the profile of the published format."""
    return Profile(
        name="context-1",
        tools=("search_corpus", "grep_corpus", "read_document", "prune_chunks", "multi_tool_use"),
        prompt=_prompt("context-1.md"),
        title="{title}\n",
    )


@cache
def summary() -> Profile:
    """Return the default profile with `summarize_context` as a second way to make room."""
    return replace(default().with_summaries(), name="summary", prompt=_prompt("summary.md"))


@cache
def lean() -> Profile:
    """Return the profile for small models in small windows.

    Every token outside the passages is one more to read and to learn from.
    """
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
