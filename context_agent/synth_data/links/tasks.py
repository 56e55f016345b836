"""Tasks from the links between documents, without a language model. A question hides the name of a linked document.

The tasks are a stream of checked drafts. The same corpus and settings give the same stream. A draft is dropped, with a
reason, if one of these holds:

- It names a page that it should describe.
- It contains its answer, or a document before the last one reveals the answer.
- One of its quotes is not in its document.
- It fits another document as well.

The checks use only the corpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random
from typing import Any

from context_agent.errors import ConfigError, CorpusError
from context_agent.synth_data.links.draft_checks import DraftChecks
from context_agent.synth_data.links.drafts import Draft, bridge_drafts, comparison_drafts, intersection_drafts
from context_agent.synth_data.links.link_graph import LinkGraph
from context_agent.synth_data.stages import DropRow, ProgressCallback
from context_agent.synth_data.task import Task, check_set_name
from context_agent.text.counts import counted
from context_agent.types import Chunk

TYPES = ("bridge", "comparison", "intersection")


HOPS = {"bridge": range(2, 5), "comparison": range(2, 5), "intersection": range(2, 4)}
"""The numbers of documents that questions of each type can need."""


TASKS_PER_TURN = {"bridge": 4, "comparison": 1, "intersection": 2}
"""The number of consecutive tasks of each type, while all types last."""


COMPARISON_SHARES = {2: 0.1, 3: 0.2, 4: 0.2}
"""The largest number of comparisons per task of another type, by hops.

Comparisons of named pages are limited, because the pages are easy to find and there are many of them.
"""


TASKS_PER_DOCUMENT = 5
"""The largest number of tasks that end in the same document."""


_DRAFTERS = {"bridge": bridge_drafts, "comparison": comparison_drafts, "intersection": intersection_drafts}


@dataclass(frozen=True, slots=True)
class LinkTaskSettings:
    """The settings that determine the tasks of a corpus, together with the corpus itself.

    Attributes:
        count: The number of tasks. If None, all tasks that pass the checks are made.
        types: The types of questions.
        hops: The smallest and the largest number of documents that a question needs.
        seed: The seed of the random order.
        distractors: The number of distractors per task.
        name: The start of every task's id.
        domain: The name of the corpus's domain.
    """

    count: int | None = None
    types: tuple[str, ...] = TYPES
    hops: tuple[int, int] = (2, 4)
    seed: int = 0
    distractors: int = 10
    name: str = "links"
    domain: str = "documents"

    def check(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: If a setting is invalid.
        """
        unknown = [kind for kind in self.types if kind not in TYPES]
        if unknown or not self.types:
            raise ConfigError(
                f"there is no question type {', '.join(unknown) or '(empty)'}. Choose from {', '.join(TYPES)}."
            )
        if not 2 <= self.hops[0] <= self.hops[1] <= 4:
            raise ConfigError(f"hops must be from 2 to 4; got {self.hops[0]}-{self.hops[1]}")
        if self.count is not None and self.count < 1:
            raise ConfigError(f"count must be at least 1; got {self.count}")
        if self.distractors < 0:
            raise ConfigError(f"distractors must not be negative; got {self.distractors}")
        check_set_name(self.name)


@dataclass(slots=True)
class DraftCounts:
    """The numbers of accepted and dropped drafts.

    Attributes:
        documents: The number of documents in the corpus.
        links: The number of links between them.
        kept: The number of tasks by type and hops.
        dropped: The number of dropped drafts by reason.
    """

    documents: int
    links: int
    kept: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """Return the counts as plain data, with keys in a fixed order."""
        return {
            "documents": self.documents,
            "links": self.links,
            "tasks": self.kept.total(),
            "kept": dict(sorted(self.kept.items())),
            "dropped": dict(self.dropped.most_common()),
        }


