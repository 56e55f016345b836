"""Domains: kinds of corpora, each with its loader and the answer types that questions may ask for.

A domain consists of data and one function. The stages read its fields. This package ships some domains. An installed
package adds one by an entry point in its `pyproject.toml`. The entry point names a `Domain`, or a function without
arguments that returns one:

    [project.entry-points."context_agent.domains"]
    recipes = "my_package.recipes:RECIPES"
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Literal, Protocol

from context_agent._support.suggest import suggestion
from context_agent.errors import ConfigError, reason_of
from context_agent.retrieval.loaders import LoadOptions, LoadReport, Readable, load
from context_agent.types import Document

Positives = Literal["document", "fact"]
"""The unit that counts as found: each gold document, or each fact by any chunk that states it."""
HINTED_STEPS = ("explore", "write", "verify", "distract", "extend")
"""The steps for which a domain may give hints."""


class Loader(Protocol):
    """A function that loads documents from files, folders and streams, as `retrieval.loaders.load` does."""

    def __call__(
        self,
        sources: Readable | Iterable[Readable],
        *,
        options: LoadOptions | None = None,
        report: LoadReport | None = None,
    ) -> Iterator[Document]:
        """Return the documents. A source that cannot be read becomes a notice in the report, never an exception."""


@dataclass(frozen=True, slots=True)
class TruthType:
    """An answer type that questions of the domain may ask for.

    Attributes:
        name: The name of the type in tasks.
        description: A description for the model that writes questions.
    """

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class Domain:
    """A kind of corpus.

    Attributes:
        name: The name of the domain.
        description: A description for users.
        load: The loader of its documents.
        truth_types: The answer types that questions may ask for.
        hints: Sentences to add to the prompts of some of the `HINTED_STEPS`, by step.
        max_hops: The largest number of documents that a question leads through.
        positives: The unit that counts as found, `document` or `fact`.
    """

    name: str
    description: str
    load: Loader
    truth_types: tuple[TruthType, ...]
    hints: Mapping[str, str] = field(default_factory=dict)
    max_hops: int = 4
    positives: Positives = "document"

    def __post_init__(self) -> None:
        if not self.name or not self.truth_types:
            raise ConfigError(f"domain {self.name!r} must have a name and at least one truth type")
        if self.max_hops < 1 or self.positives not in ("document", "fact"):
            raise ConfigError(
                f"max_hops of domain {self.name!r} must be at least 1, and positives must be 'document' or 'fact'; "
                f"got max_hops = {self.max_hops}, positives = {self.positives!r}"
            )
        if unknown := [step for step in self.hints if step not in HINTED_STEPS]:
            raise ConfigError(
                f"domain {self.name!r} has the unknown step {unknown[0]!r}. Choose from {', '.join(HINTED_STEPS)}."
            )


GROUP = "context_agent.domains"
"""The group of the entry points."""
PACKAGE = "context_agent.synth_data.domains"
SHIPPED_DOMAINS: Mapping[str, str] = {
    "documents": f"{PACKAGE}:DOCUMENTS",
    "web": f"{PACKAGE}.web:WEB",
    "filings": f"{PACKAGE}.filings:FILINGS",
    "patents": f"{PACKAGE}.patents:PATENTS",
    "email": f"{PACKAGE}.email:EMAIL",
    "email-messages": f"{PACKAGE}.email:MESSAGES",
}
"""The places where the shipped domains are defined. Each is imported on first use."""


def load_domain(name: str) -> Domain:
    """Return the domain of that name.

    Raises:
        ConfigError: If the name is unknown, or if an entry point does not give a domain.
    """
    if name in SHIPPED_DOMAINS:
        module, attribute = SHIPPED_DOMAINS[name].split(":")
        shipped: Domain = getattr(import_module(module), attribute)
        return shipped
    registered = _entry_points()
    if name not in registered:
        raise ConfigError(f"there is no domain {name!r}. {suggestion(name, domain_names())}")
    return _load_entry_point(registered[name])


def domain_names() -> tuple[str, ...]:
    """Return all names: first the shipped ones, then the registered ones in alphabetical order."""
    return (*SHIPPED_DOMAINS, *sorted(name for name in _entry_points() if name not in SHIPPED_DOMAINS))


def _entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _load_entry_point(entry: EntryPoint) -> Domain:
    where = f"domain {entry.name!r} (entry point {entry.value})"
    try:
        loaded: object = entry.load()
        value: object = loaded() if callable(loaded) else loaded
    except Exception as error:  # A foreign module can raise any error.
        raise ConfigError(
            f"{where} cannot be loaded ({type(error).__name__}: {reason_of(error)}). Correct its package, or leave "
            "it out."
        ) from error
    if not isinstance(value, Domain):
        raise ConfigError(f"{where} must name a Domain, or a function that returns one; got {type(value).__name__}")
    return value


DOCUMENTS = Domain(
    name="documents",
    description="Text of any kind: notes, articles, manuals, rows.",
    load=load,
    truth_types=(
        TruthType("person", "the name of a person"),
        TruthType("organization", "the name of a company, body, team or group"),
        TruthType("place", "the name of a place, region, building or water"),
        TruthType("date", "a date, year or period"),
        TruthType("number", "a quantity with its unit, or a count"),
        TruthType("title", "the title of a work, or the name of a product or event"),
        TruthType("term", "a technical term, name of a method, or short phrase"),
    ),
    hints={
        "explore": "Look for documents that name each other, or the same rare name, and say different things of it.",
        "write": "Ask for something that no single document tells; name none of the documents' titles.",
    },
)
