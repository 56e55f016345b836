"""Distractors: documents that look relevant and do not state the answer in any form."""

import asyncio
import json

import pytest

from context_agent import Document, MemoryCorpus
from context_agent.errors import ConfigError
from context_agent.policies.chat.scripted_server import ScriptedServer, says
from context_agent.synth_data.domains import load_domain
from context_agent.synth_data.llm_stages.context import StageContext
from context_agent.synth_data.llm_stages.distractors import DistractorSettings, distract, distract_by_words
from context_agent.synth_data.llm_stages.model import StructuredModel, StructuredModelOptions
from context_agent.synth_data.stages import DropRow
from context_agent.testing.embedders import HashEmbedder
from context_agent.testing.writer_process import row_of
from tests.support.tasks import task

CORPUS = MemoryCorpus(
    [
        Document("gold", "The light on Orm Skerry was lit on 12 March 1932.", "Orm Skerry"),
        Document("date", "The light on Gannet Point was lit on March 12th, 1932, too.", "Gannet Point"),
        Document("iso", "Light log: lit 1932-03-12.", "Log"),
        Document("year", "All lights of that coast were lit in 1932.", "Coast"),
        Document("alias", "The lights were lit on Lamp Day.", "Lamp Day"),
        Document(
            "far",
            "A light was lit on Holm rock in 1841. " + "Seabirds nest there. " * 600 + "Rebuilt 12.3.1932.",
            "Holm",
        ),
        Document("good1", "The light on Varga reef was lit in 1868.", "Varga reef"),
        Document("good2", "No light was ever lit on the skerry of Lume.", "Lume skerry"),
        Document("good3", "Lamps and lights: how they are lit.", "Lamps"),
    ],
    embedder=HashEmbedder(),
    calibration=False,
)
ROW = row_of(
    task(
        "a",
        "gold",
        question="When was the light on the skerry lit?",
        clues="A lamp was lit on a rock. It shows the way.",
        answer="12 March 1932",
        labels={"aliases": ["Lamp Day"]},
    )
)
GOOD = {"good1", "good2", "good3"}


def by_words(row=ROW, **mining):
    return asyncio.run(distract_by_words(CORPUS, DistractorSettings(**mining), row)).rows[0]["distractors"]


def by_model(steps, tmp_path, row=ROW, **mining):
    with ScriptedServer(steps) as server:
        options = StructuredModelOptions(chat_options={"model": "scripted", "base_url": server.url}, backoff=0.001)
        with StructuredModel(options, tmp_path / "replies.jsonl") as model:
            context = StageContext(CORPUS, model, load_domain("documents"))
            return asyncio.run(distract(context, DistractorSettings(**mining), row)).rows[0]["distractors"]


def test_no_distractor_says_the_answer_in_any_form():
    assert set(by_words()) == GOOD


def test_as_many_as_asked_for_are_taken():
    assert len(by_words(count=2)) == 2


def test_too_few_drop_the_task():
    with pytest.raises(DropRow) as caught:
        by_words(least=4)
    assert (caught.value.dropped.reason, caught.value.dropped.detail) == (
        "there are too few distractors",
        "3 found, 4 needed",
    )
    assert by_words(least=0, count=0) == ()
    with pytest.raises(ConfigError, match="at least 3 of 2 distractors"):
        DistractorSettings(count=2, least=3)


def test_a_task_without_an_answer_is_dropped():
    with pytest.raises(DropRow) as caught:
        by_words({**ROW, "answer": ""})
    assert caught.value.dropped.reason == "no answer"


def test_distractors_that_a_task_brings_along_are_checked_too():
    distractors = by_words({**ROW, "distractors": ["date", "good3", "gold", "gone", "far"]})
    assert distractors[0] == "good3"
    assert set(distractors) == GOOD


def test_a_document_that_states_a_fact_is_no_distractor():
    assert set(by_words({**ROW, "facts": [["gold_0", "good3_0"]]})) == GOOD - {"good3"}


def test_a_model_proposes_the_queries(tmp_path):
    distractors = by_model([says(json.dumps({"queries": ["Varga reef light", " "]}))], tmp_path, count=1)
    assert distractors == ("good1",)


def test_a_model_may_judge_each_candidate(tmp_path):
    def judge(body):
        system, user = (message["content"] for message in body["messages"])
        if "could mislead" in system:
            return says('{"queries": ["light lit skerry"]}')
        return says(json.dumps({"answers": "Varga reef" in user}))

    assert set(by_model([judge] * 20, tmp_path, checked=True)) == GOOD - {"good1"}


def test_queries_that_are_none_are_asked_for_again(tmp_path):
    steps = [says('{"queries": []}'), says('{"queries": ["lamps lights"]}')]
    assert set(by_model(steps, tmp_path)) <= GOOD
