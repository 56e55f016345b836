"""Measure recall@5 of search and of the embedded policy in Japanese, Chinese, Korean, Thai and German.

    python benchmarks/languages.py [--embedder static,minilm] [--sets ja,zh,ko,th,de] [--data FOLDER]

The notes and questions in `benchmarks/data/languages` were written for this project before the code they test. For each
language and embedder the program prints the language that indexing identifies. It also prints recall@5 of BM25, dense
and hybrid search and of the agent, with bootstrap 95% intervals over questions. No GPU and no download are needed.

It also prints recall@5 of questions in another language than their corpus: `translated.dev.jsonl` has dev questions of
the bank in other languages.

Then it compares one index of fifteen languages with one index for each language, by recall@5. These indexes also have
the bank's corpora in `OTHERS`, and those of `benchmarks/data/eight-languages`.

Finally it prints the language that is identified for each corpus: these corpora, the corpora in one language in
`benchmarks/data/bank` and `bank-test`, the English sets in `--data`, and the documentation, code, tests and constraints
of this project, split into paragraphs. The default of `--data` is `CTX1_DATA` in the environment, or else
../shared/data.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from context_agent._support.question_files import load_questions
from context_agent.agent import SearchAgent
from context_agent.eval.statistics import Figure
from context_agent.retrieval.embedders import load_embedder
from context_agent.retrieval.language_fit import language_warning
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.text.language_identification import identify, language_of
from context_agent.text.languages import ENGLISH, LANGUAGES
from context_agent.types import Document, Question

DATA = Path(__file__).parent / "data" / "languages"
BANK = DATA.parent
OTHERS = {"debian-faq-german": "de", "gimp-french": "fr", "ops-runbook": ENGLISH, "regex-pcre2": ENGLISH}
"""The bank's corpora that are also in the common index, and their languages."""
CUTOFF, DEPTH = 5, 40


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each embedder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedder", default="static,minilm")
    parser.add_argument("--sets", default="ja,zh,ko,th,de")
    shared = os.environ.get("CTX1_DATA", Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(shared))
    options = parser.parse_args(arguments)
    for spec in options.embedder.split(","):
        for name in options.sets.split(","):
            _report(spec, name)
        _translated(spec)
        _one_index(spec, options.sets.split(","))
    _identified(options.sets.split(","), options.data)


def _documents(name: str) -> list[Document]:
    lines = (DATA / name / "corpus.jsonl").read_text("utf-8").splitlines()
    return [Document(**json.loads(line)) for line in lines]


def _bank_documents(folder: Path) -> list[Document]:
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = list(map(json.loads, lines))
    return [Document(f"{folder.name}/{row['id']}", row["text"], row.get("title", "")) for row in rows]


def _bank_questions(folder: Path) -> list[Question]:
    questions = load_questions(folder / "questions.jsonl")
    return [replace(question, gold=tuple(f"{folder.name}/{item}" for item in question.gold)) for question in questions]


def _translated(spec: str) -> None:
    """Print recall@5 of questions in another language than their corpus."""
    rows = list(map(json.loads, (DATA / "translated.dev.jsonl").read_text("utf-8").splitlines()))
    for name in dict.fromkeys(row["corpus"] for row in rows):
        corpus = MemoryCorpus(_bank_documents(BANK / "bank" / name), embedder=load_embedder(spec))
        originals = {question.id: question for question in _bank_questions(BANK / "bank" / name)}
        for language in dict.fromkeys(row["language"] for row in rows if row["corpus"] == name):
            asked = [row for row in rows if (row["corpus"], row["language"]) == (name, language)]
            questions = [replace(originals[row["id"]], question=row["question"]) for row in asked]
            print(f"{name}: {len(questions)} questions in {LANGUAGES[language]}, {spec}")
            _print_recalls(corpus, questions)


def _one_index(spec: str, names: Sequence[str]) -> None:
    """Print recall@5 over all questions for the common index, and for one index for each language."""
    embedder = load_embedder(spec)
    folders = {BANK / "bank" / name: code for name, code in OTHERS.items()}
    folders |= {folder: folder.name for folder in sorted((BANK / "eight-languages").iterdir()) if folder.is_dir()}
    documents = {name: _documents(name) for name in names}
    questions = {name: load_questions(DATA / name / "queries.test.jsonl") for name in names}
    for folder, code in folders.items():
        documents[code] = [*documents.get(code, ()), *_bank_documents(folder)]
        questions[code] = [*questions.get(code, ()), *_bank_questions(folder)]
    each = {code: MemoryCorpus(items, embedder=embedder) for code, items in documents.items()}
    whole = MemoryCorpus([document for items in documents.values() for document in items], embedder=embedder)
    asked = [(code, question) for code, items in questions.items() for question in items if question.gold]
    print(f"one index of {len(documents)} languages, {spec}: recall@5 over {len(asked)} questions")
    for kind in ("bm25", "hybrid"):
        apart = [_recall(question, _system(each[code], kind)) for code, question in asked]
        together = [_recall(question, _system(whole, kind)) for _, question in asked]
        losses = [one - other for one, other in zip(together, apart, strict=True)]
        for label, values in (("one index a language", apart), ("one index", together), ("difference", losses)):
            print(f"  {kind:8}{label:22}{Figure.of(values)}", flush=True)


