"""A run of `ctx1 synth trajectories` that goes on in a stranger's folder moves and deletes no file outside it."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from context_agent import MemoryCorpus
from context_agent.budget import Budget
from context_agent.errors import DataError
from context_agent.harness.profile import default
from context_agent.synth_data.demonstrations.experts import oracle_expert
from context_agent.synth_data.demonstrations.filters import DemonstrationFilters
from context_agent.synth_data.demonstrations.player import DemonstrationSettings
from context_agent.synth_data.demonstrations.runs import make_demonstrations
from context_agent.synth_data.demonstrations.selection import write_selection
from context_agent.synth_data.world.closed_world import make_world
from context_agent.synth_data.world.files import write_world
from context_agent.testing.documents import linked_documents
from context_agent.testing.embedders import HashEmbedder
from tests.support.tasks import task

SETTINGS = DemonstrationSettings(budget=Budget(2048), expert="oracle", keep_dropped=False)


def play(folder: Path, settings: DemonstrationSettings = SETTINGS) -> None:
    corpus = MemoryCorpus(linked_documents(), embedder=HashEmbedder())
    tasks = [task("t1", "d1", "d7", question="What does the entry cited by SENTINEL-0001 tell?")]
    asyncio.run(make_demonstrations(tasks, corpus, oracle_expert(profile=default()), folder, settings))


def test_the_name_of_a_trajectory_leads_to_no_other_file(tmp_path: Path) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim"
    victim.write_text("precious")
    play(run)
    name = next((run / "kept").iterdir()).name
    (journal,) = run.glob("*.journal")
    lines = journal.read_text().replace(json.dumps(name), json.dumps(str(victim)))
    journal.write_text(re.sub(r'"bytes":\d+', f'"bytes":{len("precious")}', lines))
    filters = DemonstrationFilters(min_output_recall=1.0, low_rate=0.0)  # the trajectory is now dropped
    with pytest.raises(DataError, match="is not the name of a trajectory file"):
        play(run, replace(SETTINGS, filters=filters))
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["kept", "dropped", "new"])
def test_a_link_in_the_folder_of_a_run_leads_to_no_other_folder(tmp_path: Path, name: str) -> None:
    run, victims = tmp_path / "run", tmp_path / "victims"
    victims.mkdir()
    for victim in ("letter.txt", "draft.partial"):
        victims.joinpath(victim).write_text("precious")
    run.mkdir()
    run.joinpath(name).symlink_to(victims)
    with pytest.raises(DataError, match="is a link"):
        play(run)
    assert sorted(path.name for path in victims.iterdir()) == ["draft.partial", "letter.txt"]


def test_the_list_of_a_selection_deletes_nothing_behind_a_link(tmp_path: Path) -> None:
    folder, victims = tmp_path / "selection", tmp_path / "victims"
    victims.mkdir()
    victims.joinpath("letter.txt").write_text("precious")
    folder.mkdir()
    folder.joinpath("kept").symlink_to(victims)
    folder.joinpath("trajectories.jsonl").write_text('{"file": "letter.txt"}\n')
    with pytest.raises(DataError, match="is a link"):
        write_selection(folder, [], [], {})
    assert victims.joinpath("letter.txt").read_text() == "precious"


def test_the_unfinished_folder_of_a_world_is_no_link_to_another_folder(tmp_path: Path) -> None:
    victims = tmp_path / "victims"
    victims.mkdir()
    for name in ("README.md", "letter.txt"):
        victims.joinpath(name).write_text("precious")
    tmp_path.joinpath(".world.partial").symlink_to(victims)
    write_world(make_world(entities=60, seed=7), tmp_path / "world")
    assert {path.name: path.read_text() for path in victims.iterdir()} == dict.fromkeys(
        ("README.md", "letter.txt"), "precious"
    )
    assert (tmp_path / "world" / "world.json").exists()
