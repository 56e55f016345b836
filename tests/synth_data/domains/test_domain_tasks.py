"""Every domain takes its sample files all the way: explored, written, verified and given distractors over a server."""

import asyncio
import itertools
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from context_agent import MemoryCorpus
from context_agent.eval.gold import gold_of
from context_agent.policies.chat.scripted_server import ScriptedServer, says
from context_agent.synth_data.domains import load_domain
from context_agent.synth_data.llm_stages.model import StageContext, StructuredModel, StructuredModelOptions
from context_agent.synth_data.llm_stages.pipeline import PipelinePlan, make_tasks
from context_agent.synth_data.llm_stages.task_stages import DistractorSettings
from context_agent.synth_data.task import load_tasks

SAMPLES = Path(__file__).parent / "samples"


@dataclass(frozen=True, slots=True)
class Story:
    """What a model makes of a domain's samples: three quotes, one a document, and what they ask for together."""

    folder: str
    quotes: tuple[str, str, str]
    answer: str
    truth_type: str
    extra: tuple[tuple[str, str], ...] = ()
    """Files beside the samples, where those hold fewer than three documents."""

    @property
    def clues(self):
        return tuple(f"Somebody tells of matter number {number} here." for number in ("one", "two", "three"))


PAGE = "<html><head><title>{0}</title></head><body><main><p>{1}</p></main></body></html>"
KEYS = (
    "From: tom@example.org\nSubject: Keys\nDate: Mon, 11 Mar 2024 09:00:00 +0100\nMessage-ID: <c1@example.org>\n\n"
    "The keys hang in the boathouse, behind the second door on the left.\n"
)
STORIES = {
    "filings": Story(
        "filings",
        (
            "Revenue was $48.2 million in fiscal 2023",
            "A closing of the lock at Prell would stop most",
            "Inventories were $3.4 million",
        ),
        "$48.2 million",
        "amount",
    ),
    "patents": Story(
        "patents",
        ("a deck that tilts by up to 7°", "A tank of Dgr shape", "Claims 1-4 are rejected"),
        "ballast tank",
        "component",
    ),
    "email-messages": Story(
        "mail", ("The order is placed with Prell Light", "4,000 crowns", "Agreed. We order them in May"),
        "Prell Light", "organization",
    ),
    "email": Story(
        "mail", ("The order is placed with Prell Light", "Der Kran hebt 7 t", "The keys hang in the boathouse"),
        "Prell Light", "organization",
        (("keys.eml", KEYS),),
    ),
    "web": Story(
        "web", ("It was designed by Ilka Verdun", "The Oste rises in a moor", "The town holds a fair in May"),
        "Ilka Verdun", "person",
        (("oste.html", PAGE.format("Oste", "The Oste rises in a moor and is joined by nine brooks on its way.")),
         ("prell.html", PAGE.format("Prell", "The town holds a fair in May, and another one when the rye is in."))),
    ),
}  # fmt: skip


def replies(story, corpus):
    """A chat server's reply to any request of the stages, by what the request holds."""
    chunks = [next(item for item in corpus.walk() if quote in item.text) for quote in story.quotes]

    def reply(body):
        messages = body["messages"]
        if body.get("tools"):
            return explored(messages)
        system, data = messages[0]["content"], messages[1]["content"]
        if "write one search question" in system:
            return says(json.dumps(written()))
        if "supports the clues" in system:
            return says(json.dumps(extracted(data.rpartition(" DOCUMENT\n")[2])))
        return says(json.dumps({"queries": list(story.quotes)}))

    def explored(messages):
        if not any(message["role"] == "tool" for message in messages):
            return says(calls=[("search_corpus", {"query": quote, "limit": 3}) for quote in story.quotes])
        named = [f"<Document id={item.id}><Justification>fact {item.id}</Justification></Document>" for item in chunks]
        return says("\n".join(named))

    def written():
        return {
            "clues": " ".join(story.clues),
            "question": "Which is it that all three of them lead to?",
            "answer": story.answer,
            "truth_type": story.truth_type,
        }

    def extracted(document):
        place = next(place for place, quote in enumerate(story.quotes) if quote in document)
        said = story.answer in document
        return {
            "clue_quotes": [story.clues[place]],
            "item_quotes": [story.quotes[place]],
            "contains_answer": said,
            "answer_quotes": [story.answer] if said else [],
        }

    return reply


def made(name, tmp_path):
    """The corpus of a domain's samples and the tasks that its story gives."""
    story, kind = STORIES[name], load_domain(name)
    for file, text in story.extra:
        (tmp_path / file).write_text(text, encoding="utf-8")
    extra = [tmp_path / file for file, _ in story.extra]
    corpus = MemoryCorpus(kind.load([SAMPLES / story.folder, *extra]), calibration=False)
    with ScriptedServer(itertools.repeat(replies(story, corpus))) as server:
        options = StructuredModelOptions(chat_options={"model": "scripted", "base_url": server.url}, backoff=0.001)
        with StructuredModel(options, tmp_path / "replies.jsonl") as model:
            plan = PipelinePlan(3, hops=(1, 1), distractors=DistractorSettings(least=0))
            make = partial(make_tasks, StageContext(corpus, model, kind), plan, tmp_path / "tasks.jsonl")
            reports = asyncio.run(make())
    return corpus, load_tasks(tmp_path / "tasks.jsonl"), reports


@pytest.mark.parametrize("name", STORIES)
def test_a_domain_makes_tasks_of_its_samples(name, tmp_path):
    corpus, tasks, reports = made(name, tmp_path)
    assert len(tasks) == 1, [report.to_json() for report in reports]
    task, story = tasks[0], STORIES[name]
    assert (task.domain, task.answer, task.truth_type) == (name, story.answer, story.truth_type)
    assert [item.item_quotes for item in task.supporting] == [(quote,) for quote in story.quotes]
    assert len(set(task.gold)) == 3
    assert not set(task.distractors) & set(task.gold)
    assert not gold_of(task.as_question, corpus).missing


def test_gold_of_filings_is_every_chunk_that_states_the_fact(tmp_path):
    corpus, (task,), _ = made("filings", tmp_path)
    stem = "0000999001-24-000007"
    assert task.facts == (
        (f"{stem}/item-1_0", f"{stem}/item-7_0"),
        (f"{stem}/item-1a_0",),
        ("quarter.htm/part-i-item-1_0",),
    )
    assert f"{stem}/item-7" not in task.distractors, "it states a fact"
    gold = gold_of(task.as_question, corpus)
    assert gold.needs == 3
    assert gold.found_by(f"{stem}/item-7", (f"{stem}/item-7_0",)) == gold.found_by(
        f"{stem}/item-1", (f"{stem}/item-1_0",)
    )


def test_every_domain_that_ships_has_a_story():
    from context_agent.synth_data.domains import SHIPPED

    assert set(STORIES) == set(SHIPPED) - {"documents"}
