"""`ctx1 ui` as a process, and the errors of a folder that cannot be served."""

import signal
import socket

from context_agent.cli.ui import UI_HOST, _port
from tests.support.ctx1_server import serving


def test_a_folder_is_indexed_served_opened_and_kept_current(tmp_path):
    folder = tmp_path / "my notes"
    folder.mkdir()
    (folder / "ada.md").write_text("# Ada\n\nAda wrote the first program.\n")
    (folder / "bo.md").write_text("# Bo\n\nBo grows apples.\n")
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    script.chmod(0o755)
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "BROWSER": f"{script} %s"}
    with serving(folder, cwd=tmp_path, command="ui", **env) as server:
        assert server.client.get("/v1/agent").json()["title"] == "my notes"
        answer = server.ask("Who wrote the first program?").json()
        assert answer["documents"][0]["title"] == "Ada"
        response = server.client.post("/v1/feedback", json={"trajectory": answer["trajectory"], "rating": 5})
        assert response.status_code == 201
        code, log = server.end(signal.SIGINT)
    assert (code, log) == (0, [])
    assert (tmp_path / "opened").read_text().strip() == server.url
    (home,) = (tmp_path / "cache" / "context-agent" / "ui").iterdir()
    assert home.name.startswith("my-notes-")
    assert (home / "episodes" / "feedback.jsonl").exists()
    assert sorted(path.name for path in folder.iterdir()) == ["ada.md", "bo.md"]
    (folder / "bo.md").unlink()
    (folder / "cy.md").write_text("# Cy\n\nCy paints rivers.\n")
    (tmp_path / "opened").unlink()
    with serving(folder, "--no-browser", cwd=tmp_path, command="ui", **env) as server:
        titles = {
            document["title"] for document in server.ask("Who grows apples or paints rivers?").json()["documents"]
        }
        assert "Cy" in titles
        assert "Bo" not in titles
    assert not (tmp_path / "opened").exists()


def test_a_folder_without_text_is_an_error(inside, tmp_path):
    process = inside("ui", "nowhere")
    assert process.returncode == 2
    assert '"nowhere" does not exist' in process.stderr
    (tmp_path / "empty").mkdir()
    process = inside("ui", "empty", "--path", "index")
    assert process.returncode == 1
    assert "nothing to index in empty" in process.stderr
    (tmp_path / "empty" / "picture.png").write_bytes(b"\x89PNG")
    process = inside("ui", "empty", "--path", "index")
    assert process.returncode == 1
    assert "nothing to index in empty" in process.stderr
    assert not (tmp_path / "index").exists()
    (tmp_path / "empty" / "note.md").write_text("A note.")
    inside("index", "empty", "--path", "index")
    (tmp_path / "empty" / "note.md").unlink()
    process = inside("ui", "empty", "--path", "index")
    assert process.returncode == 1
    assert "nothing to index in empty" in process.stderr


def test_an_index_that_the_user_names_keeps_documents_of_other_folders(inside, tmp_path, monkeypatch):
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.md").write_text(f"A note about {name} lamps.")
    inside("index", "mine", "--path", "index")
    monkeypatch.setattr("context_agent.integrations.server.process.serve", lambda *_: False)
    assert inside("ui", "other", "--path", "index", "--no-browser").returncode == 0
    found = inside("search", "lamps", "--path", "index", "--quiet").stdout.split()
    assert sorted(found) == ["mine.md", "other.md"]


def test_a_port_that_is_taken_is_an_error_only_if_it_was_chosen(inside, tmp_path, monkeypatch):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "ada.md").write_text("Ada wrote the first program.")
    with socket.socket() as listener:
        listener.bind((UI_HOST, 0))
        listener.listen()
        port = listener.getsockname()[1]
        process = inside("ui", "notes", "--path", "index", "--no-browser", "--port", port)
        assert process.returncode == 2
        assert f"cannot listen on 127.0.0.1:{port}" in process.stderr
        monkeypatch.setattr("context_agent.cli.ui.UI_PORT", port)
        assert _port(None) == 0
    assert _port(None) == port
