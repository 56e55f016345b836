"""`ctx1 synth world`: a world that is made, indexed and searched."""

import json


def test_a_world_is_made_indexed_and_searched(inside, tmp_path):
    world_run = inside("synth", "world", "--entities", 60, "--seed", 3, "--out", "w", "--json")
    assert world_run.returncode == 0, world_run.stderr
    report = json.loads(world_run.stdout)
    assert report["documents"] == 60
    assert sum(counts["all"] for counts in report["tasks"].values()) == 120
    assert inside("index", "w/corpus.jsonl.gz", "--path", "i").returncode == 0
    search_run = inside("search", "--questions", "w/queries.dev.jsonl", "--path", "i", "--effort", "fast", "--json")
    assert search_run.returncode == 0, search_run.stderr
    assert len(search_run.stdout.splitlines()) == report["tasks"]["dev"]["all"]


def test_a_world_follows_its_options(inside, tmp_path):
    world_run = inside(
        "synth", "world", "--entities", 80, "--tasks", 30, "--hops", "2-3", "--distractors", 2, "--out", "w",
        "--vocabulary", "small",
    )  # fmt: skip
    assert world_run.returncode == 0, world_run.stderr
    rows = [
        json.loads(row) for split in ("train", "dev", "test") for row in (tmp_path / f"w/queries.{split}.jsonl").open()
    ]
    assert len(rows) == 30
    assert {row["hops"] for row in rows} == {2, 3}
    assert all(len(row["distractors"]) <= 2 for row in rows)
    assert "ctx1 index" in world_run.stdout


def test_wrong_calls_end_with_code_2(inside, tmp_path):
    assert inside("synth", "world", "--entities", 60).returncode == 2
    for options in (["--entities", 10], ["--entities", 60, "--hops", "4-2"], ["--entities", 60, "--tasks", 999_999]):
        world_run = inside("synth", "world", "--out", "w", *options)
        assert world_run.returncode == 2
        assert len(world_run.stderr.splitlines()) == 1
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    world_run = inside("synth", "world", "--entities", 60, "--out", "full")
    assert world_run.returncode == 2
    assert "--force" in world_run.stderr
