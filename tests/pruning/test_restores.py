"""What was restored raises the bar for what resembles it, in that conversation alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from context_agent.errors import ConfigError, DataError
from context_agent.integrations.restore_log import RestoreLog
from context_agent.pruning.passages import Passage
from context_agent.pruning.prices import Prices
from context_agent.pruning.pruner import ContextPruner
from context_agent.pruning.relevance import raised
from context_agent.pruning.report import PruneReport, RestoredPassage
from context_agent.pruning.stubs import RequestedIds
from context_agent.pruning.words import PassageWords
from context_agent.tokens import CharCounter
from tests.support.conversations import Call, Turn, rendered
from tests.support.long_conversation import LONG as OPENING
from tests.support.long_conversation import TASK, noises, search

FREE, BUDGET = Prices(cached=1.0), 300
"""Without a prefix cache every prune pays."""
ROSTER = "Pilot roster: Ines Marlow takes berth {} beside a tanker convoy, {} shift, harbor office."
SHIFTS = ("early", "late", "night", "relief")
DIRECTORS = "\n\n".join(
    f"Director {number} of the playhouse wrote to the town about the lamps of the stage." for number in range(14)
)
"""Passages that have a word of the task, which a roster entry has not. They fill the room."""


def turns(count: int) -> list[Any]:
    """A conversation whose later results have roster entries among noise."""
    found = [*OPENING, search(99, DIRECTORS)]
    for number in range(count):
        roster = ROSTER.format(number, SHIFTS[number % 4])
        found.append(
            search(100 + number, f"{noises(200 + 10 * number, 4)}\n\n{roster}\n\n{noises(400 + 10 * number, 4)}")
        )
    return [*found, search(900, "done")]


def visible(messages: Any, number: int) -> bool:
    return ROSTER.format(number, SHIFTS[number % 4]) in str(messages)


@pytest.mark.parametrize(("strategy", "effort"), [("bm25", "fast"), ("reader", "fast"), ("reader", "careful")])
def test_what_resembles_a_restored_passage_stays(strategy: str, effort: Any) -> None:
    outcomes = []
    for restores in (False, True):
        pruner = ContextPruner(BUDGET, prices=FREE, strategy=strategy, effort=effort)
        pruned = pruner.prune(rendered("openai", turns(1)))
        assert not visible(pruned.messages, 0)
        if restores:
            wrong = next(item.id for item in pruned.report.removed if "Ines Marlow" in item.preview)
            pruner.restore(pruned.messages, [wrong])
        messages = pruner.prune(rendered("openai", turns(4))).messages
        outcomes.append([visible(messages, number) for number in range(4)])
    without, with_restore = outcomes
    assert sum(without) <= 1
    assert sum(with_restore) >= 3


def asking(pruner: ContextPruner, *ranges: str, steps: int) -> tuple[list[Any], list[PruneReport]]:
    """Prune the conversation, then with a request for each range, then with further steps.

    Returns:
        The last messages, and the reports of the prunes after the first.
    """
    conversation, reports = turns(2), []
    pruner.prune(rendered("openai", conversation))
    requests = [Turn("", "", (Call(f"r{ids}", {"text": f"restore: {ids}"}, ("noted",)),)) for ids in ranges]
    for turn in (*requests, *(search(950 + step, "done") for step in range(steps))):
        conversation.append(turn)
        reports.append(pruner.prune(rendered("openai", conversation)).report)
        repeated = pruner.prune(rendered("openai", conversation)).report
        assert repeated.tokens_after == reports[-1].tokens_after, "the same request is sent again"
    return rendered("openai", conversation), reports


def is_pruned(pruner: ContextPruner, messages: list[Any], name: str) -> bool:
    try:
        pruner.restore(messages, [name])
    except ConfigError:
        return False
    return True


def keeper() -> ContextPruner:
    return ContextPruner(BUDGET, prices=FREE, strategy="bm25", counter=CharCounter())


def test_restored_passages_that_do_not_fit_are_judged_again_after_three_steps() -> None:
    _, (first, *later) = asking(keeper(), "p1-p20", steps=4)
    assert len(first.restored) > 10
    assert [report.outcome for report in (first, *later[:2])] == ["over budget"] * 3
    assert later[2].outcome == "pruned"
    assert later[3].tokens_after <= BUDGET


def test_restored_errors_that_do_not_fit_are_judged_again_after_three_steps() -> None:
    pruner = keeper()
    conversation = [
        replace(turn, calls=tuple(replace(call, is_error=True) for call in turn.calls)) for turn in turns(2)
    ]
    pruner.prune(rendered("anthropic", conversation))
    request = Turn("", "", (Call("r", {"text": "restore: p1-p40"}, ("noted",)),))
    reports = []
    for turn in (request, *(search(950 + step, "done") for step in range(4))):
        conversation.append(turn)
        reports.append(pruner.prune(rendered("anthropic", conversation)).report)
    assert reports[0].outcome == "over budget"
    assert reports[-1].tokens_after <= BUDGET


def test_of_restored_passages_the_first_are_judged_again() -> None:
    pruner = keeper()
    messages, reports = asking(pruner, "p1-p20", "p25", steps=4)
    assert reports[1].restored == ("p25",)
    assert reports[-1].tokens_after <= BUDGET
    assert not is_pruned(pruner, messages, "p25")


def test_restored_passages_that_fit_stay() -> None:
    pruner = keeper()
    messages, reports = asking(pruner, "p1-p2", steps=6)
    assert reports[0].restored == ("p1", "p2")
    assert not any(report.removed for report in reports[1:])
    assert not is_pruned(pruner, messages, "p1")
    assert is_pruned(pruner, messages, "p3")


REQUEST = Turn("", "", (Call("r", {"text": "restore: p1-p5"}, ("noted",)),))


@pytest.mark.parametrize("excess", [0, 1])
def test_restored_passages_stay_if_the_protected_passages_fit_exactly(excess: int) -> None:
    pruner = keeper()
    removed = pruner.prune(rendered("openai", turns(2))).report.removed
    pruner.prune(rendered("openai", [*turns(2), REQUEST]))
    last_turn = search(999, "x" * 4 * (BUDGET - sum(item.tokens for item in removed[:5]) + excess))
    conversation = [*turns(2), REQUEST, *(search(950 + step, "done") for step in range(3)), last_turn]
    report = pruner.prune(rendered("openai", conversation)).report
    assert ("restored" in report.protected) is not bool(excess)


def test_restored_passages_are_judged_again_only_until_the_others_fit() -> None:
    pruner, again = keeper(), Turn("", "", (Call("s", {"text": "restore: p25"}, ("noted",)),))
    conversation = turns(2)
    for turn in (None, replace(REQUEST, calls=(Call("r", {"text": "restore: p1-p20"}, ("noted",)),)), again):
        conversation += [turn] if turn else []
        pruner.prune(rendered("openai", conversation))
    conversation += [search(950 + step, "done") for step in range(4)]
    report = pruner.prune(rendered("openai", conversation)).report
    assert report.outcome == "pruned"
    assert report.protected["restored"] == 1


def test_messages_of_the_user_are_no_steps() -> None:
    pruner = keeper()
    pruner.prune(rendered("openai", turns(2)))
    request = Turn("", "", (Call("r", {"text": "restore: p1-p20"}, ("noted",)),))
    conversation = [*turns(2), request]
    assert pruner.prune(rendered("openai", conversation)).report.outcome == "over budget"
    messages = rendered("openai", conversation) + [{"role": "user", "content": "And then?"}] * 4
    assert pruner.prune(messages).report.outcome == "over budget"


def test_another_conversation_is_not_affected() -> None:
    pruner, other = (ContextPruner(BUDGET, prices=FREE, strategy="bm25") for _ in range(2))
    pruned = pruner.prune(rendered("openai", turns(1)))
    pruner.restore(pruned.messages, [item.id for item in pruned.report.removed if "Ines Marlow" in item.preview])
    assert not any(visible(other.prune(rendered("openai", turns(4))).messages, number) for number in range(1))


def test_an_id_that_no_stub_names_is_refused_with_the_nearest() -> None:
    pruner = ContextPruner(BUDGET, prices=FREE, strategy="bm25")
    pruned = pruner.prune(rendered("openai", turns(1)))
    wanted = pruned.report.removed[0].id
    with pytest.raises(ConfigError, match=f"names '{wanted}x'. Did you mean '{wanted}"):
        pruner.restore(pruned.messages, [f"{wanted}x"])


def test_a_restore_that_is_refused_restores_nothing() -> None:
    restored: list[RestoredPassage] = []
    pruner = ContextPruner(BUDGET, prices=FREE, strategy="bm25", on_restore=restored.append)
    messages = rendered("openai", turns(1))
    pruned = pruner.prune(messages)
    with pytest.raises(ConfigError, match="names 'p999'"):
        pruner.restore(pruned.messages, [pruned.report.removed[0].id, "p999"])
    assert restored == []
    assert pruner.prune(messages).messages == pruned.messages


@pytest.mark.parametrize("ids", ["p1", None, 3, [3], ["p1", 3], [["p1"]]])
def test_ids_of_other_types_are_refused(ids: Any) -> None:
    pruner = ContextPruner(BUDGET, prices=FREE, strategy="bm25")
    pruned = pruner.prune(rendered("openai", turns(1)))
    with pytest.raises(ConfigError, match="`ids` must be the ids of passages"):
        pruner.restore(pruned.messages, ids)


def test_a_prune_after_a_restore_is_repeatable() -> None:
    pruner = ContextPruner(BUDGET, prices=FREE, strategy="bm25")
    pruned = pruner.prune(rendered("openai", turns(1)))
    pruner.restore(pruned.messages, [pruned.report.removed[0].id])
    first = pruner.prune(rendered("openai", turns(4)))
    second = pruner.prune(first.messages)
    assert second.messages == first.messages
    assert second.report.removed == ()


def test_scores_rise_by_at_most_their_range() -> None:
    passages = [Passage(text, 0, len(text)) for text in (ROSTER, ROSTER, TASK, "The weather is fine.")]
    scores = np.array([1.0, 0.0, 3.0, -1.0])
    new = raised(scores, passages, [0])
    assert new[1] - scores[1] == pytest.approx(4.0)
    assert new[3] == scores[3]
    assert raised(scores, passages, []) is scores
    infinite = np.full(4, np.inf)
    assert not np.isnan(raised(infinite, passages, [0])).any()
    alike = PassageWords(passages).resemblance([0])
    assert alike[1] == pytest.approx(1.0)
    assert ((alike >= 0) & (alike <= 1 + 1e-6)).all()


def test_each_restored_passage_is_reported_once() -> None:
    restored: list[RestoredPassage] = []
    pruner = ContextPruner(BUDGET, prices=FREE, strategy="bm25", on_restore=restored.append)
    pruned = pruner.prune(rendered("openai", turns(1)))
    wrong = next(item for item in pruned.report.removed if "Ines Marlow" in item.preview)
    asking = [*pruned.messages, {"role": "assistant", "content": f"I need restore: {wrong.id}"}]
    for _ in range(2):
        assert ROSTER.format(0, SHIFTS[0]) in str(pruner.prune(asking).messages)
    pruner.restore(pruned.messages, [wrong.id])
    (passage,) = restored
    assert passage.text.startswith(ROSTER.format(0, SHIFTS[0]))
    assert (passage.task, passage.tokens) == (TASK, wrong.tokens)


def test_the_record_survives_a_restart_and_is_private(tmp_path: Path) -> None:
    file = tmp_path / "restores.jsonl"
    for number in range(2):
        log = RestoreLog(file)
        log.add(RestoredPassage("task \ud800", "label", f"text {number}", 3))
        log.close()
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [line["text"] for line in lines] == ["text 0", "text 1"]
    assert lines[0].keys() == {"time", "task", "label", "text", "tokens"}
    assert file.stat().st_mode & 0o077 == 0


def test_a_full_disk_does_not_end_the_conversation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RestoreLog(tmp_path / "restores.jsonl")

    def full(*_: object) -> None:
        raise DataError("the disk is full")

    monkeypatch.setattr("context_agent._support.journal.AppendLog.append", full)
    log.add(RestoredPassage("task", "", "text", 1))
    log.close()


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("restore: p3-p5, p9", [3, 4, 5, 9]),
        ("Restore p3 and p9, please.", [3, 9]),
        ("**restore:** p3, p4, and p9", [3, 4, 9]),
        ("restore: `p3`; `p9`", [3, 9]),
        ("restore:\n- p3\n- p9", [3, 9]),
        ("restore passages p3 to p5", [3, 4, 5]),
        ("restore: p3\u2013p5", [3, 4, 5]),
        ("restore: p3 - p5", [3, 4, 5]),
        ("restore: p3-5", [3, 4, 5]),
        ("restore: p5-p3", [3, 4, 5]),
        ("restore p3 - 2 more", [3]),
        ("restore p3/p4 or p9", [3, 4, 9]),
        ("restore passage p3 and passage p9", [3, 9]),
        ("restore\uff1ap3\u3001p9", [3, 9]),
        ("restore(p3, p9)", [3, 9]),
        (json.dumps({"restore": "p3-p5, p9"}), [3, 4, 5, 9]),
        (json.dumps({"restore": ["p3", "p9"]}), [3, 9]),
        (json.dumps({"input": json.dumps({"restore": ["p3", "p9"]})}), [3, 9]),
        ("restored p3", []),
        ("restore: p3rd, p9", []),
        ("I will not restore anything. p3 is enough.", []),
        ("restore: p3. In the column p9 is the price.", [3]),
    ],
)
def test_a_request_is_read_as_models_write_it(text: str, ids: list[int]) -> None:
    requested = RequestedIds([text])
    assert [number for number in range(1, 20) if number in requested] == ids


def test_the_arguments_of_a_call_restore_passages() -> None:
    pruner = ContextPruner(BUDGET, prices=FREE, strategy="bm25", effort="fast")
    conversation = rendered("openai", turns(1))
    removed = [item.id for item in pruner.prune(conversation).report.removed][:2]
    asked = Turn("", "", (Call("c990", {"restore": removed}, ("Done.",)),))
    report = pruner.prune([*conversation, *rendered("openai", [asked])]).report
    assert [*report.restored] == removed
