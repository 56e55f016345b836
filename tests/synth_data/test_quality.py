"""The quality stage: dropped tasks have reasons, kept tasks have labels, and a rerun repeats no finished work.

pass@N: attempts that really differ, counted by the gold that they find.
"""

import json
import random
import tracemalloc
from itertools import combinations

import pytest

from context_agent import Action, BridgePolicy, Document, MemoryCorpus, ScriptedPolicy
from context_agent.errors import ConfigError, PolicyError
from context_agent.eval.gold import question_key
from context_agent.synth_data import duplicates
from context_agent.synth_data.attempts import AttemptResults, PassAtN, build_attempts, default_vary
from context_agent.synth_data.difficulty import estimate_difficulty, label_difficulty, rival_margin
from context_agent.synth_data.duplicates import find_duplicates, shingles
from context_agent.synth_data.quality import filter_tasks
from context_agent.synth_data.stages import dropped_path
from context_agent.synth_data.task import load_tasks
from context_agent.testing import actions
from context_agent.testing.documents import linked_documents
from tests.support.tasks import task

EASY = task("easy", "d7", question="SENTINEL-0007 closes the entry")
HARD = task("hard", "d9", question="zzz qqq xxx")
TASKS = [
    EASY,
    task("again", "d7", question="SENTINEL-0007 closes the entry!"),
    task("none", question="Who?"),
    task("missing", "d7", "gone", question="What is gone?"),
    task("other", "d8", question="What does Entry 8 cite?"),
]


@pytest.fixture(scope="module")
def corpus():
    return MemoryCorpus(linked_documents())


def reasons(out):
    rows = [json.loads(line) for line in dropped_path(out).read_text(encoding="utf-8").splitlines()]
    return {row["input"]["id"]: row["reason"] for row in rows}


async def test_each_dropped_task_has_its_reason(corpus, tmp_path):
    out = tmp_path / "kept.jsonl"
    report = await filter_tasks(TASKS, corpus, out)
    assert [item.id for item in load_tasks(out)] == ["easy", "other"]
    assert reasons(out) == {"again": "near-duplicate", "none": "no gold", "missing": "gold is not in the index"}
    assert report.dropped == {"gold is not in the index": 1, "near-duplicate": 1, "no gold": 1}
    assert all(0 <= item.labels["difficulty"]["score"] <= 1 for item in load_tasks(out))


async def test_a_task_without_a_question_is_dropped(corpus, tmp_path):
    out = tmp_path / "kept.jsonl"
    report = await filter_tasks([EASY, task("empty", "d9", question=" ")], corpus, out)
    assert report.dropped == {"no question": 1}


async def test_duplicates_stay_where_asked(corpus, tmp_path):
    await filter_tasks(TASKS, corpus, tmp_path / "kept.jsonl", min_similarity=None)
    assert [item.id for item in load_tasks(tmp_path / "kept.jsonl")] == ["easy", "again", "other"]


async def test_attempts_drop_the_trivial_and_the_hopeless(corpus, tmp_path):
    trial = PassAtN(build_attempts(corpus, BridgePolicy(), 2, "effort"), "effort", k=1)
    out = tmp_path / "kept.jsonl"
    await filter_tasks([EASY, HARD], corpus, out, pass_at_n=trial)
    assert reasons(out) == {"easy": "always solved", "hard": "never solved"}
    trial = PassAtN(trial.attempts, "effort", k=1, drop=frozenset({"never"}))
    await filter_tasks([EASY, HARD], corpus, tmp_path / "other.jsonl", pass_at_n=trial)
    (kept_task,) = load_tasks(tmp_path / "other.jsonl")
    assert kept_task.labels["passes"]["solved"] == 2
    assert kept_task.labels["difficulty"]["misses"] == 0


async def test_a_rerun_asks_again_only_where_the_policy_failed(corpus, tmp_path):
    requests = []

    class Faulty(ScriptedPolicy):
        down = True

        def open(self, question, corpus, *, profile, seed=0):
            requests.append(question)
            if self.down and question == HARD.question:
                raise PolicyError("the server is down")
            return super().open(question, corpus, profile=profile, seed=seed)

    policy = Faulty([actions.search("entry"), actions.rank_all])
    trial = PassAtN(build_attempts(corpus, policy, 1, "seed"), "seed", drop=frozenset())
    out = tmp_path / "kept.jsonl"
    report = await filter_tasks([EASY, HARD], corpus, out, pass_at_n=trial)
    assert report.dropped == {"failed: PolicyError": 1}
    assert [item.id for item in load_tasks(out)] == ["easy"]
    policy.down = False
    report = await filter_tasks([EASY, HARD], corpus, out, pass_at_n=trial)
    assert (report.kept, report.resumed) == (2, 1)
    assert requests == [EASY.question, HARD.question, HARD.question]


