"""The cache of recently fetched values: it saves fetches, and its size is bounded."""

from __future__ import annotations

from context_agent.retrieval.chroma.recent_values import RecentValues


class Store:
    """Fetches numbers by their digits, and records the ids that it was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, ids: list[str]) -> dict[str, int]:
        self.asked.append(ids)
        return {number: int(number) for number in ids if number.isdigit()}


def test_values_come_in_the_order_asked_and_unknown_ids_are_left_out() -> None:
    store, recent = Store(), RecentValues[int](100)
    assert list(recent.get(["3", "x", "1"], store).items()) == [("3", 3), ("1", 1)]


def test_only_what_is_missing_is_fetched() -> None:
    store, recent = Store(), RecentValues[int](100)
    recent.get(["1", "2"], store)
    assert recent.get(["2", "3", "1"], store) == {"2": 2, "3": 3, "1": 1}
    assert store.asked == [["1", "2"], ["3"]]


def test_the_older_half_goes_when_it_is_full() -> None:
    store, recent = Store(), RecentValues[int](10)
    for number in range(11):
        recent.get([str(number)], store)
    store.asked.clear()
    recent.get([str(number) for number in range(11)], store)
    assert store.asked == [[str(number) for number in range(5)]]