def _system(corpus: MemoryCorpus, kind: str) -> Callable[[str], list[str]]:
    if kind == "hybrid":
        return lambda question: [hit.chunk.document_id for hit in corpus.search(question, k=DEPTH)]
    return next(_one_shot(corpus, retriever.search) for retriever in corpus.retrievers if retriever.name == kind)


def _identified(names: Sequence[str], data: Path) -> None:
    """Print the language of each corpus, and how many of its passages are analyzed in that language."""
    corpora = {name: (name, [f"{item.title}\n{item.text}" for item in _documents(name)]) for name in names}
    for folder in sorted(file.parent for file in BANK.glob("bank*/*/corpus.jsonl.gz")):
        language = json.loads((folder / "about.json").read_text("utf-8"))["language"]
        if language in LANGUAGES:
            corpora[folder.name] = (language, [f"{item.title}\n{item.text}" for item in _bank_documents(folder)])
    for folder in sorted(file.parent for file in data.glob("*/corpus.jsonl.gz")):
        corpora[folder.name] = (ENGLISH, [f"{item.title}\n{item.text}" for item in _bank_documents(folder)])
    root = Path(__file__).parents[1]
    for pattern in ("docs/**/*.md", "*.md", "context_agent/**/*.py", "tests/**/*.py", "constraints/*.txt", "*.toml"):
        texts = [file.read_text("utf-8") for file in sorted(root.glob(pattern))]
        paragraphs = [part for text in texts for part in text.split("\n\n") if part.strip()]
        corpora[pattern] = (ENGLISH, paragraphs)
    right = 0
    for name, (expected, texts) in corpora.items():
        language = identify(texts)
        right += language == expected
        shares = Counter(language_of(text, language) for text in texts)
        others = ", ".join(f"{code} {count}" for code, count in shares.most_common() if code != language)
        print(f"  {name:24}{LANGUAGES[language]:16}{shares[language]:6} of {len(texts):6} passages  {others}")
    print(f"identified: {right} of {len(corpora)} corpora")


def _report(spec: str, name: str) -> None:
    documents = _documents(name)
    questions = load_questions(DATA / name / "queries.test.jsonl")
    corpus = MemoryCorpus(documents, embedder=load_embedder(spec))
    texts = [document.text for document in documents]
    weights = ", ".join(f"{retriever} {weight:.2f}" for retriever, weight in corpus.calibration.weights.items())
    print(f"{name}: {len(documents)} notes, {len(questions)} questions, identified as {LANGUAGES[identify(texts)]}")
    print(f"  {spec}: {'does not fit' if language_warning(corpus.embedder.name, texts) else 'fits'}, weights {weights}")
    _print_recalls(corpus, questions)


def _print_recalls(corpus: MemoryCorpus, questions: Sequence[Question]) -> None:
    """Print recall@5 of each retriever, of hybrid search and of the agent."""
    rankings: dict[str, Callable[[str], list[str]]] = {
        **{retriever.name: _one_shot(corpus, retriever.search) for retriever in corpus.retrievers},
        "hybrid": lambda question: [hit.chunk.document_id for hit in corpus.search(question, k=DEPTH)],
    }
    with SearchAgent(corpus) as agent:
        rankings["agent"] = lambda question: [document.id for document in agent.search(question).documents]
        for system, ranking in rankings.items():
            print(f"  {system:8}{Figure.of([_recall(question, ranking) for question in questions])}", flush=True)


def _one_shot(
    corpus: MemoryCorpus, search: Callable[[str, int], list[tuple[str, float]]]
) -> Callable[[str], list[str]]:
    return lambda question: [chunk.document_id for chunk in corpus.get([item for item, _ in search(question, DEPTH)])]


def _recall(question: Question, ranking: Callable[[str], list[str]]) -> float:
    """Return the share of the gold documents among the first five different documents."""
    first = list(dict.fromkeys(ranking(question.question)))[:CUTOFF]
    return len(set(first) & set(question.gold)) / len(question.gold)


if __name__ == "__main__":
    main()
