"""The candidates of an episode.

The question and each passage are analyzed once, so that computing a feature takes only a few lookups.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.corpus import Corpus
from context_agent.text.conversation import without_answers
from context_agent.text.dates import days, days_of
from context_agent.text.editions import Edition
from context_agent.text.identifiers import Asked, asked_identifiers, identifiers
from context_agent.text.names import Mention, mentions, question_entities, sentence_openers
from context_agent.text.respelling import joined_words, respelled, spellings
from context_agent.text.scripts import unspaced
from context_agent.text.sentences import capitalized_sentences
from context_agent.text.words import (
    QUESTION_WORDS,
    STOP_WORDS,
    hyphenated,
    key,
    related_keys,
    spelled_title,
    without_brackets,
    words,
)

Floats = NDArray[np.float32]

_COMPARES = re.compile(r"\b(both|same|or|older|younger|first|earlier|later|more|in common)\b")
_CUES = (
    re.compile(r"\bwho(se|m)?\b"),
    re.compile(r"\b(when|year|date|born|birth|died|death|older|younger|first|earlier|later)\b"),
    re.compile(r"\b(where|place|city|country|state|county|located|birthplace)\b"),
    re.compile(r"\b(director|performer|composer)"),
    re.compile(r"\b(father|mother|wife|husband|spouse|child|son|daughter|sibling|brother|sister|grand\w+|married)\b"),
)
_ASKS_MANY = re.compile(
    r"\b(?:all|each|every|both|across|list|versions|releases|quarters|years|months)\b"
    r"|\b(?:which|what|how many) (?:\w+ ){0,2}?[a-z]{2,}s\b(?<!ss)(?<!this)(?<!does)(?<!was)(?<!is)(?<!has)"
)
_ASKS_FOR_GROUP = re.compile(
    r"(?:^|[.:;?!] )(?:(?:at|by|during|for|from|in|on|to|under|with) )?(?:which|what) "
    r"(?:(?!(?:an?|are|can|could|did|do|does|had|has|is|may|must|should|the|was|were|will|would) )[\w-]+ ){0,2}?"
    r"[a-z]{2,}s\b(?<!ss)(?<!us)(?<!this)(?<!does)(?<!was)(?<!is)(?<!has)"
    r"(?! (?:an?|the|past|to|into|from|how|what|which|out|off|and|its?|them|when|whether|round|about|up|down|that|his|"
    r"her|their|your|my|our|more|only|no|every|each|both)\b)(?! \w+ (?:does|has|is|was|would)\b)"
)
"""A plural after the question word that begins a clause, before the verb.

In "which river flows past", the word with -s is itself the verb, as the next word shows. In "which sports team would",
one team is asked for.
"""
_ASKS_FOR_SEVERAL = re.compile(
    r"\b(?:compare|everyone|everybody"
    r"|alles?|(?:aus|bei|in|mit|von|zu) allen|aller(?! (?:à|au|aux|chez|dans|de|en|voir)\b)"
    r"|jede[mnrs]?|sämtlichen?|beiden?|einzelnen|vergleiche|welchen \w+(?:en|[elr]n)"
    r"|welche \w+(?:e[nr]|s)|welche \w+ (?:haben|hatten|sind|waren|werden|wurden|können|dürfen|müssen)"
    r"|tous|toutes|chaque|(?:les|aux|des)?quel(?:le)?s|compare[rz]"
    r"|tod[ao]s|cada|amb[ao]s|cuáles|qué \w+s|compara|quais"
    r"|tutt[ei]|ogni|entramb[ei]|quali|confronta"
    r"|elke?|ieder|welke \w+(?:en|s)|vergelijk"
    r"|wszystki(?:e|ch|mi)|wszyscy|każd(?:y|a|e|ej|ego|ym)|któr(?:e|ych|zy)|porównaj"
    r"|všech(?:ny|na|no)?|každ(?:ý|á|é|ém|ou)|kter(?:é|ých|ými)|porovnej"
    r"|все|всех|всем|кажд(?:ый|ая|ое|ого|ой|ом|ую)|каки(?:е|х|ми)|сравни)\b"
    r"|\b(?!when\b)(\w{3,30}) (?:by|to) \1\b"
    r"|哪些|所有|全部|每[个一年月次]|すべて|全て|どの.{1,10}?が|모든|각각|비교"
)
"""Words for all, each, which with a plural, and compare in thirteen languages, and "version by version"."""
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FIELD_NAME = re.compile(r"^[ \t]*[\w-]+:", re.MULTILINE)
_ROLE_CUES = slice(4, 6)
"""The places of the cues to a role and to kinship among `AnalyzedQuestion.cues`, which begin with a comparison."""
_CLAUSE_START = re.compile(
    r"[,;:?]\s+|(?<!\s)\s++(?=(?:and|but|compared|contrast|despite|or|than|that|whereas|which|while|who)\b)"
)
_CLAUSE_WORDS = 4
"""Minimum number of content words of a clause. A shorter clause is joined to the next."""
_COMMON_WEIGHT = math.log(2)
"""The weight of a word that is in half of the chunks."""
_SHORTEST_TITLE = 3
ANALYZED_CHARACTERS = 20_000
"""Characters of a question, a title or a text that are analyzed.

