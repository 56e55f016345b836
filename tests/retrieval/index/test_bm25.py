"""BM25 on tantivy: what is found, in which order, and what a query may be."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from context_agent.errors import ConfigError, CorpusCorruptError
from context_agent.retrieval.index import bm25
from context_agent.retrieval.index.bm25 import MAX_QUERY_TERMS, Bm25Entry, Bm25Index, Bm25Retriever
from context_agent.testing.documents import people
from tests.support.shared_data import real_documents, train_queries


@pytest.fixture(scope="module")
def index() -> Bm25Index:
    return Bm25Index.of(Bm25Entry(document.id, document.title, document.text) for document in people(200))


def test_finds_inflected_words_in_any_case_and_without_accents() -> None:
    index = Bm25Index.of([Bm25Entry("a", "", "The café was founded by engineers."), Bm25Entry("b", "", "A dog barks.")])
    for query in ("CAFE", "café", "engineer founding", "Founder's engineering? cafés!"):
        assert [hit for hit, _ in index.search(query, 5)] == ["a"]


def test_the_title_counts_more_than_the_text() -> None:
    index = Bm25Index.of([Bm25Entry("body", "Other", "On Turing."), Bm25Entry("title", "Turing", "On other.")])
    assert [hit for hit, _ in index.search("turing", 5)] == ["title", "body"]
    once, twice = (
        Bm25Index.of([entry]) for entry in (Bm25Entry("a", "Turing", "It."), Bm25Entry("a", "", "Turing\nTuring\nIt."))
    )
    assert once.search("turing", 5) == twice.search("turing", 5)


def test_equal_scores_come_by_id_however_many_there_are() -> None:
    ids = [f"{number:03}" for number in range(300)]
    index = Bm25Index.of(Bm25Entry(document, "", "the same words") for document in reversed(ids))
    for k in (1, 5, 25, 299, 300, 500):
        assert [hit for hit, _ in index.search("same words", k)] == ids[:k]


def test_equal_scores_behind_better_ones_come_by_id() -> None:
    ids = [f"{number:02}" for number in range(60)]
    better = [Bm25Entry("y", "", "words words words of a few"), Bm25Entry("z", "", "words words of a few others")]
    index = Bm25Index.of([*(Bm25Entry(document, "", "the same words of a few") for document in reversed(ids)), *better])
    for k in (1, 2, 3, 4, 5, 40):
        assert [hit for hit, _ in index.search("words", k)] == ["y", "z", *ids][:k]


@pytest.mark.parametrize(
    "query",
    [
        "",
        " ",
        '+-&&||!(){}[]^"~*?:\\/',
        "title:x AND (",
        "\0\n\t",
        "\ud800",
        "'; drop table",
        "text:*",
        "the and of",
        "字" * 50,
    ],
)
def test_no_query_is_an_error(index: Bm25Index, query: str) -> None:
    assert isinstance(index.search(query, 5), list)


def test_a_huge_query_keeps_its_rarest_terms(index: Bm25Index) -> None:
    noise = " ".join(f"word{number}" for number in range(10_000))
    assert index.search(f"{noise} guild ledger person", 3)
    common = " ".join({word for document in people(200) for word in document.text.split()})
    assert len(index.analyze(common)) > MAX_QUERY_TERMS
    hits = index.search(f"{common} K7919", 1)
    assert hits == index.search(f"{common} K7919", 1)
    assert index.search("x" * 1_000_000, 5) == []


def test_the_most_frequent_word_of_too_many_is_left_out() -> None:
    rare = [f"{first}{second}qx" for first in "bcdfghjk" for second in "bcdfghjk"]
    index = Bm25Index.of(
        [Bm25Entry("rare", "", " ".join(rare)), Bm25Entry("a", "", "tail"), Bm25Entry("b", "", "tail")]
    )
    assert len(rare) == MAX_QUERY_TERMS
    assert len(index.search(" ".join(["tail", *rare[1:]]), 5)) == 3
    assert [hit for hit, _ in index.search(" ".join(["tail", *rare]), 5)] == ["rare"]


def test_only_limits_to_given_ids(index: Bm25Index) -> None:
    hits = index.search("guild", 10, only={"person-3", "person-9", "nobody"})
    assert sorted(hit for hit, _ in hits) == ["person-3", "person-9"]


def test_document_frequency_is_exact_after_deletes() -> None:
    index = Bm25Index.of(Bm25Entry(document.id, document.title, document.text) for document in people(80))
    terms = ["printer", "Printers", "Lisbon printer", "the", "...", "zoologist", "guild"]
    before = index.document_frequency(terms)
    assert before.tolist() == [10, 10, 2, 80, 0, 0, 80]
    assert before.dtype == np.int64
    index.delete([f"person-{number}" for number in range(40)])
    index.add([Bm25Entry("new", "", "A zoologist.")])
    index.commit()
    assert index.count() == 41
    assert index.document_frequency(terms).tolist() == [5, 5, 1, 41, 0, 1, 40]
    assert index.document_frequency([]).shape == (0,)


def test_changes_in_a_folder_outlive_the_process_that_made_them(tmp_path: Path) -> None:
    index = Bm25Index(tmp_path)
    index.add([Bm25Entry("a", "", "alpha"), Bm25Entry("b", "", "beta")])
    assert index.search("alpha", 5) == []
    index.commit()
    index.delete(["a", "unknown"])
    index.add([Bm25Entry("c", "", "gamma alpha")])
    index.commit()
    reopened = Bm25Index(tmp_path)
    assert [hit for hit, _ in reopened.search("alpha beta gamma", 5)] == ["c", "b"]


def test_nothing_is_written_in_a_folder_after_its_commit(tmp_path: Path) -> None:
    # Tantivy's own thread, which looks twice a second, made a lock file there: removing the folder could fail.
    index = Bm25Index(tmp_path)
    index.add([Bm25Entry("a", "", "some words")])
    index.commit()
    (tmp_path / ".tantivy-meta.lock").unlink()
    before = sorted(tmp_path.iterdir())
    time.sleep(1.2)
    assert sorted(tmp_path.iterdir()) == before
    assert index.count() == 1


def test_a_damaged_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{")
    with pytest.raises(CorpusCorruptError, match="Delete the folder"):
        Bm25Index(tmp_path)
    with pytest.raises(CorpusCorruptError, match="nothing"):
        Bm25Index(tmp_path / "nothing", create=False)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the segments of two commits."""
    index = Bm25Index(folder := tmp_path_factory.mktemp("made") / "with" / "parents")
    for name in ("a", "b"):
        index.add([Bm25Entry(name, "", "some words")])
        index.commit()
    return folder


