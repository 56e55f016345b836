"""A generated corpus whose documents use codes and whose questions use names.

It consists of release notes for four versions of five products. The title of a note is the product's code, such as `K8S
2024.1`. The notes never spell the product's name. Their wording is nearly the same for all products, as in the
quarterly reports of several companies. The questions name the product and use other words than the notes. Word search
finds the notes of any product on the subject. Vectors that encode what a code means find the right ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as pairs
from typing import NamedTuple

from context_agent.types import Document, Question

VERSIONS = ("2023.1", "2023.3", "2024.1", "2024.3")


class Product(NamedTuple):
    """A product: its code in the notes, its name in questions, and the words that fill the texts."""

    code: str
    name: str
    part: str
    unit: str
    user: str
    command: str


class Subject(NamedTuple):
    """A section that every release has: its heading, the template of its text, and the question about it."""

    heading: str
    text: str
    question: str


PRODUCTS = (
    Product("PGSQL", "PostgreSQL", "the query planner", "table", "the owner of a schema", "the maintenance job"),
    Product("K8S", "Kubernetes", "the scheduler", "pod", "the operator of a node", "the rollout controller"),
    Product("RHEL", "Red Hat Linux", "the package manager", "service", "the root account", "the boot loader"),
    Product("JDK", "Java", "the garbage collector", "class", "the author of a module", "the launcher"),
    Product("VSC", "Visual Studio Code", "the editor pane", "extension", "the owner of a workspace", "the debugger"),
)
SUBJECTS = (
    Subject(
        "Access control",
        "{user} can now grant a {unit} to a group instead of a single account. A grant expires after {n} days unless "
        "it is renewed. Accounts without a grant get a refusal that names the missing right, and every refusal is "
        "recorded with its time and origin. Default rights are stricter than in the release before: nothing is open to "
        "everyone.",
        "Who may let other people in when I run {name}, and for how long?",
    ),
    Subject(
        "Memory use",
        "{part} keeps its working set in one arena, which lowers the peak by {n} percent under a steady load. When the "
        "limit is reached the least recently used {unit} is evicted first. A new counter shows how much each {unit} "
        "holds. Systems with little memory should lower the limit before they update.",
        "Does {name} still eat so much RAM?",
    ),
    Subject(
        "Start-up time",
        "{command} reads its state lazily, so that a cold start takes {n} percent less time. A {unit} that is not used "
        "is not loaded. Warm starts are unchanged. The old behaviour can be had back with a switch for those who "
        "prefer one long wait at the beginning to several short ones later.",
        "Why is booting {name} quicker than it used to be?",
    ),
    Subject(
        "Logging",
        "Messages of {part} have a level, a time in UTC and the id of the {unit} that they concern. Files are rotated "
        "at {n} megabytes and the last seven are kept. Secrets are masked before they are written. The format of a "
        "line changed: tools that parse it by position need the new field list.",
        "Where can I see what {name} did last night, and are passwords hidden there?",
    ),
    Subject(
        "Upgrade",
        "Make a copy of every {unit} before the update. The update runs in {n} steps and can be interrupted after each "
        "of them. {command} refuses to start on data of a newer format. Going back is possible for one version, with "
        "the copy, and takes as long as the update itself.",
        "Can I return to the previous edition of {name} if something breaks?",
    ),
    Subject(
        "Removed",
        "Three settings that were deprecated for two years are gone; {command} stops with their names if it meets one. "
        "The {n}-bit builds are no longer made. The legacy interface to {part} answers with a warning in this release "
        "and will disappear in the next one.",
        "Which old features has {name} dropped for good?",
    ),
    Subject(
        "Network",
        "Connections are closed after {n} seconds without traffic. Every {unit} can have an address of its own, and "
        "certificates are renewed without a restart. {part} prefers the sixth version of the protocol where both are "
        "at hand. Slow peers no longer hold up the others.",
        "How does {name} treat idle links and expiring certificates?",
    ),
    Subject(
        "Known problems",
        "A {unit} whose label has more than {n} characters cannot be renamed. {part} counts a failed attempt twice "
        "when the clock is set back. After a crash {command} may report progress above one hundred percent. None of "
        "these lose data; corrections are planned for the next release.",
        "Are there bugs in {name} that nobody has repaired yet?",
    ),
    Subject(
        "Backup",
        "Backups can be taken while {part} is busy. A backup of one {unit} needs no more room than the {unit} itself, "
        "and {n} of them can run side by side. Each has a checksum, which a restore verifies before it changes "
        "anything. {user} decides where they are kept.",
        "How do I save my work in {name} while it keeps running?",
    ),
    Subject(
        "Concurrency",
        "Up to {n} workers share one queue. A worker that waits for a {unit} lends its turn to another. {part} no "
        "longer takes a global lock, so that readers do not wait for writers. Fairness is by age: whoever has waited "
        "longest is served first.",
        "Do many simultaneous users slow each other down in {name}?",
    ),
    Subject(
        "Configuration",
        "Settings can be changed without a restart, all but {n} of them. A setting given twice is an error, not a "
        "surprise. {command} prints the value in force and the file that it comes from. {user} may override a default "
        "for one {unit} alone.",
        "How do I find out which options of {name} are really active?",
    ),
    Subject(
        "Plug-ins",
        "Third parties can extend {part} through a stable interface. An add-on runs in a process of its own with {n} "
        "megabytes and no right to open files. {user} approves each of them once. An add-on that crashes three times "
        "is switched off until the next start.",
        "What happens in {name} when a third-party module misbehaves?",
    ),
)


def documents() -> list[Document]:
    """Return the release notes: one document for each section of each version of each product."""
    return list(_notes())


def questions() -> list[Question]:
    """Return one question for each subject of each product. Its gold documents are that section in all versions."""
    return [
        Question(f"{item.code}-{number}", subject.question.format(name=item.name), gold=tuple(_gold(item, number)))
        for item, (number, subject) in pairs(PRODUCTS, enumerate(SUBJECTS))
    ]


def _gold(item: Product, number: int) -> Iterator[str]:
    return (_id(item, version, number) for version in VERSIONS)


def _id(item: Product, version: str, number: int) -> str:
    return f"{item.code}-{version}-{number}"


def _notes() -> Iterator[Document]:
    for item, (release, version), (number, subject) in pairs(PRODUCTS, enumerate(VERSIONS), enumerate(SUBJECTS)):
        amount = 8 + (7 * number + 5 * release + 11 * PRODUCTS.index(item)) % 50
        text = subject.text.format(n=amount, **item._asdict())
        body = ". ".join(f"{sentence[:1].upper()}{sentence[1:]}" for sentence in text.split(". "))
        yield Document(_id(item, version, number), f"{subject.heading}\n\n{body}", f"{item.code} {version}")
