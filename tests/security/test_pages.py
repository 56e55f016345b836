"""The pages in a real Chromium, with an attack in every text that can come from outside: nothing runs, nothing leaves.

Pages are the search page of the server, and the files of the viewer, the report, the review and a pruned conversation.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from context_agent import Action, Budget, Document, MemoryCorpus, ScriptedPolicy, SearchAgent, ToolCall
from context_agent.eval.aggregate import summarize
from context_agent.harness.trajectory_folder import read_all
from context_agent.pruning.pruner import ContextPruner
from context_agent.synth_data.review import tasks_on_page
from context_agent.synth_data.task import Support
from context_agent.testing.actions import rank_all, search
from context_agent.types import RankedId
from context_agent.web.conversation import conversation_page, model_calls
from context_agent.web.report.content import render
from context_agent.web.review import review_page
from context_agent.web.viewer import build_page
from context_agent.web.viewer.model import view_data
from tests.support.browser import Browser
from tests.support.sample_records import made_records
from tests.support.servers import running
from tests.support.tasks import task

HIT = "window.pwned=1"
ATTACKS = {
    "script": f"<script>{HIT}</script>",
    "script of another case": f"<ScRiPt >{HIT}</sCrIpT\t>",
    "end of an embedded script": f"</script><script>{HIT}</script>",
    "comment before a script": f"<!--<script>{HIT}//--></script>",
    "image": f"<img src=x onerror={HIT}>",
    "attribute": f'" autofocus onfocus="{HIT}" x=\'',
    "other quotes": f"' onmouseover='{HIT}' `",
    "drawing": f"<svg><animate onbegin={HIT} attributeName=x dur=1s><set onbegin={HIT}></svg>",
    "drawing with a link": f'<svg><a xlink:href="javascript:{HIT}"><text y=20>link</text></a></svg>',
    "math": f'<math><mtext><table><mglyph><style><img src=x onerror="{HIT}">',
    "frame": f'<iframe srcdoc="<script>parent.{HIT}</script>"></iframe><object data="data:text/html,x"></object>',
    "link": f"<a href='javascript:{HIT}'>click</a> [click](javascript:{HIT}) javascript:{HIT}",
    "link with a line end": f"<a href='java\nscript:{HIT}'>click</a> data:text/html,<script>{HIT}</script>",
    "form": f"<form action=http://evil.invalid/><button formaction=javascript:{HIT}>go</button></form>",
    "base": "<base href=http://evil.invalid/><meta http-equiv=refresh content='0;url=http://evil.invalid/'>",
    "style": "<style>*{display:none!important;background:url(http://evil.invalid/x)}</style>",
    "import": "</style><style>@import 'http://evil.invalid/x.css';</style><link rel=stylesheet href=//evil.invalid/x>",
    "prefetch": "<link rel=prefetch href=http://evil.invalid/x><link rel=dns-prefetch href=//evil.invalid>",
    "clobbering": "<form id=data-index name=getElementById><input name=textContent><img id=ask name=body></form>",
    "template": "{{constructor.constructor('window.pwned=1')()}} ${window.pwned=1} <%= window.pwned=1 %> #{pwned}",
    "separators": f"\u2028{HIT}\u2029{HIT}\x0b\x0c\x85",
    "direction": "\u202egpj.exe\u202c \u2066\u2067\u2069 \u202a\u202b",
    "control": "\x1b]0;owned\x07 \x00 \x08 \x7f \x9b",
    "JSON": f'"}}]}};{HIT};//\\u003cscript\\u003e{HIT}',
    "names of JavaScript": "__proto__ constructor toString hasOwnProperty then",
    "byte order": "\ufeff\ufffe\uffff<script>\ufeff",
    "long word": "W" * 5_000,
    "long word of another script": "漢" * 2_000 + "ﷺ" * 200,
    "many marks": "z" + "\u0300" * 3_000,
}
ALL = " ".join(text for name, text in ATTACKS.items() if "long" not in name and name != "many marks")
NAMES = ("__proto__", "constructor", "toString", "hasOwnProperty", "then", "<b>", "a\u202eb", "")
WIDTH = 900


def documents() -> list[Document]:
    """A document for each attack, in its text, its title, its id and its metadata."""
    harmless = [Document(f"harmless{n}", "A comet has a tail.", "Comets") for n in range(3)]
    hostile = [
        Document(f"{name} {text[:3_000]}", f"A comet. {text} has a tail.", f"Comet {text}", {f"key {name}": text[:50]})
        for name, text in ATTACKS.items()
    ]
    named = [Document(name or "empty", f"A comet of {name}.", name, {name or "x": name}) for name in NAMES]
    return [*harmless, *hostile, *named]


def calls(text: str) -> Action:
    """A turn of calls whose names and arguments are hostile, with hostile text around them."""
    named = [ToolCall(name, {name: text, "query": text}) for name in NAMES]
    return Action(calls=(search(f"tail {text[:500]}", limit=10).calls[0], *named[:6]), text=text, reasoning=text)


def steps() -> list[Action]:
    ranking = tuple(RankedId(document.id, justification=ALL) for document in documents()[:20])
    return [calls(ALL), calls("W" * 5_000), Action(ranking=ranking, text=ALL)]


def viewer() -> str:
    with tempfile.TemporaryDirectory() as name:
        folder, corpus, budget = Path(name), MemoryCorpus(documents()), Budget(65_536)
        with SearchAgent(corpus, ScriptedPolicy(steps()), budget=budget, trajectories=folder) as agent:
            for question in (ALL, "W" * 5_000, "__proto__"):
                agent.search(f"tail? {question}", question_id=question[:200])
        return build_page(view_data(read_all([folder])), title=ALL)


def report() -> str:
    texts = [ALL, "W" * 5_000, *NAMES]
    records = [
        replace(
            record,
            benchmark=f"{texts[number % 3]} {record.benchmark}",
            system=f"{texts[number % 3]} {record.system}",
            question=texts[number % len(texts)] + record.question,
            type=texts[number % len(texts)],
            error=ALL if record.error else None,
            broken=(ALL,),
        )
        for number, record in enumerate(made_records(12))
        if record.benchmark == "hotpotqa"
    ]
    summary = summarize(records, settings=dict(zip(texts, texts, strict=True)), problems=texts)
    return render(summary, title=ALL, links=dict.fromkeys(texts, f"javascript:{HIT}"))


def review() -> str:
    corpus = MemoryCorpus(documents())
    tasks = [
        task(
            document.id,
            document.id,
            question=f"{document.title}?",
            answer=document.text[:200],
            clues=document.text,
            type=document.title,
            domain=document.title,
            supporting=(Support(document.id, clue_quotes=(document.text[:50],), item_quotes=(document.title,)),),
            distractors=(document.id, "gone", document.title),
        )
        for document in documents()
    ]
    return review_page(tasks_on_page(tasks, corpus), ALL)


def conversation() -> str:
    messages = [{"role": "user", "content": ALL}]
    for number, text in enumerate([*ATTACKS.values(), *NAMES]):
        call = {"id": f"c{number}", "type": "function", "function": {"name": text[:60], "arguments": text[:100]}}
        messages.append({"role": "assistant", "content": text, "tool_calls": [call]})  # type: ignore[dict-item]
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"{text}\n\n" * 3})
    pruner = ContextPruner(200, strategy="bm25")
    return conversation_page(messages, model_calls(messages, pruner), ALL)


FILES = {"viewer": viewer, "report": report, "review": review, "conversation": conversation}


def expose(browser: Browser) -> None:
    """Do what a reader does: open all that opens, press all buttons that are there, follow no link."""
    browser.run(
        """for (const one of document.querySelectorAll('details')) one.open = true;
        const buttons = [...document.querySelectorAll('main button, nav button, #tasks button, .card button')];
        for (const one of buttons.slice(0, 80)) if (one.id != 'download') one.click();
        for (const one of document.querySelectorAll('details')) one.open = true;"""
    )
    browser.run("return new Promise(resolve => setTimeout(resolve, 200))")


def check(browser: Browser, own: str = "") -> None:
    """Nothing ran, nothing left, nothing is broken, and what could turn or hide text is spelled out."""
    assert browser.run("return window.pwned") is None
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not own or not url.startswith(own)] == []
    foreign = "script:not([src]):not([type]), iframe, object, embed, base, form[action], meta[http-equiv=refresh], math"
    allowed = browser.run(f"return [...document.body.querySelectorAll('{foreign}')].map(e => e.outerHTML.slice(0, 90))")
    assert [html for html in allowed if "window.pwned" in html and "data-" not in html] == []
    assert not [html for html in allowed if re.match("<(?!script)", html)]
    handlers = "[...document.querySelectorAll('*')].flatMap(e => [...e.attributes]).filter(a => /^on/.test(a.name)"
    assert browser.run(f"return {handlers} || /^\\s*(javascript|data):/i.test(a.value)).map(a => a.value)") == []
    text = browser.run("return document.body.textContent + document.title")
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert browser.run("return getComputedStyle(document.body).display") != "none"
    assert browser.run("return document.documentElement.scrollWidth") <= WIDTH
    assert browser.run("return location.host + document.baseURI.includes('evil')") in ("false", f"{own[7:]}false")


@pytest.mark.parametrize("name", FILES)
def test_a_page_file_shows_hostile_texts_as_texts(browser: Browser, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.html"
    path.write_text(FILES[name](), encoding="utf-8")
    with browser.looking(width=WIDTH):
        browser.open(path, ready="document.readyState === 'complete'")
        expose(browser)
        check(browser)
        assert HIT in browser.run("return document.body.textContent")


def test_the_search_page_shows_hostile_texts_as_texts(browser: Browser, tmp_path: Path) -> None:
    policy = ScriptedPolicy([calls(ALL), rank_all])
    with (
        SearchAgent(
            MemoryCorpus(documents()), policy, budget=Budget(65_536), trajectories=tmp_path / "trajectories"
        ) as agent,
        running(agent, title=ALL, deadline=60.0) as server,
        browser.looking(width=WIDTH),
    ):
        browser.open(server.url)
        browser.run("document.querySelector('#question').value = arguments[0]", f"tail? {ALL[:900]}")
        browser.run("document.querySelector('#ask').requestSubmit()")
        browser.wait("document.body.dataset.state === 'answered'")
        assert len(browser.texts(".card")) >= 3
        expose(browser)
        check(browser, server.url)
        browser.click("#episode a")
        browser.wait("document.documentElement.dataset.shown")
        expose(browser)
        check(browser, server.url)
        browser.run("localStorage.clear()")
