"""Values of texts are computed once, and only so many are kept."""

from __future__ import annotations

from context_agent._support.text_cache import TextCache


def test_each_text_is_computed_once_until_it_was_not_used_for_long() -> None:
    computed: list[str] = []

    def lengths(texts: list[str]) -> list[int]:
        computed.extend(texts)
        return [*map(len, texts)]

    cache = TextCache[int](2)
    assert cache.values(["a", "bb", "a"], lengths) == [1, 2, 1]
    assert cache.values(["a", "\ud800"], lengths) == [1, 1]
    assert cache.values(["a"], lengths) == [1]
    assert computed == ["a", "bb", "\ud800"]
    assert cache.values(["bb"], lengths) == [2]
    assert computed[-1] == "bb"
    cache.clear()
    assert cache.values(["a"], lengths) == [1]
    assert computed[-1] == "a"
    assert cache.values([], lengths) == []
