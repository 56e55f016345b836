"""Check a bank of questions, write its candidates on sheets for judges, and read the judges' grades.

    python benchmarks/bank.py check BANK ...
    python benchmarks/bank.py pools BANK ... --out SHEETS [--limit N] [--split train]
    python benchmarks/bank.py grades BANK ... --sheets SHEETS [--write]

A bank is a folder with a folder for each corpus: `about.json`, `corpus.jsonl.gz` (`id`, `title`, `text`) and
`questions.jsonl` (`id`, `question`, `answer`, `gold`, `type`, `style`, `split`).

`check` prints every fault of the format, and the number of questions by type, style and split. If there is a fault, it
exits with 1.

`pools` writes sheets for judges, of about 25 kB each. Each question is followed by passages in random order: its gold
documents, and the best passages of BM25, the static embedding and MiniLM. The gold documents are not marked. A passage
is shortened to the part that the reader would see. The questions of all corpora are mixed, so the first sheets cover
every corpus. Questions that already have labels are left out. If you run it again with the same folder, it adds the
questions that are not in the folder yet.

A judge writes `sheet-001.NAME.txt` beside `sheet-001.txt`. For each question it has a line `number: 2 0 1 ...`, with a
grade for each passage in order. Grade 2: the passage answers the question, alone or as a part that is needed. Grade 1:
it is related, or gives a partial answer. Grade 0: neither. Several judges may grade one sheet.

`grades` prints how often the judges disagree with the gold documents and with each other. With `--write`, it writes
`labels.jsonl.gz` beside the questions. A row has the question's `id` and its `grades`, which map a document to its
grade. If judges differ, the lowest grade counts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from context_agent.policies.bridge.candidates import AnalyzedPassage, WordWeights, analyze_question
from context_agent.policies.bridge.reader import ReaderInput
from context_agent.retrieval.embedders import Embedder, load_embedder
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.types import Document

TYPES = frozenset(
    "lookup paraphrase hops comparison coverage time who code table abbreviation nothing".split()
)  # fmt: skip
STYLES = frozenset("question keywords error follow-up situation".split())
SPLITS = frozenset({"train", "dev", "test"})
ABOUT = frozenset({"name", "domain", "language", "source", "license", "written_by"})
MOST_GOLD = 12
FEWEST_WORDS, MOST_WORDS = 20, 350
PASSAGES, OTHERS = 8, 4
"""The number of passages for a question on a sheet, and the minimum number of them that are not gold."""
DEPTH = 10
"""The number of passages that each retriever proposes."""
SHEET_BYTES = 25_000
KEY = "key.jsonl"
"""The file in a folder of sheets that maps each number to its corpus, question and documents."""
_ANSWER = re.compile(r"\s*(\d+)\s*[:.]\s*([012](?:[\s,]+[012])*)\s*")

Grades = dict[str, int]
"""A mapping from a document's id to its grade."""


