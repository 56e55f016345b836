"""The final ranking. Regression trees weigh all evidence about the candidates of an episode.

The networks judge a candidate by its text and its links. The trees also see the retrievers' scores, and the reader's
log-odds with the question alone. They also see which retriever to trust for this question: the one that orders the
texts as the reader does. No single retriever is necessary, because training leaves out whole
retrievers.

The trees are gradient-boosted regression trees for ranking (LambdaMART; Burges, "From RankNet to LambdaRank to
LambdaMART", 2010). `scripts/build_ranker.py` trains them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from context_agent._support.token_table import load_weights
from context_agent.policies.bridge.candidates import ANALYZED_CHARACTERS, Floats, Notes
from context_agent.policies.bridge.features import DIRECT
from context_agent.policies.bridge.links import LINK_FEATURES
from context_agent.policies.bridge.novelty import has_digit
from context_agent.retrieval.late_interaction import late_interaction

TEXT = (
    "bm25", "bm25_z", "coverage", "coverage_z", "coverage_names", "coverage_relations", "coverage_title",
    "coverage_exact", "pairs", "best_sentence", "title_in_question", "title_share", "title_is_entity", "title_words",
    "entities_in_text", "length", "has_year", "has_date", "title_rarity", "same_title", "entity_hits",
    "clause_coverage", "clause_gap", "clause_rank",
)  # fmt: skip
"""Direct features that the trees see too."""
DENSE = ("cosine_z", "cosine_gap", "clause_cosine", "clause_cosine_gap")
"""Direct features that need vectors."""
LINKED = (
    "link", "link_relation", "parent_score", "link_score", "link_sum", "linked_score", "child_link", "gain",
    "names_parent_score", "same_title_score", "rest_covered", "union", "shared_score", "marginal", "uncovered",
)  # fmt: skip
LINKED_DENSE = ("rest_cosine", "rest_cosine_z")
CUES = ("compares", "asks_who", "asks_when", "terms", "entities")

BY_ODDS = ("odds", "odds_gap", "odds_rank")
BY_READER = (
    "combined", "combined_gap", "combined_rank", "read", "read_gap", "read_z", "read_rank", "read_best", "alone",
    "alone_gap", "alone_z", "alone_rank", "alone_best",
)  # fmt: skip
BY_DENSE = ("cosine", "cosine_rank", "found_dense", "found_dense_rank")
BY_WORDS = ("found_sparse", "found_sparse_rank")
BY_SEARCH = ("asked", "asked_place", "asked_score", "place", "found_score")
TRUST = (
    "reader_dense", "reader_words", "odds_dense", "odds_words", "agreement", "trusted", "trusted_rank",
)  # fmt: skip
FAMILY = ("asks_many", "family_size", "family_best", "family_place", "title_place", "title_meaning")
EPISODE = ("hop", "is_lookup", "candidates", "size")
BY_LATE = ("late", "late_gap", "late_z", "late_rank", "late_best", "late_dense", "late_words")
RANKING = (
    *BY_ODDS, *BY_READER, *BY_DENSE, *BY_WORDS, *BY_SEARCH, *TRUST, *TEXT, *DENSE, *LINKED, *LINKED_DENSE, *CUES,
    *FAMILY, *EPISODE, *BY_LATE,
)  # fmt: skip
"""Names of the trees' inputs, in order.

- `odds`, `combined`: the log-odds of the networks, without and with the reader. `read`, `alone`: those of the reader,
  beside the evidence and on the question alone. Of each also the distance to the best, the rank and the best itself.
- `found_dense`, `found_sparse`: the score in the search that found the candidate, relative to the best of that search,
  and the rank by it. `place`, `found_score`: the same of the fused order. `asked`, ...: the place in the search for the
  question itself, NaN if another search found it.
- `reader_dense`, ...: correlations over the candidates: of what the reader says (or the networks) with the cosines and
  with the words. `trusted` is the sum of both, each weighted by its correlation.
- `family_size`, ...: see `families`. `family_best` is the highest odds of a family less the highest of all; the places
  count better candidates of the family with other titles, and of the same title.