An analysis takes hundreds of bytes for each character, and a question's terms are compared with each of its clauses.
"""


class AnalyzedPassage:
    """A chunk's title and text, analyzed independently of any question.

    Only the first `ANALYZED_CHARACTERS` characters of the title and of the text are analyzed. The fields of YAML front
    matter count as words, but not as names or sentences.
    """

    def __init__(self, title: str, text: str) -> None:
        title, text = title[:ANALYZED_CHARACTERS], text[:ANALYZED_CHARACTERS]
        self.heading = title = spelled_title(title)
        front = _FRONT_MATTER.match(text)
        self.text = text[front.end() :] if front else text
        """The text without front matter."""
        self.words = words(f"{_FIELD_NAME.sub('', front[1])}\n{self.text}" if front else text)
        self.title_words = words(title)
        self.title_keys = frozenset(map(key, self.title_words))
        self.text_keys = frozenset(map(key, self.words))
        self.keys = self.text_keys | self.title_keys
        self.full_title = " ".join(self.title_words)
        self.bare = without_brackets(title)
        """The title as written, without bracketed parts."""
        self.title = " ".join(words(self.bare)) or self.full_title
        self.bare_keys = frozenset(map(key, words(self.bare)))
        self.padded = f" {' '.join(self.words)} "
        is_name = len(self.title) >= _SHORTEST_TITLE and self.title not in STOP_WORDS and not self.title.isdigit()
        self.padded_title = f" {self.title} " if is_name else ""
        """The folded title between blanks, to search `padded` texts for. Empty if the title is not a name."""
        self.short_titles = _short_titles(self.title) if is_name else ()

    @cached_property
    def mentions(self) -> list[Mention]:
        """The names in the text."""
        return mentions(self.text)

    @cached_property
    def identifiers(self) -> frozenset[str]:
        """The identifiers of the title and the text."""
        return frozenset(identifiers(f"{self.heading}\n{self.text}"))

    @cached_property
    def joined_keys(self) -> frozenset[str]:
        """The keys of the hyphenated words, without their hyphens."""
        return frozenset(key(joined) for joined, _ in hyphenated(f"{self.heading}\n{self.text}"))

    @cached_property
    def sentence_texts(self) -> list[str]:
        """The sentences as written."""
        return capitalized_sentences(self.text)

    @cached_property
    def sentences(self) -> list[frozenset[str]]:
        """The keys of each sentence."""
        return [frozenset(map(key, words(sentence))) for sentence in self.sentence_texts]

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """All words of the text and the title."""
        return frozenset(self.words) | frozenset(self.title_words)

    @cached_property
    def first_sentence(self) -> int:
        """The number of characters of the first sentence."""
        return len(self.sentence_texts[0])


def _short_titles(title: str) -> tuple[str, ...]:
    """Return short forms of a longer name, each surrounded by spaces.

    They are its first and last word, and its last two words.

    A name with digits has no short forms. A name in a script without spaces has none either, because its terms overlap.
    """
    parts = title.split()
    if len(parts) < 3 or any(map(str.isdigit, parts)) or unspaced(title):
        return ()
    return f" {parts[0]} {parts[-1]} ", f" {parts[-2]} {parts[-1]} "


@dataclass(frozen=True)
class AnalyzedQuestion:
    """A question's content words with their weights, its names, and cues to its type."""

    text: str
    terms: tuple[str, ...]
    idf: Floats
    """Inverse document frequency of each term, shape (T,)."""
    weight: Floats
    """`idf` divided by its sum, shape (T,)."""
    in_name: NDArray[np.bool_]
    """Whether each term is part of a name, shape (T,)."""
    padded: str
    clauses: tuple[str, ...]
    """The parts of the question as written. There is at least one."""
    in_clause: NDArray[np.bool_]
    """Whether each clause has each term, shape (clauses, T)."""
    entities: tuple[str, ...]
    names: tuple[str, ...]
    """The folded words of the entities."""
    pairs: tuple[str, ...]
    """Neighboring words, padded with blanks."""
    cues: tuple[float, ...]
    joined: tuple[tuple[str, str], ...] = ()
    """Words of the corpus that join words of the question, as one word and as asked."""

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The key of each term."""
        return tuple(map(key, self.terms))

    @cached_property
    def asks_many(self) -> bool:
        """True if the question seems to ask for several documents, such as all versions or each quarter."""
        return bool(_ASKS_MANY.search(self.text[:ANALYZED_CHARACTERS].lower()))

    @cached_property
    def asks_for_several(self) -> bool:
        """True if the question seems to ask for several documents, in one of thirteen languages.

        The trees and the calibration learned from `asks_many`, which knows English only. Answers in a conversation do
        not count.
        """
        text = without_answers(self.text)[:ANALYZED_CHARACTERS].lower()
        return self.asks_many or bool(_ASKS_FOR_SEVERAL.search(text))

    @cached_property
    def identifiers(self) -> tuple[Asked, ...]:
        """The identifiers in the question."""
        return tuple(asked_identifiers(self.text[:ANALYZED_CHARACTERS]))

    @cached_property
    def identifier_weight(self) -> float:
        """The share of the question's weight that is on the words of its identifiers."""
        parts = {word for asked in self.identifiers for word in words(asked.surface)}
        return float(self.weight[[term in parts for term in self.terms]].sum())

    @cached_property
    def identifier_keys(self) -> frozenset[str]:
        """The keys of the words of the question's identifiers."""
        return self.key_set.intersection(key(word) for asked in self.identifiers for word in words(asked.surface))

    @property
    def length(self) -> int:
        """The number of content words as they are written. An identifier is one word."""
        return len(self.key_set - self.identifier_keys) + len(self.identifiers)

    @property
    def asks_relation(self) -> bool:
        """True if the question asks for a person by a role or by kinship, such as a director or a father."""
        return any(self.cues[_ROLE_CUES])

    @cached_property
    def openers(self) -> frozenset[str]:
        """The names of one word that begin a sentence. They may be ordinary words."""
        return frozenset(sentence_openers(self.text[:ANALYZED_CHARACTERS]))

    @cached_property
    def has_numbered_name(self) -> bool:
        """True if a name has a digit, such as a model or a version of something."""
        names = (mention.name for mention in mentions(self.text[:ANALYZED_CHARACTERS]))
        return any(letter.isdecimal() for name in names for letter in name)

    @cached_property
    def asks_for_group(self) -> bool:
        """True if the question asks for documents of one kind, as "which functions" does.

        Unlike `asks_many`, it is False if the question may ask for one document.
        """
        return bool(_ASKS_FOR_GROUP.search(self.text[:ANALYZED_CHARACTERS].lower()))

    @cached_property
    def rows(self) -> dict[str, list[int]]:
        """The rows of the terms that have each key."""
        rows: dict[str, list[int]] = {}
        for row, term_key in enumerate(self.keys):
            rows.setdefault(term_key, []).append(row)
        return rows

    @cached_property
    def kin(self) -> tuple[frozenset[str], ...]:
        """The keys of words related to each term."""
        return tuple(map(related_keys, self.terms))

    @cached_property
    def key_set(self) -> frozenset[str]:
        """The keys of the terms as a set."""
        return frozenset(self.keys)

    def coverage(self, passage: AnalyzedPassage) -> Floats:
        """Return how well the passage covers each term, shape (n_terms,).

        A term counts 1 if its key is in the passage, 0.6 if only a related word is, and otherwise 0. The words of a
        date or a code count 1 if the passage has it in another notation, and so do words with and without hyphens.
        """
        keys = passage.keys | self.renoted_keys(passage)
        coverage = [
            1.0 if key in keys else 0.6 if related and not related.isdisjoint(keys) else 0.0
            for key, related in zip(self.keys, self.kin, strict=True)
        ]
        return np.array(coverage, dtype=np.float32)

    def renoted_keys(self, passage: AnalyzedPassage) -> frozenset[str]:
        """Return the keys of the question's words that the passage has in some notation.

        These are the words of dates and codes, words with and without hyphens or umlauts, such as `e-mail` and `email`,
        and `Mueller` and `Müller`, and words that the passage has as one. A stemmer may find both spellings.
        """
        found = [asked.surface for asked in self.identifiers if not passage.identifiers.isdisjoint(asked.spellings)]
        found += [surface for joined, surface in self.hyphenated if key(joined) in passage.keys]
        found += [asked for joined, asked in self.joined if joined.lower() in passage.vocabulary]
        found += [word for word, others in self.respelled if others <= passage.keys]
        found += [surface for surface, day in self.days if day in days_of(passage.identifiers)]
        return frozenset(key(word) for surface in found for word in words(surface)) | passage.joined_keys

    @cached_property
    def respelled(self) -> tuple[tuple[str, frozenset[str]], ...]:
        """The words of the question with another spelling, as written, and the keys of the other spelling."""
        pairs = spellings(self.text[:ANALYZED_CHARACTERS])
        return tuple((word, frozenset(map(key, words(other)))) for word, other in pairs)

    @cached_property
    def days(self) -> tuple[tuple[str, str], ...]:
        """The days of a month without a year, as written and as `--0503`."""
        return tuple(days(self.text[:ANALYZED_CHARACTERS]))

    @cached_property
    def hyphenated(self) -> tuple[tuple[str, str], ...]:
        """The hyphenated words of the question, without hyphens and as written."""
        return tuple(hyphenated(self.text[:ANALYZED_CHARACTERS]))

    def near(self, around: frozenset[str], skip: frozenset[str]) -> float:
        """Return the total weight of the terms that have their key or a related word in `around`.

        The keys in `skip` do not count.
        """
        total = 0.0
        for weight, term, related in zip(self.weight.tolist(), self.keys, self.kin, strict=True):
            if term not in skip and (term in around or not related.isdisjoint(around)):
                total += weight
        return total

    def rest(self, passage: AnalyzedPassage) -> str:
        """Return the terms that the passage does not cover. These terms are still open."""
        return " ".join(term for term, key in zip(self.terms, self.keys, strict=True) if key not in passage.keys)


