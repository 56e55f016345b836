"""Every regular expression of the package takes linear time on texts that are hostile to it.

A new pattern is found in the source and timed by itself. One whose source is known at run time only needs an example
in `EXAMPLES`. One that meets only short texts may be in `BOUNDED`, with the reason.
"""

from __future__ import annotations

import re
import time
from functools import cache

import pytest

from tests.support.patterns import Found, hostile_texts, package_patterns, pattern_modules, remembers_each_turn

SIZES = (20, 500, 16_000)
"""Characters. An exponential pattern fails at the first, a cubic one at the second, a quadratic one at the last."""
LEAST_SECONDS, SECONDS_PER_CHARACTER = 0.02, 4e-6
"""About a hundred times what a linear pattern takes, and a tenth of what a quadratic one takes at the last size."""
MOST_TIMES = 5
"""A pattern may exceed this limit where its time grows with the length alone, but not by more than this factor.

A slow machine exceeds it with patterns whose loops end after a few hundred characters.
"""
MOST_GROWTH = 12
"""The time may grow as much on four times the text: 4 is linear, and 16 quadratic.

A loop that ends after 4,000 characters is quadratic on a quarter of the longest text.
"""
QUADRATIC_GROWTH = 16
"""If a pattern stays below the limit when its time on a quarter of the longest text grows as much, that suffices."""
CLEAR_GROWTH = 6
"""Less growth than this is linear without a second look."""
REPEATS = 4

EXAMPLES = {
    "context_agent.integrations.server.price_table:_key_pattern(name.lower())": r"(?<![a-z0-9])gpt\-5",
    "context_agent.policies.chat.refusals:f'\\\\b{name}\\\\b'": r"\bseed\b",
    "context_agent.policies.tokens.vocabularies:'|'.join(spelled)": r"<\|endoftext\|>|<\|end\|>",
    "context_agent.retrieval.text_units:group": r"\S(?:.{0,99}(?<=\S)(?!\S)|\S{0,99})",
    "context_agent.pruning.words:signs": r"[A-Z]?[a-z]+|\d+|[\u0e00-\u0e7f]|(?:[^\W\d_A-Za-z][\u093e]*)++",
    "context_agent.retrieval.retriever_weights:re.escape(term)": r"tide",
    "context_agent.retrieval.loaders.html_tags:closing": r"</script(?=[\s/>])[^>]*>?",
    "context_agent.retrieval.loaders.html_tags:attribute": (
        r"""(?:^|[\s"'/])href\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))"""
    ),
    "context_agent.synth_data.domains.filings:tag": r"^<TYPE>(.*)$",
    "context_agent.synth_data.domains.filings:label": r"^[ \t]*FORM TYPE:[ \t]*(.+)$",
    "context_agent.synth_data.domains.filings:element": (
        r'<ix:non\w+\b[^<>]*\bname="dei:DocumentType"[^<>]*>(.{0,2000}?)</ix:non'
    ),
    "context_agent.synth_data.links.relations:by": r"\bdirected by (?:[a-z-]+ )?(?P<y>[A-Z]\w*)",
    "context_agent.synth_data.sets.splits:prefix": r"world/(?:train|test)/",
    "context_agent.synth_data.world.tasks:sought": r"(?<!\w)tide(?!\w)",
    "context_agent.text.normalization:marks": "[\u0300-\u036f]{31,}",
    "context_agent.text.scripts:script": "[\u3040-\u30ff]",
    "context_agent.train.run_file:f'(?<![\\\\w.]){re.escape(key)}(?!\\\\w)'": r"(?<![\w.])rollouts\.steps(?!\w)",
}
"""For each pattern that is built at run time, one that was built."""

BOUNDED = {
    "policies.chat.refusals:about": (1_000, "the first characters of a server's message"),
    "retrieval.loaders.mailbox:_BOUNDARY": (1_000, "the first characters of a line"),
    "synth_data.links.link_graph:_TITLE_BEFORE": (500, "the last characters before a name"),
}
"""Patterns that meet at most so many characters."""

REMEMBERING = {
    "retrieval.index.grep:_PATTERN_TOKEN": "a pattern of at most 4,096 characters",
    "retrieval.index.grep:_IN_GROUP": "the same",
}
"""Patterns with a loop that remembers its turns, and the short texts that they meet."""


