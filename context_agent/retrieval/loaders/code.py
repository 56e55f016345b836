"""Source code: a file is a document whose sections are its definitions; and notebooks.

tree-sitter (extra `code`, grammars included) finds functions, classes and types. A section's title is the path and the
qualified name. Without the extra, and where no definition is found, the file is cut by lines like any text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import accumulate, pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from context_agent.errors import DataError
from context_agent.retrieval.loaders.files import (
    FRONT,
    content,
    decoded,
    document,
    markdown_title,
    storable,
    unix_lines,
)
from context_agent.retrieval.loaders.sources import Reading
from context_agent.types import Document, Section

if TYPE_CHECKING:
    from tree_sitter import Language, Node

LARGEST_PARSED = 2**20
"""Characters; a longer file is generated, and cut by lines."""
MOST_DEFINITIONS = 20_000
CELL_VALUES = 16
"""Characters of the size limit per JSON value of a notebook: a parsed value takes about 100 bytes."""
NO_GRAMMAR = 'cut by lines; to cut code by functions and classes: pip install "context-agent[code]"'


class Grammar(NamedTuple):
    """A language: the module and function that give its grammar, and the node types of its definitions."""

    language: str
    module: str
    definitions: str
    function: str = "language"


_JAVASCRIPT = "function_declaration generator_function_declaration class_declaration method_definition"
_TYPESCRIPT = f"{_JAVASCRIPT} abstract_class_declaration interface_declaration type_alias_declaration enum_declaration"
_C = "function_definition struct_specifier enum_specifier union_specifier"
_PYTHON = Grammar("python", "tree_sitter_python", "function_definition class_definition")
_JS = Grammar("javascript", "tree_sitter_javascript", f"{_JAVASCRIPT} variable_declarator")
_TS = Grammar("typescript", "tree_sitter_typescript", f"{_TYPESCRIPT} internal_module variable_declarator")
_GO = Grammar("go", "tree_sitter_go", "function_declaration method_declaration type_spec")
_RUST = Grammar(
    "rust",
    "tree_sitter_rust",
    "function_item struct_item enum_item union_item trait_item impl_item mod_item macro_definition",
)
_JAVA = Grammar(
    "java",
    "tree_sitter_java",
    "class_declaration interface_declaration enum_declaration record_declaration annotation_type_declaration "
    "method_declaration constructor_declaration",
)
_CPP = Grammar("cpp", "tree_sitter_cpp", f"{_C} class_specifier namespace_definition")
GRAMMARS: Mapping[str, Grammar] = {
    **dict.fromkeys((".py", ".pyi"), _PYTHON),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx"), _JS),
    **dict.fromkeys((".ts", ".mts", ".cts"), _TS._replace(function="language_typescript")),
    ".tsx": _TS._replace(function="language_tsx"),
    ".go": _GO,
    ".rs": _RUST,
    ".java": _JAVA,
    ".c": Grammar("c", "tree_sitter_c", _C),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx"), _CPP),
}
"""Languages that are cut by definition."""
BY_LINES = tuple(
    ".bash .cs .dart .ex .exs .groovy .hs .jl .kt .kts .lua .m .ml .php .pl .ps1 .r .rb .scala .sh .sql .swift".split()
)
"""Extensions of further languages, which are cut by lines."""
_BODIES = frozenset({"struct_specifier", "enum_specifier", "union_specifier", "class_specifier"})
"""Nodes that define something only if they have a body: `struct point p;` does not."""
_VALUES = frozenset({"arrow_function", "function_expression", "generator_function", "class"})
"""What makes a variable of JavaScript a definition."""
_WRAPPERS = frozenset(
    "decorated_definition export_statement lexical_declaration variable_declaration type_declaration "
    "template_declaration type_definition ambient_declaration expression_statement".split()
)
"""Nodes around a definition that belong to it: decorators, `export`, `const`, `template <...>`."""
_ABOVE = frozenset({"comment", "line_comment", "block_comment", "attribute_item", "decorator"})
"""What belongs to a definition if it is directly above."""
LONGEST_NAME = 100
"""Characters of a definition's own name."""
_TYPE_NAME = re.compile(r"[\w.:]+")


def read_code(reading: Reading) -> Iterator[Document]:
    """A file of code, titled by its path, with a section for each definition."""
    text = storable(unix_lines(decoded(reading, content(reading)).text))
    grammar = GRAMMARS.get(PurePath(reading.path).suffix.lower())
    metadata = {"language": grammar.language} if grammar else {}
    sections = _sections(reading, text, grammar) if grammar else ()
    yield document(reading, text, reading.path, metadata, sections)


def _sections(reading: Reading, text: str, grammar: Grammar) -> tuple[Section, ...]:
    """The definitions in order, an outer one before those in it."""
    if len(text) > LARGEST_PARSED:
        return ()
    try:
        definitions = _definitions(source := text.encode("utf-8"), grammar)
    except ImportError:
        reading.report.note(reading.name, NO_GRAMMAR, kind="code")
        return ()
    offsets = _offsets(source, {at for start, end, _ in definitions for at in (start, end)})
    path = storable(reading.path)
    return tuple(Section(offsets[start], offsets[end], f"{path}: {name}") for start, end, name in definitions)


