"""Search for an exact name: a function of Python's standard library, or an option or setting of this project's pages.

    python benchmarks/identifiers.py [--names 40] [--seeds 0,1] [--embedder static]

In the code of eleven packages of Python's standard library, the names are those of functions with an underscore inside
that at most three files define. The files that define a name are its gold documents. In the pages of `docs`, the names
are settings and options that at most three pages have, and these pages are the gold documents. A name is asked for
alone, and in a question. The program prints the share of questions whose first document is gold, and recall@5.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from context_agent.agent import SearchAgent
from context_agent.eval.one_shot import bm25, hybrid
from context_agent.eval.statistics import Figure
from context_agent.policies.bridge import BridgePolicy
from context_agent.retrieval.loaders import load
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.types import Document

PACKAGES = "asyncio concurrent email http importlib json logging multiprocessing unittest urllib xml".split()
PAGES = Path(__file__).parents[1] / "docs"
MOST_GOLD = 3
DEPTH, K = 50, 5
DEFINED = re.compile(r"^\s*(?:async )?def (_*[a-z\d]+_[a-z\d_]*[a-z\d])\(", re.MULTILINE)
SETTING = re.compile(r"`(--[a-z]+-[a-z-]+[a-z]|[a-z]+(?:[._][a-z]+)+)(?:[ =][^`]*)?`")
FORMS = {
    "code": {"alone": "{}", "question": "where is {} defined?"},
    "pages": {"alone": "{}", "question": "what does {} do?"},
}
Ranking = Callable[[str], Sequence[str]]
"""A function from a question to the ids of documents, best first."""


class NamedSet(NamedTuple):
    """Documents, and the ids of the documents that define or describe each name."""

    documents: Sequence[Document]
    gold: Mapping[str, frozenset[str]]


def main() -> None:
    """Print a table for each set and form of question."""
    options = _options()
    print(f"{'set':8}{'form':10}{'system':10}{'first':>24}{'recall@5':>24}")
    for name, named in {"code": code(), "pages": pages()}.items():
        corpus = MemoryCorpus(named.documents, embedder=options.embedder)
        systems = systems_of(corpus)
        for form, template in FORMS[name].items():
            seeds = [int(seed) for seed in options.seeds.split(",")]
            asked = [identifier for seed in seeds for identifier in sample(named, options.names, seed)]
            found = {
                system: [rank(template.format(identifier)) for identifier in asked] for system, rank in systems.items()
            }
            for system, rankings in found.items():
                gold = [named.gold[identifier] for identifier in asked]
                first = Figure.of(
                    [float(ids[:1] != [] and ids[0] in own) for ids, own in zip(rankings, gold, strict=True)]
                )
                recall = Figure.of([len(own & {*ids[:K]}) / len(own) for ids, own in zip(rankings, gold, strict=True)])
                print(f"{name:8}{form:10}{system:10}{_text(first):>24}{_text(recall):>24}", flush=True)


def code() -> NamedSet:
    """Return the files of the packages, and the functions that they define."""
    folders = [
        Path(spec.origin).parent for package in PACKAGES if (spec := importlib.util.find_spec(package)) and spec.origin
    ]
    return _named_set(load(sorted(file for folder in folders for file in folder.rglob("*.py"))), DEFINED)


def pages() -> NamedSet:
    """Return the pages of `docs`, and the settings and options that they have."""
    return _named_set(load(sorted(PAGES.rglob("*.md"))), SETTING)


def _named_set(documents: Iterable[Document], pattern: re.Pattern[str]) -> NamedSet:
    documents = list(documents)
    owners: dict[str, set[str]] = {}
    for document in documents:
        for name in pattern.findall(document.text):
            owners.setdefault(name, set()).add(document.id)
    return NamedSet(documents, {name: frozenset(ids) for name, ids in owners.items() if len(ids) <= MOST_GOLD})


def sample(named: NamedSet, count: int, seed: int) -> list[str]:
    """Return at most `count` names at random."""
    names = sorted(named.gold)
    return random.Random(seed).sample(names, min(count, len(names)))


def systems_of(corpus: MemoryCorpus) -> dict[str, Ranking]:
    """Return the searches to compare, by name."""
    owner = {chunk.id: chunk.document_id for chunk in corpus.chunks}

    def documents(chunk_ids: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(owner[chunk_id] for chunk_id in chunk_ids))

    agents = {effort: SearchAgent(corpus, BridgePolicy().with_effort(effort)) for effort in ("fast", "careful")}
    return {
        "bm25": lambda question: documents(bm25(corpus, question, DEPTH)),
        "hybrid": lambda question: documents(hybrid(corpus, question, DEPTH)),
        **{
            name: lambda question, agent=agent: [found.id for found in agent.search(question).documents]
            for name, agent in agents.items()
        },
    }


def _text(figure: Figure) -> str:
    return f"{figure.mean:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=40, help="The number of names of each set and seed.")
    parser.add_argument("--seeds", default="0,1", help="The seeds with which names are sampled.")
    parser.add_argument("--embedder", default="static", help="The embedder of the passages.")
    return parser.parse_args()


if __name__ == "__main__":
    main()