def analyze_question(text: str, idf: Callable[[Sequence[str]], Floats]) -> AnalyzedQuestion:
    """Analyze the first `ANALYZED_CHARACTERS` characters of a question.

    Args:
        text: The question. The result keeps its whole text for the search.
        idf: The function that returns the weights of words, shape (n_words,).

    Returns:
        The terms, names and clauses of the question, with their weights.
    """
    question, text = text, text[:ANALYZED_CHARACTERS]
    text_words = words(text)
    opener = text.split(maxsplit=1)[0] if text_words else ""
    asks = opener.strip('¿"').lower() in QUESTION_WORDS
    content = [word for word in text_words[asks:] if word not in STOP_WORDS]
    terms = tuple(dict.fromkeys(content or text_words))
    weights = idf(terms) if terms else np.zeros(0, dtype=np.float32)
    in_names = {word for mention in mentions(text) for word in mention.name.split()}
    entities = tuple(question_entities(text))
    clauses = tuple(_clauses(text))
    clause_words = [frozenset(words(clause)) for clause in clauses]
    low = text.lower()
    compares = bool(_COMPARES.search(low)) and (" or " in low or " and " in low)
    pairs = tuple(f" {a} {b} " for a, b in pairwise(text_words) if not (a in STOP_WORDS and b in STOP_WORDS))
    return AnalyzedQuestion(
        text=question,
        terms=terms,
        idf=weights,
        weight=weights / max(float(weights.sum()), 1e-6),
        in_name=np.array([term in in_names for term in terms], dtype=bool),
        padded=f" {' '.join(text_words)} ",
        clauses=clauses,
        in_clause=np.array([[term in clause for term in terms] for clause in clause_words], dtype=bool),
        entities=entities,
        names=tuple(" ".join(words(entity)) for entity in entities),
        pairs=pairs,
        cues=(float(compares), *(float(bool(cue.search(low))) for cue in _CUES), len(terms) / 10, len(entities) / 4),
    )


