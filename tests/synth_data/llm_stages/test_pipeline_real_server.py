"""The stages against a real server process, `transformers serve`, on a tiny model with random weights.

The model writes garbage. Every row must be dropped with a reason, every call stored and counted, and nothing may crash.
"""

import asyncio
from functools import partial

import pytest

from context_agent.synth_data.domains import load_domain
from context_agent.synth_data.llm_stages.context import StageContext
from context_agent.synth_data.llm_stages.distractors import DistractorSettings, distract
from context_agent.synth_data.llm_stages.model import StructuredModel, StructuredModelOptions
from context_agent.synth_data.llm_stages.pipeline import PipelinePlan, make_tasks, run_llm_stage
from context_agent.synth_data.llm_stages.verification import verify
from context_agent.synth_data.llm_stages.writing import extend, write
from context_agent.testing.writer_process import corpus, row_of
from tests.support.real_server import need_serving, serving_model
from tests.support.tasks import task

pytestmark = pytest.mark.slow

MATERIAL = {
    "id": "t1",
    "documents": [
        {"id": document_id, "chunks": [], "fact": document_id} for document_id in ("mason0", "tower0", "town0")
    ],
}
TASK = row_of(task("t1", "mason0", "tower0", "town0", clues="A stream by old walls.", answer="Barlume", hops=1))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address and the name of the model."""
    need_serving()
    from context_agent.train.tiny_model import tiny_gpt_oss

    folder = tmp_path_factory.mktemp("garbage")
    model = tiny_gpt_oss(folder / "tiny")
    with serving_model(model, folder) as url:
        yield url, str(model)


def test_garbage_is_dropped_with_reasons_and_kept_and_counted(served, tmp_path):
    url, name = served
    chat_options = {"model": name, "base_url": url, "max_tokens": 16}
    with StructuredModel(
        StructuredModelOptions(chat_options=chat_options), tmp_path / "replies.jsonl", concurrency=2
    ) as model:
        context = StageContext(corpus(), model, load_domain("documents"), turns=2)
        reports = asyncio.run(run_all_stages(context, tmp_path))
    for report in reports:
        assert (report.kept, report.halted) == (0, "")
        assert sum(report.dropped.values()) == report.inputs
        assert not [reason for reason in report.dropped if reason.startswith("failed")]
    ledger = reports[-1].cost
    assert ledger["calls"] == len((tmp_path / "replies.jsonl").read_text().splitlines()) >= 12
    assert 0 < ledger["completion_tokens"] <= 16 * ledger["calls"]
    assert ledger["prompt_tokens"] > 100 * ledger["calls"]


async def run_all_stages(context, folder):
    """Run the pipeline from the start, and each later stage on a row of its own."""
    reports = await make_tasks(context, PipelinePlan(3, concurrency=2), folder / "tasks.jsonl")
    stages = (
        ("write", MATERIAL, write),
        ("verify", TASK, verify),
        ("extend", TASK, extend),
        ("distract", TASK, partial(distract, settings=DistractorSettings())),
    )
    for stage, row, function in stages:
        reports.append(await run_llm_stage(context, stage, [row], function, folder / f"{stage}.jsonl", concurrency=1))
    return reports
