"""Measure the size of a viewer page with many trajectories, and the time to open it. Prints each figure with its bound.

    python benchmarks/viewer.py --data FOLDER [--count 500] [--repeats 5] [--keep FOLDER]

`--data` is a folder of sets, each with `corpus.jsonl.gz` and `queries.dev.jsonl`, as `multihop.py` reads them. The
embedded policy answers the dev questions of every set in windows of 32,768 and 4,096 tokens, until there are `--count`
trajectories. `--keep` stores them and the page in a folder, and reuses existing ones.

- `size`: the size of the page (bound 20 MB).
- `opens`: the time from the start of the navigation until the list and the first trajectory are drawn. The browser is a
  headless Chromium with an empty cache, which opens a file. Median and worst are printed (bound 2 s).
- `moves`: the time to the next trajectory and to the next turn, until the layout of the page is done (medians).
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent._support.question_files import load_questions
from context_agent.harness.trajectory_folder import read_all
from context_agent.types import Question
from context_agent.web.viewer import build_page
from context_agent.web.viewer.model import GoldQuestions, view_data

WINDOWS = (32_768, 4_096)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1600,1000")
MOVES = """
const done = arguments[arguments.length - 1];
const drawn = () => new Promise((go) => requestAnimationFrame(() => setTimeout(go)));
(async () => {
  const times = [];
  for (let step = 0; step < 30; step += 1) {
    const started = performance.now();
    const name = document.documentElement.dataset.shown;
    document.dispatchEvent(new KeyboardEvent('keydown', { key: arguments[0] }));
    while (arguments[0] === 'ArrowDown' && document.documentElement.dataset.shown === name) await drawn();
    document.body.offsetHeight;
    times.push(performance.now() - started);
  }
  done(times);
})();
"""


def main() -> None:
    """Record missing trajectories, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    parser.add_argument("--count", type=int, default=500, help="trajectories")
    parser.add_argument("--repeats", type=int, default=5, help="times that the page is opened")
    parser.add_argument("--keep", type=Path, help="folder for the trajectories and the page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = options.keep or Path(temporary)
        page = make(options.data, folder, options.count)
        print(f"machine      {platform.machine()}, {platform.python_version()}")
        print(f"size         {page.stat().st_size / 1e6:.1f} MB (bound 20)")
        opened(page, options.repeats)


def make(data: Path, folder: Path, count: int) -> Path:
    """Write a page with `count` trajectories, and return its path."""
    record(data, folder / "trajectories", count)
    questions = [question for name in sets(data) for question in load_questions(data / name / "queries.dev.jsonl")]
    started = time.perf_counter()
    view = view_data(read_all([folder / "trajectories"]), GoldQuestions(questions))
    text = build_page(view)
    seconds = time.perf_counter() - started
    read = sum(path.stat().st_size for path in folder.rglob("*.jsonl"))
    turns = [row.turns for row in view.rows]
    print(
        f"trajectories {len(view.rows)}, {read / 1e6:.0f} MB, at most {max(turns)} turns; page made in {seconds:.1f} s"
    )
    page = folder / "view.html"
    page.write_text(text, encoding="utf-8")
    return page


def record(data: Path, folder: Path, count: int) -> None:
    """Record trajectories until the folder has `count` of them."""
    missing = count - len(list(folder.rglob("*.jsonl")))
    for name in sets(data):
        if missing <= 0:
            return
        corpus = MemoryCorpus(list(documents(data / name)), embedder="static")
        questions = load_questions(data / name / "queries.dev.jsonl")
        for window in WINDOWS:
            missing -= answer(corpus, questions[:missing], window, folder / f"{name}-{window}")


def answer(corpus: MemoryCorpus, questions: list[Question], window: int, folder: Path) -> int:
    """Answer the questions in one window, and return the number of questions."""
    with SearchAgent(corpus, budget=window, trajectories=folder) as agent:
        for question in questions:
            agent.search(question.question, question_id=question.id)
    return len(questions)


def sets(data: Path) -> list[str]:
    """Return the names of the sets in a folder."""
    return sorted(path.parent.name for path in data.glob("*/corpus.jsonl.gz"))


def documents(folder: Path) -> Iterator[Document]:
    """Yield the documents of a set."""
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            yield Document(str(row["id"]), row["text"], row["title"])


def opened(page: Path, repeats: int) -> None:
    """Print how long it takes to open the page, and to move in it."""
    times, steps = [], {}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            driver = chromium(profile)
            try:
                driver.get(page.resolve().as_uri())
                while (ready := driver.execute_script("return document.documentElement.dataset.ready")) is None:
                    time.sleep(0.01)
                times.append(float(ready) / 1000)
                for key in ("ArrowRight", "ArrowDown"):
                    steps[key] = statistics.median(driver.execute_async_script(MOVES, key))
            finally:
                driver.quit()
    print(f"opens        median {statistics.median(times):.2f} s, worst {max(times):.2f} s (bound 2)")
    print(f"moves        trajectory {steps['ArrowDown']:.0f} ms, turn {steps['ArrowRight']:.0f} ms")


def chromium(profile: str) -> Chrome:
    """Return a headless Chromium with an empty profile."""
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    return Chrome(options=options, service=Service(shutil.which("chromedriver")))


if __name__ == "__main__":
    main()
