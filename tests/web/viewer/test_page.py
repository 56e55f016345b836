"""The viewer's page in a real Chromium: what it shows, how it is used, and that documents cannot run code."""

import json
import re
import shutil
import time

import pytest
from selenium.webdriver.common.keys import Keys

from context_agent.harness.trajectory_folder import read_all
from context_agent.testing.actions import prune, rank, restore, search
from context_agent.types import Question
from context_agent.web.viewer import build_page
from context_agent.web.viewer.model import GoldQuestions, view_data
from tests.support import episodes


def page_of(folder, gold=(), name="view.html"):
    """Write the page of a folder of trajectories next to the folder."""
    path = folder.parent / f"{folder.name}-{name}"
    path.write_text(build_page(view_data(read_all([folder]), GoldQuestions(gold))), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def long_page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    episodes.long(folder)
    return page_of(folder)


SIDE_BY_SIDE = """const [turns, ranking] = ['.turnmap', '.ranking'].map(
    name => document.querySelector(name).getBoundingClientRect());
return turns.right <= ranking.left && Math.abs(turns.top - ranking.top) < 400;"""


def strip(browser):
    """The blocks of the open turn's strip: key to state."""
    return {
        int(key): state
        for key, state in browser.run(
            """return [...document.querySelectorAll('.strip .segment[data-key]')]
            .map(e => [e.dataset.key, e.dataset.state])"""
        )
    }


def shares(browser, selector=""):
    """The widths of the open turn's segments, in percent of the strip."""
    return browser.run(
        "return [...document.querySelectorAll('.strip .segment' + arguments[0])].map(e => parseFloat(e.style.width))",
        selector,
    )


def turn(browser, number):
    browser.click(f".turnmap li:nth-child({number}) button")
    return strip(browser)


def listed_questions(browser):
    return browser.texts(".item .question")


def test_a_pruned_block_fades_in_its_turn_is_gone_after_it_and_comes_back_when_restored(browser, corpus, folder):
    path = episodes.edited(corpus, folder)
    (edit,) = [
        line for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == "edit" and line["pruned"]
    ]
    assert edit["pruned"] == [0]
    browser.open(page_of(folder))
    assert strip(browser)[0] == "in view"
    assert turn(browser, 2) == {0: "leaving", 1: "in view", 2: "in view"}
    assert 0 not in turn(browser, 3)
    assert turn(browser, 4)[0] == "restored"
    assert turn(browser, 5)[0] == "in view"


def test_a_summary_is_in_the_strip_and_the_replaced_passages_fade(browser, corpus, folder):
    episodes.summarized(corpus, folder)
    browser.open(page_of(folder))
    assert turn(browser, 2) == {0: "leaving", 1: "leaving", 2: "in view", 3: "in view"}
    (bill,) = browser.texts(".bill")
    assert "Summarized 2 passages" in bill
    assert "The rivers meet below the bridges." in bill
    assert turn(browser, 4)[1] == "restored"
    assert turn(browser, 5)[3] == "leaving"


def test_the_page_opens_with_a_sentence_and_the_ranking_beside_the_turns(browser, corpus, folder):
    episodes.edited(corpus, folder)
    with browser.looking(width=1400):
        browser.open(page_of(folder))
        assert browser.texts(".story") == [
            "Searched 2 times, read 5 passages, dropped 1, brought 1 back, ended with 1 document."
        ]
        assert browser.run(SIDE_BY_SIDE)
    with browser.looking(width=700):
        assert not browser.run(SIDE_BY_SIDE)


def test_gold_that_was_restored_is_no_loss(browser, corpus, folder):
    first, second, *_ = corpus.search(episodes.QUESTION)
    gold = [Question("q", episodes.QUESTION, gold=(first.chunk.document_id,))]
    episodes.edited(corpus, folder)
    steps = [search(episodes.QUESTION, limit=3), prune(first.chunk.id), rank(second.chunk.id)]
    episodes.record(corpus, steps, folder)
    browser.open(page_of(folder, gold))
    badges = [text for text in browser.texts(".item .badge") if "gold" in text and "★" not in text]
    assert sorted(badges) == ["1 gold lost by pruning", "1 gold pruned and restored"]
    assert browser.texts(".item .badge.bad") == ["1 gold lost by pruning"]


def test_the_strip_is_as_long_as_the_view_and_shows_the_thresholds(browser, corpus, folder):
    first = corpus.search(episodes.QUESTION)[0].chunk.id
    episodes.record(corpus, [search(episodes.QUESTION), prune(first), restore(first), rank(first)], folder, window=1024)
    (loaded,) = read_all([folder]).loaded
    browser.open(page_of(folder))
    for number, view in enumerate(list(loaded.trajectory.views())[1:], start=1):
        turn(browser, number)
        assert sum(shares(browser, ":not(.leaving)")) / 100 * 1024 == pytest.approx(view.tokens, abs=0.5)
    marks = browser.run("return [...document.querySelectorAll('.strip > .threshold')].map(e => e.style.left)")
    assert marks == ["50%", "75%", "100%"]


def test_the_strip_can_be_fitted_to_what_is_in_view(browser, corpus, folder):
    episodes.edited(corpus, folder)
    browser.open(page_of(folder))
    turn(browser, 2)
    assert sum(shares(browser)) < 90
    browser.click("button.toggle")
    assert sum(shares(browser)) == pytest.approx(100, abs=0.1)
    assert browser.run("return document.activeElement.getAttribute('aria-pressed')") == "true"
    turn(browser, 3)
    assert sum(shares(browser)) == pytest.approx(100, abs=0.1)


def test_calls_show_arguments_results_time_mistakes_and_the_edit_its_bill(browser, corpus, folder):
    episodes.edited(corpus, folder)
    browser.open(page_of(folder))
    text = browser.run("return document.querySelector('.turn').innerText")
    assert "search_corpus" in text
    assert episodes.QUESTION in text
    assert "3 passages" in text
    assert "pruned in turn 2" in text
    turn(browser, 2)
    (bill,) = browser.texts(".bill p")
    assert re.search(r"\d+ tokens freed; \d+ tokens behind the first change lose their cached prefix", bill)
    ranking = browser.run("return document.querySelector('.ranking').innerText")
    assert "Final ranking, 1 document" in ranking
    assert "Ids dropped from the ranking: 1 unseen" in ranking


def test_a_passage_is_unpacked_when_it_is_opened(browser, corpus, folder):
    episodes.edited(corpus, folder)
    chunk = corpus.search(episodes.QUESTION)[0].chunk
    browser.open(page_of(folder))
    assert chunk.text not in browser.run("return document.body.textContent")
    browser.click("details.passage summary")
    browser.wait("document.querySelector('details.passage pre').textContent")
    assert browser.run("return document.querySelector('details.passage pre').textContent") == chunk.text


def test_a_lane_of_countless_steps_has_few_cells(browser, corpus, folder):
    main = episodes.swarm(corpus, folder)[0]
    record = re.sub(r'"steps": ?\d+', '"steps": 1000000000', main.read_text(encoding="utf-8"))
    shutil.rmtree(folder)
    folder.mkdir()
    main.write_text(record, encoding="utf-8")
    browser.open(page_of(folder))
    browser.wait("document.querySelectorAll('.lanelist li').length === 3")
    assert browser.run("return document.querySelectorAll('.lanelist .cell').length") == 600
    assert browser.complaints() == []


def test_sub_agents_have_lanes_and_a_lane_leads_to_its_own_trajectory_and_back(browser, corpus, folder):
    episodes.swarm(corpus, folder)
    browser.open(page_of(folder))
    rows = browser.texts(".item .question")
    assert [row.startswith("↳") for row in rows].count(True) == 2
    main = next(index for index, row in enumerate(rows) if not row.startswith("↳"))
    browser.run("document.querySelectorAll('.item button')[arguments[0]].click()", main)
    browser.wait("document.querySelectorAll('.lanelist li').length === 3")
    browser.wait("document.querySelectorAll('.lanelist .cell svg').length === 4")
    lanes = browser.run(
        """return [...document.querySelectorAll('.lanelist li')].map(lane =>
        [lane.querySelectorAll('.cell:not(.idle)').length, lane.querySelectorAll('button').length])"""
    )
    assert lanes == [[2, 1], [2, 1], [0, 0]]
    assert "Searchers, 4 critical steps" in browser.run("return document.querySelector('.lanes').innerText")
    browser.click(".lanelist li:nth-child(2) button")
    browser.wait("document.querySelector('h2').innerText === 'rivers'")
    browser.click("article > p button")
    browser.wait(f"document.querySelector('h2').innerText === {json.dumps(episodes.QUESTION)}")
    assert browser.complaints() == []


def test_gold_is_marked_where_it_is_known(browser, corpus, folder):
    episodes.edited(corpus, folder)
    ranked_ids = [hit.chunk.document_id for hit in corpus.search(episodes.QUESTION)[:3]]
    gold = Question("other", f" {episodes.QUESTION.upper()} ", answer="the Lume", gold=(ranked_ids[1], "nowhere"))
    browser.open(page_of(folder, [gold]))
    marked = browser.run(
        "return [...document.querySelectorAll('.strip .segment.gold')].map(e => [e.dataset.key, e.innerText])"
    )
    assert marked == [["1", "★S"]]
    assert "1 of 2 seen, 0 of 2 in the ranking. Never shown: nowhere. Answer: the Lume" in " ".join(
        browser.texts("article p")
    )
    assert browser.run("return document.querySelectorAll('.thin path.gold').length") == 5


def test_nothing_in_a_document_runs_and_the_page_asks_no_network(browser, folder):
    episodes.hostile(folder)
    browser.open(page_of(folder))
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    browser.wait("[...document.querySelectorAll('details.passage pre')].every(e => e.textContent)")
    for number in (2, 1):
        turn(browser, number)
    for segment in range(browser.run("return document.querySelectorAll('.strip .segment').length")):
        browser.run("document.querySelectorAll('.strip .segment')[arguments[0]].click()", segment)
    time.sleep(0.2)
    assert browser.run("return window.pwned") is None
    assert (
        browser.run("return document.querySelectorAll('#view script, #view img, #view a, #view svg[onload]').length")
        == 0
    )
    body_text = browser.run("return document.body.textContent")
    assert "<script>window.pwned = 'text'</script>" in body_text
    assert "⟨U+202E⟩turned" in body_text
    assert not re.search("[\u202e\x1b\x07]", body_text)
    assert browser.complaints() == []
    assert browser.requests() == []


def test_the_policy_of_the_page_stops_what_would_run_and_what_would_leave(browser, corpus, folder):
    """The check above could pass by luck. Here a script and requests are really tried."""
    episodes.edited(corpus, folder)
    browser.open(page_of(folder))
    browser.run(
        """const script = document.createElement('script'); script.textContent = "window.pwned = 1";
        document.body.append(script);
        document.body.insertAdjacentHTML('beforeend', '<b onclick="window.pwned = 2">x</b><img src="http://localhost:9/x">');
        document.body.lastElementChild.previousElementSibling.click();
        fetch('http://localhost:9/y').catch(() => null);"""
    )
    time.sleep(0.2)
    assert browser.run("return window.pwned") is None
    assert browser.requests() == []
    assert len(browser.complaints()) >= 3


def test_an_episode_of_128_turns_is_whole_and_quick_to_move_through(browser, long_page):
    browser.open(long_page)
    assert browser.run("return document.querySelectorAll('.turnmap li').length") == 128
    milliseconds = browser.run(
        """const started = performance.now();
        for (let at = 0; at < 40; at += 1) {
          document.querySelectorAll('.turnrow')[at * 3].click();
          document.body.offsetHeight;
        }
        return (performance.now() - started) / 40;"""
    )
    assert milliseconds < 150, f"{milliseconds:.0f} ms a turn"
    kinds = browser.run(
        "return [...new Set([...document.querySelectorAll('.thin path')].map(e => e.className.baseVal))]"
    )
    assert {"question", "action", "search", "grep", "read", "usage", "leaving search"} <= set(kinds)
    browser.click(".turnmap li:nth-child(3) button")
    assert "mistake: " in " ".join(browser.texts(".call.mistaken"))
    assert browser.complaints() == []


def test_keys_go_through_trajectories_and_turns_and_the_address_keeps_the_place(browser, corpus, folder):
    for number in range(3):
        episodes.edited(corpus, folder, question=f"{episodes.QUESTION} {number}", id=str(number))
    path = page_of(folder)
    browser.open(path)
    names = listed_questions(browser)
    assert browser.texts("h2") == [names[0]]
    browser.press(Keys.ARROW_DOWN)
    browser.wait(f"document.querySelector('h2').innerText === {json.dumps(names[1])}")
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert browser.texts(".turnhead h3") == ["Turn 3 of 5"]
    browser.press(Keys.ARROW_LEFT)
    address = browser.run("return location.hash")
    assert address.endswith("&turn=2")
    browser.open(path, address)
    assert browser.texts("h2") == [names[1]]
    assert browser.texts(".turnhead h3") == ["Turn 2 of 5"]
    browser.press("/")
    assert browser.run("return document.activeElement.name") == "text"
    browser.press(Keys.ARROW_DOWN)
    assert browser.texts("h2") == [names[1]]


def test_within_the_strip_the_arrows_go_from_segment_to_segment(browser, corpus, folder):
    episodes.edited(corpus, folder)
    browser.open(page_of(folder))
    browser.run("document.querySelector('.strip .segment').focus()")
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert browser.run("return document.activeElement.dataset.key") == "0"
    assert browser.texts(".turnhead h3") == ["Turn 1 of 5"]
    browser.press(Keys.ENTER)
    browser.wait("document.querySelector('.segmentshown pre')?.textContent")
    assert browser.run("return document.querySelectorAll('.strip .segment[tabindex=\"0\"]').length") == 1


@pytest.fixture
def mixed(corpus, folder):
    """The page of four trajectories that differ in everything that can be filtered."""
    first = corpus.search(episodes.QUESTION)[0].chunk
    episodes.edited(corpus, folder / "a", id="one")
    episodes.record(corpus, [search("comets"), rank("nothing")], folder / "a", question="about comets?", id="two")
    episodes.record(corpus, [search(episodes.QUESTION), rank(first.document_id)], folder / "b", id="one")
    steps = [search("operas"), prune("unknown"), rank(corpus.search("operas")[0].chunk.id)]
    episodes.record(corpus, steps, folder / "b", question="about operas?", id="four")
    return page_of(folder, [Question("one", episodes.QUESTION, gold=(first.document_id,))])


def set_filter(browser, name, value):
    browser.run(
        """const field = document.querySelector(`.filters [name=${arguments[0]}]`);
        if (field.type === 'checkbox') field.checked = arguments[1]; else field.value = arguments[1];
        for (const name of ['input', 'change']) field.dispatchEvent(new Event(name, { bubbles: true }));""",
        name,
        value,
    )


@pytest.mark.parametrize(
    ("name", "value", "left"),
    [
        ("text", "operas", ["about operas?"]),
        ("text", "ABOUT comets", ["about comets?"]),
        ("text", "no such thing", []),
        ("stop", "no_ranking", ["about comets?"]),
        ("run", "b", [episodes.QUESTION, "about operas?"]),
        ("least", "3", [episodes.QUESTION]),
        ("most", "1", ["about comets?", episodes.QUESTION]),
        ("recall", "99", []),
        ("recall", "100", [episodes.QUESTION, episodes.QUESTION]),
        ("goldPruned", True, [episodes.QUESTION]),
        ("mistakes", True, ["about operas?"]),
        ("problems", True, []),
    ],
)
def test_the_list_can_be_filtered(browser, mixed, name, value, left):
    browser.open(mixed)
    set_filter(browser, name, value)
    assert sorted(listed_questions(browser)) == sorted(left)
    assert browser.texts(".count") == [f"{len(left)} of 4 trajectories"]
    set_filter(browser, name, False if value is True else "")
    assert len(listed_questions(browser)) == 4


def test_the_list_can_be_sorted_and_what_has_no_value_comes_last(browser, mixed):
    browser.open(mixed)
    set_filter(browser, "order", "turns")
    assert listed_questions(browser)[-1] == episodes.QUESTION
    set_filter(browser, "descending", True)
    assert listed_questions(browser)[0] == episodes.QUESTION
    set_filter(browser, "order", "gold_pruned")
    assert listed_questions(browser)[:2] == [episodes.QUESTION, episodes.QUESTION]


def test_two_trajectories_on_the_same_question_stand_side_by_side(browser, mixed):
    browser.open(mixed)
    browser.run(
        "[...document.querySelectorAll('.item button')].find(e => e.innerText.includes(arguments[0])).click()",
        episodes.QUESTION,
    )
    browser.wait(f"document.querySelector('h2').innerText === {json.dumps(episodes.QUESTION)}")
    assert browser.run("return document.querySelector('optgroup').label") == "The same question"
    browser.click(".partner button")
    browser.wait("document.querySelectorAll('article').length === 2")
    rows = dict(zip(browser.texts(".differences tbody th"), browser.texts(".differences tbody tr"), strict=True))
    assert rows["turns ≠"].split() == ["turns", "≠", "4", "1"]
    assert any("★ gold" in name for name in rows)
    assert any(text.startswith("Documents seen only by b") for text in browser.texts(".differences summary"))
    assert "search painters and gardens 2" in browser.texts(".differences code")
    address = browser.run("return location.hash")
    browser.open(mixed, address)
    assert len(browser.texts("article h2")) == 2
    assert browser.complaints() == []


def compare(browser):
    """Open the first of the other questions next to the open trajectory."""
    browser.run(
        """const select = document.querySelector('select[name=partner]');
        select.value = select.querySelector('optgroup[label=Others] option').value;
        select.dispatchEvent(new Event('change'));"""
    )
    browser.wait("document.querySelectorAll('article').length === 2")


def test_any_two_can_be_compared_by_hand(browser, mixed):
    browser.open(mixed)
    compare(browser)
    first, second = browser.texts("article h2")
    assert first != second


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_fits_narrow_and_wide_windows_and_can_be_read_in_light_and_dark(browser, mixed, width, dark):
    with browser.looking(width=width, dark=dark, still=True):
        browser.open(mixed)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        assert browser.run(CONTRAST) == []


@pytest.mark.parametrize("width", [400, 1600])
def test_a_comparison_of_long_texts_fits_too(browser, corpus, folder, width):
    episodes.hostile(folder / ("a-run-with-a-long-name" * 3))
    episodes.edited(corpus, folder / "b")
    with browser.looking(width=width):
        browser.open(page_of(folder))
        compare(browser)
        assert browser.run("return document.documentElement.scrollWidth") <= width


CONTRAST = """
const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const ground = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const found = numbers(getComputedStyle(at).backgroundColor);
    if (found.length < 4 || found[3] > 0) return found;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll('body *')].filter((node) =>
  [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()) && node.checkVisibility()
  && !node.closest('script, option, button:disabled')).map((node) => {
    const [one, other] = [light(numbers(getComputedStyle(node).color)), light(ground(node))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    return [node.className, node.textContent.slice(0, 20), ratio];
  }).filter(([, , ratio]) => ratio < 4.5);
"""


def test_every_control_has_an_accessible_name_and_open_items_are_marked(browser, mixed):
    browser.open(mixed)
    nameless = browser.run(
        """return [...document.querySelectorAll('button, input, select')].filter(e =>
        !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label')?.textContent.trim())).length"""
    )
    assert nameless == 0
    assert browser.run("return document.querySelectorAll('.item [aria-current]').length") == 1
    assert browser.run("return document.querySelectorAll('.turnrow[aria-current]').length") == 1
    assert browser.run("return document.querySelectorAll('div[onclick], span[onclick]').length") == 0


def test_a_cut_file_is_shown_and_what_cannot_be_shown_is_named(browser, corpus, folder):
    path = episodes.edited(corpus, folder)
    lines = path.read_text().splitlines(keepends=True)
    newer = json.loads(lines[0]) | {"schema": 99}
    (folder / "newer.jsonl").write_text(json.dumps(newer) + "\n" + "".join(lines[1:]))
    (folder / "cut.jsonl").write_text("".join(lines[:6]) + lines[6][:40])
    (folder / "notes.txt").write_text("x")
    shutil.copy(path, folder / "copy.jsonl")
    browser.open(page_of(folder))
    assert browser.texts(".count") == ["3 of 3 trajectories"]
    (problems,) = browser.texts("details.problems")
    assert "newer.jsonl" in problems
    assert "schema 99" in problems
    assert "1 other file in the folders is no trajectory" in " ".join(browser.texts("header p"))
    set_filter(browser, "problems", True)
    browser.click(".item button")
    browser.wait("document.querySelector('article .problems')")
    assert "no end: it was cut or is still being written" in " ".join(browser.texts("article .problems"))


def test_trajectories_with_the_same_id_have_addresses_of_their_own(browser, corpus, folder):
    path = episodes.edited(corpus, folder / "a")
    (folder / "b").mkdir()
    shutil.copy(path, folder / "b")
    page = page_of(folder)
    browser.open(page)
    browser.press(Keys.ARROW_DOWN)
    browser.wait("document.querySelector('.item:nth-child(2) [aria-current]')")
    address = browser.run("return location.hash")
    browser.open(page, address)
    assert browser.texts(".item [aria-current] .runname") == ["b"]


def test_a_trajectory_that_does_not_replay_is_shown_with_the_reason(browser, corpus, folder):
    path = episodes.edited(corpus, folder)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    edit = next(line for line in lines if line["kind"] == "edit")
    edit["pruned"] = [77]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    browser.open(page_of(folder))
    (problem,) = browser.texts("article .problems")
    assert "does not replay" in problem
    assert "77" in problem
    assert len(browser.texts(".turnmap li")) == 5


def test_many_trajectories_share_their_texts_and_only_rows_in_sight_exist(browser, folder):
    path = episodes.long(folder, turns=20)
    lines = path.read_text().splitlines(keepends=True)
    header = json.loads(lines[0])
    for number in range(499):
        copy = header | {"id": f"copy-{number}", "question": f"question {number}?"}
        (folder / f"{number}.jsonl").write_text(json.dumps(copy) + "\n" + "".join(lines[1:]))
    page = page_of(folder)
    assert page.stat().st_size < 20e6
    browser.open(page)
    assert browser.texts(".count") == ["500 of 500 trajectories"]
    assert browser.run("return document.querySelectorAll('.item').length") < 60
    browser.run("document.querySelector('.listbox').scrollTop = 1e9")
    browser.wait("[...document.querySelectorAll('.item')].some(e => e.getAttribute('aria-posinset') === '500')")
