"""When a prune pays: the price of writing to the cache, and a cache that is gone."""

from __future__ import annotations

import json

import pytest

from context_agent.errors import ConfigError
from context_agent.integrations.pruning import ConversationPruners, PrefixCaching
from context_agent.integrations.server.proxy import BodyPruner
from context_agent.pruning import ContextPruner, Prices, pruner
from context_agent.tokens import CharCounter
from tests.support.conversations import rendered
from tests.support.long_conversation import LONG, conversation, noises


def keeper(prices: Prices) -> ContextPruner:
    return ContextPruner(400, effort="fast", prices=prices, counter=CharCounter())


def test_a_cold_cache_makes_a_prune_free(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(pruner.time, "monotonic", lambda: now)
    prices = Prices(turns=0.5)
    short, longer = rendered("openai", LONG[:2]), rendered("openai", LONG)
    warm, cold = keeper(prices), keeper(prices)
    for one in (warm, cold):
        one.prune(short)
    now += 300
    assert warm.prune(longer).report.outcome == "does not pay"
    now += 1
    report = cold.prune(longer).report
    assert (report.outcome, report.loss) == ("pruned", 0.0)
    assert report.savings == pytest.approx(report.freed * (prices.turns * prices.cached + prices.fresh))


def test_writing_to_the_cache_has_a_price() -> None:
    assert Prices(write=1.25).loss(100) == pytest.approx(115)
    assert Prices().loss(100) == pytest.approx(90)
    assert Prices(write=2.0, turns=0).savings(100, cold=True) == pytest.approx(200)
    assert Prices(write=2.0).loss(100, cold=True) == 0.0


@pytest.mark.parametrize("values", [{"write": 0.0}, {"lifetime": -1.0}])
def test_bad_prices_say_what_is_expected(values: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="prices must obey write >= cached and lifetime >= 0"):
        Prices(**values)


@pytest.mark.parametrize(
    ("ttl", "expected"),
    [("", Prices(cached=1.0, write=1.0)), ("5m", Prices(write=1.25)), ("1h", Prices(write=2.0, lifetime=3_600))],
)
def test_what_a_request_asks_of_the_cache_sets_the_prices(ttl: str, expected: Prices) -> None:
    assert PrefixCaching(ttl).prices(Prices()) == expected


@pytest.mark.parametrize(
    ("mark", "outcome"),
    [
        ("", "pruned"),
        (', "cache_control": {"type": "ephemeral"}', "does not pay"),
        (', "cache_control" : {"type": "ephemeral", "ttl": "1h"}', "does not pay"),
    ],
)
def test_without_cache_control_nothing_is_cached_so_every_prune_pays(mark: str, outcome: str) -> None:
    bodies = BodyPruner(ConversationPruners(lambda: keeper(Prices(turns=2))), 1_000_000)
    messages = rendered("anthropic", conversation(noises(0, 8), *(noises(n, 3) for n in range(10, 60, 10)), "done"))
    messages[0]["content"][0]["text"] += ' Is "cache_control": {"type": "ephemeral"} needed?'
    body = f'{{"messages": {json.dumps(messages)}, "system": [{{"type": "text", "text": "x"{mark}}}]}}'
    assert bodies.prune(body.encode(), "messages", b"", states_caching=True).counts["outcome"] == outcome
