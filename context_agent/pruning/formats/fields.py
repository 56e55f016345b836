"""Fields of messages, which may be mappings or objects, and JSON values in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

MOST_LEVELS = 500
"""Maximum number of levels of a JSON value that is read. Python itself reads and writes about 1,000 levels of JSON."""

MOST_READ, MOST_VALUES, MOST_ASKED = 10_000, 64, 8
"""Maximum number of characters, values and texts that are read in the arguments of a call for what it asks."""
LONGEST_TEXT, LONGEST_ASKED = 300, 80
"""Maximum number of characters of a text that says what a call asks, and of its part that is kept."""
SEARCHED = frozenset(
    "query queries q question questions search search_query searchquery query_text querytext user_query userquery "
    "search_term searchterm keywords keyword terms phrase topic topics objective goal intent text prompt input "
    "description thought reasoning explanation".split()
)
"""Names of arguments with words that are searched for, or that say why."""
_PROVIDER_FIELDS = (
    "provider_details", "providerOptions", "providerMetadata", "callProviderMetadata", "extra_content",
    "provider_specific_fields", "extras",
)  # fmt: skip
"""The fields of a call with what the model's server added.

They are of Pydantic AI, the Vercel AI SDK, Gemini, LiteLLM and LangChain.
"""


def json_like(value: Any) -> bool:
    """Return True if a value consists only of JSON types, in at most `MOST_LEVELS` levels.

    These are dicts with string keys, lists, strings, numbers, booleans and None.
    """
    waiting = [(value, 1)]
    while waiting:
        item, level = waiting.pop()
        if isinstance(item, dict | list):
            if level > MOST_LEVELS or (isinstance(item, dict) and any(type(key) is not str for key in item)):
                return False
            waiting += [(inner, level + 1) for inner in (item.values() if isinstance(item, dict) else item)]
        elif item is not None and type(item) not in (str, int, float, bool):
            return False
    return True


def json_text(value: Any) -> str | None:
    """Return the JSON text of a value. If the value would change when it is read back, or is too deep, return None.

    JSON has no infinite numbers. A body with `1e400` has one after decoding, which providers would refuse.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False) if json_like(value) else None
    except (TypeError, ValueError, RecursionError):
        return None


def has_failed(code: Any) -> bool:
    """Return True if the exit code of a program says that it failed."""
    return isinstance(code, int) and code != 0


def is_of_program(call: Any) -> bool:
    """Return True if a program of the model made a call, as in Anthropic's and OpenAI's programmatic tool calling."""
    added = [get_field(call, name) for name in _PROVIDER_FIELDS]
    holders = [call, *added, *(inner for field in added if isinstance(field, Mapping) for inner in field.values())]
    return any(text_field(get_field(holder, "caller"), "type") not in ("", "direct") for holder in holders)


def get_field(value: Any, name: str) -> Any:
    """Return a key of a mapping or an attribute of an object. If it is missing, return None."""
    # Most messages are dicts. For other types, `isinstance` asks the abstract class, which takes longer.
    return value.get(name) if type(value) is dict or isinstance(value, Mapping) else getattr(value, name, None)


def text_field(value: Any, name: str) -> str:
    """Return a field if it is a string. Otherwise return an empty string."""
    field = get_field(value, name)
    return field if isinstance(field, str) else ""


def first_value(value: Any, *names: str) -> Any:
    """Return the value of the first field that is present. If there is none, return None."""
    return first_field(value, *names)[1]


def first_field(value: Any, *names: str) -> tuple[str, Any]:
    """Return the name and the value of the first field that is present."""
    return next(((name, field) for name in names if (field := get_field(value, name)) is not None), ("", None))


def is_signed(call: Any) -> bool:
    """Return True if a framework noted a signature of the call, with which the model's server checks it.

    Gemini signs the calls of models that think.
    """
    added = (get_field(call, name) for name in _PROVIDER_FIELDS)
    return any(field is not None and "signature" in written(field).lower() for field in added)


def items(value: Any) -> Sequence[Any]:
    """Return the value if it is a list or a tuple. Otherwise return an empty sequence."""
    return value if isinstance(value, list | tuple) else ()


def first_key(part: Any) -> str:
    """Return the first key of a mapping, or else the name of the type."""
    return str(next(iter(part), "")) if isinstance(part, Mapping) else type(part).__name__


def asked(arguments: Any) -> str:
    """Return what a call asks for, such as a path or a command: the short texts among its arguments.

    Of a long path, the end counts. The words of a search do not count, because its hits may be about anything.
    """
    value = arguments
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments) if len(arguments) <= MOST_READ else None
        except (ValueError, RecursionError):
            value = None
    texts: list[str] = []
    waiting = [value]
    # Arguments of a client's own types may contain themselves.
    for _ in range(MOST_VALUES):
        if not waiting or len(texts) == MOST_ASKED:
            break
        item = waiting.pop()
        if isinstance(item, Mapping):
            pairs = islice(item.items(), MOST_VALUES)
            waiting += reversed([own for name, own in pairs if str(name).lower() not in SEARCHED])
        elif isinstance(item, list | tuple):
            waiting += reversed(item[:MOST_VALUES])
        elif isinstance(item, str) and 0 < len(item) <= LONGEST_TEXT:
            texts.append(" ".join(item[-LONGEST_ASKED:].split()))
    return " ".join(texts)[:LONGEST_ASKED]


def written(arguments: Any) -> str:
    """Return the arguments of a call as text. If they are nested too deeply, return an empty string."""
    try:
        return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
    except (RecursionError, ValueError, TypeError):
        return ""