class LinkTasks:
    """The tasks of one corpus.

    The constructor reads and links the corpus. The method `tasks` makes the tasks one by one.
    """

    def __init__(
        self, chunks: Iterable[Chunk], settings: LinkTaskSettings | None = None, report: ProgressCallback | None = None
    ) -> None:
        """Read and link the corpus.

        Args:
            chunks: The chunks of the corpus, document by document.
            settings: The settings of the tasks.
            report: A function that is called with the number of documents read so far, and None for the total.

        Raises:
            ConfigError: If a setting is invalid.
            CorpusError: If no document links to another.
        """
        self.settings = settings or LinkTaskSettings()
        self.settings.check()
        self._graph = LinkGraph(chunks, report)
        links = self._graph.link_all()
        if not links and self.settings.types != ("comparison",):
            raise CorpusError(
                f"none of the {len(self._graph.pages)} documents names the title of another one, so there are no "
                "links for questions. To let a language model write them, pass --model."
            )
        self._checks = DraftChecks(self._graph, self.settings.distractors)
        self.counts = DraftCounts(len(self._graph.pages), links)
        self._asked: set[str] = set()
        self._ends: Counter[int] = Counter()
        self._made: Counter[tuple[str, int]] = Counter()

    def tasks(self) -> Iterator[Task]:
        """Yield at most `count` tasks. The types and the numbers of hops alternate as long as they last."""
        self.counts = DraftCounts(self.counts.documents, self.counts.links)
        self._asked, self._ends, self._made = set[str](), Counter[int](), Counter[tuple[str, int]]()
        for number, task in enumerate(islice(self._all(), self.settings.count), 1):
            self.counts.kept[f"{task.type}, {counted(task.hops, 'hop')}"] += 1
            yield replace(task, id=f"{self.settings.name}-{number:06d}", domain=self.settings.domain)

    def shortcomings(self) -> list[str]:
        """Return one line for each ingredient of questions, with the number of documents that have it."""
        graph, rows = self._graph, range(len(self._graph.pages))
        links = [link for row in rows for link in graph.links(row)]
        described = sum(bool(page.kind) for page in graph.pages)
        usable = sum(bool(graph.pages[link.target].kind) for link in links)
        stating = sum(bool(graph.facts(row)) for row in rows)
        facts = "a fact to ask for: a year after 'in', a count, or a relation such as 'built by'"
        return [
            f"{described} of {len(rows)} documents begin by saying what their title is, as in 'Brasko is a village'",
            f"{usable} of {len(links)} links lead to such a document",
            f"{stating} of {len(rows)} documents state, in a sentence about their title, {facts}",
        ]

    def _all(self) -> Iterator[Task]:
        """Yield tasks of all types and hops in turns, with a limited share of comparisons."""
        fewest, most = self.settings.hops
        pairs = ((kind, hops) for hops in range(fewest, most + 1) for kind in self.settings.types if hops in HOPS[kind])
        lanes = {(kind, hops): self._lane(kind, hops) for kind, hops in pairs}
        while lanes:
            for (kind, hops), lane in list(lanes.items()):
                if kind == "comparison" and self._too_many_comparisons(hops):
                    if all(other_kind == "comparison" for other_kind, _ in lanes):
                        del lanes[kind, hops]
                    continue
                tasks = list(islice(lane, TASKS_PER_TURN[kind]))
                self._made[kind, hops] += len(tasks)
                yield from tasks
                if len(tasks) < TASKS_PER_TURN[kind]:
                    del lanes[kind, hops]

    def _too_many_comparisons(self, hops: int) -> bool:
        if self.settings.types == ("comparison",):
            return False
        other_count = sum(count for (kind, _), count in self._made.items() if kind != "comparison")
        return self._made["comparison", hops] > COMPARISON_SHARES[hops] * other_count + TASKS_PER_TURN["comparison"]

    def _lane(self, kind: str, hops: int) -> Iterator[Task]:
        for draft in self._drafts(kind, hops):
            try:
                self._check_new(draft)
                task = self._checks.task(draft)
            except DropRow as unfit:
                self.counts.dropped[unfit.dropped.reason] += 1
                continue
            self._asked.add(draft.question)
            self._ends[draft.hops[-1].page] += 1
            yield task

    def _check_new(self, draft: Draft) -> None:
        if draft.question in self._asked:
            raise DropRow("the question occurs in another task")
        if self._ends[draft.hops[-1].page] >= TASKS_PER_DOCUMENT:
            raise DropRow("a document is already in the largest allowed number of tasks")

    def _drafts(self, kind: str, hops: int) -> Iterator[Draft]:
        rng = Random(f"links/{self.settings.seed}/{kind}/{hops}")
        rows = list(range(len(self._graph.pages)))
        rng.shuffle(rows)
        return _DRAFTERS[kind](self._graph, rows, hops, rng)
