"""The options of a load."""

from __future__ import annotations

from dataclasses import dataclass

from context_agent._support.arguments import require_type, whole_number
from context_agent.errors import ConfigError

MAX_MB = 16
"""The default limit, in megabytes, of a line, a row, or a file that is one document."""
LARGEST_MAX_MB = 1_000_000
"""The largest limit, in megabytes. A size in bytes of more than 64 bits would make reading fail."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Options that say how rows and bytes are read.

    Attributes:
        id_key: The field of a row's id. Defaults to `id`, `_id` or `doc_id`.
        title_key: The field of the title. Defaults to `title`, or else to `name`, `headline`, `subject`, `heading` or
            `summary`.
        text_key: The field of the text. Defaults to the first of `text`, `content`, `body` and `contents` that is not
            empty.
        encoding: The encoding of all text sources. By default, each source is read in the encoding of its byte order
            mark, in UTF-16 without a mark, in UTF-8, in the encoding that it declares, in an encoding of its language,
            or in Windows-1252 if that is plausible.
        delimiter: The delimiter of CSV files. Defaults to the comma, semicolon, tab or bar that is most frequent in the
            header.
        max_mb: The limit of a line, a row, or a file that is one document, in megabytes (2**20 bytes).
        no_ignore: Whether to read also what `.gitignore` excludes, and the folders of tools such as `node_modules`,
            `venv` and `build`.

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
        """The limit `max_mb` in bytes, or in characters of decoded text."""
        return self.max_mb * 2**20

    def __post_init__(self) -> None:
        for name in ("id_key", "title_key", "text_key", "encoding", "delimiter"):
            require_type(getattr(self, name), name, (str, type(None)), "text")
        whole_number(self.max_mb, "max_mb")
        if self.encoding is not None:
            try:
                "a".encode(self.encoding)  # also fails for codecs of something else, such as rot13 and hex
            except (LookupError, ValueError) as error:
                raise ConfigError(
                    f"unknown encoding {self.encoding!r}. Pass one like utf-8, cp1252 or shift_jis."
                ) from error
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise ConfigError(
                f"delimiter must be one character other than a quote or a line break; got {self.delimiter!r}"
            )
        if not 1 <= self.max_mb <= LARGEST_MAX_MB:
            raise ConfigError(f"max_mb must be between 1 and {LARGEST_MAX_MB:,}; got {self.max_mb}")

    def too_large(self, part: str) -> str:
        """Return a notice that a part of a source exceeds the limit."""
        return f"{part} is larger than {self.max_mb} MB. Raise the limit with --max-mb (in Python: LoadOptions.max_mb)."
