"""Writers of JSONL and JSON files that replace a file completely or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from context_agent._support.atomic_files import replace_file, replacing


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Replace a JSONL file with these rows, completely or not at all, and return the number of rows.

    Missing parent folders are created.
    """
    count = 0
    with replacing(path) as file:
        for row in rows:
            file.write(f"{encode_row(row)}\n".encode())
            count += 1
    return count


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace the file with this object, completely or not at all. Its text is escaped as in `encode_row`."""
    replace_file(path, _encoded(data, indent=2) + "\n")


def encode_row(row: Mapping[str, Any]) -> str:
    """Return the row as one line of JSON.

    If UTF-8 cannot encode its text, as with a lone surrogate, the text is escaped.
    """
    return _encoded(row)


def _encoded(data: Mapping[str, Any], indent: int | None = None) -> str:
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(data, indent=indent)
    return text
