"""The review page in a real browser: what it shows, that it runs no foreign code, and how it stores judgments."""

import json
import time

import pytest

from context_agent import Document, MemoryCorpus
from context_agent.errors import DataError
from context_agent.synth_data.json_files import encode_row
from context_agent.synth_data.judgments import load_judgments
from context_agent.synth_data.review import document_text, draw_sample, segments, tasks_on_page
from context_agent.synth_data.task import Support
from context_agent.types import Chunk
from context_agent.web.review import review_page
from tests.support.tasks import task

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
TASKS = [
    task(
        "set/train/1",
        "painting",
        "painter",
        question="Where was the painter of Harbour at Dawn born?",
        answer="Norden",
        clues="A picture of a port in the morning.",
        supporting=(
            Support("painting", clue_quotes=("a port in the morning",), item_quotes=("was painted by Ilse Brandt",)),
            Support("painter", item_quotes=("came into the world in Norden", "won a prize"), contains_truth=True),
        ),
        distractors=("rival", "gone"),
    ),
    task("__proto__", "evil", question=f"What is {EVIL}?", answer=EVIL, supporting=(Support("evil"),)),
    task("third", "painting", question="Third?"),
]


@pytest.fixture(scope="module")
def corpus():
    return MemoryCorpus(
        [
            Document("painting", "Harbour at Dawn was painted by Ilse Brandt in 1901.", "Harbour at Dawn"),
            Document("painter", "Ilse Brandt came into the world in Norden.", "Ilse Brandt"),
            Document("rival", "Harbour at Dusk hangs in Norden.", "Harbour at Dusk"),
            Document("evil", f"Text {EVIL} with \u202eturned and \u0000 signs", f"Title {EVIL}"),
        ]
    )


@pytest.fixture
def sheet(browser, corpus, tmp_path):
    """The open page, with empty local storage and downloads into the test's folder."""
    page = tmp_path / "review.html"
    page.write_text(review_page(tasks_on_page(TASKS, corpus), f"Review {EVIL}"), encoding="utf-8")
    behaviour = {"behavior": "allow", "downloadPath": str(tmp_path / "downloads")}
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
    browser.open(page)
    browser.run("localStorage.clear()")
    browser.open(page)
    yield page
    browser.run("localStorage.clear()")


def read_download(folder, name):
    deadline = time.monotonic() + 120
    while not (folder / name).exists():
        assert time.monotonic() < deadline, list(folder.iterdir()) if folder.exists() else "nothing downloaded"
        time.sleep(0.02)
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


def test_a_task_is_shown_with_its_quotes_marked(browser, sheet):
    assert browser.texts(".question") == ["Where was the painter of Harbour at Dawn born?"]
    assert [text.strip() for text in browser.texts("mark.quote")] == [
        "a port in the morning",
        "was painted by Ilse Brandt",
        "came into the world in",
    ]
    assert browser.texts("article mark.truth") == ["Norden"]
    page_text = "\n".join(browser.texts("#task"))
    assert "Quote not found in it: won a prize" in page_text
    assert "Ilse Brandt (painter), marked as stating the answer" in page_text
    assert "Harbour at Dusk (rival): states the answer" in page_text
    assert "Not in the index." in browser.run("return document.querySelector('#task').textContent")


def test_keys_judge_and_move(browser, sheet):
    browser.press("a", "j", "r", "j")
    assert browser.texts("#count") == ["1 accepted, 1 rejected, 1 left"]
    assert browser.texts(".question") == ["Third?"]
    browser.press("j", "k", "k", "a")
    assert browser.texts("#count") == ["0 accepted, 1 rejected, 2 left"]
    pressed_verdict = "return document.querySelector('.verdict [aria-pressed=true]')?.dataset.verdict ?? ''"
    assert browser.run(pressed_verdict) == ""
    browser.press("r")
    assert browser.run(pressed_verdict) == "reject"
    assert "1 of 3" in browser.texts("#task")[0]
    browser.press("c")
    browser.press("ajr")
    assert browser.run("return document.activeElement.value") == "ajr"
    browser.press("\ue00c", "j")
    assert "2 of 3" in browser.texts("#task")[0]
    assert browser.texts("#count") == ["0 accepted, 2 rejected, 1 left"]


