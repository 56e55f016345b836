"""The buffer on disk.

1. What was written survives a kill at any byte of a later write.
2. At most one step consumes a group in the history that a run resumes from; no finished episode is lost.
3. A file that is damaged or of another run is refused with the reason.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent._support import journal as journal_module
from context_agent.budget import Budget
from context_agent.errors import ConfigError, DataError
from context_agent.harness.profile import default
from context_agent.harness.trajectory import Header, Trajectory
from context_agent.policies.tokens.engines import Finish, Sample
from context_agent.pruning.view import EpisodeEnded
from context_agent.train.experimental.async_rollouts.rollout_log import (
    ConsumedGroups,
    RecordedCall,
    RolloutLog,
    finished_record,
    paused_record,
)

SETTINGS = {"seed": 3, "rollouts": {"groups": 2}}
CALL = RecordedCall("abc", Sample((4, 5), (-0.1, float("-inf")), Finish.STOP, None, "7"))


def finished_episode(episode: str) -> Trajectory:
    header = Header(episode, "who?", default(), Budget())
    return Trajectory(header, (EpisodeEnded("finished", (), 1, 20, "0" * 64),))


def open_log(path: Path, update: int = 0, **changes: Any) -> RolloutLog:
    notes: list[str] = changes.pop("notes", [])
    return RolloutLog(path, settings={**SETTINGS, **changes}, substeps=2, update=update, note=notes.append)


def fill_log(path: Path) -> None:
    """Write steps 0 and 1 of two groups each, of which step 1 left one, and half of step 2."""
    with open_log(path) as journal:
        journal.write([finished_record(finished_episode(f"00000-000{group}-000")) for group in range(2)])
        journal.consume(ConsumedGroups(0, ("00000-0000", "00000-0001")))
        journal.write([finished_record(finished_episode("00001-0000-000")), paused_record("00001-0001-000", 0, [CALL])])
        journal.consume(ConsumedGroups(1, ("00001-0000",), ("00001-0001",)))
        journal.write([paused_record("00001-0001-000", 1, [CALL]), finished_record(finished_episode("00002-0000-000"))])


def test_what_was_consumed_after_the_checkpoint_is_untrained_again(tmp_path: Path) -> None:
    fill_log(tmp_path / "buffer")
    with open_log(tmp_path / "buffer", 4) as journal:
        assert (journal.next_step, sorted(journal.consumed), journal.left) == (2, [0, 1], ("00001-0001",))
    with open_log(tmp_path / "buffer", 2) as journal:
        assert (journal.next_step, sorted(journal.consumed), journal.left) == (1, [0], ())
        assert "00001-0000-000" in journal.finished
    with open_log(tmp_path / "buffer", 2) as journal:
        assert sorted(journal.consumed) == [0], "the course that was left does not come back"


def test_every_later_process_knows_which_episodes_lost_weights_sampled(tmp_path: Path) -> None:
    """A resumed process trains other weights of the same number. `CALL` is of the weights of update 7."""
    path = tmp_path / "buffer"
    with open_log(path) as journal:
        journal.write([paused_record("00004-0000-000", 0, [CALL])])
        assert not journal.lost
    with open_log(path) as journal:
        assert journal.lost == {"00004-0000-000"}
        journal.write([finished_record(finished_episode(f"00000-0000-00{number}")) for number in range(4)])
        for step in range(4):
            journal.consume(ConsumedGroups(step, (f"0000{step}-0000",)))
        journal.write([paused_record("00004-0000-001", 0, [CALL])])
    for _ in range(2):
        # The checkpoint of update 8 is of the second process, so its weights of update 7 are not lost.
        with open_log(path, 8) as journal:
            assert journal.lost == {"00004-0000-000"}
            journal.compact(8, least=0)
    assert journal.first_update == 8, "compacted"


def test_a_step_half_trained_stays_consumed(tmp_path: Path) -> None:
    fill_log(tmp_path / "buffer")
    with open_log(tmp_path / "buffer", 3) as journal:
        assert (journal.next_step, sorted(journal.consumed)) == (2, [0, 1])


def test_parked_calls_come_back_as_they_were_and_end_with_the_episode(tmp_path: Path) -> None:
    fill_log(tmp_path / "buffer")
    with open_log(tmp_path / "buffer", 4) as journal:
        assert journal.paused == {"00001-0001-000": (CALL, CALL)}
        journal.write([paused_record("00001-0001-000", 0, [CALL])])
    with open_log(tmp_path / "buffer", 4) as journal:
        assert journal.paused == {"00001-0001-000": (CALL,)}, "an episode that began anew"
        journal.write([finished_record(finished_episode("00001-0001-000"))])
    with open_log(tmp_path / "buffer", 4) as journal:
        assert journal.paused == {}
        assert journal.finished["00001-0001-000"] == finished_episode("00001-0001-000")


def test_a_file_cut_at_any_byte_gives_what_is_before_the_cut(tmp_path: Path) -> None:
    fill_log(tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    ends = [offset + 1 for offset, byte in enumerate(data) if byte == ord("\n")]

    @given(st.integers(ends[0], len(data)))
    @settings(max_examples=60, deadline=None)
    def check_cut(length: int) -> None:
        path = tmp_path / "cut"
        path.write_bytes(data[:length])
        notes: list[str] = []
        with open_log(path, notes=notes) as journal:
            episodes = set(journal.finished)
        assert any("incomplete" in note for note in notes) == (length not in ends)
        with open_log(path) as journal:
            assert set(journal.finished) == episodes
        finished_count = sum(b'"kind":"finished"' in line for line in data[:length].split(b"\n")[:-1])
        assert len(episodes) == finished_count

    check_cut()


def test_a_line_damaged_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "buffer"
    fill_log(path)
    data = bytearray(path.read_bytes())
    data[data.index(b"00000-0001")] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"line 3 is damaged, which an interrupted run does not cause"):
        open_log(path)


def test_the_buffer_of_another_run_is_refused_by_what_differs(tmp_path: Path) -> None:
    fill_log(tmp_path / "buffer")
    with pytest.raises(ConfigError, match=r"another run .seed was 3 and is 4.\. Resume with those settings"):
        open_log(tmp_path / "buffer", seed=4)
    with pytest.raises(ConfigError, match="ranks was 1 and is 2"):
        RolloutLog(tmp_path / "buffer", settings=SETTINGS, substeps=2, update=0, ranks=2)
    (tmp_path / "other").write_bytes(journal_module.encode_line({"kind": "head", "form": 99}, checksum=True))
    with pytest.raises(DataError, match="is not a rollout log of this version"):
        open_log(tmp_path / "other")


def test_a_checkpoint_of_another_course_is_refused(tmp_path: Path) -> None:
    fill_log(tmp_path / "buffer")
    with pytest.raises(DataError, match="has no groups of step 4"):
        open_log(tmp_path / "buffer", 10)


def test_one_process_has_the_log_at_a_time(tmp_path: Path) -> None:
    with open_log(tmp_path / "buffer"), pytest.raises(ConfigError, match="another process trains with the log"):
        open_log(tmp_path / "buffer")


def test_a_missing_buffer_is_reported(tmp_path: Path) -> None:
    notes: list[str] = []
    with open_log(tmp_path / "buffer", 4, notes=notes) as journal:
        assert journal.left == ()
    assert "does not exist or is empty" in notes[0]
    with open_log(tmp_path / "buffer", 4, notes=notes):
        assert len(notes) == 1


def test_a_full_disk_is_reported_and_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "buffer"
    fill_log(path)
    with open_log(path, 4) as journal:
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(journal_module, "_write", write_to_full_disk)
            with pytest.raises(DataError, match=r"cannot write to .*buffer .No space left on device"):
                journal.write([finished_record(finished_episode("00002-0001-000"))])
            with pytest.raises(DataError, match="No space left"):
                journal.compact(4, least=0)
        assert path.read_bytes() == before
        journal.write([finished_record(finished_episode("00002-0001-000"))])
    with open_log(path, 4) as journal:
        assert {"00002-0000-000", "00002-0001-000"} <= set(journal.finished)


def write_to_full_disk(file: Any, data: bytes, **_: Any) -> None:
    file.write(data[:10])
    raise OSError(errno.ENOSPC, "No space left on device")


def test_compacting_drops_what_every_checkpoint_has_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "buffer"
    fill_log(path)
    with open_log(path, 4) as journal:
        assert not journal.compact(4), "too small to be worth it"
        size = path.stat().st_size
        assert journal.compact(4, least=0)
        assert path.stat().st_size < size
        journal.write([finished_record(finished_episode("00002-0001-000"))])
    with open_log(path, 4) as journal:
        assert set(journal.finished) == {"00002-0000-000", "00002-0001-000"}
        assert journal.paused == {"00001-0001-000": (CALL, CALL)}
        assert journal.left == ("00001-0001",)
    with pytest.raises(DataError, match=r"begins at update 4, but the checkpoint is older, from update 2"):
        open_log(path, 2)


def test_compacting_keeps_what_a_run_that_goes_back_needs(tmp_path: Path) -> None:
    path = tmp_path / "buffer"
    fill_log(path)
    with open_log(path, 4) as journal:
        journal.compact(2, least=0)
    with open_log(path, 2) as journal:
        assert {"00001-0000-000", "00002-0000-000"} <= set(journal.finished)
        assert journal.next_step == 1