@pytest.mark.parametrize("create", [False, True])
def test_an_index_of_as_many_segments_as_it_may_have_is_opened(
    committed: Path, create: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25, "MAX_SEGMENTS", 2)
    assert [hit for hit, _ in Bm25Index(committed, create=create).search("words", 5)] == ["a", "b"]
    monkeypatch.setattr(bm25, "MAX_SEGMENTS", 1)
    with pytest.raises(CorpusCorruptError, match="Delete the folder"):
        Bm25Index(committed, create=create)


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize(
    ("name", "change"),
    [
        (".managed.json", lambda names: [*names, "../a"]),
        ("meta.json", lambda meta: {**meta, "segments": meta["segments"] * 2}),
    ],
)
def test_lists_of_files_that_cannot_be_are_refused(
    committed: Path, name: str, change: Callable[[object], object], create: bool
) -> None:
    before = (committed / name).read_text()
    (committed / name).write_text(json.dumps(change(json.loads(before))))
    with pytest.raises(CorpusCorruptError, match="Delete the folder"):
        Bm25Index(committed, create=create)
    (committed / name).write_text(before)


@pytest.mark.parametrize(("name", "least"), [("2wiki", 0.69), ("hotpotqa", 0.84), ("musique", 0.56)])
def test_recall_on_real_questions(name: str, least: float) -> None:
    """The corpus is the documents that the questions need, and 3,000 others."""
    documents = real_documents(name)
    if not documents:
        pytest.skip("no multi-hop data beside the checkout: set CTX1_DATA to its folder")
    rows = train_queries(name)
    needed = {str(item) for row in rows for item in row["gold"]}  # type: ignore[attr-defined]
    corpus = [document for number, document in enumerate(documents) if number < 3_000 or document.id in needed]
    index = Bm25Index.of(Bm25Entry(document.id, document.title, document.text) for document in corpus)
    recalls = []
    for row in rows:
        gold = set(map(str, row["gold"]))  # type: ignore[call-overload]
        hits = {hit for hit, _ in index.search(str(row["question"]), 5)}
        recalls.append(len(gold & hits) / len(gold))
    assert np.mean(recalls) >= least