def _definitions(source: bytes, grammar: Grammar) -> list[tuple[int, int, str]]:
    """Start, end (in bytes) and qualified name of each definition."""
    from tree_sitter import Parser, Query, QueryCursor

    language = _language(grammar)
    query = Query(language, " ".join(f"({kind}) @d" for kind in grammar.definitions.split()))
    nodes = QueryCursor(query).captures(Parser(language).parse(source).root_node).get("d", [])
    definitions: list[tuple[int, int, str]] = []
    around: list[tuple[int, str]] = []
    for node in sorted(nodes, key=lambda node: (node.start_byte, -node.end_byte))[:MOST_DEFINITIONS]:
        if not (name := _name(node)):
            continue
        start, end = _extent(node)
        while around and around[-1][0] <= node.start_byte:
            around.pop()
        name = ".".join([*(outer for _, outer in around[-1:]), name])
        around.append((end, name))
        definitions.append((start, end, name))
    return definitions


@cache
def _language(grammar: Grammar) -> Language:
    from tree_sitter import Language

    return Language(getattr(import_module(grammar.module), grammar.function)())


def _name(node: Node) -> str:
    """The definition's own name; "" if the node defines nothing."""
    if node.type in _BODIES and node.child_by_field_name("body") is None:
        return ""
    value = node.child_by_field_name("value")
    if node.type == "variable_declarator" and (value is None or value.type not in _VALUES):
        return ""
    name = node.child_by_field_name("type" if node.type == "impl_item" else "name") or _declared(node)
    receiver = node.child_by_field_name("receiver")
    types = _TYPE_NAME.findall(_words(receiver)) if receiver else []
    return ".".join([*types[-1:], _words(name)]) if name else ""


def _declared(node: Node) -> Node | None:
    """The name in the declarator of a function of C, or of the `typedef` around a struct."""
    if node.type in _BODIES:
        return (
            node.parent.child_by_field_name("declarator")
            if node.parent and node.parent.type == "type_definition"
            else None
        )
    inner: Node | None = node
    while inner and (inner.type == node.type or inner.type.endswith("_declarator")):
        last = inner.named_children[-1] if inner.named_children else None
        inner = inner.child_by_field_name("declarator") or (last if inner.type != node.type else None)
    return inner


def _words(node: Node) -> str:
    text = (node.text or b"").decode("utf-8", "replace")
    return " ".join(text.split())[:LONGEST_NAME]


def _extent(node: Node) -> tuple[int, int]:
    """Where the definition begins and ends, with what is around it and the comments directly above, in bytes."""
    while node.parent and node.parent.type in _WRAPPERS:
        node = node.parent
    first, above = node, node.prev_sibling
    while above and above.type in _ABOVE and above.end_point.row + 1 >= first.start_point.row:
        before = above.prev_sibling
        if before and before.end_point.row == above.start_point.row and not before.type.endswith("comment"):
            break  # it ends a line of code
        first, above = above, before
    return first.start_byte, node.end_byte


def _offsets(data: bytes, positions: set[int]) -> dict[int, int]:
    """The offset in characters of each offset in bytes."""
    ordered = [0, *sorted(positions)]
    lengths = (len(data[start:end].decode("utf-8", "ignore")) for start, end in pairwise(ordered))
    return dict(zip(ordered[1:], accumulate(lengths), strict=True))


def read_notebook(reading: Reading) -> Iterator[Document]:
    """The cells of a Jupyter notebook without their outputs, code between fences, titled by the first heading."""
    raw = decoded(reading, content(reading)).text
    if sum(map(raw.count, ",[{")) > reading.options.max_size // CELL_VALUES:
        raise DataError(reading.options.too_large("the notebook"))
    try:
        notebook = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not a readable notebook: {type(error).__name__}: {error}") from error
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise DataError("not a notebook of format 4: convert it with jupyter nbconvert --to notebook")
    language = _notebook_language(notebook)
    parts = (_cell_text(cell, language) for cell in cells if isinstance(cell, dict))
    text = "\n\n".join(part for part in parts if part)
    yield document(reading, text, markdown_title(text[:FRONT]), {"language": language} if language else {})


def _notebook_language(notebook: dict[str, Any]) -> str:
    info: Any = notebook.get("metadata")
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        entry = info.get(key) if isinstance(info, dict) else None
        if isinstance(entry, dict) and isinstance(entry.get(name), str):
            return storable(entry[name])[:LONGEST_NAME]
    return ""


def _cell_text(cell: dict[str, Any], language: str) -> str:
    source = cell.get("source", "")
    text = "".join(map(str, source)) if isinstance(source, list) else str(source)
    if not text.strip():
        return ""
    return f"```{language}\n{text.strip()}\n```" if cell.get("cell_type") == "code" else text.strip()