async def test_other_settings_are_not_mixed_into_a_run(corpus, tmp_path):
    await filter_tasks([EASY], corpus, tmp_path / "kept.jsonl")
    with pytest.raises(ConfigError, match="similarity"):
        await filter_tasks([EASY], corpus, tmp_path / "kept.jsonl", min_similarity=0.5)


async def test_near_duplicates_are_those_of_the_rows_as_they_stand_now(corpus, tmp_path):
    out = tmp_path / "kept.jsonl"
    await filter_tasks(TASKS, corpus, out)
    reordered = [TASKS[1], *TASKS[2:], TASKS[0]]
    report = await filter_tasks(reordered, corpus, out)
    assert [item.id for item in load_tasks(out)] == ["again", "other"]
    assert reasons(out)["easy"] == "near-duplicate"
    assert report.resumed == 3, "the two that changed places were judged anew"
    fresh = tmp_path / "fresh.jsonl"
    await filter_tasks(reordered, corpus, fresh)
    assert out.read_bytes() == fresh.read_bytes()
    assert dropped_path(out).read_bytes() == dropped_path(fresh).read_bytes()


def test_the_same_words_about_the_same_documents_are_one_task():
    tasks = [
        task("a", "d1", "d2", question="What is the place of birth of the director of the film Zone?"),
        task("b", "d2", "d1", question="What is the birth place of the director of the film “Zone”?"),
        task("c", "d2", "d1", question="In which year did the first bridge over that river fall?"),
    ]
    (duplicate,) = find_duplicates(tasks)
    assert (duplicate.task.id, duplicate.of) == ("b", "a")
    assert 0.7 <= duplicate.similarity < 1
    assert "asks the same as a" in duplicate.reason


def test_a_template_about_other_documents_is_kept():
    tasks = [task(name, name, question=f"Where was the director of the film {name} born?") for name in ("Zone", "Zona")]
    assert find_duplicates(tasks) == []


def test_word_for_word_is_a_duplicate_whatever_the_gold():
    tasks = [task("a", "d1", question="Who built it?"), task("b", "d2", question="who BUILT it")]
    assert [(duplicate.task.id, duplicate.of, duplicate.similarity) for duplicate in find_duplicates(tasks)] == [
        ("b", "a", 1.0)
    ]


def test_tasks_without_gold_are_compared_word_for_word_alone():
    tasks = [task("a", question="Where was Ann of Ely born?"), task("b", question="Where was Ann of Eli born?")]
    assert find_duplicates(tasks) == []


def test_a_dropped_task_drops_no_other():
    """b is like a, and c is like b but not like a: only b is dropped."""
    words = "one two three four five six seven eight nine ten eleven twelve".split()
    texts = [" ".join(words), " ".join([*words[:10], "x1", "x2"]), " ".join([*words[:8], "y1", "y2", "x1", "x2"])]
    tasks = [task(name, "d", question=text) for name, text in zip("abc", texts, strict=True)]
    a, b, c = (shingles(text) for text in texts)
    assert len(a & b) / len(a | b) >= 0.6 <= len(b & c) / len(b | c)
    assert len(a & c) / len(a | c) < 0.6
    assert [duplicate.task.id for duplicate in find_duplicates(tasks, min_similarity=0.6)] == ["b"]


def test_no_memory_is_spent_on_tasks_whose_documents_no_other_task_shares():
    tasks = [task(str(number), f"d{number}", question=f"{number} " + "asks about this " * 8) for number in range(2_000)]
    tasks.append(task("again", "d7", question="7: " + "asks about this " * 8))
    tracemalloc.start()
    found = find_duplicates(tasks)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(duplicate.task.id, duplicate.of) for duplicate in found] == [("again", "7")]
    assert most < 3_000_000


@pytest.mark.parametrize("similarity", [0.3, 0.5, 0.7, 0.9, 1.0])
def test_the_filter_loses_no_pair(similarity):
    """The result equals that of comparing all pairs."""
    draw = random.Random(0)
    words = [f"w{number}" for number in range(12)]
    tasks = [task(str(number), "d", question=" ".join(draw.choices(words, k=6))) for number in range(150)]
    grams = {item.id: shingles(item.question) for item in tasks}
    dropped_ids: set[str] = set()
    for earlier, later in combinations(tasks, 2):
        similar = len(grams[earlier.id] & grams[later.id]) / len(grams[earlier.id] | grams[later.id]) >= similarity
        if earlier.id not in dropped_ids and (
            similar or question_key(earlier.question) == question_key(later.question)
        ):
            dropped_ids.add(later.id)
    assert {duplicate.task.id for duplicate in find_duplicates(tasks, min_similarity=similarity)} == dropped_ids


