"""Stages: rows come out in the order they went in, at any concurrency and after any number of kills."""

import asyncio
import json
import signal
import subprocess
import sys
import textwrap
from functools import partial

import pytest

from context_agent._support.locks import file_lock
from context_agent._support.worker_pool import ThisMachine, WorkerPool
from context_agent.errors import ConfigError, DataError
from context_agent.synth_data.stages import (
    DroppedRow,
    DropRow,
    KeptRows,
    StageHalted,
    StageWorker,
    dropped_path,
    journal_path,
    redo_inputs,
    row_function,
    run_stage,
)
from tests.support import pool_rows
from tests.support.forked_programs import run_program

ROWS = [{"id": str(number)} for number in range(12)]


async def double_even(row):
    """Turn an even number into two rows, after a wait that reverses the order; drop an odd one."""
    number = int(row["id"])
    await asyncio.sleep(0.001 * (12 - number))
    if number % 2:
        return DroppedRow("odd", f"{number} is")
    return KeptRows(({"id": f"{number}a"}, {"id": f"{number}b"}))


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_outputs_come_in_the_order_of_the_inputs_whatever_the_concurrency(tmp_path):
    for concurrency in (1, 5, 50):
        report = await run_stage(
            "double", ROWS, double_even, tmp_path / f"{concurrency}.jsonl", concurrency=concurrency
        )
        assert (report.inputs, report.kept, report.dropped, report.halted) == (12, 12, {"odd": 6}, "")
    outputs = [(tmp_path / f"{concurrency}.jsonl").read_bytes() for concurrency in (1, 5, 50)]
    assert len(set(outputs)) == 1
    assert [row["id"] for row in read(tmp_path / "5.jsonl")][:4] == ["0a", "0b", "2a", "2b"]
    dropped = read(dropped_path(tmp_path / "5.jsonl"))
    assert dropped[1] == {"reason": "odd", "detail": "3 is", "input": {"id": "3"}}


async def test_at_most_so_many_rows_are_worked_on_at_once(tmp_path):
    running = most = 0

    async def work(row):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1
        return KeptRows((dict(row),))

    await run_stage("count", ROWS, work, tmp_path / "out.jsonl", concurrency=3)
    assert most == 3


async def test_what_raises_drops_its_row_and_is_tried_again(tmp_path):
    failing_ids = {"3", "4"}

    async def work(row):
        if row["id"] in failing_ids:
            raise ZeroDivisionError("by nothing")
        if row["id"] == "5":
            raise DropRow("too small", "of 5")
        return KeptRows((dict(row),))

    out = tmp_path / "out.jsonl"
    first = await run_stage("risky", ROWS, work, out)
    assert (first.kept, first.dropped) == (9, {"failed: ZeroDivisionError": 2, "too small": 1})
    assert read(dropped_path(out))[0]["detail"] == first.failure == "by nothing"
    failing_ids.clear()
    second = await run_stage("risky", ROWS, work, out)
    assert (second.kept, second.dropped, second.resumed, second.failure) == (11, {"too small": 1}, 10, "")
    assert [row["id"] for row in read(out)] == [str(number) for number in range(12) if number != 5]


async def test_a_rerun_does_only_what_is_new(tmp_path):
    worked_ids = []

    async def work(row):
        worked_ids.append(row["id"])
        return KeptRows((dict(row),))

    out = tmp_path / "out.jsonl"
    await run_stage("grow", ROWS[:5], work, out)
    report = await run_stage("grow", [ROWS[7], *ROWS[:5], ROWS[0]], work, out)
    assert worked_ids == ["0", "1", "2", "3", "4", "7", "0"]
    assert report.resumed == 5
    assert [row["id"] for row in read(out)] == ["7", "0", "1", "2", "3", "4", "0"]


async def test_a_halt_keeps_what_is_done_and_the_next_run_goes_on(tmp_path):
    limit = 4
    worked_ids = []

    async def work(row):
        if len(worked_ids) >= limit:
            raise StageHalted("the cap is reached")
        worked_ids.append(row["id"])
        return await double_even(row)

    out, undisturbed = tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    report = await run_stage("cap", ROWS, work, out, concurrency=2)
    assert report.halted == "the cap is reached"
    assert report.kept == 4
    assert [row["id"] for row in read(out)] == ["0a", "0b", "2a", "2b"]
    limit = 100
    assert (await run_stage("cap", ROWS, work, out)).halted == ""
    assert sorted(worked_ids, key=int) == [row["id"] for row in ROWS]
    await run_stage("cap", ROWS, double_even, undisturbed)
    assert out.read_bytes() == undisturbed.read_bytes()


