"""The options of a load."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from context_agent.errors import ConfigError

MAX_MB = 16
"""Megabytes of a line, row or file that is one document, by default."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How rows and bytes are read.

    Attributes:
        id_key: The field of a row's id. By default `id`, `_id` or `doc_id`.
        title_key: The field of the title. By default `title`.
        text_key: The field of the text. By default `text`, `content`, `body` or `contents`, the first that is not
            empty.
        encoding: The encoding of all text sources. By default that of a byte order mark, else UTF-8, else Windows-1252
            if plausible.
        delimiter: The delimiter of CSV files. By default comma, semicolon, tab or bar, whichever is most frequent in
            the header.
        max_mb: The largest line, row or file that is one document, in megabytes (2**20 bytes).
        no_ignore: Whether to read also what `.gitignore` names, and the folders of tools (`node_modules`, `venv`,
            `build` ...).

    Raises:
        ConfigError: If an option is invalid.
    """

    id_key: str | None = None
    title_key: str | None = None
    text_key: str | None = None
    encoding: str | None = None
    delimiter: str | None = None
    max_mb: int = MAX_MB
    no_ignore: bool = False

    @property
    def max_size(self) -> int:
        """`max_mb` in bytes, or in characters of decoded text."""
        return self.max_mb * 2**20

    def __post_init__(self) -> None:
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError as error:
                raise ConfigError(f"unknown encoding {self.encoding!r}: try utf-8, cp1252 or shift_jis") from error
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise ConfigError(f"delimiter {self.delimiter!r} must be one character other than a quote or a line break")
        if self.max_mb < 1:
            raise ConfigError(f"max_mb must be at least 1; got {self.max_mb}")

    def too_large(self, part: str) -> str:
        """Return the notice about a part of a source that exceeds the limit."""
        return f"{part} is larger than {self.max_mb} MB: raise the limit with --max-mb (in Python: LoadOptions.max_mb)"
