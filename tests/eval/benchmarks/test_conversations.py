"""LoCoMo, LongMemEval, QMSum, MTRAG and BRIGHT in their published formats. The files are written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ContextAgentError, DataError
from context_agent.eval.benchmarks.loading import Benchmark, load_benchmark
from tests.support.sample_benchmarks import native_folder, write

LOCOMO = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ada",
        "speaker_b": "Tor",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ada", "dia_id": "D1:1", "text": "I moved to Vellmar."},
            {"speaker": "Tor", "dia_id": "D1:2", "text": "Look at this!", "blip_caption": "a frozen river"},
        ],
        "session_2_date_time": "9 am on 9 June, 2023",
        "session_2": [{"speaker": "Ada", "dia_id": "D2:5", "text": "The mural is done."}],
        "session_3_date_time": "a session that was never held",
    },
    "qa": [
        {"question": "Where did Ada move?", "answer": "Vellmar", "evidence": ["D1:1"], "category": 4},
        {"question": "What happened in spring?", "answer": 2, "evidence": ["D1:02; D2:5"], "category": 1},
        {"question": "Where did Tor move?", "adversarial_answer": "Vellmar", "evidence": ["D1:1"], "category": 5},
    ],
}
LONGMEMEVAL = {
    "question_id": "q1",
    "question_type": "single-session-user",
    "question": "Where do I live?",
    "answer": "Vellmar",
    "question_date": "2023/06/01 (Thu) 10:00",
    "haystack_session_ids": ["s1", "answer_s2"],
    "haystack_dates": ["2023/05/01", "2023/05/02"],
    "haystack_sessions": [
        [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}],
        [{"role": "user", "content": "I live in Vellmar", "has_answer": True}],
    ],
    "answer_session_ids": ["answer_s2"],
}
TURNS = [{"speaker": f"Member {number % 3}", "content": f"word{number} " * 60} for number in range(9)]
QMSUM = {
    "topic_list": [{"topic": "rivers", "relevant_text_span": [["0", "3"]]}],
    "general_query_list": [{"query": "Summarize the meeting", "answer": "It was long."}],
    "specific_query_list": [{"query": "What of rivers?", "answer": "They freeze.", "relevant_text_span": [["4", "6"]]}],
    "meeting_transcripts": TURNS,
}


def loaded(name: str, folder: Path, split: str | None = None) -> Benchmark:
    return load_benchmark(f"{name}={folder}", split=split, data=Path("nowhere"))


def test_locomo_has_a_document_for_each_turn_and_no_gold_for_adversarial_questions(tmp_path: Path) -> None:
    write(tmp_path / "locomo10.json", [LOCOMO])
    benchmark = loaded("locomo", tmp_path)
    documents = {document.id: document for document in benchmark.documents}
    assert list(documents) == ["conv-1/D1:1", "conv-1/D1:2", "conv-1/D2:5"]
    assert documents["conv-1/D1:2"].text == "Tor: Look at this! [picture: a frozen river]"
    assert documents["conv-1/D1:1"].title == "Session 1, 1:56 pm on 8 May, 2023"
    assert [question.gold for question in benchmark.questions] == [
        ("conv-1/D1:1",),
        ("conv-1/D1:2", "conv-1/D2:5"),
    ]
    assert benchmark.questions[1].answer == "2"
    assert benchmark.ungraded == 1


def test_longmemeval_pools_the_sessions_and_leaves_out_what_they_do_not_answer(tmp_path: Path) -> None:
    unanswered = {**LONGMEMEVAL, "question_id": "q2_abs", "answer_session_ids": ["s1"]}
    write(tmp_path / "longmemeval_s.json", [LONGMEMEVAL, unanswered])
    benchmark = loaded("longmemeval", tmp_path)
    assert [(document.id, document.title) for document in benchmark.documents] == [
        ("s1", "2023/05/01"),
        ("answer_s2", "2023/05/02"),
    ]
    assert benchmark.documents[0].text == "user: hello\nassistant: hi"
    (question,) = benchmark.questions
    assert (question.gold, question.type, benchmark.ungraded) == (("answer_s2",), "single-session-user", 1)


def test_qmsum_takes_as_gold_the_windows_of_the_spans(tmp_path: Path) -> None:
    write(tmp_path / "ALL/jsonl/val.jsonl", [QMSUM, QMSUM])
    benchmark = loaded("qmsum", tmp_path)
    assert len({document.id for document in benchmark.documents}) == len(benchmark.documents) == 6
    assert [question.gold for question in benchmark.questions] == [("1-1", "1-2"), ("2-1", "2-2")]
    texts = {document.id: document.text for document in benchmark.documents}
    assert "word4" in texts["1-1"]
    assert "word6" in texts["1-2"]
    assert benchmark.questions[0].question == "What of rivers?"


def mtrag_folder(folder: Path) -> Path:
    write(folder / "corpora/passage_level/cloud.jsonl", [{"_id": "p1", "title": "Osk", "text": "It freezes."}])
    tasks = folder / "human/retrieval_tasks/cloud"
    write(tasks / "cloud_lastturn.jsonl", [{"_id": "c<::>2", "text": "|user|: when does it freeze?"}])
    write(tasks / "cloud_questions.jsonl", [{"_id": "c<::>2", "text": "|user|: what is Osk?\n|user|: when?"}])
    (tasks / "qrels").mkdir()
    (tasks / "qrels/dev.tsv").write_text("query-id\tcorpus-id\tscore\nc<::>2\tp1\t1\n")
    return folder


def test_mtrag_splits_are_domains_and_forms_of_the_question(tmp_path: Path) -> None:
    folder = mtrag_folder(tmp_path)
    (last,) = loaded("mtrag", folder, "cloud_lastturn").questions
    assert (last.question, last.gold) == ("when does it freeze?", ("p1",))
    (whole,) = loaded("mtrag", folder, "cloud_questions").questions
    assert whole.question == "what is Osk?\nwhen?"
    with pytest.raises(DataError, match=r"Add human/retrieval_tasks/clapnq/qrels"):
        loaded("mtrag", folder)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_bright_reads_documents_and_examples_of_a_domain(tmp_path: Path, kind: str) -> None:
    documents = [{"id": "a/1.txt", "content": "Ice forms from above."}, {"id": "b", "content": "Other."}]
    example = {"query": "Why do rivers freeze?", "reasoning": "", "id": "0", "excluded_ids": ["N/A"],
               "gold_ids_long": ["a"], "gold_ids": ["a/1.txt"], "gold_answer": ""}  # fmt: skip
    for role, rows in (("documents", documents), ("examples", [example])):
        if kind == "jsonl":
            write(tmp_path / role / "biology.jsonl", rows)
        else:
            table = pytest.importorskip("pyarrow").Table.from_pylist(rows)
            (tmp_path / role).mkdir()
            file = tmp_path / role / "biology-00000-of-00001.parquet"
            pytest.importorskip("pyarrow.parquet").write_table(table, file)
    benchmark = loaded("bright", tmp_path)
    assert (benchmark.questions[0].gold, len(benchmark.documents), benchmark.split) == (("a/1.txt",), 2, "biology")


@pytest.mark.parametrize("name", ["mtrag", "qmsum"])
def test_a_folder_in_the_native_format_is_read_under_a_public_name(tmp_path: Path, name: str) -> None:
    benchmark = loaded(name, native_folder(tmp_path))
    assert (benchmark.name, benchmark.split, len(benchmark.questions)) == (name, "dev", 4)


def broken(row: dict[str, Any]) -> list[Any]:
    """The row with each field missing, and with each field of another type."""
    values: list[Any] = [None, 7, "text", [], [[]], {}, [None], [["0"]], [{"a": 1}]]
    without = [{key: value for key, value in row.items() if key != gone} for gone in row]
    return [*without, *({**row, key: value} for key in row for value in values), *values]


@pytest.mark.parametrize(
    ("name", "file", "row"),
    [
        ("locomo", "locomo10.json", LOCOMO),
        ("longmemeval", "longmemeval_s.json", LONGMEMEVAL),
        ("qmsum", "val.jsonl", QMSUM),
    ],
)
def test_rows_of_another_form_become_problems_of_one_line(
    tmp_path: Path, name: str, file: str, row: dict[str, Any]
) -> None:
    write(tmp_path / file, [row, *broken(row)])
    benchmark = loaded(name, tmp_path)
    assert benchmark.questions
    assert benchmark.problems
    assert all("\n" not in problem for problem in benchmark.problems)
    assert all(isinstance(question.question, str) for question in benchmark.questions)
    assert all(isinstance(document.text, str) for document in benchmark.documents)


@pytest.mark.parametrize(
    ("name", "file"),
    [("locomo", "locomo10.json"), ("longmemeval", "longmemeval_s.json"), ("qmsum", "val.jsonl")],
)
@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null", b'{"a": 1}', b"[1, 2]", b"\x00" * 99]
)
def test_a_hostile_file_gives_one_sentence(tmp_path: Path, name: str, file: str, content: bytes) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ContextAgentError) as caught:
        loaded(name, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_span_far_beyond_the_meeting_ends_with_it(tmp_path: Path) -> None:
    query = {"query": "All of it?", "relevant_text_span": [["-5", "99999999999"]]}
    write(tmp_path / "val.jsonl", [{**QMSUM, "specific_query_list": [query]}])
    assert loaded("qmsum", tmp_path).questions[0].gold == ("1-0", "1-1", "1-2")


def test_a_missing_file_names_what_to_add(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"locomo10\.json"):
        loaded("locomo", tmp_path)
    with pytest.raises(DataError, match=r"qmsum=FOLDER"):
        load_benchmark("qmsum", data=Path("nowhere"))