def test_an_indexed_id_that_names_no_chunk_is_damage_of_a_folder(committed: Path) -> None:
    for index, error in ((Bm25Index(committed), CorpusCorruptError), (named("some words"), KeyError)):
        words = Bm25Retriever(index, lambda _: frozenset(), {})
        assert words.search("other", 5) == []
        with pytest.raises(error):
            words.search("words", 5)


@pytest.mark.parametrize("small", [0, 1_000])
def test_a_filter_leaves_the_best_of_what_it_admits(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25, "_SMALL_SET", small)
    index = Bm25Index.of(Bm25Entry(f"{n:02}", "", "tail " * n + "head " * (40 - n)) for n in range(40))
    best = index.search("tail", 40)
    for allowed in (set(), {"07"}, {f"{n:02}" for n in range(0, 40, 9)}, {f"{n:02}" for n in range(40)}):
        words = Bm25Retriever(index, lambda _, allowed=allowed: allowed, {f"{n:02}": f"chunk {n}" for n in range(40)})
        admitted = [(f"chunk {int(name)}", score) for name, score in best if name in allowed]
        for k in (1, 3, 4, 40):
            assert words.search("tail", k, {"n": 1}) == admitted[:k]


def tickets() -> Iterator[Bm25Entry]:
    for number, (status, text) in enumerate([("open", "A pump hums."), ("open", "The open door."), ("done", "Rain.")]):
        owner = '{"name": "Szabo Pump"}' if number else ""
        metadata = {"status": status, "path": f"hum/{number}", "owner": owner, "n": 7, "kind": "letter"}
        metadata |= {"_type": "package"} if number else {}
        yield Bm25Entry(f"r{number}", "Ticket", text, f"FAC-{number}", metadata)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("open", ["r0", "r1"]),
        ("szabo's", ["r1", "r2"]),
        ("pump", ["r0", "r1", "r2"]),
        ("hums", ["r0"]),
        ("FAC-2", ["r2"]),
        ("fac2 rain", ["r2"]),
        ("status 7", []),
        ("package letter", []),
    ],
)
def test_words_that_more_metadata_than_texts_have_and_ids_find_texts(query: str, ids: list[str]) -> None:
    assert sorted(hit for hit, _ in Bm25Index.of(tickets()).search(query, 5)) == ids


@pytest.mark.parametrize(("count", "found"), [(9, 9), (10, 0)])
def test_a_word_that_nearly_all_metadata_have_is_not_searched_there(count: int, found: int) -> None:
    index = Bm25Index.of(
        Bm25Entry(str(row), "", "It.", "", {"kind": "letter"} if row < count else {}) for row in range(10)
    )
    assert len(index.search("letter", 10)) == found


def test_words_of_the_metadata_are_known_words() -> None:
    index = Bm25Index.of(tickets())
    assert index.document_frequency(["open", "pump", "hums", "Szabo", "Szabo open", "7"]).tolist() == [2, 2, 1, 2, 1, 0]
    words = Bm25Retriever(index, lambda _: frozenset())
    known, unknown = np.log1p(1.5 / 2.5), np.log1p(3.5 / 0.5)
    assert words.unknown_share("lantern Szabo") == pytest.approx((unknown - known) / (unknown + known))
    assert words.unknown_share("pump Szabo") == words.unknown_share("the ?") == 0


def test_identifiers_of_a_text_score_alike_with_any_document_id() -> None:
    entries = [Bm25Entry("a", "", "Error E-1074 of the pump."), Bm25Entry("b", "", "Error E-1075.")]
    plain, named = (Bm25Index.of(one._replace(document_id=name) for one in entries) for name in ("", "log/E-1074.txt"))
    assert plain.search("E-1074 pump", 1) == named.search("E-1074 pump", 1)