async def test_other_settings_are_refused_with_the_difference(tmp_path):
    out = tmp_path / "out.jsonl"
    await run_stage("set", ROWS, double_even, out, settings={"seed": 1, "model": "a"})
    await run_stage("set", ROWS, double_even, out, settings={"model": "a", "seed": 1})
    with pytest.raises(ConfigError, match="seed was 1 and is 2") as caught:
        await run_stage("set", ROWS, double_even, out, settings={"seed": 2, "model": "a"})
    assert "model was" not in str(caught.value)
    with pytest.raises(ConfigError, match="journal of stage 'set', not of 'other'"):
        await run_stage("other", ROWS, double_even, out, settings={"seed": 1, "model": "a"})


@pytest.mark.parametrize("rest", [b'{"key": "x"', b'{"key": "x", "kept": [{}', b"\xff"])
async def test_a_line_that_was_cut_is_worked_on_again(tmp_path, rest):
    out = tmp_path / "out.jsonl"
    await run_stage("cut", ROWS, double_even, out)
    output = out.read_bytes()
    lines = journal_path(out).read_bytes().splitlines(keepends=True)
    journal_path(out).write_bytes(b"".join(lines[:-1]) + rest)
    report = await run_stage("cut", ROWS, double_even, out)
    assert report.resumed == 11
    assert out.read_bytes() == output


async def test_a_damaged_journal_is_told(tmp_path):
    out = tmp_path / "out.jsonl"
    await run_stage("bad", ROWS, double_even, out)
    with journal_path(out).open("a") as stream:
        stream.write("[]\n")
    with pytest.raises(DataError, match=r"damaged.*delete it"):
        await run_stage("bad", ROWS, double_even, out)


async def test_two_runs_at_once_are_refused(tmp_path):
    out = tmp_path / "out.jsonl"
    first = asyncio.create_task(run_stage("twice", ROWS, double_even, out, concurrency=1))
    await asyncio.sleep(0.005)
    with pytest.raises(DataError, match="another process is writing"):
        await run_stage("twice", ROWS, double_even, out)
    assert (await first).kept == 12


PROGRAM = """
    import asyncio, pathlib, sys
    from context_agent.synth_data.stages import DroppedRow, KeptRows, run_stage

    folder = pathlib.Path(sys.argv[1])

    async def work(row):
        await asyncio.sleep(0.01)
        with (folder / "worked").open("a") as log:
            log.write(row["id"] + "\\n")
        number = int(row["id"])
        return DroppedRow("odd") if number % 2 else KeptRows(({"id": row["id"], "text": "x" * number},))

    asyncio.run(run_stage("kill", [{"id": str(n)} for n in range(200)], work, folder / "out.jsonl", concurrency=4))
"""


