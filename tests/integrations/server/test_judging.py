"""`POST /v1/feedback`."""

from __future__ import annotations

from pathlib import Path

from context_agent.integrations.feedback import JUDGMENTS_FILE, load_judgments
from tests.support.servers import Serve, problem


def test_a_served_search_is_judged(serve: Serve, tmp_path: Path) -> None:
    with serve() as server:
        answer = server.client.post(
            "/v1/retrieve", json={"question": "comets?"}, headers={"X-Request-ID": "r-1"}
        ).json()

        def judge(**fields: object) -> tuple[int, dict[str, object]]:
            response = server.client.post("/v1/feedback", json=fields)
            return response.status_code, response.json()

        best = answer["documents"][0]["id"]
        status, first = judge(trajectory=answer["trajectory"], relevant=[best], rating=5, user="ann")
        assert (status, first["created"], first["trajectory"]) == (201, True, answer["trajectory"])
        repeated = judge(request_id="r-1", relevant=[best], rating=5, user="ann")
        assert repeated == (200, {**first, "created": False})
        assert judge(request_id="r-1", comment="good", id="mine")[0] == 201
    judgments = load_judgments(tmp_path / "trajectories" / JUDGMENTS_FILE)
    assert [(judgment.relevant, judgment.rating, judgment.user, judgment.comment) for judgment in judgments] == [
        ((best,), 5, "ann", ""),
        ((), None, "", "good"),
    ]


def test_what_cannot_be_judged(serve: Serve) -> None:
    with serve() as server:
        trajectory = server.ask().json()["trajectory"]

        def judge(status: int, code: str, **fields: object) -> str:
            return problem(server.client.post("/v1/feedback", json=fields), status, code)

        assert "'absent'" in judge(404, "unknown_trajectory", trajectory="absent", rating=1)
        assert "'absent'" in judge(404, "unknown_trajectory", request_id="absent", rating=1)
        judge(404, "unknown_trajectory", trajectory="../../etc/passwd", rating=1)
        assert "either" in judge(422, "invalid_request", rating=1)
        assert "either" in judge(422, "invalid_request", trajectory=trajectory, request_id="r", rating=1)
        assert "the judgment is empty" in judge(422, "invalid_request", trajectory=trajectory)
        assert "both" in judge(422, "invalid_request", trajectory=trajectory, relevant=["a"], irrelevant=["a"])
        judge(422, "invalid_request", trajectory=trajectory, rating=6)
        server.client.post("/v1/feedback", json={"trajectory": trajectory, "rating": 1, "id": "j"})
        judge(409, "conflict", trajectory=trajectory, rating=2, id="j")