def index_in(language: str, *texts: str) -> Bm25Index:
    index = Bm25Index(language=language)
    index.add(Bm25Entry(str(number), "", text) for number, text in enumerate(texts))
    index.commit()
    return index


@pytest.mark.parametrize(
    ("language", "text", "query"),
    [
        ("ja", "青葉浄水場は蛍川から原水を取る。", "蛍川の水"),
        ("zh", "青石水库建成于1971年。", "青石水库1971"),
        ("ko", "달내강에서 물을 끌어온다.", "달내강"),
        ("th", "โรงกรองน้ำบางสน", "บางสน"),
        ("ja", "ガラスを磨く", "ｶﾞﾗｽ"),
        ("none", "バックアップはPostgreSQLで行う", "postgresql"),
        ("de", "Die Häuser wurden geöffnet.", "Haus"),
        ("fr", "Les jardins étaient ouverts.", "jardin"),
        ("en", "Les cafés", "cafe"),
    ],
)
def test_a_query_is_analyzed_like_the_texts_of_its_language(language: str, text: str, query: str) -> None:
    assert index_in(language, text, "Nothing of it.").search(query, 5)[0][0] == "0"


def test_a_term_cut_out_of_a_text_has_a_document_frequency() -> None:
    index = index_in("ja", "東京タワー", "京都", "奈良")
    assert index.document_frequency(["東京", "京", "タワ", "都東"]).tolist() == [1, 2, 1, 0]


def test_an_unknown_language_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'xx'.*--language.*de"):
        Bm25Index(language="xx")


GERMAN_HOUSES = "Die Häuser wurden nach dem Brand geöffnet, weil es auch nicht anders für die Stadt Siemens ging."
ENGLISH_HOUSES = "The houses were opened after the fire, and that was by order of Siemens."
FRENCH_HOUSES = "Les maisons étaient ouvertes après le feu, avec une lettre pour ces jardins qui sont dans la ville."


def mixed(*texts: str) -> Bm25Index:
    return Bm25Index.of(Bm25Entry(str(number), "", text) for number, text in enumerate(texts))


@pytest.mark.parametrize(
    ("query", "found"),
    [("Haus", "0"), ("house", "1"), ("maison", "2"), ("Welches Haus wurde nach dem Brand offen?", "0")],
)
def test_each_text_of_an_index_is_analyzed_in_its_own_language(query: str, found: str) -> None:
    index = mixed(GERMAN_HOUSES, ENGLISH_HOUSES, FRENCH_HOUSES, "東京タワーは1958年に建てられた。")
    assert set(index.languages) == {"de", "en", "fr", "ja"}
    assert index.search(query, 5)[0][0] == found
    assert index.search("タワー", 5)[0][0] == "3"


def test_a_name_is_found_in_texts_of_every_language_and_counts_in_each() -> None:
    index = mixed(GERMAN_HOUSES, ENGLISH_HOUSES, FRENCH_HOUSES)
    assert {hit for hit, _ in index.search("Siemens", 5)} == {"0", "1"}
    assert index.document_frequency(["Siemens", "Siemens ville", "the", "Haus", "?!"]).tolist() == [2, 0, 3, 1, 0]
    index.delete(["1"])
    index.commit()
    assert index.document_frequency(["Siemens", "Haus"]).tolist() == [1, 1]


def test_a_word_is_as_rare_as_all_its_forms_together() -> None:
    """In an index of many English and few German texts, a German form of a frequent name is not rare."""
    texts = [f"{ENGLISH_HOUSES} Number {number} and the mill." for number in range(40)]
    index = mixed(*texts, GERMAN_HOUSES, "The quarry and the mill were by the river that this town had.")
    scores = dict(index.search("Siemens", 50))
    assert scores["40"] < 2 * scores["0"]


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("dem Siemens", ["dem", "siemen", "siem"]),
        ("nach dem Siemens", ["siemen", "siem"]),
        ("dem was Siemens", ["dem", "siemen", "siem"]),
        ("the Siemens", ["siemen", "siem"]),
    ],
)
def test_stop_words_of_a_language_are_dropped_if_a_query_has_two_more_of_them(query: str, terms: list[str]) -> None:
    assert mixed(ENGLISH_HOUSES, ENGLISH_HOUSES, GERMAN_HOUSES).analyze(query) == terms