@dataclass(frozen=True)
class BankCorpus:
    """The folder of one corpus of a bank."""

    folder: Path

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @cached_property
    def documents(self) -> list[dict[str, str]]:
        """The rows of the corpus file."""
        with gzip.open(self.folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    @cached_property
    def questions(self) -> list[dict[str, Any]]:
        """The rows of the question file."""
        text = (self.folder / "questions.jsonl").read_text("utf-8")
        return [json.loads(line) for line in text.split("\n") if line]

    def labels(self) -> dict[str, Grades]:
        """Return the judges' grades by question. If there are no grades, return an empty mapping."""
        file = self.folder / "labels.jsonl.gz"
        if not file.is_file():
            return {}
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            return {row["id"]: row["grades"] for row in map(json.loads, lines)}


def corpora_of(banks: Iterable[Path]) -> list[BankCorpus]:
    """Return the complete corpora of the banks, in order of their names."""
    folders = {file.parent.name: file.parent for bank in banks for file in bank.glob("*/questions.jsonl")}
    return [BankCorpus(folder) for _, folder in sorted(folders.items()) if (folder / "corpus.jsonl.gz").is_file()]


def faults(corpus: BankCorpus) -> Iterator[str]:
    """Yield a sentence for each fault of the corpus."""
    about = json.loads((corpus.folder / "about.json").read_text("utf-8"))
    if missing := ABOUT - about.keys():
        yield f"about.json lacks {', '.join(sorted(missing))}"
    if about.get("name") != corpus.name:
        yield f"about.json has the name {about.get('name')!r}"
    yield from _repeats("document id", (row["id"] for row in corpus.documents))
    for row in corpus.documents:
        if row.keys() != {"id", "title", "text"} or not all(isinstance(value, str) for value in row.values()):
            yield f"document {row['id']!r} has the fields {sorted(row)}; it needs id, title and text, each a string"
        elif not row["text"].strip():
            yield f"document {row['id']!r} has no text"
    yield from _repeats("question id", (row["id"] for row in corpus.questions))
    yield from _repeats("question", (" ".join(row["question"].lower().split()) for row in corpus.questions))
    known = {row["id"] for row in corpus.documents}
    for row in corpus.questions:
        yield from (f"question {row['id']!r} {fault}" for fault in _question_faults(row, known))
    used = {split: _gold_of(corpus.questions, split) for split in SPLITS}
    if shared := used["dev"] & (used["train"] | used["test"]):
        yield f"questions of dev share gold with others: {', '.join(sorted(shared)[:5])}"


def _question_faults(row: Mapping[str, Any], known: set[str]) -> Iterator[str]:
    for name, allowed in (("type", TYPES), ("style", STYLES), ("split", SPLITS)):
        if row.get(name) not in allowed:
            yield f"has the {name} {row.get(name)!r}; it must be one of {', '.join(sorted(allowed))}"
    gold = row["gold"]
    if unknown := set(gold) - known:
        yield f"names gold that the corpus lacks: {', '.join(sorted(unknown)[:5])}"
    if len(gold) != len(set(gold)) or len(gold) > MOST_GOLD:
        yield f"has {len(gold)} gold documents; at most {MOST_GOLD} different ones are allowed"
    if (row["type"] == "nothing") != (not gold) or bool(row["answer"]) != bool(gold):
        yield "must have gold and an answer, or the type `nothing` and neither"
    if not row["question"].strip():
        yield "is empty"


def _repeats(what: str, values: Iterable[str]) -> Iterator[str]:
    return (f"the {what} {value!r} occurs {count} times" for value, count in Counter(values).items() if count > 1)


def _gold_of(questions: Iterable[Mapping[str, Any]], split: str) -> set[str]:
    return {document for row in questions if row.get("split") == split for document in row["gold"]}


def check(options: argparse.Namespace) -> int:
    """Print faults and counts. If there is a fault, return 1."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("type", "style", "split")}
    total = documents = 0
    print(f"{'corpus':28} documents  outside 20..350 words  questions  train/dev/test  gold a question")
    found: list[str] = []
    for corpus in corpora_of(options.banks):
        found += (f"{corpus.name}: {fault}" for fault in faults(corpus))
        questions = corpus.questions
        for name, counter in counts.items():
            counter.update(str(row.get(name)) for row in questions)
        splits = Counter(row.get("split") for row in questions)
        sizes = [len(row["text"].split()) for row in corpus.documents]
        outside = sum(not FEWEST_WORDS <= size <= MOST_WORDS for size in sizes)
        gold = np.mean([len(row["gold"]) for row in questions if row["gold"]] or [0])
        shares = "/".join(str(splits[name]) for name in ("train", "dev", "test"))
        print(f"{corpus.name:28} {len(sizes):9}  {outside:21}  {len(questions):9}  {shares:>14}  {gold:15.2f}")
        total, documents = total + len(questions), documents + len(sizes)
    print(f"{'all':28} {documents:9}  {'':21}  {total:9}")
    for name, counter in counts.items():
        print(f"{name}: " + ", ".join(f"{value} {count}" for value, count in counter.most_common()))
    for fault in found:
        print(fault, file=sys.stderr)
    return bool(found)


class Candidates:
    """A source of candidate passages from one corpus: the best of BM25, the static embedding and other embedders."""

    def __init__(self, corpus: BankCorpus, embedders: Sequence[Embedder]) -> None:
        rows = corpus.documents
        self.passages = {row["id"]: AnalyzedPassage(row["title"], row["text"]) for row in rows}
        self._corpus = MemoryCorpus([Document(row["id"], row["text"], row["title"]) for row in rows], embedder="static")
        self._owner = [chunk.document_id for chunk in self._corpus.chunks]
        texts = [chunk.indexed_text for chunk in self._corpus.chunks]
        self._dense = [(embedder, embedder.embed_documents(texts)) for embedder in embedders]
        self._weights = WordWeights(self._corpus)

    def reader_input(self, question: str) -> ReaderInput:
        """Return the `ReaderInput` that shortens the passages for a question."""
        return ReaderInput(analyze_question(question, self._weights))

    def best(self, question: str) -> list[str]:
        """Return the ids of documents, ordered by their best rank in any of the rankings."""
        rankings = [self._found(retriever.search(question, 3 * DEPTH)) for retriever in self._corpus.retrievers]
        for embedder, vectors in self._dense:
            order = np.argsort(-(vectors @ embedder.embed_query(question)), kind="stable")[: 3 * DEPTH]
            rankings.append(list(dict.fromkeys(self._owner[row] for row in order)))
        ranks: dict[str, int] = {}
        for ranking in rankings:
            for rank, document in enumerate(ranking[:DEPTH]):
                ranks[document] = min(ranks.get(document, DEPTH), rank)
        return sorted(ranks, key=ranks.__getitem__)

    def _found(self, hits: Sequence[tuple[str, float]]) -> list[str]:
        return list(dict.fromkeys(chunk.document_id for chunk in self._corpus.get([chunk_id for chunk_id, _ in hits])))


def write_pools(options: argparse.Namespace) -> int:
    """Write sheets for the questions that have no grades and are not in the folder yet."""
    options.out.mkdir(parents=True, exist_ok=True)
    key_file, draw = options.out / KEY, random.Random(options.seed)
    known = list(_read_key(options.out))
    done = {(row["corpus"], row["id"]) for row in known}
    embedders = [load_embedder(spec) for spec in options.embedder.split(",") if spec]
    blocks: list[tuple[dict[str, Any], str]] = []
    for corpus in corpora_of(options.banks):
        questions = [row for row in corpus.questions if options.split in ("all", row["split"])]
        graded = corpus.labels()
        questions = [row for row in questions if row["id"] not in graded and (corpus.name, row["id"]) not in done]
        if not questions:
            continue
        candidates = Candidates(corpus, embedders)
        chosen = draw.sample(questions, len(questions))[: options.limit]
        blocks += [_block(corpus.name, row, candidates, draw) for row in chosen]
        print(f"{corpus.name}: {len(chosen)} questions", flush=True)
    draw.shuffle(blocks)
    sheet, room, lines = max((row["sheet"] for row in known), default=0), 0, []
    with key_file.open("a", encoding="utf-8") as keys:
        for number, (entry, text) in enumerate(blocks, start=1 + max((row["number"] for row in known), default=0)):
            if room < len(text.encode()):
                _write_sheet(options.out, sheet, lines)
                sheet, room, lines = sheet + 1, SHEET_BYTES, []
            room -= len(text.encode())
            lines.append(f"### {number}\n{text}")
            keys.write(json.dumps({"number": number, "sheet": sheet, **entry}, ensure_ascii=False) + "\n")
    _write_sheet(options.out, sheet, lines)
    print(f"{len(blocks)} questions; the last sheet is {_sheet_file(options.out, sheet).name}")
    return 0


def _block(
    name: str, row: Mapping[str, Any], candidates: Candidates, draw: random.Random
) -> tuple[dict[str, Any], str]:
    """Return the key entry of a question, and its text on a sheet."""
    gold = list(row["gold"])
    others = [document for document in candidates.best(row["question"]) if document not in gold]
    documents = gold + others[: max(PASSAGES - len(gold), OTHERS)]
    draw.shuffle(documents)
    reader_input = candidates.reader_input(row["question"])
    excerpts = (" ".join(reader_input.excerpt(candidates.passages[document]).split()) for document in documents)
    lines = [f"Question: {' '.join(row['question'].split())}"]
    lines += [f"{place}) {text}" for place, text in enumerate(excerpts, start=1)]
    return {"corpus": name, "id": row["id"], "documents": documents}, "\n".join(lines) + "\n\n"


def _write_sheet(folder: Path, sheet: int, lines: Sequence[str]) -> None:
    if lines:
        _sheet_file(folder, sheet).write_text("".join(lines), encoding="utf-8")


def _sheet_file(folder: Path, sheet: int) -> Path:
    return folder / f"sheet-{sheet:03}.txt"


def _read_key(folder: Path) -> Iterator[dict[str, Any]]:
    if (file := folder / KEY).is_file():
        with file.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def read_grades(folder: Path, report: Callable[[str], None]) -> dict[int, list[list[int]]]:
    """Return the lists of grades that judges gave to each number. Lines that cannot be read are reported."""
    sizes = {row["number"]: (row["sheet"], len(row["documents"])) for row in _read_key(folder)}
    given: dict[int, list[list[int]]] = defaultdict(list)
    for file in sorted(folder.glob("sheet-*.*.txt")):
        sheet = int(file.name.split(".")[0].removeprefix("sheet-"))
        for line in file.read_text("utf-8").splitlines():
            if not line.strip():
                continue
            match = _ANSWER.fullmatch(line)
            number, grades = (int(match[1]), [int(g) for g in re.findall(r"\d", match[2])]) if match else (0, [])
            if sizes.get(number) != (sheet, len(grades)):
                report(f"{file.name}: {line!r} has no grade for each passage of a question of this sheet")
            else:
                given[number].append(grades)
    return given


def read_labels(options: argparse.Namespace) -> int:
    """Print how well the judges agree with the gold documents and with each other. If `options.write` is set, write
    labels.
    """
    given = read_grades(options.sheets, lambda fault: print(fault, file=sys.stderr))
    questions = {(c.name, row["id"]): (c, row) for c in corpora_of(options.banks) for row in c.questions}
    labels: dict[str, dict[str, Grades]] = defaultdict(dict)
    figures = GradeCounts()
    for entry in _read_key(options.sheets):
        at = entry["corpus"], entry["id"]
        if (lists := given.get(entry["number"])) and at in questions:
            gold = questions[at][1]["gold"]
            figures.add(questions[at][1]["type"], [document in gold for document in entry["documents"]], lists)
            lowest = (min(grades) for grades in zip(*lists, strict=True))
            labels[entry["corpus"]][entry["id"]] = dict(zip(entry["documents"], lowest, strict=True))
    figures.print()
    if options.write:
        for corpus in corpora_of(options.banks):
            if corpus.name in labels:
                _write_labels(corpus, corpus.labels() | labels[corpus.name])
    return 0


def _write_labels(corpus: BankCorpus, labels: Mapping[str, Grades]) -> None:
    """Write the labels of a corpus. The same labels always give the same bytes."""
    lines = (json.dumps({"id": name, "grades": labels[name]}, ensure_ascii=False) + "\n" for name in sorted(labels))
    text = "".join(lines).encode()
    (corpus.folder / "labels.jsonl.gz").write_bytes(gzip.compress(text, mtime=0))


class GradeCounts:
    """Counts of the grades of gold documents and of other passages, and of pairs of grades by two judges."""

    def __init__(self) -> None:
        self._grades: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
        self._missed: dict[str, list[bool]] = defaultdict(list)
        self._pairs: list[tuple[int, int]] = []
        self._questions = 0

    def add(self, kind: str, gold: Sequence[bool], lists: Sequence[Sequence[int]]) -> None:
        """Add a question of this kind.

        Args:
            kind: The question's type.
            gold: Whether each passage is gold.
            lists: The grades of each judge, in the order of the passages.
        """
        self._questions += 1
        for grades in lists:
            for is_gold, grade in zip(gold, grades, strict=True):
                self._grades[is_gold][grade] += 1
            if any(gold):
                below = any(is_gold and grade < 2 for is_gold, grade in zip(gold, grades, strict=True))
                self._missed[kind].append(below)
        if len(lists) > 1:
            self._pairs += zip(lists[0], lists[1], strict=True)

    def print(self) -> None:
        """Print the figures."""
        total = sum(sum(counter.values()) for counter in self._grades.values())
        print(f"{self._questions} questions, {total} grades")
        for is_gold, name in ((True, "gold"), (False, "other")):
            counter = self._grades[is_gold]
            count = max(1, sum(counter.values()))
            shares = "   ".join(f"{grade}: {counter[grade] / count:.3f}" for grade in (2, 1, 0))
            print(f"{name:6} {count:6} passages   {shares}")
        missed = [below for kind in self._missed.values() for below in kind]
        if missed:
            kinds = ", ".join(f"{kind} {np.mean(below):.3f}" for kind, below in sorted(self._missed.items()))
            print(f"questions with gold graded below 2: {np.mean(missed):.3f} ({kinds})")
        if self._pairs:
            same = np.mean([a == b for a, b in self._pairs])
            sides = np.mean([(a == 2) == (b == 2) for a, b in self._pairs])
            print(f"two judges, {len(self._pairs)} passages: the same grade {same:.3f}, both or neither 2 {sides:.3f}")


def main() -> int:
    """Run the step that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True)
    for name, run in (("check", check), ("pools", write_pools), ("grades", read_labels)):
        step = steps.add_parser(name)
        step.add_argument("banks", type=Path, nargs="+", help="folders of banks")
        step.set_defaults(run=run)
        if name == "pools":
            step.add_argument("--out", type=Path, required=True, help="folder of sheets")
            step.add_argument("--limit", type=int, help="questions of a corpus at most")
            step.add_argument("--split", default="train", choices=("train", "dev", "test", "all"))
            step.add_argument("--embedder", default="minilm", help="further embedders that propose passages")
            step.add_argument("--seed", type=int, default=0)
        if name == "grades":
            step.add_argument("--sheets", type=Path, required=True, help="folder of sheets")
            step.add_argument("--write", action="store_true", help="write labels.jsonl.gz beside the questions")
    options = parser.parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
