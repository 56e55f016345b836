"""A griffe extension for the documentation site. It shows the section "Example" of a docstring as code."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^( *)Example:\n((?:\1 {4}.*\n|[ \t]*\n)+)", re.MULTILINE)


def with_fenced_examples(docstring: str) -> str:
    """Return the docstring with a fence around the code of each example."""

    def fenced(match: re.Match[str]) -> str:
        indent, code = match[1], textwrap.dedent(match[2]).strip("\n")
        block = textwrap.indent(f"```python\n{code}\n```\n", indent + " " * 4)
        return f"{indent}Example:\n{block}\n"

    return EXAMPLE.sub(fenced, docstring.rstrip("\n") + "\n").rstrip("\n")


class FencedExamples(Extension):
    """An extension that puts fences around the examples of every docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Put fences around the examples of one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = with_fenced_examples(obj.docstring.value)