def _clauses(text: str) -> list[str]:
    """Return the parts of a question that may each need a separate passage. There is at least one part."""
    clauses: list[str] = []
    parts: list[str] = []
    content_words = 0
    for part in filter(None, map(str.strip, _CLAUSE_START.split(text))):
        parts.append(part)
        content_words += sum(word not in STOP_WORDS for word in words(part))
        if content_words >= _CLAUSE_WORDS:
            clauses.append(" ".join(parts))
            parts, content_words = [], 0
    clause = " ".join(parts)
    return [*clauses[:-1], f"{clauses[-1]} {clause}".rstrip()] if clauses else [clause]


@dataclass(frozen=True, slots=True)
class Finding:
    """A record of how a search found a chunk.

    Attributes:
        search: The number of the search in the episode. The question itself is search 0, and all its pages count as one
            search.
        place: The position among the hits of that search, counted from 0.
        score: The fused score of the hit.
        dense: The cosine similarity. If the engine does not report it, NaN.
        sparse: The BM25 score. If the engine does not report it, NaN.
    """

    search: int
    place: int
    score: float
    dense: float = math.nan
    sparse: float = math.nan


@dataclass(frozen=True, slots=True)
class ChunkCandidate:
    """A chunk that was seen in the episode.

    Attributes:
        id: The chunk's id.
        document_id: The document of the chunk.
        passage: The analysis of the chunk.
        tokens: The size of the chunk in the view, in tokens.
        hop: The number of names that the policy followed to find the chunk. If no lookup found it, 0.
        lookup: The number of the lookup that found the chunk. If no lookup found it, -1.
        finding: How the search found the chunk. If no search found it, None.
        edition: The place of the chunk in a series, such as a release or the minutes of a meeting. If nothing says its
            age, None.
    """

    id: str
    document_id: str
    passage: AnalyzedPassage
    tokens: int
    hop: int
    lookup: int = -1
    finding: Finding | None = None
    edition: Edition | None = None