- `late`: late interaction with the question, NaN where it was not computed. `late_dense`, `late_words`: its
  correlations with the cosines and with the words.
"""
_COLUMN = {name: number for number, name in enumerate(DIRECT + LINK_FEATURES)}
_FUSION_RANKS = 4
"""Added to each rank. The larger it is, the more two middling ranks count compared with one high rank."""
COMPARED_PIECES = 96
"""The word pieces of a candidate that late interaction compares with the question."""
IDENTIFIER_WEIGHT = 4.0
"""The log-odds that a candidate gains if it has the identifier and the question has no other words."""
RERANKED = 50
"""The maximum number of candidates that the caller's reranker reads for the final ranking."""
_LEAST_SHARE, _EQUAL_DECIMALS = 1e-6, 6
_LEAST_FAMILY = 2
_MOST_WORDS = 12
"""Words of a title that are compared."""
_LEAST_SPREAD = 1e-9
_LEAST_COMPARED = 4
"""Minimum number of candidates for which a correlation is computed."""


def asked_order(notes: Notes, odds: Floats) -> Floats:
    """Fuse the ranks by the networks with the ranks in the search for the question itself.

    Args:
        notes: The candidates.
        odds: The networks' log-odds, shape (n_candidates,).

    Returns:
        The sums of reciprocal ranks, shape (n_candidates,).
    """
    places = [(candidate.finding, row) for row, candidate in enumerate(notes.candidates)]
    asked = [(finding.place, row) for finding, row in places if finding is not None and finding.search == 0]
    scores = np.zeros(len(odds), dtype=np.float32)
    for order in (np.argsort(-odds, kind="stable").tolist(), [row for _, row in sorted(asked)]):
        scores[order] += 1 / (_FUSION_RANKS + np.arange(len(order), dtype=np.float32))
    return scores


@dataclass(frozen=True)
class Judgments:
    """The log-odds that the networks and the reader give to the candidates. Each array has shape (n_candidates,).

    An unknown value is NaN.
    """

    odds: Floats
    combined: Floats
    read: Floats
    alone: Floats


def identifier_odds(notes: Notes, *, only_renoted: bool = False) -> Floats:
    """Return what the identifiers of the question add to the log-odds of each candidate, shape (n_candidates,).

    The trees see the words of an identifier, and many names share them. A candidate with the identifier itself gains
    up to `IDENTIFIER_WEIGHT`. It gains less if the question has many other words or identifiers. If `only_renoted` is
    true, an identifier that the candidate has as the question writes it does not count.
    """
    question = notes.question
    asked = question.identifiers
    if not asked:
        return np.zeros(len(notes), dtype=np.float32)
    passages = [candidate.passage for candidate in notes.candidates]
    found = [
        sum(
            not passage.identifiers.isdisjoint(one.spellings)
            and not (only_renoted and one.surface in f"{passage.heading}\n{passage.text}")
            for one in asked
        )
        for passage in passages
    ]
    return np.float32(IDENTIFIER_WEIGHT * question.identifier_weight / len(asked)) * np.array(found, dtype=np.float32)


def compared_rows(odds: Floats, compared: int) -> NDArray[np.intp]:
    """Return the rows of the `compared` candidates with the highest log-odds, the highest first."""
    return np.argsort(-odds, kind="stable")[:compared]


def late_scores(notes: Notes, rows: NDArray[np.intp]) -> Floats:
    """Return the late interaction of these candidates with the question, shape (n_candidates,).

    The other candidates have NaN.
    """
    passages = [notes.candidates[row].passage for row in rows.tolist()]
    texts = [f"{passage.heading}. {passage.text}".removeprefix(". ") for passage in passages]
    scores = np.full(len(notes), np.nan, dtype=np.float32)
    scores[rows] = late_interaction(notes.question.text, texts, longest=COMPARED_PIECES)
    return scores