def test_nothing_foreign_runs_and_nothing_is_requested(browser, sheet):
    browser.press("j")
    assert browser.driver.title.startswith("Review </script>")
    assert EVIL in browser.texts(".question")[0]
    assert "⟨U+202E⟩turned" in browser.run("return document.querySelector('#task').textContent")
    assert browser.run("return document.querySelectorAll('#task img, #task script').length") == 0
    browser.press("a")
    assert browser.requests() == []
    assert browser.complaints() == []


def test_progress_is_kept_and_is_the_pages_own(browser, sheet, corpus, tmp_path):
    browser.press("a", "j", "j", "r")
    browser.open(sheet)
    assert browser.texts("#count") == ["1 accepted, 1 rejected, 1 left"]
    assert browser.texts(".question") == ["Third?"]
    other_page = tmp_path / "other.html"
    other_page.write_text(review_page(tasks_on_page(TASKS[:2], corpus), "Another"), encoding="utf-8")
    browser.open(other_page)
    assert browser.texts("#count") == ["0 accepted, 0 rejected, 2 left"]


def test_judgments_are_downloaded_and_continued_elsewhere(browser, sheet, tmp_path):
    browser.run("document.getElementById('judge').focus()")
    browser.press("Ann B.", "\ue00c")
    browser.press("a", "j", "r", "c")
    browser.press("not \u201cproven\u201d", "\ue00c")
    browser.click("#download")
    rows = read_download(tmp_path / "downloads", "Ann-B..jsonl")
    assert [(row["task"], row["judge"], row["verdict"], row["comment"]) for row in rows] == [
        ("set/train/1", "Ann B.", "accept", ""),
        ("__proto__", "Ann B.", "reject", "not \u201cproven\u201d"),
    ]
    judgments = load_judgments([tmp_path / "downloads" / "Ann-B..jsonl"], {item.id for item in TASKS})
    assert judgments.verdicts == {"Ann B.": {"set/train/1": True, "__proto__": False}}
    assert not judgments.problems
    browser.run("localStorage.clear()")
    browser.open(sheet)
    file = tmp_path / "more.jsonl"
    bad_lines = [
        "no json",
        encode_row({"task": "unknown", "verdict": "accept"}),
        encode_row({"task": "third", "verdict": 7}),
    ]
    file.write_text("\n".join([*map(encode_row, rows), *bad_lines]), encoding="utf-8")
    browser.driver.find_element("id", "import").send_keys(str(file))
    browser.wait("document.getElementById('status').textContent.includes('2 judgments')")
    assert browser.texts("#status") == ["2 judgments imported, 3 lines skipped."]
    assert browser.texts("#count") == ["1 accepted, 1 rejected, 1 left"]
    assert browser.run("return document.getElementById('judge').value") == "Ann B."


def test_damaged_progress_is_told_and_the_page_works(browser, sheet):
    browser.press("a")
    browser.run("for (const key of Object.keys(localStorage)) localStorage.setItem(key, '{broken')")
    browser.open(sheet)
    assert "no stored progress" in browser.texts("#status")[0]
    browser.press("r")
    assert browser.texts("#count") == ["0 accepted, 1 rejected, 2 left"]


def test_equal_tasks_give_an_equal_page(corpus):
    pages = [review_page(tasks_on_page(TASKS, corpus), "Review") for _ in range(2)]
    assert pages[0] == pages[1]
    with pytest.raises(DataError, match="has no tasks"):
        review_page([], "Review")


def test_the_sample_is_drawn_by_seed():
    tasks = [task(str(number)) for number in range(50)]
    assert draw_sample(tasks, 10, 1) == draw_sample(tasks, 10, 1) != draw_sample(tasks, 10, 2)
    assert sorted(item.id for item in draw_sample(tasks, 100, 0)) == sorted(item.id for item in tasks)


def test_a_text_is_put_together_from_overlapping_chunks():
    text = "one two three four five six"
    spans = [(0, 13), (8, 18), (10, 12), (20, 27)]
    chunks = [
        Chunk(f"d_{number}", "d", number, text[start:end], start, end, 3) for number, (start, end) in enumerate(spans)
    ]
    assert document_text(chunks) == "one two three four\nive six"


def test_segments_put_together_are_the_text():
    text = "A \U0001f600 port; the old port was rebuilt."
    parts, missing = segments(text, ["old port", "never there"], ["port"])
    assert "".join(part for part, _ in parts) == text
    assert missing == ["never there"]
    assert ("port", "truth") in parts
    assert segments("", [])[0] == []