def test_a_language_of_the_least_share_of_the_texts_counts_in_every_query(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [ENGLISH_HOUSES, ENGLISH_HOUSES, ENGLISH_HOUSES, GERMAN_HOUSES]
    for share, terms in ((0.25, ["siemen", "siem"]), (0.26, ["siemen"])):
        monkeypatch.setattr(bm25, "MIN_LANGUAGE_SHARE", share)
        assert mixed(*texts).analyze("that was the Siemens") == terms


def test_a_text_of_one_language_is_analyzed_in_it_and_an_empty_index_in_its_own() -> None:
    index = Bm25Index(mixed=True)
    assert index.analyze("the houses") == ["hous"]
    assert index.document_frequency([]).dtype == np.int64
    assert [counts.dtype for counts in index.term_frequencies("")] == [np.int64, np.bool_]
    index.add([Bm25Entry("a", "", GERMAN_HOUSES)])
    index.commit()
    assert index.analyze("der Häuser") == mixed(GERMAN_HOUSES).analyze("der Häuser") == ["haus"]


def test_a_text_whose_language_is_unclear_has_that_of_most_texts() -> None:
    languages = mixed(ENGLISH_HOUSES, GERMAN_HOUSES, GERMAN_HOUSES, "Häuser").languages
    assert list(languages.items()) == [("de", 3), ("en", 1)]


@pytest.mark.parametrize("others", [0, 1, 7])
def test_the_forms_of_a_word_have_the_weight_of_a_word_that_is_in_all_their_texts(others: int) -> None:
    index = mixed(ENGLISH_HOUSES, GERMAN_HOUSES, *["The rain was on the river and that was by the mill."] * others)
    assert index.analyze("houses Siemens house") == list(dict.fromkeys(index.analyze("houses Siemens house")))
    in_one, in_both = np.log1p((others + 1.5) / 1.5), np.log1p((others + 0.5) / 2.5)
    once, twice = (dict(index.search(query, 9))["0"] for query in ("fire", "Siemens"))
    assert twice / once == pytest.approx(in_both / in_one, rel=1e-5)


def test_a_named_language_is_that_of_all_texts() -> None:
    index = index_in("en", GERMAN_HOUSES, ENGLISH_HOUSES)
    assert list(index.languages) == ["en"]
    assert index.search("Haus", 5) == []


def test_a_rare_language_costs_a_query_in_another_nothing() -> None:
    texts = [f"{ENGLISH_HOUSES} Number {number} and the mill." for number in range(600)]
    index = mixed(*texts, GERMAN_HOUSES)
    assert index.analyze("Which houses were opened?") == mixed(ENGLISH_HOUSES).analyze("Which houses were opened?")
    assert index.search("Welche Häuser wurden geöffnet?", 1)[0][0] == "600"


def named(*texts: str) -> Bm25Index:
    return Bm25Index.of(Bm25Entry(str(number), "", text) for number, text in enumerate(texts))


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("open_log_file", ["file_open_log() calls log_file and open_file", "def open_log_file(path, mode, flags)"]),
        ("Is 3.1.2 affected?", ["1.2.3 and 2.3.1 are affected", "affected is everything from 3.1.2 on, on any system"]),
        ("cve-2021-4034", ["4034 in 2021, cve-2021-3156 and 4034", "CVE-2021-4034 lets a user become root by a name"]),
        ("--no-cache", ["no cache, no cache", "with --no-cache, the images are pulled again from the server"]),
    ],
)
def test_a_text_with_an_identifier_itself_beats_one_with_its_parts(query: str, texts: list[str]) -> None:
    assert [hit for hit, _ in named(*texts).search(query, 1)] == ["1"]