class WordWeights:
    """The inverse document frequency of words in one corpus, ln(1 + (N - df + 0.5) / (df + 0.5)), as in BM25.

    N is the number of chunks, and df is the number of chunks with the word. The weights are cached.

    If a term of a script without spaces is in no text, its weight is 0.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._count = corpus.count()
        self._weights: dict[str, float] = {}

    def __call__(self, words: Sequence[str]) -> Floats:
        """Return the weight of each word, shape (n_words,)."""
        self.learn(words)
        return np.array([self._weights[word] for word in words], dtype=np.float32)

    def is_known(self, word: str) -> bool:
        """Return True if a chunk has the word."""
        return bool(self._corpus.document_frequency([word])[0])

    def learn(self, words: Sequence[str]) -> dict[str, float]:
        """Return all cached weights, after adding those of `words`."""
        if fresh := [word for word in dict.fromkeys(words) if word not in self._weights]:
            frequency = np.minimum(self._corpus.document_frequency(fresh), self._count)
            weight = np.log1p((self._count - frequency + 0.5) / (frequency + 0.5))
            # Most pairs of characters that are in no text cross the border between two words.
            weight[[count == 0 and unspaced(word) for word, count in zip(fresh, frequency, strict=True)]] = 0
            self._weights.update(zip(fresh, weight.tolist(), strict=True))
        return self._weights

    def names_nothing(self, words: Sequence[str]) -> bool:
        """Return True if every word is in more than half of the chunks, as in a heading that all files share."""
        weights = self.learn(words)
        return all(weights[word] < _COMMON_WEIGHT for word in words)

    def rarity(self, words: Sequence[str]) -> float:
        """Return the weight of the rarest word, from 0 (in every chunk) to about 1 (in one).

        The words must have been learned with `learn`.
        """
        return max((self._weights[word] for word in words), default=0.0) / math.log(2 + self._count)


@dataclass
class Notes:
    """The candidates of one episode, in the order in which they were seen.

    `rows` maps a chunk's id to the index of its candidate.
    """

    question: AnalyzedQuestion
    weights: WordWeights
    candidates: list[ChunkCandidate] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, question: str, weights: WordWeights) -> Notes:
        """Return empty notes for a question."""
        begin = respelled(question[:ANALYZED_CHARACTERS], weights.is_known)
        analyzed = analyze_question(begin + question[ANALYZED_CHARACTERS:], weights)
        return cls(replace(analyzed, joined=tuple(joined_words(begin, weights.is_known))), weights)

    def add(self, candidate: ChunkCandidate) -> None:
        """Append a candidate whose chunk is new."""
        self.rows[candidate.id] = len(self.candidates)
        self.candidates.append(candidate)

    def __len__(self) -> int:
        return len(self.candidates)


def document_rows(notes: Notes, scores: Floats) -> list[int]:
    """Return the row of each document's best candidate, best first."""
    best: dict[str, int] = {}
    for row in np.argsort(-scores, kind="stable"):
        best.setdefault(notes.candidates[int(row)].document_id, int(row))
    return list(best.values())