def test_few_pairs_of_questions_are_compared(monkeypatch):
    compared = 0

    def counting_jaccard(left, right):
        nonlocal compared
        compared += 1
        return similarity(left, right)

    similarity = duplicates._jaccard
    monkeypatch.setattr(duplicates, "_jaccard", counting_jaccard)
    draw = random.Random(0)
    words = [f"word{number}" for number in range(5000)]
    tasks = [
        task(str(number), f"d{number % 20}", question=" ".join(draw.choices(words, k=14))) for number in range(2_000)
    ]
    assert len(find_duplicates(tasks)) < 10
    assert compared < 20_000, "of 99,000 pairs about the same documents"


def test_questions_of_signs_alone_do_not_fall_together():
    assert find_duplicates([task("a", "d", question="?!"), task("b", "d", question="...")]) == []


@pytest.mark.parametrize("similarity", [0, 1.5, -1])
def test_a_similarity_that_cannot_be_is_refused(similarity):
    with pytest.raises(ConfigError, match="similarity"):
        find_duplicates([], min_similarity=similarity)


QUESTION = "Where was the painter of the Harbour at Dawn born?"


@pytest.fixture(scope="module")
def rivals():
    return MemoryCorpus(
        [
            Document("painting", "Harbour at Dawn was painted by Ilse Brandt.", "Harbour at Dawn"),
            Document("painter", "Ilse Brandt came into the world in Norden.", "Ilse Brandt"),
            Document("rival", "Harbour at Dusk: the painter of the harbour was born at dawn.", "Harbour at Dusk"),
            *(
                Document(f"x{number}", f"Notes on steam engine number {number} and its boiler.", f"Engine {number}")
                for number in range(20)
            ),
        ]
    )


@pytest.fixture(scope="module")
def plain(rivals):
    """The rivals without the look-alike."""
    chunks = [chunk for chunk in rivals.chunks if chunk.document_id != "rival"]
    return MemoryCorpus([Document(chunk.document_id, chunk.text, chunk.title) for chunk in chunks])


def test_a_look_alike_makes_it_harder(rivals, plain):
    target = task("a", "painting", "painter", question=QUESTION, hops=2)
    assert rival_margin(target, rivals) > rival_margin(target, plain)
    assert estimate_difficulty(target, rivals).score > estimate_difficulty(target, plain).score


def test_a_distractor_named_by_the_task_is_a_rival_wherever_search_ranks_it(rivals):
    without_named = task("a", "painting", question=QUESTION)
    with_named = task("a", "painting", question=QUESTION, distractors=("painting-copy", "rival"))
    assert rival_margin(with_named, rivals) >= rival_margin(without_named, rivals)
    assert rival_margin(with_named, rivals) is not None


def test_what_proves_the_task_is_no_rival(plain):
    two_gold = task("a", "painting", "painter", question=QUESTION)
    one_gold = task("a", "painter", question=QUESTION)
    assert rival_margin(two_gold, plain) < rival_margin(one_gold, plain)


def test_more_hops_are_harder(rivals):
    scores = [
        estimate_difficulty(task("a", "painting", question=QUESTION, hops=hops), rivals).score
        for hops in (1, 2, 3, 4, 5)
    ]
    assert scores[:4] == sorted(set(scores[:4]))
    assert scores[3] == scores[4]


def test_what_attempts_needed_counts_where_it_was_measured(rivals):
    def difficulty_labels(recalls, turns, hops):
        labels = {"passes": {"recalls": recalls, "turns": turns}, "other": 1}
        return label_difficulty(task("a", "painting", question=QUESTION, labels=labels, hops=hops), rivals).labels

    easy, hard = difficulty_labels([1, 1], [2, 2], 1), difficulty_labels([0, 0.5], [9, 12], 4)
    assert easy["other"] == 1
    assert easy["difficulty"]["score"] < hard["difficulty"]["score"]
    assert easy["difficulty"]["misses"] == 0
    assert hard["difficulty"]["turns"] == 0.875
    assert (easy["difficulty"]["level"], hard["difficulty"]["level"]) == ("easy", "hard")


def test_gold_that_is_not_there_leaves_the_part_out(rivals):
    difficulty = estimate_difficulty(task("a", "nowhere", question=QUESTION, hops=3), rivals)
    assert set(difficulty.parts) == {"hops"}
    assert difficulty.score == pytest.approx(2 / 3)


class Wavering:
    """A policy that finds the entry on even seeds only, as a sampling policy would from time to time."""

    name, counter = "wavering", None

    def instructions(self, profile):
        return ""

    def open(self, question, corpus, *, profile, seed=0):
        last_step = actions.rank_all if seed % 2 == 0 else (lambda view: actions.rank())
        return ScriptedPolicy([actions.search(question), last_step]).open(question, corpus, profile=profile)


