"""The page at `/`: its files, and its use in a real Chromium."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys
from starlette.types import ASGIApp, Receive, Scope, Send

from context_agent import BridgePolicy, Document, MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent.integrations.feedback import FeedbackLog
from context_agent.integrations.server.app import application_of
from context_agent.integrations.server.episodes import episode_data
from context_agent.integrations.server.service import Service
from context_agent.integrations.server.settings import Settings
from context_agent.pruning.view import View
from context_agent.testing.actions import prune, rank_all, restore, search
from context_agent.types import Action
from tests.support import episodes
from tests.support.browser import Browser
from tests.support.servers import Serve, listening, one_search, running

ANSWERED = "document.body.dataset.state === 'answered'"
QUESTION = "Which comets met the painters?"


def editing_policy() -> ScriptedPolicy:
    """Searches, prunes two passages, restores one, ranks."""
    steps = [
        search(QUESTION, "painters", limit=5),
        lambda view: prune(*(block.id for block in view.blocks[:2])),
        lambda view: restore(view.pruned[0].id),
        rank_all,
    ]
    return ScriptedPolicy(steps)


def ask(browser: Browser, question: str = QUESTION) -> None:
    """Type a question as a user would, and wait for the answer."""
    browser.press(question, Keys.ENTER)
    browser.wait(ANSWERED)


def test_the_files_are_public_and_allow_nothing_but_themselves(serve: Serve) -> None:
    with serve(token="abc") as server:
        del server.client.headers["Authorization"]
        page = server.client.get("/")
        assert page.status_code == 200
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "<script>" not in page.text
        for name in ("ask.js", "page.js", "main.js", "view.css", "icon.svg"):
            response = server.client.get(f"/ui/{name}")
            assert (response.status_code, response.headers["x-content-type-options"]) == (200, "nosniff"), name
        assert server.client.get("/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
        for name in ("nothing.js", "ask.html", "..%2Fpage.py", "__init__.py"):
            assert server.client.get(f"/ui/{name}").status_code == 404, name
        for path in ("/v1/agent", "/v1/trajectories/x"):
            assert server.client.get(path).status_code == 401


def test_the_agent_is_described(corpus: MemoryCorpus, serve: Serve) -> None:
    with serve() as server:
        description = server.client.get("/v1/agent").json()
    assert (description["chunks"], description["records"], description["efforts"]) == (corpus.count(), True, [])
    assert description["soft"] < description["hard"] < description["window"]
    with SearchAgent(corpus, effort="fast") as agent, running(agent, title="notes") as server:
        description = server.client.get("/v1/agent").json()
    assert (description["title"], description["records"]) == ("notes", False)
    assert description["efforts"] == ["fast", "careful"]


def test_a_question_chooses_its_effort(corpus: MemoryCorpus, serve: Serve) -> None:
    with serve() as server:
        refusal = server.ask(effort="fast")
        assert (refusal.status_code, refusal.json()["error"]["param"]) == (422, "effort")
        assert "has no effort" in refusal.json()["error"]["message"]
    policy = BridgePolicy(effort="fast", untrained=True)
    with SearchAgent(corpus, policy) as agent, running(agent) as server:
        assert server.ask(effort="fast").json()["documents"]
        refusal = server.ask(effort="heroic")
        assert refusal.status_code == 422
        assert "careful or fast; got 'heroic'" in refusal.json()["error"]["message"]


def test_each_document_has_its_best_sentence(serve: Serve) -> None:
    with serve(ScriptedPolicy([search(QUESTION, limit=5), rank_all])) as server:
        documents = server.ask(QUESTION).json()["documents"]
    for document in documents:
        best = document["best_sentence"]
        (text,) = [chunk["text"] for chunk in document["chunks"] if chunk["id"] == best["passage"]]
        assert text[best["start"] : best["end"]].endswith(".")


def test_a_recorded_episode_is_served_without_paths(serve: Serve, tmp_path: Path) -> None:
    with serve(editing_policy()) as server:
        name = server.ask(QUESTION).json()["trajectory"]
        response = server.client.get(f"/v1/trajectories/{name}")
        assert response.json()["index"]["rows"][0]["question"] == QUESTION
        assert str(tmp_path) not in response.text
        for wrong in ("nothing", "..%2Fsecret", "feedback", "x" * 300):
            refusal = server.client.get(f"/v1/trajectories/{wrong}")
            assert refusal.status_code == 404, wrong
        (tmp_path / "trajectories" / "broken.jsonl").write_text(
            (tmp_path / "trajectories" / f"{name}.jsonl").read_text().splitlines()[0] + '\n{"kind": "?"}\n'
        )
        assert str(tmp_path) not in server.client.get("/v1/trajectories/broken").text


def test_an_episode_brings_its_sub_agents(corpus: MemoryCorpus, tmp_path: Path) -> None:
    paths = episodes.swarm(corpus, tmp_path)
    data: Any = episode_data(FeedbackLog(tmp_path), paths[0].stem)
    assert data["index"]["rows"][0]["id"] == paths[0].stem
    assert len(data["index"]["rows"]) == len(paths)


def test_a_question_by_keyboard_its_ranking_its_judgment_and_its_episode(
    serve: Serve, browser: Browser, tmp_path: Path
) -> None:
    with serve(editing_policy()) as server:
        browser.open(server.url)
        assert browser.run("return document.activeElement.id") == "question"
        ask(browser)
        assert len(browser.texts(".segment.gone")) == 1
        assert len(browser.texts(".passages .gone")) >= 1
        assert len(browser.texts(".segment.back")) == 1
        assert browser.texts(".lit") == ["painters"]
        assert browser.texts(".card mark")
        assert "dropped 2, brought 1 back, ended with" in browser.texts("#story")[0]
        assert browser.texts("#status")[0].startswith(f"{len(browser.texts('.card'))} documents in")
        name = browser.run("return document.querySelector('.card').dataset.document")
        browser.click(".judge.no")
        browser.wait("document.querySelector('.judge.no').getAttribute('aria-pressed') === 'true'")
        browser.click(".judge.yes")
        browser.wait("document.querySelector('.judge.yes').getAttribute('aria-pressed') === 'true'")
        browser.click("#judgeall .yes")
        browser.wait("document.querySelector('#judgeall [aria-pressed=true]')")
        lines = (tmp_path / "trajectories" / "feedback.jsonl").read_text().splitlines()
        verdicts = [json.loads(line) for line in lines]
        assert [(verdict["relevant"], verdict["irrelevant"], verdict["rating"]) for verdict in verdicts] == [
            ([], [name], None), ([name], [], None), ([], [], 5)
        ]  # fmt: skip
        assert len({verdict["user"] for verdict in verdicts}) == 1
        browser.click("#episode a")
        browser.wait("document.documentElement.dataset.shown")
        assert browser.texts("article h2") == [QUESTION]
        browser.click("nav a")
        browser.wait(ANSWERED)
        assert browser.texts("#asked") == [QUESTION]
        assert browser.complaints() == []
        assert {url.split("/")[2] for url in browser.requests() if url.startswith("http")} == {server.url.split("/")[2]}


def test_the_pages_work_below_a_path_of_a_proxy(corpus: MemoryCorpus, browser: Browser, tmp_path: Path) -> None:
    def below_search(service: Service) -> ASGIApp:
        """What a proxy does that serves the application below `/search/` and takes this prefix away."""
        application = application_of(service)

        async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                inside = scope["path"].startswith("/search/")
                scope = {**scope, "path": scope["path"].removeprefix("/search") if inside else "/outside"}
            await application(scope, receive, send)

        return proxy

    with (
        SearchAgent(corpus, editing_policy(), trajectories=tmp_path) as agent,
        listening(Service.of(agent, Settings(grace=5.0)), below_search) as url,
    ):
        browser.open(f"{url}/search/")
        ask(browser)
        assert browser.texts(".card mark")
        browser.click(".judge.yes")
        browser.wait("document.querySelector('.judge.yes').getAttribute('aria-pressed') === 'true'")
        browser.click("#episode a")
        browser.wait("document.documentElement.dataset.shown")
        assert browser.texts("article h2") == [QUESTION]
        browser.click("nav a")
        browser.wait(ANSWERED)
        assert browser.complaints() == []


@pytest.mark.parametrize(("width", "dark"), [(360, True), (768, False), (1440, False)])
def test_nothing_moves_or_overflows_and_all_of_it_is_accessible(
    serve: Serve, browser: Browser, width: int, dark: bool
) -> None:
    long_documents = [
        Document(f"{'path/' * 12}{n}.md", "Comets met painters. " * 60, "Unbreakable" * 12) for n in range(3)
    ]
    documents = [
        *long_documents,
        Document("e", "Painters met comets in 1948.", "Painters", {"year": 1948, "by": "Ann"}),
    ]
    corpus = MemoryCorpus(documents)
    with browser.looking(width=width, height=800, dark=dark), serve(editing_policy(), on=corpus) as server:
        browser.open(server.url)
        assert browser.violations() == []
        ask(browser)
        assert browser.violations() == []
        assert browser.layout_shift() < 0.1
        assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0
        browser.click(".chip")
        browser.click("#addfilter")
        assert browser.violations() == []
        assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0
        assert browser.complaints() == []


def test_hostile_documents_are_text(serve: Serve, browser: Browser) -> None:
    text = f"{episodes.HOSTILE} comets"
    corpus = MemoryCorpus([Document(text, text, text, {"note": "<b onclick=alert(1)>", "<img src=x>": "y"})])
    with serve(ScriptedPolicy([search(text), rank_all]), on=corpus) as server:
        browser.open(server.url)
        browser.run("document.getElementById('question').value = arguments[0]", text)
        browser.click("#go")
        browser.wait(ANSWERED)
        assert browser.run("return window.pwned") is None
        assert browser.run("return document.querySelectorAll('main img, main svg, main script, main b').length") == 0
        assert "<script>" in browser.texts(".card h3")[0]
        assert "⟨U+202E⟩" in browser.texts(".card h3")[0]
        assert browser.complaints() == []


def test_the_token_is_asked_for_and_kept_for_the_session_alone(serve: Serve, browser: Browser) -> None:
    with serve(token="abc") as server:
        browser.open(server.url, ready="document.getElementById('login').open")
        browser.press("wrong", Keys.ENTER)
        browser.wait("document.getElementById('loginreason').textContent.includes('refused')")
        assert browser.violations() == []
        browser.press("abc", Keys.ENTER)
        browser.wait("document.documentElement.dataset.ready !== undefined")
        ask(browser, "comets?")
        assert browser.texts(".card")
        assert browser.run("return JSON.stringify(localStorage).includes('abc')") is False
        browser.run("sessionStorage.clear()")


def test_a_search_can_be_stopped_and_an_error_is_told(
    serve: Serve, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(one_search(delay=5)) as server:
        browser.open(server.url)
        browser.press("comets?", Keys.ENTER)
        browser.wait("document.body.dataset.state === 'running'")
        assert browser.texts("#go") == ["Stop"]
        browser.press(Keys.ESCAPE)
        browser.wait("document.body.dataset.state === 'stopped'")
        server.until(lambda: server.service.admission.running == 0)
    browser.click("#go")
    browser.wait("document.getElementById('problem').textContent.includes('does not answer')")


def fail(view: View) -> Action:
    raise RuntimeError("an unexpected failure")


def test_a_failing_search_shows_what_the_server_says(serve: Serve, browser: Browser) -> None:
    with serve(ScriptedPolicy([fail])) as server:
        browser.open(server.url)
        browser.press("comets?", Keys.ENTER)
        browser.wait("document.querySelector('#problem p')")
        assert "internal error" in browser.texts("#problem")[0]


def test_past_questions_are_asked_again_and_forgotten(serve: Serve, browser: Browser) -> None:
    corpus = MemoryCorpus([Document(str(n), "Of comets.", f"C{n}", {"year": 1948 + n}) for n in range(3)])
    steps = [search("comets", limit=3), rank_all]
    with serve(ScriptedPolicy(steps), on=corpus) as server:
        browser.open(server.url)
        ask(browser, "comets?")
        assert len(browser.texts(".card")) == 3
        browser.click(".chip")
        browser.click("#go")
        browser.wait(f"{ANSWERED} && document.querySelectorAll('.card').length === 1")
        assert browser.texts(".again") == ["comets? year is 1948", "comets?"]
        browser.open(server.url)
        browser.click("#questions li:nth-child(2) .again")
        browser.wait(f"{ANSWERED} && document.querySelectorAll('.card').length === 3")
        browser.click("#clear")
        assert browser.texts(".again") == []
        assert browser.run("return document.activeElement.id") == "question"


def test_filters_compare_a_number_as_number_and_as_text(serve: Serve, browser: Browser) -> None:
    with serve() as server:
        browser.open(server.url)
        script = "return whereOf(arguments[0].map(([field, operator, value]) => ({ field, operator, value })))"
        assert browser.run(script, []) is None
        assert browser.run(script, [["by", "$eq", "Ann"]]) == {"by": {"$eq": "Ann"}}
        assert browser.run(script, [["year", "$gte", "1948"], ["read", "$ne", "true"]]) == {
            "$and": [{"year": {"$gte": 1948}}, {"$and": [{"read": {"$ne": True}}, {"read": {"$ne": "true"}}]}]
        }
        assert browser.run(script, [["year", "$eq", "1948"]]) == {
            "$or": [{"year": {"$eq": 1948}}, {"year": {"$eq": "1948"}}]
        }


def test_nothing_is_animated_for_those_who_prefer_that(serve: Serve, browser: Browser) -> None:
    with browser.looking(still=True), serve(editing_policy()) as server:
        browser.open(server.url)
        ask(browser)
        assert browser.run("return document.getAnimations().length") == 0


def test_an_answer_comes_back_only_while_it_is_the_latest_of_this_server(
    serve: Serve, browser: Browser, tmp_path: Path
) -> None:
    def come_back() -> tuple[list[str], list[str]]:
        browser.open(server.url)
        return browser.texts("#asked"), browser.texts(".again")

    with serve(one_search()) as server:
        browser.open(server.url)
        ask(browser, "first comets?")
        assert come_back() == (["first comets?"], ["first comets?"])
        browser.run(
            """let count = 0;
            for (const size of [200_000, 2_000, 100]) try {
                for (;;) sessionStorage.setItem(`fill${count++}`, "x".repeat(size));
            } catch { /* the storage is full */ }
            document.getElementById("question").value = "second comets?" + " very".repeat(1_000);
            document.getElementById("ask").requestSubmit();"""
        )
        browser.wait("document.getElementById('asked').textContent.startsWith('second')")
        browser.wait(ANSWERED)
        assert come_back()[0] == [""]
        browser.run("sessionStorage.clear()")
        ask(browser, "third comets?")
        for file in (tmp_path / "trajectories").glob("*.jsonl"):
            file.unlink()  # as on another server with the same address
        asked, (latest, *_) = come_back()
        assert (asked, latest) == ([""], "third comets?")


def test_what_another_version_of_the_page_stored_is_forgotten(serve: Serve, browser: Browser) -> None:
    with serve(one_search()) as server:
        for storage, name, value in (
            ("local", "ctx1-past:' + page.agent.title + '", '{"a": 1}'),
            ("local", "ctx1-past:' + page.agent.title + '", "[null]"),
            ("session", "ctx1-last", '{"settings": {}}'),
        ):
            browser.open(server.url)
            browser.run(f"{storage}Storage.setItem('{name}', arguments[0])", value)
            browser.open(server.url)
            assert browser.texts("#problem") == [""]
            ask(browser, "comets?")
            assert browser.texts(".again") == ["comets?"]
            browser.run("localStorage.clear(); sessionStorage.clear()")


def test_a_blocked_storage_lasts_as_long_as_the_page(serve: Serve, browser: Browser) -> None:
    with serve(one_search()) as server:
        browser.open(server.url)
        kept = browser.run(
            """Object.defineProperty(window, "blocked", { get() { throw new DOMException("denied"); } });
            const storage = storageOf("blocked");
            store(storage, "name", [1]);
            return [stored(storage, "name", null), stored(storage, "other", 2)];"""
        )
        assert kept == [[1], 2]


def test_a_lost_connection_is_told_in_plain_words(serve: Serve, browser: Browser) -> None:
    with serve(one_search()) as server:
        browser.open(server.url)
        message = browser.run(
            """const body = new ReadableStream({ start(it) { it.error(new TypeError("network error")); } });
            return eventsOf({ body }).next().catch(error => error.message);"""
        )
    assert message == "The connection was lost before the answer came. Ask again."


def test_a_name_is_marked_after_a_letter_that_grows_in_lower_case(serve: Serve, browser: Browser) -> None:
    with serve(one_search()) as server:
        browser.open(server.url)
        marked = browser.run(
            """const nodes = litQuestion("İİ: Which COMETS met Ümit?", new Set(["comets", "ÜMIT"]));
            return nodes.filter(node => node.localName === "mark").map(node => node.textContent);"""
        )
    assert marked == ["COMETS", "Ümit"]
