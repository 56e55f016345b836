"""Logs that survive a kill.

1. A record is on disk when `append` returns; a file cut at any byte gives the records before the cut.
2. A failed write leaves the file as it was.
3. Damage that no kill causes is refused, by its line.
4. A log is open in one process at a time.
"""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent._support import journal
from context_agent._support.journal import AppendLog, encode_line, read_log
from context_agent._support.locks import file_lock
from context_agent.errors import ConfigError, CorpusLockedError, DataError
from tests.support.descriptors import open_descriptors

RECORDS = [{"n": 1, "text": "ä\n\u2028"}, {"n": 2, "text": "x" * 40}, {"n": 3, "nested": {"a": [1.5, None]}}]


def write_log(path: Path, *, checksum: bool = False) -> bytes:
    with AppendLog(path, checksum=checksum) as log:
        log.append(RECORDS[0])
        log.append(*RECORDS[1:])
    return path.read_bytes()


def test_a_record_is_on_disk_when_append_returns(tmp_path: Path, disk: list[tuple[str, str, int]]) -> None:
    with AppendLog(tmp_path / "log") as log:
        log.append({"n": 1, "m": 2})
        # A new file is lost with its folder's entry.
        assert disk == [("sync", tmp_path.name, 0), ("sync", "log", len(b'{"n":1,"m":2}\n'))]
        log.append({"n": 3})
        assert disk[2:] == [("sync", "log", log.size)]
        log.replace([encode_line({"n": 4})])
        assert disk[3:] == [("sync", ".log.partial", 8), ("move", ".log.partial", 8), ("sync", tmp_path.name, 0)]


def test_a_log_that_need_not_be_synced_leaves_it_to_the_system(
    tmp_path: Path, disk: list[tuple[str, str, int]]
) -> None:
    with AppendLog(tmp_path / "log", sync=False) as log:
        log.append({"n": 1})
        assert (tmp_path / "log").read_bytes() == b'{"n":1}\n'
    assert disk == []


@pytest.mark.parametrize("checksum", [False, True])
def test_records_come_back_in_order(tmp_path: Path, checksum: bool) -> None:
    write_log(tmp_path / "log", checksum=checksum)
    assert list(read_log(tmp_path / "log", checksum=checksum).records) == RECORDS


def test_a_log_whose_folder_is_gone_refuses_records(tmp_path: Path) -> None:
    with AppendLog(tmp_path / "gone" / "log") as log:
        shutil.rmtree(tmp_path / "gone")
        with pytest.raises(DataError, match="cannot write"):
            log.append(RECORDS[0])


@pytest.mark.parametrize("checksum", [False, True])
def test_a_file_cut_at_any_byte_gives_the_records_before_the_cut(tmp_path: Path, checksum: bool) -> None:
    data = write_log(tmp_path / "whole", checksum=checksum)

    @given(st.integers(0, len(data)))
    @settings(max_examples=60, deadline=None)
    def cut(length: int) -> None:
        path = tmp_path / "cut"
        path.write_bytes(data[:length])
        complete = data[:length].count(b"\n")
        contents = read_log(path, checksum=checksum)
        assert list(contents.records) == RECORDS[:complete]
        assert contents.torn_bytes == length - (data[:length].rfind(b"\n") + 1)
        with AppendLog(path, checksum=checksum) as log:
            log.append({"n": 9})
        assert list(read_log(path, checksum=checksum).records) == [*RECORDS[:complete], {"n": 9}]

    cut()


def test_a_damaged_line_before_the_end_is_refused_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "log"
    data = bytearray(write_log(path, checksum=True))
    data[data.index(b"xxx")] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"log, line 2 is damaged.*Restore the file from a backup, or delete it"):
        read_log(path, checksum=True)
    with pytest.raises(DataError, match="line 2 is damaged") as refused:
        AppendLog(path, checksum=True)
    with file_lock(tmp_path / "log.lock"):
        assert refused, "a log that is refused is not left locked while its error is handled"
    path.write_bytes(b'{"n": 1}\n[]\n')
    with pytest.raises(DataError, match="line 2 is damaged"):
        read_log(path)


def test_a_last_line_with_a_wrong_checksum_counts_as_torn(tmp_path: Path) -> None:
    path = tmp_path / "log"
    data = write_log(path, checksum=True)
    path.write_bytes(data[:-3] + b"\0\0\n")
    assert list(read_log(path, checksum=True).records) == RECORDS[:2]


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: Any, data: bytes, **_: Any) -> None:
        file.write(data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "log"
    with AppendLog(path) as log:
        log.append(RECORDS[0])
        log.append(*RECORDS[1:])
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(journal, "_write", full)
            with pytest.raises(DataError, match=r"cannot write to .*log .No space left on device"):
                log.append({"n": 4})
        assert path.read_bytes() == before
        log.append({"n": 4})
    assert [record["n"] for record in read_log(path).records] == [1, 2, 3, 4]


def test_a_log_is_replaced_and_appended_to_again(tmp_path: Path) -> None:
    with AppendLog(tmp_path / "log") as log:
        log.append(*RECORDS)
        log.replace([encode_line({"n": 7})])
        assert log.size == (tmp_path / "log").stat().st_size
        log.append({"n": 8})
    assert [record["n"] for record in read_log(tmp_path / "log").records] == [7, 8]


def test_one_process_has_a_log_open_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    program = f"from pathlib import Path; from context_agent._support.journal import *; AppendLog(Path({str(path)!r}))"
    with AppendLog(path):
        with pytest.raises(ConfigError, match="another process has locked"):
            AppendLog(path)
        with pytest.raises(CorpusLockedError, match="in use"):
            AppendLog(path, busy=CorpusLockedError("in use"))
        process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert "another process has locked" in process.stderr
    before = open_descriptors()
    first = AppendLog(path)
    first.append({"n": 1})
    first.close()
    first.close()
    with AppendLog(path) as second:
        assert second.contents.records == ({"n": 1},)
    third = AppendLog(path)
    third.close()
    assert first.size == second.size == third.size, "all of them are still referenced"
    assert open_descriptors() == before


def test_a_log_of_plain_json_refuses_numbers_that_are_none(tmp_path: Path) -> None:
    with AppendLog(tmp_path / "log") as log, pytest.raises(ValueError, match="JSON compliant"):
        log.append({"n": float("nan")})
    with AppendLog(tmp_path / "checked", checksum=True) as log:
        log.append({"n": float("-inf")})
    assert read_log(tmp_path / "checked", checksum=True).records[0]["n"] == float("-inf")


def test_a_log_that_another_thread_closes_can_be_opened_again(tmp_path: Path) -> None:
    log = AppendLog(tmp_path / "log.jsonl")
    closing = threading.Thread(target=log.close)
    closing.start()
    closing.join()
    AppendLog(tmp_path / "log.jsonl").close()


def test_a_closed_log_cuts_off_nothing_that_was_added_since(tmp_path: Path) -> None:
    closed = AppendLog(tmp_path / "log.jsonl")
    closed.append({"number": 1})
    closed.close()
    with AppendLog(tmp_path / "log.jsonl") as log:
        log.append({"number": 2})
    for write in (lambda: closed.append({"number": 3}), lambda: closed.replace([])):
        with pytest.raises(DataError, match="the log is closed"):
            write()
    assert read_log(tmp_path / "log.jsonl").records == ({"number": 1}, {"number": 2})
