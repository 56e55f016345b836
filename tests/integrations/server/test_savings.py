"""What the proxy says that it saved: by conversation, in tokens and money, as a file and as a page of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from context_agent.integrations.conversation_pruners import ConversationPruners
from context_agent.integrations.server.price_table import ModelPrice, PriceTable
from context_agent.integrations.server.proxy import Proxy, proxy_application
from context_agent.integrations.server.savings import (
    MAX_CONVERSATIONS,
    PrunedRequest,
    SavingsReport,
    model_in_path,
)
from context_agent.integrations.server.settings import Settings
from context_agent.pruning.pruner import ContextPruner
from tests.support.proxied import CHAT, conversation
from tests.support.servers import listening
from tests.support.upstream import Reply, upstream

PRICES = PriceTable(
    models={"tiny": ModelPrice(input=10, cached=1, write=12), "tiny-pro": ModelPrice(input=20, cached=2)}
)


def request(**fields: Any) -> PrunedRequest:
    values = {"conversation": 1, "model": "tiny-1", "sent": 100, "withheld": 300, "cached_lost": 0, "restored": 0}
    return PrunedRequest(**{**values, **fields})


def test_money_is_what_was_not_sent_less_what_the_cache_lost() -> None:
    report = SavingsReport(PRICES)
    report.add(request(withheld=1_000_000, cached_lost=50_000))
    # A million cached tokens at 1, less 50,000 that are written at 12 instead of read at 1.
    assert report.total.money == pytest.approx(1.0 - 0.05 * 11)
    report.add(request(model="tiny-pro-2", withheld=1_000_000, cached_lost=0))
    assert report.total.money == pytest.approx(0.45 + 2.0)


def test_the_model_is_found_in_a_path() -> None:
    assert model_in_path("/v1beta/models/gemini-2.5-pro:generateContent") == "gemini-2.5-pro"
    assert model_in_path("/model/anthropic.claude-sonnet-4/converse") == "anthropic.claude-sonnet-4"
    assert model_in_path("/openai/deployments/gpt-5/chat/completions") == "gpt-5"
    assert model_in_path(CHAT) == ""


def test_a_name_that_no_model_has_is_not_repeated() -> None:
    report = SavingsReport(PRICES)
    report.add(request(model="\x1b[2Jgpt"))
    *_, money = report.lines()
    assert "no price for these models;" in money


def test_a_refused_request_was_not_paid_for_but_a_restore_counts() -> None:
    report = SavingsReport(PRICES)
    report.add(request(restored=2, cached_lost=7), accepted=False)
    total = report.to_json()["total"]
    assert (total["requests"], total["sent"], total["withheld"]) == (0, 0, 0)
    assert (total["restored"], total["cached_lost"]) == (2, 7)


def test_a_model_that_the_server_refused_is_not_named() -> None:
    report = SavingsReport(PRICES)
    report.add(request(model="sk-key-in-the-wrong-field"), accepted=False)
    assert "sk-key" not in json.dumps(report.to_json()) + report.html() + "".join(report.lines())
    report.add(request())
    report.add(request(model="sk-key-in-the-wrong-field"), accepted=False)
    assert [one["model"] for one in report.to_json()["conversations"]] == ["tiny-1"]


def test_a_model_without_a_price_is_said() -> None:
    report = SavingsReport(PRICES)
    report.add(request(model="unheard-of"))
    *_, money = report.lines()
    assert "no price for unheard-of;" in money
    report.add(request())
    *_, money = report.lines()
    assert "1 request without a price" in money


def test_the_list_is_bounded_and_the_sum_counts_all() -> None:
    report = SavingsReport(PRICES)
    for number in range(MAX_CONVERSATIONS + 5):
        report.add(request(conversation=number))
    data = report.to_json()
    assert len(data["conversations"]) == MAX_CONVERSATIONS
    assert data["total"]["requests"] == data["total"]["conversations"] == MAX_CONVERSATIONS + 5


def test_a_conversation_that_goes_on_stays_in_the_list_and_counts_once() -> None:
    report = SavingsReport(PRICES)
    for number in range(1, MAX_CONVERSATIONS + 5):
        report.add(request(conversation=0))
        report.add(request(conversation=number))
    data = report.to_json()
    assert data["total"]["conversations"] == MAX_CONVERSATIONS + 5
    (active,) = (one for one in data["conversations"] if one["conversation"] == 0)
    assert active["requests"] == MAX_CONVERSATIONS + 4


def test_a_lone_surrogate_in_a_model_name_does_not_end_the_report(tmp_path: Path) -> None:
    report = SavingsReport(PRICES)
    report.add(PrunedRequest.of(1, "gpt\ud800", PRUNE_REPORT))
    report.write(tmp_path / "report.json")
    assert '"gpt?"' in (tmp_path / "report.json").read_text(encoding="utf-8")


def test_a_hostile_model_name_is_text_in_the_page() -> None:
    report = SavingsReport(PRICES)
    report.add(PrunedRequest.of(1, "<script>alert(1)</script>\u202e" * 50, PRUNE_REPORT))
    page = report.html()
    assert "<script" not in page
    assert "\u202e" not in page
    assert "default-src 'none'" in page


PRUNE_REPORT = ContextPruner(300, strategy="bm25").prune(conversation(4)).report


def test_the_page_and_the_file_have_what_went_through_the_proxy(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    with upstream(lambda received: Reply(status=500 if b"refuse" in received.body else 200)) as server:
        pruners = ConversationPruners(lambda: ContextPruner(300, strategy="bm25"))
        proxy = Proxy(server.url, pruners, Settings(grace=1.0), savings=SavingsReport(PRICES), report_file=file)
        with listening(proxy, proxy_application, dated=False) as url, httpx.Client(base_url=url) as client:
            for steps in (4, 5):
                client.post(CHAT, json={"model": "tiny-1", "messages": conversation(steps)})
            client.post(CHAT, json={"model": "tiny-1", "refuse": True, "messages": conversation(5)})
            other = [{"role": "user", "content": "Another beginning."}, *conversation(3)[2:]]
            client.post(CHAT, json={"model": "unheard-of", "messages": other})
            page = client.get("/_context/report")
            assert client.get("/_context/other").status_code == 404
            assert client.post("/_context/report").status_code == 404
            assert client.get("/_context/report", headers={"Host": "evil.example"}).status_code == 403
            for forwarding in ({"X-Real-IP": "127.0.0.1"}, {"Forwarded": "for=203.0.113.7"}, {"Via": "1.1 front"}):
                assert client.get("/_context/report", headers=forwarding).status_code == 403
            foreign = client.get("/_context/report", headers={"Origin": "https://evil.example"})
            assert foreign.status_code == 403
        assert not [one for one in server.requests if one.path.startswith("/_context")]
        first, second, _, third = (json.loads(one.body)["messages"] for one in server.requests)
    data = json.loads(file.read_text(encoding="utf-8"))
    assert [one["requests"] for one in data["conversations"]] == [2, 1]
    assert [one["model"] for one in data["conversations"]] == ["tiny-1", "unheard-of"]
    assert data["total"]["withheld"] > 0
    # The second request does not send what the first one removed either.
    count = ContextPruner()._results.tokens
    sent = [sum(count(one["content"]) for one in body if one["role"] == "tool") for body in (first, second, third)]
    came = [sum(count(one["content"]) for one in conversation(steps) if one["role"] == "tool") for steps in (4, 5)]
    assert data["conversations"][0]["sent"] == sum(sent[:2])
    assert data["conversations"][0]["withheld"] == sum(came) - sum(sent[:2])
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["cache-control"] == "no-store"
    assert "tiny-1" in page.text
    assert "violins" not in page.text + file.read_text(encoding="utf-8")
