"""JSONL and JSON files that are replaced all or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from context_agent._support.journal import replace_file, replacing


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Replace a JSONL file by these rows, all or nothing, and return how many. Creates missing parent folders."""
    count = 0
    with replacing(path) as file:
        for row in rows:
            file.write(f"{encode_row(row)}\n".encode())
            count += 1
    return count


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace the file by this object, all or nothing."""
    replace_file(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def encode_row(row: Mapping[str, Any]) -> str:
    """Return the row as one line of JSON. Text that UTF-8 cannot encode (a lone surrogate) is escaped."""
    line = json.dumps(row, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(row)
    return line
