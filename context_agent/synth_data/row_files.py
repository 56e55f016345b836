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
    """Replace the file with this object, completely or not at all."""
    replace_file(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def encode_row(row: Mapping[str, Any]) -> str:
    """Return the row as one line of JSON.

    If UTF-8 cannot encode its text, as with a lone surrogate, the text is escaped.
    """
    line = json.dumps(row, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(row)
    return line
