"""Every domain turns its sample files into tasks through all stages: explore, write, verify and distract."""

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
from context_agent.synth_data.llm_stages.context import StageContext
from context_agent.synth_data.llm_stages.distractors import DistractorSettings
from context_agent.synth_data.llm_stages.model import StructuredModel, StructuredModelOptions
from context_agent.synth_data.llm_stages.pipeline import PipelinePlan, make_tasks
from context_agent.synth_data.task import load_tasks

SAMPLES = Path(__file__).parent / "samples"


@dataclass(frozen=True, slots=True)
class Story:
    """What the scripted model makes of a domain's samples: one quote from each of three documents, and an answer."""

    folder: str
    quotes: tuple[str, str, str]
    answer: str
    truth_type: str
    extra: tuple[tuple[str, str], ...] = ()
    """Extra files, where the samples hold fewer than three documents."""

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
    """A function that answers every request of the stages, depending on the request's content."""
    chunks = [next(chunk for chunk in corpus.walk() if quote in chunk.text) for quote in story.quotes]

    def reply(body):
        messages = body["messages"]
        if body.get("tools"):
            return explore(messages)
        system, data = messages[0]["content"], messages[1]["content"]
        if "write one search question" in system:
            return says(json.dumps(write_task()))
        if "supports the clues" in system:
            return says(json.dumps(extract(data.rpartition(" DOCUMENT\n")[2])))
        return says(json.dumps({"queries": list(story.quotes)}))

    def explore(messages):
        if not any(message["role"] == "tool" for message in messages):
            return says(calls=[("search_corpus", {"query": quote, "limit": 3}) for quote in story.quotes])
        ranking = [
            f"<Document id={chunk.id}><Justification>fact {chunk.id}</Justification></Document>" for chunk in chunks
        ]
        return says("\n".join(ranking))

    def write_task():
        return {
            "clues": " ".join(story.clues),
            "question": "Which is it that all three of them lead to?",
            "answer": story.answer,
            "truth_type": story.truth_type,
        }

    def extract(document):
        index = next(index for index, quote in enumerate(story.quotes) if quote in document)
        states_answer = story.answer in document
        return {
            "clue_quotes": [story.clues[index]],
            "item_quotes": [story.quotes[index]],
            "contains_answer": states_answer,
            "answer_quotes": [story.answer] if states_answer else [],
        }

    return reply


def make_domain_tasks(name, tmp_path):
    """The corpus of a domain's samples, the tasks made from its story, and the reports of the stages."""
    story, domain = STORIES[name], load_domain(name)
    for file, text in story.extra:
        (tmp_path / file).write_text(text, encoding="utf-8")
    extra = [tmp_path / file for file, _ in story.extra]
    corpus = MemoryCorpus(domain.load([SAMPLES / story.folder, *extra]), calibration=False)
    with ScriptedServer(itertools.repeat(replies(story, corpus))) as server:
        options = StructuredModelOptions(chat_options={"model": "scripted", "base_url": server.url}, backoff=0.001)
        with StructuredModel(options, tmp_path / "replies.jsonl") as model:
            plan = PipelinePlan(3, hops=(1, 1), distractors=DistractorSettings(least=0))
            run_pipeline = partial(make_tasks, StageContext(corpus, model, domain), plan, tmp_path / "tasks.jsonl")
            reports = asyncio.run(run_pipeline())
    return corpus, load_tasks(tmp_path / "tasks.jsonl"), reports


@pytest.mark.parametrize("name", STORIES)
def test_a_domain_makes_tasks_of_its_samples(name, tmp_path):
    corpus, tasks, reports = make_domain_tasks(name, tmp_path)
    assert len(tasks) == 1, [report.to_json() for report in reports]
    task, story = tasks[0], STORIES[name]
    assert (task.domain, task.answer, task.truth_type) == (name, story.answer, story.truth_type)
    assert [support.item_quotes for support in task.supporting] == [(quote,) for quote in story.quotes]
    assert len(set(task.gold)) == 3
    assert not set(task.distractors) & set(task.gold)
    assert not gold_of(task.as_question, corpus).missing


def test_gold_of_filings_is_every_chunk_that_states_the_fact(tmp_path):
    corpus, (task,), _ = make_domain_tasks("filings", tmp_path)
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
    from context_agent.synth_data.domains import SHIPPED_DOMAINS

    assert set(STORIES) == set(SHIPPED_DOMAINS) - {"documents"}