def with_reranker(scores: Floats, rows: NDArray[np.intp], relevance: Floats, hops: NDArray[np.intp]) -> Floats:
    """Return the scores after the judgment of the caller's reranker, shape (n_candidates,).

    The candidates that it read are ordered by the sum of two standard scores, of their log-odds and of their relevance.
    They exchange their scores. So the scale of the reranker does not matter, and the calibration still holds. Of equal
    candidates, the one with the higher score comes first.

    A passage of a later hop need not resemble the question, which is all that the reranker reads beside it. So the
    reranker can raise such a passage and not lower it.

    Args:
        scores: The probability that each candidate belongs to the answer, shape (n_candidates,).
        rows: The rows of the candidates that the reranker read, shape (n_read,).
        relevance: The reranker's scores of these candidates, shape (n_read,).
        hops: The hops of these candidates, shape (n_read,). Those that the question itself found have 0.
    """
    shares = np.clip(scores[rows].astype(np.float64), _LEAST_SHARE, 1 - _LEAST_SHARE)
    so_far, judged = _scaled(np.log(shares / (1 - shares))), _scaled(relevance.astype(np.float64))
    total = so_far + np.where(hops > 0, np.maximum(judged, so_far), judged)
    order = np.lexsort((-shares, -total.round(_EQUAL_DECIMALS)))
    changed = scores.copy()
    changed[rows[order]] = np.sort(scores[rows])[::-1]
    return changed


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how many standard deviations each value is above the mean. If all values are equal, return zeros."""
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 0 else np.zeros_like(values)


def with_late_interaction(inputs: Floats, late: Floats) -> Floats:
    """Return the inputs of the trees, shape (n_candidates, len(RANKING)), with late interaction, shape (n_candidates,).

    A candidate without late interaction has NaN.
    """
    inputs = inputs.copy()
    cosines, words = (inputs[:, RANKING.index(name)] for name in ("cosine", "bm25"))
    columns: dict[str, Floats | float] = {"late": late, "late_gap": _gap(late), "late_rank": _rank(late)}
    columns |= {"late_z": _standard(late), "late_best": _best(late)}
    columns |= {"late_dense": correlation(late, cosines), "late_words": correlation(late, words)}
    for name in BY_LATE:
        inputs[:, RANKING.index(name)] = columns[name]
    return inputs


def ranking_features(notes: Notes, rows: Floats, cosines: Floats, said: Judgments, *, corpus_size: int) -> Floats:
    """Return the inputs of the trees.

    Args:
        notes: The candidates.
        rows: The inputs of the network `second`, shape (n_candidates, len(DIRECT + LINK_FEATURES)).
        cosines: The candidates' cosines to the question, shape (n_candidates,). If the vectors are useless, the cosines
            are NaN.
        said: The log-odds of the networks and the reader.
        corpus_size: The number of chunks in the corpus.

    Returns:
        One row for each candidate, shape (n_candidates, len(RANKING)). An unknown value is NaN, and so is late
        interaction, which `with_late_interaction` adds.
    """
    n = len(notes)
    columns: dict[str, Floats | float] = {name: rows[:, _COLUMN[name]] for name in (*TEXT, *DENSE, *LINKED)}
    columns |= {name: rows[:, _COLUMN[name]] for name in (*LINKED_DENSE, *CUES)}
    columns |= {"odds": said.odds, "odds_gap": _gap(said.odds), "odds_rank": _rank(said.odds)}
    columns |= {"combined": said.combined, "combined_gap": _gap(said.combined), "combined_rank": _rank(said.combined)}
    for name, values in (("read", said.read), ("alone", said.alone)):
        columns |= {name: values, f"{name}_gap": _gap(values), f"{name}_z": _standard(values)}
        columns |= {f"{name}_rank": _rank(values), f"{name}_best": _best(values)}
    columns |= {"cosine": cosines, "cosine_rank": _rank(cosines), **_search_columns(notes)}
    columns |= _trust_columns(said, cosines, rows[:, _COLUMN["bm25"]])
    columns |= _family_columns(notes, said.odds)
    columns |= {
        "hop": np.array([candidate.hop for candidate in notes.candidates]),
        "is_lookup": np.array([candidate.lookup >= 0 for candidate in notes.candidates]),
        "candidates": float(np.log1p(n)),
        "size": float(np.log1p(corpus_size)),
        **dict.fromkeys(BY_LATE, np.nan),
    }
    return np.stack([np.broadcast_to(columns[name], n) for name in RANKING], axis=1).astype(np.float32)


def _search_columns(notes: Notes) -> dict[str, Floats]:
    """Return the features from the searches that found the candidates."""
    n = len(notes)
    found: dict[int, list[int]] = {}
    values = np.full((4, n), np.nan, dtype=np.float32)
    for row, candidate in enumerate(notes.candidates):
        if (finding := candidate.finding) is not None:
            found.setdefault(finding.search, []).append(row)
            values[:, row] = finding.place, finding.score, finding.dense, finding.sparse
    place, score, dense, sparse = values
    columns = {"place": np.log1p(place), "found_score": score.copy(), "found_dense": dense.copy()}
    columns |= {"found_sparse": sparse.copy(), "found_dense_rank": dense.copy(), "found_sparse_rank": sparse.copy()}
    for rows in found.values():
        columns["found_score"][rows] = score[rows] / max(_best(score[rows]), 1e-6)
        columns["found_dense"][rows] = _gap(dense[rows]) / _spread(dense[rows])
        columns["found_sparse"][rows] = sparse[rows] / max(_best(sparse[rows]), 1e-6)
        columns["found_dense_rank"][rows], columns["found_sparse_rank"][rows] = _rank(dense[rows]), _rank(sparse[rows])
    asked = np.zeros(n, dtype=bool)
    asked[found.get(0, [])] = True
    columns["asked"] = asked.astype(np.float32)
    columns["asked_place"] = np.where(asked, columns["place"], np.nan)
    columns["asked_score"] = np.where(asked, columns["found_score"], np.nan)
    return columns


def _trust_columns(said: Judgments, cosines: Floats, words: Floats) -> dict[str, Floats | float]:
    """Return the features in `TRUST`.

    They are the correlations of the cosines and of the words with the reader's log-odds, with the networks' log-odds,
    and with each other. `trusted` is the sum of the standardized cosines and words. The weight of each is its
    correlation with the reader or, if the reader read nothing, with the networks. A negative correlation counts as 0.
    """
    heard = np.where(np.isfinite(said.alone), said.alone, said.read)
    dense, sparse = (correlation(heard, values) for values in (cosines, words))
    odds_dense, odds_sparse = (correlation(said.odds, values) for values in (cosines, words))
    weights = (dense, sparse) if np.isfinite(heard).any() else (odds_dense, odds_sparse)
    trusted = sum(
        max(float(np.nan_to_num(weight)), 0.0) * np.nan_to_num(_standard(values))
        for weight, values in zip(weights, (cosines, words), strict=True)
    )
    return {
        "reader_dense": dense,
        "reader_words": sparse,
        "odds_dense": odds_dense,
        "odds_words": odds_sparse,
        "agreement": correlation(cosines, words),
        "trusted": np.asarray(trusted, dtype=np.float32),
        "trusted_rank": _rank(np.asarray(trusted, dtype=np.float32)),
    }


def families(titles: Sequence[str]) -> list[str]:
    """Return the name of the family of each folded title. A title without a family is its own name.

    Titles of one family, such as versions of a page, differ in numbers, dates and codes with digits. Other titles form
    a family if they have several words and differ in one of them.
    """
    patterns = {title: _pattern(title) for title in titles}
    distinct = Counter(patterns.values())
    masks = {pattern: _masks(pattern) for pattern, count in distinct.items() if count < _LEAST_FAMILY}
    related = Counter(mask for pattern in patterns.values() for mask in masks.get(pattern, ()))
    names = {}
    for title, pattern in patterns.items():
        best = max(masks.get(pattern, ()), key=related.__getitem__, default="")
        if distinct[pattern] >= _LEAST_FAMILY:
            names[title] = pattern
        else:
            names[title] = best if related[best] >= _LEAST_FAMILY else title
    return [names[title] for title in titles]


def _pattern(title: str) -> str:
    """Return the title with each sequence of words with digits replaced by one sign."""
    words: list[str] = []
    for word in title.split(" "):
        numbered = has_digit(word)
        if not (numbered and words[-1:] == ["#"]):
            words.append("#" if numbered else word)
    return " ".join(words)


def _masks(pattern: str) -> list[str]:
    """Return one mask for each word of the pattern: the pattern without this word.

    A pattern of one word has no masks.
    """
    parts = pattern.split()[:_MOST_WORDS]
    return (
        [" ".join((*parts[:place], "*", *parts[place + 1 :])) for place in range(len(parts))] if len(parts) > 1 else []
    )


def _family_columns(notes: Notes, odds: Floats) -> dict[str, Floats | float]:
    """Return the features in `FAMILY`."""
    titles = [candidate.passage.full_title for candidate in notes.candidates]
    names = families(titles)
    sizes: dict[str, set[str]] = {}
    for name, title in zip(names, titles, strict=True):
        sizes.setdefault(name, set()).add(title)
    best: dict[str, float] = {}
    seen: dict[str, dict[str, int]] = {}
    family_place, title_place = np.zeros(len(titles), np.float32), np.zeros(len(titles), np.float32)
    for row in np.argsort(-odds, kind="stable").tolist():
        name, title = names[row], titles[row]
        best.setdefault(name, float(odds[row]))
        members = seen.setdefault(name, {})
        family_place[row], title_place[row] = len(members.keys() - {title}), members.get(title, 0)
        members[title] = members.get(title, 0) + 1
    sums = load_weights().sums([notes.question.text[:ANALYZED_CHARACTERS], *titles])
    sums /= np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    return {
        "asks_many": float(notes.question.asks_many),
        "family_size": np.array([len(sizes[name]) if title else 0 for name, title in zip(names, titles, strict=True)]),
        "family_best": np.array([best[name] for name in names]) - np.float32(_best(odds)),
        "family_place": family_place,
        "title_place": title_place,
        "title_meaning": sums[1:] @ sums[0],
    }


def correlation(first: Floats, second: Floats) -> float:
    """Return Pearson's correlation over the rows that both arrays have.

    If there are too few rows, or all values are equal, return NaN.
    """
    both = np.isfinite(first) & np.isfinite(second)
    if both.sum() < _LEAST_COMPARED:
        return float("nan")
    left, right = (values[both].astype(np.float64) for values in (first, second))
    left, right = left - left.mean(), right - right.mean()
    spread = float(np.sqrt((left @ left) * (right @ right)))
    return float(left @ right) / spread if spread > _LEAST_SPREAD else float("nan")


def lead(values: Floats) -> float:
    """Return how far the highest value is above the mean, in standard deviations. If no value is known, return 0."""
    return float(np.nanmax(_standard(values))) if np.isfinite(values).any() else 0.0


def _best(values: Floats) -> float:
    return float(np.nanmax(values)) if np.isfinite(values).any() else float("nan")


def _gap(values: Floats) -> Floats:
    """Return each value minus the best value."""
    return np.asarray(values - np.float32(_best(values)))


def _spread(values: Floats) -> float:
    return float(np.nanstd(values)) + 1e-3 if np.isfinite(values).any() else 1.0


def _standard(values: Floats) -> Floats:
    mean = float(np.nanmean(values)) if np.isfinite(values).any() else 0.0
    return np.asarray((values - np.float32(mean)) / np.float32(_spread(values)))


def _rank(values: Floats) -> Floats:
    """Return the logarithm of each value's rank, which is 0 for the best. NaN stays NaN."""
    order = np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")
    ranks = np.empty(len(values), dtype=np.float32)
    ranks[order] = np.log1p(np.arange(len(values), dtype=np.float32))
    return np.where(np.isfinite(values), ranks, np.float32(np.nan))