def test_a_killed_run_resumed_gives_the_same_bytes_and_repeats_nothing_it_noted(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    uninterrupted, interrupted = tmp_path / "whole", tmp_path / "cut"
    for folder in (uninterrupted, interrupted):
        folder.mkdir()
    run_program(program, str(uninterrupted)).check_returncode()
    journal = journal_path(interrupted / "out.jsonl")
    with subprocess.Popen([sys.executable, program, interrupted]) as child:
        while not journal.exists() or journal.read_bytes().count(b"\n") < 60:
            assert child.poll() is None
        child.send_signal(signal.SIGKILL)
    journalled = journal.read_bytes().count(b"\n") - 1
    assert journalled < 200
    before = (interrupted / "worked").read_text().split()
    run_program(program, str(interrupted)).check_returncode()
    after = (interrupted / "worked").read_text().split()
    for name in ("out.jsonl", "out.jsonl.dropped.jsonl"):
        assert (interrupted / name).read_bytes() == (uninterrupted / name).read_bytes()
    # Only the rows in work at the time of the kill, at most one a worker, are processed twice.
    assert len(after) <= 200 + 4
    assert set(after) == set(map(str, range(200)))
    assert len(after) - len(before) == 200 - journalled


async def test_progress_counts_up_to_the_inputs(tmp_path):
    messages = []
    await run_stage(
        "tell", ROWS, double_even, tmp_path / "out.jsonl", advance=lambda done, total: messages.append((done, total))
    )
    assert messages == [(number, 12) for number in range(13)]


async def test_what_is_forgotten_is_worked_on_again_and_nothing_else(tmp_path):
    worked_ids = []

    async def work(row):
        worked_ids.append(row["id"])
        return await double_even(row)

    out = tmp_path / "out.jsonl"
    await run_stage("double", ROWS, work, out)
    output = out.read_bytes()
    worked_ids.clear()
    assert redo_inputs(out, lambda row: row["id"] in {"4b", "8a", "8b"}) == 2
    report = await run_stage("double", ROWS, work, out)
    assert sorted(worked_ids) == ["4", "8"]
    assert (report.resumed, report.kept) == (10, 12)
    assert out.read_bytes() == output
    assert redo_inputs(out, lambda _: False) == 0


def test_there_is_nothing_to_forget_before_the_first_run(tmp_path):
    assert redo_inputs(tmp_path / "out.jsonl", lambda _: True) == 0
    assert not list(tmp_path.iterdir())


async def test_a_journal_that_is_damaged_or_in_use_is_not_forgotten_from(tmp_path):
    out = tmp_path / "out.jsonl"
    await run_stage("double", ROWS, double_even, out)
    with (
        file_lock(journal_path(out).with_name(f"{journal_path(out).name}.lock")),
        pytest.raises(DataError, match="another process"),
    ):
        redo_inputs(out, lambda _: True)
    with journal_path(out).open("ab") as stream:
        stream.write(b"{cut\n")
    content = journal_path(out).read_bytes()
    with pytest.raises(DataError, match="damaged"):
        redo_inputs(out, lambda _: True)
    assert journal_path(out).read_bytes() == content


async def test_a_row_is_worked_on_again_where_its_dependency_has_changed(tmp_path):
    worked_ids = []

    async def work(row):
        worked_ids.append(row["id"])
        return KeptRows((dict(row),))

    out, dependency = tmp_path / "out.jsonl", {"3": "a"}
    for expected in ([row["id"] for row in ROWS], [], ["3"]):
        worked_ids.clear()
        await run_stage("count", ROWS, work, out, depends_on=lambda row: dependency.get(row["id"], ""))
        assert worked_ids == expected
        dependency["3"] = "a" if worked_ids else "b"


async def test_a_journal_of_an_earlier_version_is_resumed(tmp_path):
    out = tmp_path / "out.jsonl"
    await run_stage("double", ROWS, double_even, out, settings={"seed": 1})
    expected = out.read_bytes()
    entries = read(journal_path(out))
    # Earlier versions wrote spaces between the items, and did not escape characters beyond ASCII.
    lines = [json.dumps({**entry, "note": "é"}, ensure_ascii=False) for entry in entries[:7]]
    journal_path(out).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    report = await run_stage("double", ROWS, double_even, out, settings={"seed": 1})
    assert report.resumed == 6
    assert out.read_bytes() == expected


def run_in_processes(open_context, out):
    """Run the stage of `pool_rows` in two processes."""
    with WorkerPool(StageWorker(open_context), ThisMachine(), processes=2, concurrency=2) as pool:
        work = row_function(pool_rows.doubled, None, pool)
        return asyncio.run(run_stage("double", ROWS, work, out, concurrency=pool.capacity))


def test_processes_give_the_same_bytes_though_one_dies_or_a_row_halts_them(tmp_path):
    folder, out = tmp_path / "folder", tmp_path / "out.jsonl"
    folder.mkdir()
    (folder / "halt").touch()
    (folder / "2.fatal").touch()
    first = run_in_processes(partial(pool_rows.open_folder, folder), out)
    assert first.halted == "the cap is reached"
    (folder / "halt").unlink()
    second = run_in_processes(partial(pool_rows.open_folder, folder), out)
    assert (second.kept, second.dropped, second.halted) == (12, {"odd": 6}, "")
    assert second.resumed == 6
    runs = [line.split() for line in (folder / "processes").read_text().splitlines()]
    assert len({process for _, process in runs}) >= 4
    assert [number for number, _ in runs].count("2") == 2
    local_work = row_function(pool_rows.doubled, folder, None)
    asyncio.run(run_stage("double", ROWS, local_work, tmp_path / "here.jsonl"))
    assert out.read_bytes() == (tmp_path / "here.jsonl").read_bytes()
    assert dropped_path(out).read_bytes() == dropped_path(tmp_path / "here.jsonl").read_bytes()


def test_processes_that_cannot_open_what_they_need_end_the_stage_and_journal_nothing(tmp_path):
    out = tmp_path / "out.jsonl"
    with pytest.raises(RuntimeError, match="no index here"):
        run_in_processes(pool_rows.cannot_open, out)
    assert len(journal_path(out).read_text().splitlines()) == 1
