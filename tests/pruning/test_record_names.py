"""The passages of a large record are labeled with what tells it apart from its siblings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from context_agent.pruning.passages import cut
from context_agent.pruning.record_names import LONGEST_TEXT, MOST_NAMING, distinct_names, only_name, own_name
from context_agent.pruning.records import Values, value_runs
from tests.support.growth import seconds

BODY = "It rained in most of the weeks of that year, and ships stayed in the port for as long as they could. " * 3
PARTS = {f"part-{number}": {"about": BODY, "more": [BODY, BODY]} for number in range(3)}
QUAYS, PORTS = ("quay", "pier"), ("north", "south")


def attribute(key: str, value: str) -> dict[str, Any]:
    """Return an attribute as OpenTelemetry writes it."""
    return {"key": key, "value": {"stringValue": value}}


def docker(port: str, quay: str) -> dict[str, Any]:
    """Return a container of `docker inspect`."""
    return {"Id": "a1" * 32, "Created": "2026-03-01T10:00:00Z", "Name": f"/{port}-{quay}", "State": PARTS}


def instance(port: str, quay: str) -> dict[str, Any]:
    """Return an instance of AWS in its reservation."""
    tags = [{"Key": "Zone", "Value": port}, {"Key": "Name", "Value": quay}]
    return {"Instances": [{"InstanceId": "i-0a1b2c3d4e", "Parts": PARTS, "Tags": tags}], "OwnerId": "123"}


def resource(port: str, quay: str) -> dict[str, Any]:
    """Return a resource of OpenTelemetry with its spans."""
    attributes = [attribute("service.name", quay), attribute("zone", port), attribute("host.id", "4f0a9c1d")]
    return {"resource": {"attributes": attributes}, "scopeSpans": [{"scope": {"name": "http"}, "spans": PARTS}]}


def deployment(port: str, quay: str) -> dict[str, Any]:
    """Return a resource of Kubernetes."""
    return {"kind": "Deployment", "metadata": {"name": quay, "namespace": port}, "spec": PARTS}


def issue(port: str, quay: str) -> dict[str, Any]:
    """Return an issue of Jira."""
    fields = {"priority": {"id": "3"}, "summary": f"Open {quay} in {port}", "comments": PARTS}
    return {"key": "OPS-7", "self": "https://x.example.com/7", "fields": fields}


@pytest.mark.parametrize("record", [docker, instance, resource, deployment, issue])
def test_the_parts_of_a_record_have_the_texts_that_its_siblings_do_not_have(record: Any) -> None:
    records = [record(port, quay) for port in PORTS for quay in QUAYS]
    passages = cut(json.dumps(records))
    parts = [passage.label for passage in passages if "weeks of that year" in passage.text]
    assert len(parts) >= 3 * len(records)
    count = len(parts) // len(records)
    for number, label in enumerate(parts):
        port, quay = PORTS[number // count // 2], QUAYS[number // count % 2]
        assert {name for name in (*PORTS, *QUAYS) if name in label} == {port, quay}


def of(records: list[Any]) -> tuple[Values, list[str]]:
    """Return a list of records, and the names that tell them apart."""
    run = value_runs(json.dumps(records))[0]
    return run, [*distinct_names(run, run.parts(run.values[0])).values()]


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ({"name": "a"}, {"name": "b"}, "a"),
        ({"Title": "Rain", "id": "7"}, {"Title": "Sun", "id": "8"}, "Rain"),
        ({"state": "open", "name": "x"}, {"state": "shut", "name": "x"}, "x open"),
        ({"state": "open"}, {"state": "open"}, ""),
        ({"hash": "4f0a9c1d2", "date": "2026-03-02", "size": "12 kB", "url": ""}, {"hash": "rain"}, ""),
        ({"on": "true", "none": "null"}, {"on": "false", "none": "no"}, ""),
        ({"text": "rain " * 20}, {"text": "sun"}, ("rain " * 20).strip()[:MOST_NAMING]),
        ({"text": "rain " * 40}, {"text": "sun"}, ""),
        ({"text": "r" * (LONGEST_TEXT - 2)}, {"text": "sun"}, "r" * MOST_NAMING),
        ({"b": "sun", "a": "rain"}, {"b": "fog", "a": "rain"}, "sun"),
        ({"name": "r" * 39, "b": "s" * 40}, {"name": "x", "b": "fog"}, f"{'r' * 39} {'s' * 40}"),
        ({"name": "r" * 39, "b": "s" * 41}, {"name": "x", "b": "fog"}, "r" * 39),
        ({"a": {"b": {"c": "rain"}}, "d": {"e": "sun"}}, {"a": {"b": {"c": "hail"}}, "d": {"e": "fog"}}, "sun"),
        ({"tags": [{"key": "zone", "value": "north"}]}, {"tags": [{"key": "zone", "value": "south"}]}, "north"),
        (
            {"tags": [{"key": "zone", "value": "n" * (LONGEST_TEXT - 2)}, {"key": "kind", "value": "7"}]},
            {"tags": [{"key": "zone", "value": "south"}]},
            "n" * MOST_NAMING,
        ),
        *(
            ({"tags": [first, {"key": "kind", "value": "7"}]}, {"tags": [{"key": "zone", "value": "south"}]}, "")
            for first in (
                {"key": "zone", "value": "north", "x": 1},
                {"key": "zone", "x": "north"},
                {"key": "", "value": "north"},
                {"key": "zone", "value": {"a": "north", "b": "x"}},
                {"key": "zone", "value": ["north"]},
                {"key": "zone", "value": "n" * LONGEST_TEXT},
            )
        ),
    ],
)
def test_what_tells_a_record_apart(first: Mapping[str, Any], second: Mapping[str, Any], name: str) -> None:
    assert of([first, second])[1][0] == name


@pytest.mark.parametrize(
    ("record", "name"),
    [
        ({"a": {"name": "quay"}, "b": {"x": "pier"}, "c": "name"}, "quay"),
        ({"a": {"name": "quay"}, "b": {"name": "pier"}}, ""),
        ({"a": 1}, ""),
    ],
)
def test_a_record_has_the_name_of_the_only_named_object_in_it(record: Any, name: str) -> None:
    run, _ = of([record])
    assert only_name(run, run.parts(run.parts(run.values[0])[0])) == name


def test_one_record_and_values_without_members_are_not_compared() -> None:
    assert of([{"name": "a"}])[1] == []
    assert of(["a", ["b"], {"name": "c"}])[1] == []


def test_a_tag_names_a_record_only_if_it_says_name() -> None:
    for key, name in (("Name", "quay"), ("service.name", "quay"), ("rename", ""), ("zone", "")):
        run, _ = of([{"tags": [{"key": key, "value": "quay"}]}])
        assert own_name(run, run.parts(run.parts(run.values[0])[0])) == name


def test_names_take_linear_time() -> None:
    def text(size: int) -> str:
        return json.dumps([{f"k{key}": f"word{'x' * (number % 7)}" for key in range(90)} for number in range(size)])

    def named(it: str) -> None:
        run = value_runs(it)[0]
        distinct_names(run, run.parts(run.values[0]))

    assert seconds(named, text(600)) < 3
