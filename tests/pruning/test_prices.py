"""When a prune pays: the price of writing to the cache, and a cache that is gone."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

import pytest

from context_agent.errors import ConfigError
from context_agent.integrations.conversation_pruners import ConversationPruners, PrefixCaching
from context_agent.integrations.server.conversation_paths import caching_api
from context_agent.integrations.server.pruned_bodies import BodyPruner
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
    with pytest.raises(ConfigError, match="prices must satisfy write >= cached and lifetime >= 0"):
        Prices(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"turns": math.inf, "cached": 0.0},
        {"turns": 1e308},
        {"write": math.inf},
        {"fresh": 1e-320, "cached": 0, "write": 1},
    ],
)
def test_sums_of_prices_that_overflow_are_refused(values: dict[str, float]) -> None:
    """A report would say that a prune is worth inf or nan."""
    with pytest.raises(ConfigError, match="turns <= 1e12 and write <= 1e12"):
        Prices(**values)
    most = Prices(turns=10**12, fresh=1e-12, cached=0, write=1.0)
    assert math.isfinite(most.savings(10**12, cold=True) + most.loss(10**12))


@pytest.mark.parametrize(
    ("ttl", "expected"),
    [("", Prices(cached=1.0, write=1.0)), ("5m", Prices(write=1.25)), ("1h", Prices(write=2.0, lifetime=3_600))],
)
def test_what_a_request_asks_of_the_cache_sets_the_prices(ttl: str, expected: Prices) -> None:
    assert PrefixCaching.of_anthropic(ttl).prices(Prices()) == expected


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
    assert bodies.prune(body.encode(), "messages", b"", api="anthropic").counts["outcome"] == outcome


OPENAI_REQUESTS = [
    ({}, "", 300),
    ({"prompt_cache_retention": "in_memory"}, "", 300),
    ({"prompt_cache_retention": "24h"}, "", 86_400),
    ({"prompt_cache_options": {"ttl": "30m"}}, "", 1_800),
    ({"prompt_cache_options": {"ttl": "12h"}}, "", 43_200),
    ({"prompt_cache_options": {"ttl": "30m"}, "prompt_cache_retention": "24h"}, "", 86_400),
    ({"prompt_cache_options": {"ttl": "soon"}, "prompt_cache_retention": ["24h"]}, "", 300),
    ({"prompt_cache_options": "30m"}, "", 300),
    ({}, "openai", 86_400),
    ({"prompt_cache_retention": "in_memory"}, "openai", 300),
    ({"prompt_cache_retention": "in_memory", "prompt_cache_options": {"ttl": "30m"}}, "openai", 1_800),
]


@pytest.mark.parametrize(("fields", "api", "lifetime"), OPENAI_REQUESTS)
def test_a_cache_of_openai_is_not_cold_before_its_entries_expire(
    fields: dict[str, Any], api: str, lifetime: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []
    for pause in (lifetime, lifetime + 1):
        now = 1_000.0
        bodies = BodyPruner(ConversationPruners(lambda: keeper(Prices(turns=0.5)), idle=math.inf), 1_000_000)
        for turns in (LONG[:2], LONG):
            monkeypatch.setattr(pruner.time, "monotonic", partial(float, now))
            body = json.dumps({"messages": rendered("openai", turns), **fields}).encode()
            outcomes.append(bodies.prune(body, "messages", b"", api=api).counts["outcome"])
            now += pause
    assert outcomes[1::2] == ["does not pay", "pruned"]


@pytest.mark.parametrize(
    ("host", "path", "api"),
    [
        ("api.openai.com", "/v1/responses", "openai"),
        ("eu.api.openai.com", "/v1/chat/completions", "openai"),
        ("myapi.openai.com", "/v1/responses", ""),
        ("localhost", "/v1/chat/completions", ""),
        ("localhost", "/v1/messages", "anthropic"),
        ("localhost", "/model/us.anthropic.claude-opus-4-5-v1:0/invoke-with-response-stream", "anthropic"),
        ("localhost", "/model/amazon.nova-pro-v1:0/invoke", ""),
    ],
)
def test_the_cache_of_an_api_is_known_by_its_host_or_path(host: str, path: str, api: str) -> None:
    assert caching_api(host, path) == api
