"""The objects of a PDF file, any of which may be damaged or missing."""

from __future__ import annotations

from typing import Any


def entry(dictionary: Any, key: str) -> Any:
    """Return an entry of a dictionary. If there is none, or it is damaged, return None."""
    return resolved(dictionary.get(key)) if isinstance(dictionary, dict) else None


def resolved(value: Any) -> Any:
    """Return the object that a reference leads to. If it is damaged, return None."""
    try:
        return None if value is None else value.get_object()
    except Exception:  # noqa: BLE001 - a broken file makes pypdf raise nearly anything
        return None


def stream_data(value: Any) -> bytes:
    """Return the bytes of a stream, unpacked. If there is no stream, or it is damaged, return none."""
    try:
        data = value.get_data()
    except Exception:  # noqa: BLE001 - as above
        return b""
    return data if isinstance(data, bytes) else b""
