"""`ctx1 doctor`: finds what is broken, and says what mends it."""

import json
import shutil


def checks(done):
    report = json.loads(done.stdout)
    return report["healthy"], {check["name"]: check for check in report["checks"]}


def test_a_fresh_installation_is_healthy(ctx1):
    done = ctx1("doctor", "--json")
    healthy, found = checks(done)
    assert (done.returncode, healthy) == (0, True), found
    assert {"python", "packages", "extras", "weights", "round trip", "index"} <= set(found)
    assert found["index"]["status"] == "note"


def test_an_index_is_opened_and_searched(ctx1, index):
    done = ctx1("doctor", "--path", index)
    assert done.returncode == 0, done.stdout
    assert "chunks" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_damaged_index_is_a_problem(ctx1, index, tmp_path):
    shutil.copytree(index, tmp_path / "broken")
    (tmp_path / "broken" / "chroma.sqlite3").write_bytes(b"no database")
    done = ctx1("doctor", "--path", "broken", "--json")
    assert done.returncode == 1
    assert checks(done)[1]["index"]["status"] == "problem"
    assert "Traceback" not in done.stderr


def test_a_missing_index_is_a_problem_when_it_was_named(ctx1, tmp_path):
    done = ctx1("doctor", "--path", "nowhere", "--json")
    assert done.returncode == 1
    assert "ctx1 index" in checks(done)[1]["index"]["detail"]
    assert list(tmp_path.iterdir()) == []
