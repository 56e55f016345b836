"""Finds out which retrievers of a corpus work, by known-item search.

A sample of chunks is searched by a few of its own words. A working retriever brings most of them back near the top; one
whose vectors belong to another model, or whose ranking is shuffled, does not, and fusing it would only push good hits
down. Such a one gets weight 0, every other weight 1: the test separates working from useless and is too coarse to
say which of two working retrievers is the better.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from context_agent.retrieval.fusion import Retriever
from context_agent.types import Chunk

PROBES = 32
"""Chunks searched for."""
DEPTH = 25
"""A chunk found below this rank counts as not found."""
USELESS = 0.35
"""A retriever whose mean reciprocal rank is under this share of the best one's gets weight 0.

Measured over the 2wiki, hotpotqa and musique sets: BM25 reaches 1.0 and a static embedding .92 to 1.0; a list of 25
in shuffled order gets about .15, a random list next to 0.
"""
SMALLEST_CORPUS = 64
"""Below this many chunks, even a random ranking finds much: all retrievers keep weight 1."""
WORDS = 16
SEED = 0


@dataclass(frozen=True, slots=True)
class Probe:
    """A query made of a chunk's own words, and the chunk."""

    query: str
    chunk_id: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """Mean reciprocal rank and the weight that follows from it, by retriever name."""

    mrr: Mapping[str, float]
    weights: Mapping[str, float]


def sample_rows(count: int, *, probes: int = PROBES, seed: int = SEED) -> list[int]:
    """Positions of the chunks to probe, ascending; none for a corpus too small to tell anything."""
    if count < SMALLEST_CORPUS:
        return []
    return sorted(random.Random(seed).sample(range(count), min(probes, count)))


def probes_of(chunks: Sequence[Chunk], *, seed: int = SEED) -> list[Probe]:
    """For each chunk its title and a run of 16 words from a random place in its text."""
    generator = random.Random(seed)
    return [Probe(_query(chunk, generator), chunk.id) for chunk in chunks]


def calibrate(retrievers: Sequence[Retriever], probes: Sequence[Probe], *, useless: float = USELESS) -> Calibration:
    """Searches every probe with every retriever; without probes all weights are 1."""
    mrr = {retriever.name: _mean_reciprocal_rank(retriever, probes) for retriever in retrievers}
    best = max(mrr.values(), default=0.0)
    return Calibration(mrr, {name: float(value >= useless * best) for name, value in mrr.items()})


def _mean_reciprocal_rank(retriever: Retriever, probes: Sequence[Probe]) -> float:
    total = 0.0
    for probe in probes:
        found = [chunk_id for chunk_id, _ in retriever.search(probe.query, DEPTH)]
        total += 1 / (found.index(probe.chunk_id) + 1) if probe.chunk_id in found else 0.0
    return total / len(probes) if probes else 0.0


def _query(chunk: Chunk, generator: random.Random) -> str:
    words = chunk.text.split()
    start = generator.randrange(max(1, len(words) - WORDS + 1))
    # A script without spaces makes one endless word: a piece of it is enough.
    return f"{chunk.title} {' '.join(words[start : start + WORDS])[: 12 * WORDS]}".strip()
