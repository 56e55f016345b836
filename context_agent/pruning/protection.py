"""The protection of passages, which stay whatever their score.

If the protected passages do not fit, some of them lose their protection.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice

from context_agent.pruning.contents import PART_FORMS
from context_agent.pruning.goal import COMPARED_STEPS
from context_agent.pruning.messages import Transcript
from context_agent.pruning.pruned_results import ResultRecord
from context_agent.pruning.selection import Candidate
from context_agent.pruning.words import Scores

LIMITED_REASONS = ("error", "used by a later step")
"""Reasons that protect passages only while all such passages fit into half of the limit."""
QUOTE_WORDS = 6
"""The number of consecutive words that two texts share only if one quotes the other."""
OWN_CHARACTERS = 2_000_000
"""Maximum number of characters of the user's and the agent's words that are searched. No model's window has more."""
MAX_NAMED_PASSAGES = 2
"""Maximum number of passages with the same name that the name can protect. A name in more passages protects none."""
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"\w[\w./@#-]{2,}\w")
_NAME_CHARACTER = re.compile(r"[\d_/@#A-Z]|\w\.\w")
"""A character that distinguishes an identifier, a path, a number or a proper name from an ordinary word."""


class Protection:
    """The passages of one conversation that stay whatever their score.

    Args:
        candidates: All passages of the conversation.
        removed: The rows that were removed before.
        records: The records of the results.
        transcript: The conversation.
        newest: The numbers of the results of the last turn that stay whole.
        limit: The tokens of tool results that may remain.

    Attributes:
        reasons: The reasons of the protected passages, by row.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        removed: AbstractSet[int],
        records: Sequence[ResultRecord],
        transcript: Transcript,
        *,
        newest: Collection[int],
        limit: int,
    ) -> None:
        self._candidates, self._removed, self._limit = candidates, removed, limit
        self._restored = {
            row: records[item.number].restored[item.index]
            for row, item in enumerate(candidates)
            if item.index in records[item.number].restored
        }
        steps = [index for index, content in enumerate(transcript.contents) if content.role == "assistant"]
        first_step = min(steps[-COMPARED_STEPS:], default=0)
        self._long_restored = {row: n for row, n in self._restored.items() if n <= first_step}
        self.reasons = {
            row: reason
            for row, reason in protected(candidates, transcript).items()
            if reason != "last turn" or candidates[row].number in newest
        }
        for form in PART_FORMS:
            if parts := [row for row, item in enumerate(candidates) if item.source.form == form]:
                self.reasons[parts[-1]] = f"latest {form}"
        self._protect_restored()

    def _protect_restored(self) -> None:
        """Protect the restored passages.

        If the protected passages do not fit, those that were restored first are judged like other passages. Otherwise
        a request for a long range of ids would keep the conversation over its budget. What was restored within the
        latest `COMPARED_STEPS` steps stays.
        """
        others = dict(self.reasons)
        self.reasons |= dict.fromkeys(self._restored, "restored")
        by_time: dict[int, list[int]] = {}
        for row, n_messages in self._long_restored.items():
            by_time.setdefault(n_messages, []).append(row)
        for n_messages in sorted(by_time):
            if self.room() >= 0:
                break
            for row in by_time[n_messages]:
                del self.reasons[row]
                if row in others:
                    self.reasons[row] = others[row]

    def room(self) -> int:
        """Return the tokens that remain beside the protected passages. If they do not fit, it is negative."""
        limited, others = self._protected_tokens()
        return self._limit - others - min(limited, self._limit // 2)

    def _protected_tokens(self) -> tuple[int, int]:
        """Return the tokens of the passages whose protection is limited, and of the other protected passages."""
        tokens = Counter[bool]()
        for row in self.reasons.keys() - self._removed:
            tokens[self.reasons[row] in LIMITED_REASONS] += self._candidates[row].passage.tokens
        return tokens[True], tokens[False]

    def release_excess(self, scores: Scores) -> None:
        """Remove the protection of errors and used passages beyond half of the limit, the least relevant first.

        Otherwise they could keep out everything that the task needs. If the other protected passages leave less room,
        only what fits beside them stays protected.
        """
        limited, others = self._protected_tokens()
        half, room = self._limit // 2, self._limit - others
        excess = limited - (min(half, room) if room > 0 else half)
        self._release(self._releasable(scores), excess)

    def release(self, scores: Scores, excess: int) -> bool:
        """Remove the protection of the first passages that may lose it, until they have `excess` tokens in all.

        Returns:
            False if nothing can be released, or if the passages that may not lose their protection do not fit. Then all
            stay protected.
        """
        rows = self._releasable(scores)
        fixed = self.reasons.keys() - self._removed - {*rows}
        if not rows or sum(self._candidates[row].passage.tokens for row in fixed) > self._limit:
            return False
        self._release(rows, excess)
        return True

    def _releasable(self, scores: Scores) -> list[int]:
        """Return the rows whose protection may be removed, in this order.

        The least relevant errors and used passages are the first. Passages that were restored long ago follow.
        """
        limited = [
            row for row, reason in self.reasons.items() if reason in LIMITED_REASONS and row not in self._removed
        ]
        restored = [row for row in self._long_restored if self.reasons.get(row) == "restored"]
        return [
            *sorted(limited, key=lambda row: (scores[row], row)),
            *sorted(restored, key=lambda row: (self._long_restored[row], scores[row], row)),
        ]

    def _release(self, rows: Sequence[int], excess: int) -> None:
        """Remove the protection of the first rows, until they have `excess` tokens in all."""
        for row in rows:
            if excess <= 0:
                break
            del self.reasons[row]
            excess -= self._candidates[row].passage.tokens


class OwnWords:
    """The words that the user and the agent wrote. They show which passages a later step quotes or builds on.

    Of a long conversation, only the latest `OWN_CHARACTERS` characters are used.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._first: dict[int | str, int] = {}
        room = OWN_CHARACTERS
        for message, content in reversed([*enumerate(transcript.contents)]):
            text, room = content.text[:room], room - len(content.text)
            self._first |= dict.fromkeys((*_quotes(text), *_names(text)), message)
            if room <= 0:
                break

    def sources(self, candidates: Sequence[Candidate]) -> set[int]:
        """Return the rows of the passages with a phrase or a name that the user or the agent first used after them."""
        rows: set[int] = set()
        by_name: dict[int | str, list[int]] = {}
        known = self._first.keys()
        for row, candidate in enumerate(candidates):
            text, message = candidate.passage.text, candidate.source.message
            if any(self._introduced(quote, message) for quote in known & _quotes(text)):
                rows.add(row)
            for name in known & set(_NAME.findall(text)):
                by_name.setdefault(name, []).append(row)
        for name, named in by_name.items():
            if len(named) <= MAX_NAMED_PASSAGES:
                rows |= {row for row in named if self._introduced(name, candidates[row].source.message)}
        return rows

    def _introduced(self, mark: int | str, message: int) -> bool:
        """Return True if the first use of the mark by the user or the agent comes after that message."""
        return self._first[mark] > message


def _quotes(text: str) -> set[int]:
    """Return hashes of all sequences of `QUOTE_WORDS` words in a text."""
    words = _WORD.findall(text.lower())
    return set(map(hash, zip(*(islice(words, start, None) for start in range(QUOTE_WORDS)), strict=False)))


def _names(text: str) -> set[str]:
    """Return the names and identifiers in a text."""
    return {*filter(_NAME_CHARACTER.search, _NAME.findall(text))}


def protected(candidates: Sequence[Candidate], transcript: Transcript) -> dict[int, str]:
    """Return the rows of errors, of the last turn and of what a later step uses, with these reasons."""
    reasons = dict.fromkeys(OwnWords(transcript).sources(candidates), "used by a later step")
    for row, candidate in enumerate(candidates):
        if candidate.source.is_error:
            reasons[row] = "error"
        if candidate.source.message >= transcript.last_turn:
            reasons[row] = "last turn"
    return reasons