MOST_NODES, MOST_DEPTH = 4096, 64
"""Maximum number of nodes of a tree, and its greatest depth."""


@dataclass(frozen=True)
class Trees:
    """Regression trees.

    A row's score is the sum of one leaf value from each tree. All trees have the same number of nodes, and the arrays
    have shape (n_trees, n_nodes).

    A row goes to `left` if its input `feature` is at most `threshold`, else to `right`. If the input is missing, the
    row goes left where `missing_left` is true. A leaf leads to itself and has a `value`. `depth` is the depth of the
    deepest tree.
    """

    feature: NDArray[np.int16]
    threshold: Floats
    left: NDArray[np.int16]
    right: NDArray[np.int16]
    missing_left: NDArray[np.int8]
    value: Floats
    depth: int

    def __call__(self, rows: Floats) -> Floats:
        """Return the score of each row, shape (n_rows,). The rows have shape (n_rows, n_inputs)."""
        column, threshold, left, right, value = self._flat
        # Each input is there twice. Missing ones are NaN, which goes right, and then a number that goes left. So one
        # comparison is enough.
        inputs = np.stack([rows, np.where(np.isnan(rows), np.float32(-np.inf), rows)], axis=2).ravel()
        first = 2 * rows.shape[1] * np.arange(len(rows))[:, None]
        node = np.repeat(self._roots[None], len(rows), axis=0)
        for _ in range(self.depth):
            goes_left = inputs.take(first + column.take(node)) <= threshold.take(node)
            node = np.where(goes_left, left.take(node), right.take(node))
        return np.asarray(value.take(node).sum(axis=1), dtype=np.float32)

    @cached_property
    def _roots(self) -> NDArray[np.intp]:
        """The number of each tree's first node, if the nodes of all trees are counted, shape (n_trees,)."""
        trees, nodes = self.feature.shape
        return np.arange(0, trees * nodes, nodes)

    @cached_property
    def _flat(self) -> tuple[NDArray[np.intp], Floats, NDArray[np.intp], NDArray[np.intp], Floats]:
        """The columns, thresholds, children and values of all trees' nodes, each of shape (n_trees * n_nodes,).

        A node's column is the place of its input among the inputs that are there twice.
        """
        first = self._roots[:, None]
        return (
            (2 * self.feature.astype(np.intp) + (self.missing_left > 0)).ravel(),
            self.threshold.ravel(),
            (self.left + first).ravel(),
            (self.right + first).ravel(),
            self.value.ravel(),
        )

    def tensors(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays by name, as they are stored."""
        names = ("feature", "threshold", "left", "right", "missing_left", "value")
        return {name: getattr(self, name) for name in names} | {"depth": np.array([self.depth], dtype=np.int16)}

    @classmethod
    def of(cls, tensors: Mapping[str, NDArray[np.generic]], inputs: int) -> Trees:
        """Return the trees that the stored arrays describe.

        If arrays are missing or do not fit, raise `KeyError` or `ValueError`.
        """
        shape = tensors["feature"].shape
        parts = {name: np.asarray(tensors[name]) for name in ("feature", "left", "right", "missing_left")}
        values = {name: np.asarray(tensors[name], dtype=np.float32) for name in ("threshold", "value")}
        depth = int(np.asarray(tensors["depth"]).sum())
        if len(shape) != 2 or any(part.shape != shape for part in (*parts.values(), *values.values())):
            raise ValueError("the arrays of the ranking's trees have different shapes")
        within = (parts["feature"].min() >= 0) and (parts["feature"].max() < inputs)
        nodes = min(parts[name].min() for name in ("left", "right")) >= 0
        nodes = nodes and max(parts[name].max() for name in ("left", "right")) < shape[1]
        if not (
            within
            and nodes
            and shape[1] <= MOST_NODES
            and 0 < depth <= MOST_DEPTH
            and np.isfinite(values["value"]).all()
        ):
            raise ValueError("a tree of the ranking is too large, or has a number outside of its range")
        return cls(
            feature=parts["feature"].astype(np.int16),
            threshold=values["threshold"],
            left=parts["left"].astype(np.int16),
            right=parts["right"].astype(np.int16),
            missing_left=parts["missing_left"].astype(np.int8),
            value=values["value"],
            depth=depth,
        )
