"""The OpenAPI document, and random requests generated from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, ValidationError

from context_agent.integrations.server.app import application
from context_agent.integrations.server.schema import ChatRequest, FeedbackRequest, PruneRequest, RetrieveRequest
from tests.support.servers import Serve


def test_the_document_names_what_is_served(serve: Serve) -> None:
    with serve(token="abc") as server:
        document = server.client.get("/openapi.json").json()
        assert document["openapi"] == "3.1.0"
        for path, operations in document["paths"].items():
            for method in operations:
                response = server.client.request(method, path)
                unknown = "{" in path and response.json()["error"]["code"] in ("unknown_trajectory", "model_not_found")
                assert unknown or response.status_code not in (404, 405), path
                assert ("401" in operations[method]["responses"]) == (path != "/health"), path
        text = json.dumps(document)
        for reference in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
            assert reference in document["components"]["schemas"]
        assert document["security"] == [{"bearer": []}]
        assert document["paths"]["/health"]["get"]["security"] == []
    with serve() as server:
        assert "security" not in server.client.get("/openapi.json").json()


@pytest.mark.parametrize(
    ("model", "required"),
    [
        (RetrieveRequest, {"question": "x"}),
        (ChatRequest, {"model": "x", "messages": [{"role": "user", "content": "x"}]}),
        (FeedbackRequest, {"request_id": "x"}),
        (PruneRequest, {"messages": []}),
    ],
)
def test_a_null_in_an_optional_field_is_its_default(model: type[BaseModel], required: dict[str, Any]) -> None:
    schema = model.model_json_schema()
    optional = schema["properties"].keys() - required.keys()
    assert all({"type": "null"} in schema["properties"][name]["anyOf"] for name in optional)
    assert model.model_validate_json(json.dumps(dict.fromkeys(optional) | required)) == model(**required)
    with pytest.raises(ValidationError, match=r"Field required|pass either"):
        model.model_validate_json(json.dumps(required | dict.fromkeys(required)))


def test_a_null_inside_of_messages_and_options_is_the_default() -> None:
    parts = [{"type": "text", "text": "comets?"}, {"type": "text", "text": None}, {"type": "image_url", "text": None}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": None}]
    fields = {"model": "x", "messages": messages, "stream_options": {"include_usage": None}}
    request = ChatRequest.model_validate_json(json.dumps(fields))
    assert [message.text.strip() for message in request.messages] == ["comets?", ""]
    assert request.stream_options is not None
    assert not request.stream_options.include_usage


@pytest.mark.slow
def test_no_request_made_from_the_document_breaks_the_server(serve: Serve, tmp_path: Path) -> None:
    program = str(Path(sys.executable).with_name("schemathesis"))
    with serve() as server:
        result = subprocess.run(
            [
                program,
                "run",
                f"{server.url}/openapi.json",
                "--checks=not_a_server_error,status_code_conformance,response_schema_conformance",
                "--max-examples=25",
                "--seed=1",
                "--phases=examples,coverage,fuzzing",
                "--generation-database=none",
                "--no-color",
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=300,
            check=False,
        )
        metrics = server.client.get("/metrics").text
    assert result.returncode == 0, result.stdout[-4_000:] + result.stderr[-2_000:]
    assert 'status="500"' not in metrics
    assert 'ctx1_requests_total{path="/v1/retrieve",status="200"}' in metrics
    assert 'ctx1_requests_total{path="/v1/retrieve",status="422"}' in metrics


async def test_the_application_in_a_server_of_ones_own(corpus: object, serve: Serve) -> None:
    from context_agent import MemoryCorpus, SearchAgent
    from tests.support.servers import one_search

    assert isinstance(corpus, MemoryCorpus)
    with SearchAgent(corpus, one_search()) as agent:
        transport = httpx.ASGITransport(application(agent))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            response = await client.post("/v1/retrieve", json={"question": "comets?"})
            feedback = await client.post("/v1/feedback", json={"trajectory": "x", "rating": 1})
    assert response.json()["documents"]
    assert response.json()["trajectory"] is None
    assert (feedback.status_code, feedback.json()["error"]["code"]) == (404, "no_trajectories")