def test_identifiers_do_not_change_the_scores_of_other_queries() -> None:
    with_names = named("a guild has a ledger, ledger_of_guild, and v1.2.3", "a guild of people")
    without = named("a guild has a ledger, ledger of guild, and v1 2 3", "a guild of people")
    assert with_names.search("guild ledger", 2) == without.search("guild ledger", 2)


def test_an_identifier_of_stop_words_alone_is_found() -> None:
    assert [hit for hit, _ in named("it is not to_be or_not", "to be or not").search("to_be", 2)] == ["0"]


@pytest.mark.parametrize(
    ("code", "text", "query"),
    [
        ("ar", "وَلَمْ يُولَدْ", "ولم يولد"),
        ("none", "בְּרֵאשִׁית בָּרָא", "בראשית"),
        ("none", "می\u200cخواهم", "میخواهم"),
        ("none", "كتاب علي", "کتاب علی"),
        ("de", "Donau\u00addampf\u00adschiff", "Donaudampfschiff"),
        ("ru", "Москвы́ ударе́ние", "ударение"),
        ("none", "ज़मीन", "जमीन"),
        ("none", "हिन्दी", "हिंदी"),
        ("none", "عن أحمد", "احمد"),
        ("ru", "Ёлка растёт", "елка"),
        ("el", "Ο Οδυσσεύς", "ΟΔΥΣΣΕΥΣ"),
        ("none", "Ο Οδυσσεύς στην Αθήνα", "αθηνα"),
        ("none", "كتب ٣٤٧ صفحة", "347"),
        ("en", "Acme™ Pro", "acme"),
        ("en", "the \U0001d41b\U0001d428\U0001d425\U0001d41d line", "bold"),
        ("en", "2.5 \u00b5m wide", "μm"),
        ("en", "java.util.\u200bconcurrent, data\u200bbase", "database"),
        ("en", "all 9,410 units", "9410"),
        ("en", "all 9410 units", "9\u202f410"),
        ("en", "a disk of 16 GB", "16GB"),
        ("en", "Error E-1074", "E1074"),
        ("en", "Error E1074", "E 1074"),
        ("en", "on 2021-05-17", "May 17, 2021"),
        ("en", "on 17 May 2021", "05/17/2021"),
        ("en", "on 17 May 2021", "2021-05"),
    ],
)
def test_a_word_is_found_without_what_writers_may_leave_out(code: str, text: str, query: str) -> None:
    assert [hit for hit, _ in index_in(code, "other words", text).search(query, 2)] == ["1"]


def test_a_query_of_many_identifiers_keeps_the_rarest() -> None:
    common = [f"common_{number}" for number in range(MAX_QUERY_TERMS)]
    index = named("a rare name", "a rare_name", *[" ".join(common)] * 3)
    found = [hit for hit, _ in index.search(" ".join([*common, "rare_name"]), 5)]
    assert found.index("1") < found.index("0")


@pytest.mark.parametrize(("text", "query"), [("Jürgen Müller", "Juergen Mueller"), ("Ask Mueller", "Müller")])
def test_a_name_is_found_with_and_without_umlauts(text: str, query: str) -> None:
    assert [hit for hit, _ in named("Jan Meyer", text).search(query, 2)] == ["1"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("kind: PodDisruptionBudget", "the pod disruption budget of a service"),
        ("a filename", "Which file name is wrong?"),
        ("the wifi is down", "Wi-Fi"),
    ],
)
def test_words_that_a_text_has_as_one_are_found(text: str, query: str) -> None:
    assert [hit for hit, _ in named("a service is down or wrong", text).search(query, 1)] == ["1"]


def test_words_are_not_joined_to_a_form_of_one_of_them_or_of_words_that_mean_little() -> None:
    assert named("Das gibt Ärger und bleibt").joined("Gibt es Ärger?") == []
    assert named("the income of the doctors").joined("Which doctor s came in come what may") == []


@pytest.mark.parametrize("query", ["the canon's", "the canon’s", "THE CANON'S"])
def test_the_ending_of_a_possessive_is_no_word(query: str) -> None:
    assert [hit for hit, _ in named("a brewer's wife and a brewer's son", "a canon").search(query, 2)] == ["1"]
