"""Harness profiles: the wire format of an episode as data.

`CONTEXT_1` speaks the published format (the report, and for what the report leaves open the published baseline), so
that the published weights run in the harness they know. `DEFAULT` improves on it: titles in the headers, pruned
chunks can be restored, a search can ask for fewer results, and results say what was left out. `SUMMARY` is the
default with `summarize_context`, which any profile can be given.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError

SUMMARIZE = "summarize_context"
"""The tool that replaces chunks by a summary; off where a profile does not have it."""
SUMMARY_HEADER = "# SUMMARY ID: {id} ({tokens} tokens), stands for {ids}\n"
NAMES = ("default", "context-1", "summary")


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
    cut: str = "[cut: {shown} of {tokens} tokens shown]"
    nothing: str = "No results found"
    usage: str = "[Token usage: {used:,}/{window:,}]"
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
    search_limit: int = 10
    grep_limit: int = 5
    max_ranking: int = 30

    def instructions(self) -> str:
        """The prompt with its fields filled in."""
        return self.prompt.replace("{max_ranking}", str(self.max_ranking))

    def with_prompt(self, path: str | Path) -> Profile:
        """The same profile with the prompt of a file. Raises `ConfigError` when it cannot be read."""
        try:
            return replace(self, prompt=Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the prompt file {path}: {error}") from error

    def with_summaries(self) -> Profile:
        """The same profile with `summarize_context`, under another name. Where it gives advice past the soft
        threshold, the advice is to summarise: the harness asks for a summary there."""
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

    def to_json(self) -> dict[str, Any]:
        """The profile as plain data, as a trajectory's header holds it."""
        data = {**asdict(self), "tools": list(self.tools)}
        return data if self.summary else {name: value for name, value in data.items() if name != "summary"}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Profile:
        """The profile of a trajectory's header; fields that this version does not know are left out."""
        field_names = {field.name for field in fields(Profile)}
        values = {key: value for key, value in data.items() if key in field_names}
        return Profile(**{**values, "tools": tuple(values["tools"])})


def profile(name: str) -> Profile:
    """The profile of one of the `NAMES`. Raises `ConfigError` for another name."""
    table = dict(zip(NAMES, (default, context_1, summary), strict=True))
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
    """The published wire format."""
    return Profile(
        name="context-1",
        tools=("search_corpus", "grep_corpus", "read_document", "prune_chunks", "multi_tool_use"),
        prompt=_prompt("context-1.md"),
        title="{title}\n",
    )


@cache
def summary() -> Profile:
    """The default with `summarize_context` as a second way to make room."""
    return replace(default().with_summaries(), name="summary", prompt=_prompt("summary.md"))


def _prompt(name: str) -> str:
    return (files("context_agent.harness") / "prompts" / name).read_text(encoding="utf-8")
