"""Bounds on what a packed source may unpack to: each condition alone, at its boundary."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable

import pytest

from context_agent.errors import DataError
from context_agent.retrieval.loaders import LoadOptions, LoadReport
from context_agent.retrieval.loaders.reading import Reading
from context_agent.retrieval.loaders.unpacking import (
    ANY_ROWS,
    FREE_UNPACKED_SIZE,
    LARGEST_RATIO,
    LEAST_ROW_BYTES,
    check_rows,
    check_unpacked,
)
from context_agent.retrieval.loaders.zipped_xml import opened_package


@pytest.mark.parametrize(
    ("check", "size", "packed", "is_refused"),
    [
        (check_unpacked, FREE_UNPACKED_SIZE, 1, False),
        (check_unpacked, FREE_UNPACKED_SIZE + 1, 1, True),
        (check_unpacked, 10 * FREE_UNPACKED_SIZE, 10 * FREE_UNPACKED_SIZE // LARGEST_RATIO + 1, False),
        (check_unpacked, LARGEST_RATIO * FREE_UNPACKED_SIZE, FREE_UNPACKED_SIZE, False),
        (check_unpacked, LARGEST_RATIO * FREE_UNPACKED_SIZE + 1, FREE_UNPACKED_SIZE, True),
        (check_rows, ANY_ROWS, 1, False),
        (check_rows, ANY_ROWS + 1, 1, True),
        (check_rows, 10 * ANY_ROWS, 10 * ANY_ROWS * LEAST_ROW_BYTES, False),
        (check_rows, 10 * ANY_ROWS, 10 * ANY_ROWS * LEAST_ROW_BYTES - 1, True),
    ],
)
def test_a_source_is_refused_only_if_it_is_large_and_packed_too_well(
    check: Callable[[int, int], None], size: int, packed: int, *, is_refused: bool
) -> None:
    if not is_refused:
        check(size, packed)
        return
    with pytest.raises(DataError, match="If you trust it"):
        check(size, packed)


def opened(members: dict[str, bytes], packing: int = zipfile.ZIP_DEFLATED, flag: int = 0) -> None:
    """Write an archive whose last member is packed so and has that flag, and open it as a document."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data, packing if name == list(members)[-1] else zipfile.ZIP_DEFLATED)
    data = bytearray(buffer.getvalue())
    data[data.rindex(b"PK\1\2") + 8] |= flag
    reading = Reading("a.docx", "a.docx", io.BytesIO(bytes(data)), LoadOptions(max_mb=1), LoadReport())
    with opened_package(reading) as package:
        assert package.data(next(iter(members))) == members[next(iter(members))]


def test_one_bad_member_is_enough() -> None:
    good = {"a.xml": b"<a/>", "b.bin": b"b"}
    opened(good)
    opened(good, zipfile.ZIP_STORED)
    with pytest.raises(DataError, match=r"is encrypted\. Save it without a password"):
        opened(good, flag=1)
    with pytest.raises(DataError, match="not packed as in a document"):
        opened(good, zipfile.ZIP_BZIP2)
    large = bytes(range(256)) * 2**12
    opened({"a.xml": large})
    with pytest.raises(DataError, match="unpacked XML"):
        opened({"a.xml": large, "B.XML": b"<b/>"})
    with pytest.raises(DataError, match="200 times its size"):
        opened({"a.bin": b"a" * 2 * FREE_UNPACKED_SIZE})
