"""Benchmarks by name, by folder, and in every published format. The files are written by hand."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from context_agent.errors import ConfigError, DataError
from context_agent.eval.benchmarks import loading, registry
from context_agent.eval.benchmarks.loading import load_benchmark
from context_agent.eval.benchmarks.source_tables import HubTable, read_rows
from tests.support.sample_benchmarks import PEOPLE, QUESTION, hotpot_row, musique_row, native_folder, write

NOWHERE = Path("nowhere")


def by_title(benchmark: loading.Benchmark) -> dict[str, str]:
    return {document.title: document.id for document in benchmark.documents}


def test_a_folder_in_the_native_format_is_a_benchmark(tmp_path: Path) -> None:
    benchmark = load_benchmark(str(native_folder(tmp_path)), data=NOWHERE)
    assert (benchmark.name, benchmark.split, len(benchmark.documents), len(benchmark.questions)) == (
        "world",
        "dev",
        4,
        4,
    )
    assert [row.id for row in benchmark.train] == ["train-0", "train-1", "train-2", "train-3"]
    assert benchmark.questions[0].gold == ("ada quill", "tor lindqvist")


def test_the_train_split_is_compared_with_nothing(tmp_path: Path) -> None:
    benchmark = load_benchmark(str(native_folder(tmp_path)), split="train", data=NOWHERE)
    assert benchmark.questions[0].id == "train-0"
    assert benchmark.train == ()


def test_a_known_set_is_found_in_the_data_folder_with_its_license(tmp_path: Path) -> None:
    native_folder(tmp_path, name="musique")
    benchmark = load_benchmark("musique", data=tmp_path)
    assert (benchmark.license, benchmark.name) == ("CC BY 4.0", "musique")


def test_missing_data_is_reported_with_the_option_that_fixes_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"2wiki.*does not exist.*--data or CTX1_DATA"):
        load_benchmark("2wiki", data=tmp_path)
    with pytest.raises(DataError, match=r"2wiki does not ship.*--data or CTX1_DATA"):
        load_benchmark("2wiki")


def test_another_split_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Its splits are dev, train"):
        load_benchmark(str(native_folder(tmp_path)), split="test", data=NOWHERE)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'multihop-rag'"):
        load_benchmark("multihop-rga", data=NOWHERE)


def test_every_name_has_a_license_a_source_and_a_form() -> None:
    for name in registry.benchmark_names():
        entry = registry.find_benchmark(name)
        assert entry is not None
        assert entry.license
        assert entry.source.startswith("https://")


def test_bad_rows_are_left_out_and_named_with_their_line(tmp_path: Path) -> None:
    folder = native_folder(tmp_path)
    with (folder / "queries.dev.jsonl").open("a") as file:
        file.write('{"id": "x", "question": 7}\nnot json\n{"id": "dev-0", "question": "again?"}\n')
    benchmark = load_benchmark(str(folder), data=NOWHERE)
    assert len(benchmark.questions) == 4
    assert [problem.partition("queries.dev.jsonl:")[2].partition(":")[0] for problem in benchmark.problems] == [
        "5",
        "6",
        "7",
    ]


def test_rows_with_neither_gold_nor_answer_are_counted(tmp_path: Path) -> None:
    folder = native_folder(tmp_path)
    with (folder / "queries.dev.jsonl").open("a") as file:
        file.write('{"id": "x", "question": "unknowable?"}\n')
    benchmark = load_benchmark(str(folder), data=NOWHERE)
    assert (len(benchmark.questions), benchmark.ungraded) == (4, 1)


@pytest.mark.parametrize("rows", ["", '{"id": "x", "question": "unknowable?"}\n', "broken\n"])
def test_a_set_with_nothing_to_score_is_refused(tmp_path: Path, rows: str) -> None:
    folder = native_folder(tmp_path)
    (folder / "queries.dev.jsonl").write_text(rows)
    with pytest.raises(DataError, match="cannot be scored"):
        load_benchmark(str(folder), data=NOWHERE)


@pytest.mark.parametrize(
    ("name", "file"),
    [("hotpotqa-distractor", "hotpot_dev_distractor_v1.json"), ("2wikimultihopqa", "dev.json")],
)
def test_hotpotqa_and_2wiki_pool_the_paragraphs_and_take_gold_by_title(tmp_path: Path, name: str, file: str) -> None:
    second_row = {**hotpot_row(), "_id": "h2"}
    write(tmp_path / file, [hotpot_row(), second_row, {"_id": "h3", "question": "no context?"}])
    benchmark = load_benchmark(f"{name}={tmp_path}", data=NOWHERE)
    assert len(benchmark.documents) == len(PEOPLE)
    titles = by_title(benchmark)
    question = benchmark.questions[0]
    assert (question.id, question.question, question.answer, question.type, question.hops) == (
        "h1",
        QUESTION,
        "Vellmar",
        "bridge",
        2,
    )
    assert question.gold == (titles["Ada Quill"], titles["Tor Lindqvist"])
    assert len(benchmark.questions) == 2
    assert "[3]: the row does not fit" in benchmark.problems[0]
    assert benchmark.split == "dev"


@pytest.mark.parametrize("space", ["", " "])
def test_sentences_of_a_paragraph_are_apart_with_and_without_spaces_of_their_own(tmp_path: Path, space: str) -> None:
    context = [["Weir", ["The weir is old.", f"{space}Ada built it.", ""]]]
    write(tmp_path / "dev.json", [{**hotpot_row(), "context": context, "supporting_facts": [["Weir", 1]]}])
    benchmark = load_benchmark(f"2wikimultihopqa={tmp_path}", data=NOWHERE)
    assert [document.text for document in benchmark.documents] == ["The weir is old. Ada built it."]


def test_no_paragraph_is_lost_if_two_have_the_same_title(tmp_path: Path) -> None:
    context = [["Weir", ["Ann Weir swims."]], ["Weir", ["A weir is a dam."]]]
    write(tmp_path / "dev.json", [{**hotpot_row(), "context": context, "supporting_facts": [["Weir", 0]]}])
    benchmark = load_benchmark(f"2wikimultihopqa={tmp_path}", data=NOWHERE)
    assert [document.text for document in benchmark.documents] == ["Ann Weir swims.", "A weir is a dam."]
    assert benchmark.questions[0].gold == (benchmark.documents[0].id,)


def test_musique_takes_gold_in_the_order_of_the_hops(tmp_path: Path) -> None:
    write(tmp_path / "musique_ans_v1.0_dev.jsonl", [musique_row()])
    write(tmp_path / "musique_ans_v1.0_train.jsonl", [{**musique_row(), "id": "2hop__9_9"}])
    benchmark = load_benchmark(f"musique-ans={tmp_path}", data=NOWHERE)
    titles = by_title(benchmark)
    question = benchmark.questions[0]
    assert question.gold == (titles["Tor Lindqvist"], titles["Ada Quill"])
    assert (question.type, question.hops, question.answer) == ("2hop", 2, "Vellmar")
    assert [row.id for row in benchmark.train] == ["2hop__9_9"]


def test_paragraphs_of_one_title_stay_two_documents(tmp_path: Path) -> None:
    row = musique_row()
    row["paragraphs"][2]["title"] = "Ada Quill"
    write(tmp_path / "musique_ans_v1.0_dev.jsonl", [row])
    benchmark = load_benchmark(f"musique-ans={tmp_path}", data=NOWHERE)
    assert len({document.id for document in benchmark.documents}) == len(PEOPLE)
    assert benchmark.questions[0].gold[1] != next(
        document.id for document in benchmark.documents if document.text == PEOPLE["Vellmar"]
    )


def test_multihop_rag_knows_articles_by_their_address(tmp_path: Path) -> None:
    pages = [
        {"title": title, "author": "A", "source": "The Post", "published_at": "2023-10-01", "category": "news",
         "url": f"https://news.example/{number}", "body": text}
        for number, (title, text) in enumerate(PEOPLE.items())
    ]  # fmt: skip
    evidence = [{"title": page["title"], "url": page["url"], "fact": "…"} for page in (pages[1], pages[0], pages[1])]
    null_row = {"query": "Who is nobody?", "answer": "Insufficient information.", "question_type": "null_query"}
    write(tmp_path / "corpus.json", pages)
    write(
        tmp_path / "MultiHopRAG.json",
        [
            {"query": QUESTION, "answer": "Vellmar", "question_type": "inference_query", "evidence_list": evidence},
            {**null_row, "evidence_list": []},
        ],
    )
    benchmark = load_benchmark(f"multihop-rag={tmp_path}", data=NOWHERE)
    question = benchmark.questions[0]
    assert question.gold == ("https://news.example/1", "https://news.example/0")
    assert (question.id, question.type, question.hops) == ("1", "inference_query", 2)
    assert (len(benchmark.questions), benchmark.ungraded, benchmark.license) == (1, 1, "ODC-BY")
    assert benchmark.documents[0].metadata["source"] == "The Post"


def test_frames_matches_links_with_the_articles_of_the_user(tmp_path: Path) -> None:
    header = ["", "Prompt", "Answer", "wikipedia_link_1", "wikipedia_link_11+", "reasoning_types", "wiki_links"]
    links = ["https://en.wikipedia.org/wiki/Ada_Quill", "https://en.wikipedia.org/wiki/Osk#Course"]
    rows = [["0", QUESTION, "Vellmar", links[0], "", "Multiple constraints", str(links)]]
    rows.append(
        ["1", "Two in a cell?", "x", links[0], f"{links[1]}, https://en.wikipedia.org/wiki/Gone", "Temporal", ""]
    )
    text = "\n".join("\t".join(row) for row in [header, *rows]) + "\n"
    (tmp_path / "test.tsv").write_text(text, encoding="utf-8")
    articles = [
        {"url": f"https://en.m.wikipedia.org/wiki/{title.replace(' ', '_')}", "text": body}
        for title, body in PEOPLE.items()
    ]
    write(tmp_path / "corpus.jsonl", articles)
    benchmark = load_benchmark(f"frames={tmp_path}", data=NOWHERE)
    assert benchmark.questions[0].gold == (articles[0]["url"], articles[3]["url"])
    assert benchmark.questions[1].gold == (articles[0]["url"], articles[3]["url"], "https://en.wikipedia.org/wiki/Gone")
    assert (benchmark.questions[0].id, benchmark.questions[0].type) == ("0", "Multiple constraints")


@pytest.mark.parametrize("links", ["[broken 'x", "[" * 500])
def test_links_that_are_no_list_are_a_problem_of_their_row(tmp_path: Path, links: str) -> None:
    write(tmp_path / "corpus.jsonl", [{"id": "a", "title": "A", "text": "text"}])
    (tmp_path / "test.tsv").write_text(f"Prompt\tAnswer\twiki_links\nWho?\tme\t['A']\nWho?\tme\t{links}\n")
    benchmark = load_benchmark(f"frames={tmp_path}", data=NOWHERE)
    assert [question.gold for question in benchmark.questions] == [("a",)]
    assert "wiki_links is not a list" in benchmark.problems[0]


def test_a_table_with_lines_that_end_twice_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "corpus.jsonl", [{"id": "a", "title": "A", "text": "text"}])
    (tmp_path / "test.tsv").write_bytes(b"Prompt\tAnswer\twiki_links\nWho\ris it?\tme\t['A']\n")
    with pytest.raises(DataError, match=r"test\.tsv cannot be read \(new-line character"):
        load_benchmark(f"frames={tmp_path}", data=NOWHERE)


def test_a_question_s_id_counts_once(tmp_path: Path) -> None:
    second = {**hotpot_row(), "question": "another?"}
    write(tmp_path / "hotpot_dev_distractor_v1.json", [hotpot_row(), second])
    benchmark = load_benchmark(f"hotpotqa-distractor={tmp_path}", data=NOWHERE)
    assert [question.question for question in benchmark.questions] == [QUESTION]
    assert benchmark.problems[0].endswith("an earlier question already has the id 'h1'")


def test_frames_without_a_folder_says_which_files_it_needs() -> None:
    with pytest.raises(DataError, match=r"frames=FOLDER, where FOLDER has the Wikipedia articles"):
        load_benchmark("frames", data=NOWHERE)


def test_browsecomp_plus_reads_what_its_script_decrypted(tmp_path: Path) -> None:
    docs = [
        {"docid": str(number), "text": text, "url": f"https://x.example/{number}"}
        for number, text in enumerate(PEOPLE.values())
    ]
    row = {"query_id": "769", "query": QUESTION, "answer": "Vellmar", "negative_docs": [docs[3]]}
    row |= {"gold_docs": [docs[1]], "evidence_docs": [docs[0], docs[1]]}
    write(tmp_path / "corpus.jsonl", docs)
    write(tmp_path / "data" / "browsecomp_plus_decrypted.jsonl", [row])
    benchmark = load_benchmark(f"browsecomp-plus={tmp_path}", data=NOWHERE)
    assert (benchmark.questions[0].id, benchmark.questions[0].gold) == ("769", ("1", "0"))
    assert len(benchmark.documents) == 4


def test_browsecomp_plus_as_published_says_how_to_decrypt_it(tmp_path: Path) -> None:
    ciphertext = base64.b64encode(b"not to be read by machines").decode()
    write(tmp_path / "browsecomp_plus_decrypted.jsonl", [{"query_id": "1", "query": ciphertext, "answer": ciphertext}])
    write(tmp_path / "corpus.jsonl", [{"docid": "1", "text": "x"}])
    with pytest.raises(DataError, match="scripts_build_index/decrypt_dataset"):
        load_benchmark(f"browsecomp-plus={tmp_path}", data=NOWHERE)


def write_beir(folder: Path) -> Path:
    docs = [
        {"_id": str(number), "title": title, "text": text, "metadata": {}}
        for number, (title, text) in enumerate(PEOPLE.items())
    ]
    write(folder / "corpus.jsonl", docs)
    write(folder / "queries.jsonl", [{"_id": name, "text": f"{name}: {QUESTION}"} for name in ("q1", "q2", "q3")])
    (folder / "qrels").mkdir()
    for split, rows in {"test": "q1\t0\t1\nq1\t1\t2\nq1\t2\t0\n", "train": "q2\t3\t1\n"}.items():
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}", encoding="utf-8")
    return folder


def test_beir_takes_the_questions_of_the_split_and_judgments_above_zero(tmp_path: Path) -> None:
    benchmark = load_benchmark(f"beir/scifact={write_beir(tmp_path / 's')}", data=NOWHERE)
    assert [(row.id, row.gold) for row in benchmark.questions] == [("q1", ("1", "0"))]
    assert [row.id for row in benchmark.train] == ["q2"]
    assert benchmark.name == "beir/scifact"


def test_a_judgment_of_beir_may_be_a_fraction_but_not_infinite(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "s")
    (folder / "qrels" / "test.tsv").write_text("q1\t0\t0.5\nq1\t1\t0.9\nq1\t2\tinf\nq1\t3\tnan\n")
    benchmark = load_benchmark(f"beir/scifact={folder}", data=NOWHERE)
    assert [row.gold for row in benchmark.questions] == [("1", "0")]
    assert len(benchmark.problems) == 2


JUDGED = [
    ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\t0\t1\nq1\t1\t2\n"),
    ("qrels/test.tsv", "q1\t0\t1\nq1\t1\t2\n"),
    ("qrels/test.txt", "q1 0 0 1\nq1 0 1 2\n"),
    ("qrels.test.tsv", "q1\t0\t0\t1\r\nq1\t0\t1\t2\r\nq1\t0\t2\t0\r\n"),
    ("qrels.txt", "q1 Q0 0 1\n\nq1 Q0 1 2\nq9\n"),
]


@pytest.mark.parametrize(("name", "rows"), JUDGED)
@pytest.mark.parametrize("packed", [False, True])
def test_judgments_of_beir_and_trec_make_a_folder_of_any_name_a_benchmark(
    tmp_path: Path, name: str, rows: str, packed: bool
) -> None:
    folder = write_beir(tmp_path / "mills")
    for split in ("test", "train"):
        (folder / "qrels" / f"{split}.tsv").unlink()
    data = rows.encode()
    (folder / f"{name}{'.gz' if packed else ''}").write_bytes(gzip.compress(data) if packed else data)
    for request in (str(folder), f"mine={folder}", f"beir/scifact={folder}"):
        benchmark = load_benchmark(request, data=NOWHERE)
        assert [(row.id, row.gold) for row in benchmark.questions] == [("q1", ("1", "0"))]
        assert (benchmark.split, len(benchmark.documents)) == ("test", len(PEOPLE))
        assert [problem.partition(": ")[2] for problem in benchmark.problems] == (
            ["a judgment has 3 or 4 columns; got 1"] if "q9" in rows else []
        )


@pytest.mark.parametrize("header", [True, False])
def test_tables_of_documents_and_questions_need_no_header(tmp_path: Path, header: bool) -> None:
    folder = write_beir(tmp_path / "mills")
    for file in ("corpus.jsonl", "queries.jsonl"):
        (folder / file).unlink()
    (folder / "corpus.tsv").write_text("_id\ttitle\ttext\n" * header + "0\tMill\tIt stood.\n1\tWeir\tIt broke.\n")
    (folder / "queries.tsv").write_text("id\tquery\n" * header + "q1\tWhat broke?\n")
    benchmark = load_benchmark(str(folder), data=NOWHERE)
    assert [(row.question, row.gold) for row in benchmark.questions] == [("What broke?", ("1", "0"))]
    assert [(document.title, document.text) for document in benchmark.documents] == [
        ("Mill", "It stood."),
        ("Weir", "It broke."),
    ]
    assert benchmark.problems == ()


@pytest.mark.parametrize(
    ("document", "query"),
    [
        (("docid", "text"), ("query_id", "query")),
        (("doc_id", "text"), ("query_id", "text")),
        (("docno", "text"), ("qid", "query")),
        (("id", "contents"), ("id", "question")),
        (("pid", "passage"), ("qid", "query")),
    ],
)
@pytest.mark.parametrize("kind", ["jsonl", "tsv"])
def test_ids_and_texts_have_the_names_of_common_tools(
    tmp_path: Path, document: tuple[str, str], query: tuple[str, str], kind: str
) -> None:
    folder = write_beir(tmp_path / "mills")
    for role, names, cells in (("corpus", document, ("0", "It broke.")), ("queries", query, ("q1", "What broke?"))):
        (folder / f"{role}.jsonl").unlink()
        row = json.dumps(dict(zip(names, cells, strict=True)))
        table = "\t".join(names) + "\n" + "\t".join(cells)
        (folder / f"{role}.{kind}").write_text(f"{row if kind == 'jsonl' else table}\n", encoding="utf-8")
    benchmark = load_benchmark(str(folder), data=NOWHERE)
    assert [(row.id, row.question) for row in benchmark.questions] == [("q1", "What broke?")]
    assert [(row.id, row.text) for row in benchmark.documents] == [("0", "It broke.")]
    assert benchmark.problems == ()


def test_a_document_without_an_id_is_told_which_fields_can_have_it(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "mills")
    with (folder / "corpus.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"key": "x", "text": "It broke."}\n')
    (problem,) = load_benchmark(str(folder), data=NOWHERE).problems
    assert "the row has no field _id, id, docid, doc_id, docno, pid or url" in problem


def test_a_folder_with_questions_and_no_judgments_is_told_where_they_belong(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "mills")
    (folder / "qrels").rename(folder / "judgments")
    with pytest.raises(DataError, match=r"judgments in qrels/<split>\.tsv or qrels\.txt"):
        load_benchmark(str(folder), data=NOWHERE)


def test_a_table_with_tabs_may_have_quotation_marks_that_quote_nothing(tmp_path: Path) -> None:
    file = tmp_path / "queries.tsv"
    texts = ['"what is a mill', '"Weir" is what', 'is "it" so', '"a ""b"" c"', '"two\nlines"', "plain", '"last']
    file.write_text("".join(f"{number}\t{text}\n" for number, text in enumerate(texts)), encoding="utf-8")
    problems: list[str] = []
    rows = {row["_id"]: row["text"] for _, row in read_rows(file, problems, "queries")}
    assert list(rows) == [str(number) for number in range(len(texts))]
    assert list(rows.values()) == [*texts[:3], 'a "b" c', "two\nlines", "plain", '"last']
    assert problems == []


def test_questions_in_the_native_format_may_be_packed_and_have_another_split(tmp_path: Path) -> None:
    folder = native_folder(tmp_path)
    packed = gzip.compress((folder / "queries.dev.jsonl").read_bytes())
    (folder / "queries.validation.jsonl.gz").write_bytes(packed)
    (folder / "queries.dev.jsonl").unlink()
    benchmark = load_benchmark(str(folder), data=NOWHERE)
    assert (benchmark.split, len(benchmark.questions), len(benchmark.train)) == ("validation", 4, 4)


def test_a_copy_of_a_question_file_is_a_split_of_its_own(tmp_path: Path) -> None:
    folder = native_folder(tmp_path)
    (folder / "queries.dev.old.jsonl").write_text('{"id": "old", "question": "Who?", "gold": ["ada quill"]}\n')
    assert len(load_benchmark(str(folder), data=NOWHERE).questions) == 4
    assert [row.id for row in load_benchmark(str(folder), split="dev.old", data=NOWHERE).questions] == ["old"]


def test_the_path_of_a_folder_may_have_an_equals_sign(tmp_path: Path) -> None:
    folder = native_folder(tmp_path).rename(tmp_path / "date=2024")
    assert load_benchmark(str(folder), data=NOWHERE).name == "date=2024"
    assert load_benchmark(f"own={folder}", data=NOWHERE).name == "own"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "s")
    (folder / "corpus.jsonl").unlink()
    with pytest.raises(DataError, match=r"has no corpus file. Add corpus.jsonl or corpus.jsonl.gz or"):
        load_benchmark(f"beir/scifact={folder}", data=NOWHERE)


@pytest.mark.parametrize("file", ["queries.jsonl.gz", "corpus.jsonl.gz"])
def test_a_packed_file_that_unpacks_to_far_more_is_refused(tmp_path: Path, file: str) -> None:
    folder = write_beir(tmp_path / "s")
    (folder / file.removesuffix(".gz")).unlink()
    (folder / file).write_bytes(gzip.compress(b'{"_id": "a", "text": "' + b"a" * 60_000_000 + b'"}'))
    with pytest.raises(DataError, match=rf"{file} cannot be read \(the file unpacks to more than"):
        load_benchmark(f"beir/scifact={folder}", data=NOWHERE)


def test_sets_are_read_through_datasets_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "hub" / "validation.jsonl", [hotpot_row(columns=True)])
    entry = registry.find_benchmark("hotpotqa-distractor")
    assert isinstance(entry, registry.PublicBenchmark)
    local = replace(entry, hubs={"queries": HubTable(str(tmp_path / "hub"))})
    monkeypatch.setattr(registry, "PUBLIC_BENCHMARKS", (local,))
    benchmark = load_benchmark("hotpotqa-distractor", data=NOWHERE)
    titles = by_title(benchmark)
    assert benchmark.questions[0].gold == (titles["Ada Quill"], titles["Tor Lindqvist"])


def test_a_repository_that_cannot_be_had_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    entry = registry.find_benchmark("hotpotqa-distractor")
    assert isinstance(entry, registry.PublicBenchmark)
    monkeypatch.setattr(
        registry, "PUBLIC_BENCHMARKS", (replace(entry, hubs={"queries": HubTable(str(tmp_path / "none"))}),)
    )
    with pytest.raises(DataError, match="cannot load") as caught:
        load_benchmark("hotpotqa-distractor", data=NOWHERE)
    assert "\n" not in str(caught.value)


def test_a_users_own_files_and_questions_make_a_benchmark(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "osk.md").write_text("# Osk\n\nA river.", encoding="utf-8")
    questions = write(tmp_path / "questions.jsonl", [{"id": "a", "question": "Which river?", "gold": ["osk.md"]}])
    benchmark = loading.load_own([notes], questions, name="mine")
    assert [document.id for document in benchmark.documents] == ["osk.md"]
    assert (benchmark.name, benchmark.license) == ("mine", "not stated")


def test_the_real_sets_are_as_described(data: Path) -> None:
    for name, documents, questions in (("2wiki", 9_616, 156), ("hotpotqa", 14_651, 185), ("musique", 12_174, 60)):
        benchmark = load_benchmark(name, data=data)
        assert (len(benchmark.documents), len(benchmark.questions), benchmark.problems) == (documents, questions, ())
        assert json.dumps(benchmark.questions[0].gold)


def test_training_questions_that_cannot_be_read_find_no_leak_and_are_an_error(tmp_path):
    questions, train = tmp_path / "mine.jsonl", tmp_path / "train.jsonl"
    questions.write_text('{"id": "q", "question": "Who wrote it?", "answer": "Ada"}\n')
    train.write_bytes(b"\xff\x00 binary")
    with pytest.raises(DataError, match="no question that can be read"):
        loading.load_own([], questions, train=train)
    train.write_text('{"id": "a", "question": "Who wrote it?", "answer": "Ada"}\n{"id": 3\n')
    benchmark = loading.load_own([], questions, train=train)
    assert [question.id for question in benchmark.train] == ["a"]
    (problem,) = benchmark.problems
    assert problem.startswith(f"{train}:2")