ENTRY = task("a", "d7", question="SENTINEL-0007 closes the entry")


async def test_seeds_make_a_sampling_policy_differ(corpus):
    trial = PassAtN(build_attempts(corpus, Wavering(), 4, "seed"), "seed")
    passes = await trial.run(ENTRY)
    assert [recall >= 1 for recall in passes.recalls] == [True, False, True, False]
    assert passes.solved(1.0) == 2
    assert trial.extreme(passes) is None
    label = trial.label(ENTRY, passes).labels["passes"]
    assert (label["solved"], label["of"], label["policy"]) == (2, 4, "wavering")
    assert label["attempts"] == ["seed 0", "seed 1", "seed 2", "seed 3"]


async def test_the_embedded_policy_differs_by_effort(corpus):
    attempts = build_attempts(corpus, BridgePolicy(), 3, "effort")
    assert [attempt.label for attempt in attempts] == ["searches 1", "searches 5", "searches 28"]
    two_hop = task("b", "d3", "d21", question="What does the entry that Entry 3 cites tell of?", hops=2)
    passes = await PassAtN(attempts, "effort").run(two_hop)
    calls = []
    for attempt in attempts:
        result = await attempt.agent.asearch(two_hop.question)
        calls.append(
            sum(event.name == "search_corpus" for event in result.trajectories[0].events if hasattr(event, "name"))
        )
    assert calls == sorted(calls)
    assert calls[0] == 1 < calls[-1]
    assert passes.recalls[-1] >= passes.recalls[0]


async def test_windows_are_halved(corpus):
    attempts = build_attempts(corpus, BridgePolicy(), 3, "window", window=16_384)
    assert [attempt.agent.budget.window for attempt in attempts] == [16_384, 8_192, 4_096]
    assert len((await PassAtN(attempts, "window").run(ENTRY)).turns) == 3


def test_attempts_that_would_be_the_same_search_are_refused(corpus):
    with pytest.raises(ConfigError, match="deterministic and ignores the seed"):
        build_attempts(corpus, BridgePolicy(), 2, "seed")
    with pytest.raises(ConfigError, match="cannot all differ with at most 28 searches"):
        build_attempts(corpus, BridgePolicy(), 30, "effort")
    with pytest.raises(ConfigError, match="no effort to vary"):
        build_attempts(corpus, Wavering(), 2, "effort")
    with pytest.raises(ConfigError, match="below 2,048"):
        build_attempts(corpus, BridgePolicy(), 6, "window")
    with pytest.raises(ConfigError, match="at least 1"):
        build_attempts(corpus, BridgePolicy(), 0, "effort")
    with pytest.raises(ConfigError, match="recall threshold"):
        PassAtN(build_attempts(corpus, BridgePolicy(), 1, "effort"), "effort", threshold=0)
    assert default_vary(BridgePolicy()) == "effort"
    assert default_vary(Wavering()) == "seed"


@pytest.mark.parametrize(
    ("recalls", "drop", "found"),
    [
        ((1.0, 1.0), {"always", "never"}, "always"),
        ((0.5, 0.0), {"always", "never"}, "never"),
        ((1.0, 0.5), {"always", "never"}, None),
        ((1.0, 1.0), {"never"}, None),
        ((0.0, 0.0), {"always"}, None),
    ],
)
def test_what_is_always_or_never_solved_goes_as_asked(corpus, recalls, drop, found):
    trial = PassAtN(build_attempts(corpus, BridgePolicy(), 2, "effort"), "effort", drop=frozenset(drop))
    assert trial.extreme(AttemptResults(recalls, (1, 2))) == found


async def test_half_the_gold_is_enough_where_that_is_the_threshold(corpus):
    half_gold = task("c", "d7", "nowhere", question=ENTRY.question)
    trial = PassAtN(build_attempts(corpus, Wavering(), 1, "seed"), "seed", threshold=0.5)
    passes = await trial.run(half_gold)
    assert passes.recalls == (0.5,)
    assert passes.solved(trial.threshold) == 1


async def test_facts_are_met_by_any_of_their_chunks(corpus):
    by_fact = task("c", question=ENTRY.question, facts=(("nowhere_0", "d7_0"),))
    assert (await PassAtN(build_attempts(corpus, Wavering(), 1, "seed"), "seed").run(by_fact)).recalls == (1.0,)


async def test_an_attempt_that_broke_off_is_no_miss(corpus):
    def fail(view) -> Action:
        raise PolicyError("the server is down")

    policy = ScriptedPolicy([actions.search(ENTRY.question), fail])
    with pytest.raises(PolicyError, match="seed 0: the server is down"):
        await PassAtN(build_attempts(corpus, policy, 1, "seed"), "seed").run(ENTRY)