@cache
def found() -> tuple[Found, ...]:
    return tuple(package_patterns())


@cache
def static() -> tuple[Found, ...]:
    return tuple(pattern for pattern in found() if pattern.pattern is not None)


def assert_linear(pattern: Found, most: int = SIZES[-1]) -> None:
    assert pattern.pattern is not None
    for size in SIZES:
        texts = hostile_texts(pattern.pattern, min(size, most))
        quarters = hostile_texts(pattern.pattern, min(size, most) // 4)
        for text, quarter in zip(texts, quarters, strict=True):
            assert not is_slow(pattern, text, quarter), f"{pattern.id} is slow on {len(text)} x {text[:60]!r}"


def is_slow(pattern: Found, text: str, quarter: str) -> bool:
    limit = LEAST_SECONDS + SECONDS_PER_CHARACTER * len(text)
    whole = part = float("inf")
    if len(text) >= SIZES[-1] and seconds(pattern, quarter) * QUADRATIC_GROWTH < limit:
        return False
    for _ in range(REPEATS):
        whole = min(whole, seconds(pattern, text))
        if whole < limit:
            return False
        if whole > MOST_TIMES * limit:
            return True
        part = min(part, seconds(pattern, quarter))
        if whole < CLEAR_GROWTH * part:
            return False
    return whole > MOST_GROWTH * part


def seconds(pattern: Found, text: str) -> float:
    start = time.process_time()
    pattern.run(text)
    return time.process_time() - start


def bound(pattern: Found) -> int:
    key = pattern.id.removeprefix("context_agent.")
    if "no|unknown|invalid" in key:
        key = "policies.chat.refusals:about"
    return BOUNDED.get(key, (SIZES[-1], ""))[0]


@pytest.mark.parametrize("module", pattern_modules())
def test_a_pattern_takes_linear_time(module: str) -> None:
    for pattern in static():
        if pattern.module == module:
            assert_linear(pattern, bound(pattern))


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_pattern_that_is_built_at_run_time_takes_linear_time(name: str) -> None:
    assert_linear(Found(name, "", name, re.compile(EXAMPLES[name], re.M | re.S | re.I)))


def test_no_pattern_remembers_a_turn_for_every_few_characters() -> None:
    """Otherwise, a text of 30 MB could take gigabytes."""
    examples = {name: re.compile(source, re.M | re.S | re.I) for name, source in EXAMPLES.items()}
    patterns = {pattern.id: pattern.pattern for pattern in static() if pattern.pattern is not None} | examples
    costly = {name.removeprefix("context_agent.") for name, pattern in patterns.items() if remembers_each_turn(pattern)}
    assert costly == set(REMEMBERING)


def test_every_pattern_that_is_built_at_run_time_has_an_example() -> None:
    built = sorted(pattern.module for pattern in found() if pattern.pattern is None)
    assert built == sorted(name.partition(":")[0] for name in EXAMPLES)


def test_the_list_of_bounded_patterns_has_no_other() -> None:
    names = {pattern.id.removeprefix("context_agent.") for pattern in static()}
    assert {name for name in BOUNDED if name not in names} == {"policies.chat.refusals:about"}
    assert sum(bound(pattern) < SIZES[-1] for pattern in static()) == len(BOUNDED)


def test_the_scan_finds_what_the_package_has() -> None:
    assert len(static()) > 250
    assert any(pattern.id == "context_agent.pruning.captions:_TITLE" for pattern in static())
    assert {pattern.module for pattern in found()} <= set(pattern_modules())


@pytest.mark.parametrize(
    "source",
    [
        r"(?:<[a-z][^>\n]*>\s*)*<title>",
        r"\[\d{1,4}\][ \t]+[^\n]*[^\s.!?;,][ \t\r]*$",
        r"(a+)+b",
        r"\s+and",
        r'"(?:[^"\\]|\\.)*"',
        r"<!--.*?-->",
        r"([\d.]+)px",
    ],
)
def test_a_pattern_that_is_not_linear_is_noticed(source: str) -> None:
    with pytest.raises(AssertionError, match="is slow on"):
        assert_linear(Found("m", "n", source, re.compile(source, re.M)))
