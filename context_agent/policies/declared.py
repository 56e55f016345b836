"""The tools of a profile as prompts declare them: the schemas of `harness.tools`, with references resolved."""

from __future__ import annotations

from typing import Any

from context_agent.harness.profile import Profile
from context_agent.harness.tools import schemas


def declared(profile: Profile) -> list[dict[str, Any]]:
    """`tools.schemas(profile)` without what renderers of schemas do not follow: `$ref`, `title`, a null alternative.

    pydantic's titles repeat the names (`Doc Id` for `doc_id`), and its references hide what a call inside
    `multi_tool_use` looks like.
    """
    tools = schemas(profile)
    return [{**tool, "parameters": _plain(tool["parameters"], tool["parameters"].get("$defs", {}))} for tool in tools]


def _plain(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_plain(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if reference := schema.get("$ref"):
        target = {
            key: value for key, value in definitions[reference.rsplit("/", 1)[-1]].items() if key != "description"
        }
        return _plain(target, definitions)
    kept = {key: value for key, value in schema.items() if key != "$defs"}
    if isinstance(kept.get("title"), str):
        del kept["title"]
    kinds = kept.get("anyOf")
    if isinstance(kinds, list) and {"type": "null"} in kinds:
        (kind,) = (item for item in kinds if item != {"type": "null"})
        kept = {**kind, **{key: value for key, value in kept.items() if key not in ("anyOf", "default")}}
    return {key: _plain(value, definitions) for key, value in kept.items()}
