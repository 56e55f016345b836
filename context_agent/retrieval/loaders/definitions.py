"""The functions, classes and types that source code defines, found by tree-sitter (extra `code`)."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from context_agent.errors import DataError

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Tree

LARGEST_PARSED = 2**20
"""Maximum number of characters of a file that is parsed. A longer file is probably generated, so it is cut by lines."""
MOST_DEFINITIONS = 20_000
"""Maximum number of definitions that are found in a file."""
MAX_NESTING = 10
"""Maximum number of levels of nested definitions. Deeper definitions belong to the innermost one."""
MAX_DEPTH = 1_000
"""Maximum number of levels of a syntax tree that are searched for definitions."""
STEPS_PER_REPORT = 100
"""The number of steps after which tree-sitter reports its progress."""
MAX_STEPS = 800_000
"""Maximum number of steps of the parser for one file, which bound the size of the tree.

A step takes up to 450 bytes of memory.
"""
MAX_STEPS_PER_BYTE, SPARE_STEPS = 2.5, 50_000
"""Maximum number of parser steps up to a position. Normal code takes at most 2 for each byte, ambiguous code more."""
ERROR_STEPS = 2
"""The number that a step after a syntax error counts as, because such a step costs more."""
PARSE_SECONDS_PER_MB = 3.0
LEAST_PARSE_SECONDS = 0.5
"""The parser's time limit, which is in proportion to the size of the file, and the least limit of any file."""
MAX_OPEN_BRACKETS = 1_000
"""Maximum number of brackets of one kind that are open at a time. Brackets in texts and comments count, too.

At the end of a broken file, a single step of the parser takes memory in proportion to the square of their number.
"""
READ_BYTES = 2**16
MOST_READS_PER_BLOCK, SPARE_READS = 64, 256
"""The number of times that the parser may read each block of `READ_BYTES`.

For each token without an end, the parser reads the rest of the file again and keeps what it read.
"""
TOO_COMPLEX = (
    "the file is cut by lines, because it is too large, ambiguous or broken to be cut by functions and classes"
)


class Grammar(NamedTuple):
    """The grammar of a language.

    Attributes:
        language: The name of the language.
        module: The module that provides the grammar.
        definitions: The node types of definitions, separated by spaces.
        function: The function of the module that returns the grammar.
    """

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
"""The grammars of the languages that are cut by definition, by extension."""
BY_LINES = tuple(
    ".bash .cs .dart .ex .exs .groovy .hs .jl .kt .kts .lua .m .ml .php .pl .ps1 .r .rb .scala .sh .sql .swift".split()
)
"""The extensions of further languages, which are cut by lines."""
_BODIES = frozenset({"struct_specifier", "enum_specifier", "union_specifier", "class_specifier"})
"""Nodes that define something only if they have a body. For example, `struct point p;` has none."""
_VALUES = frozenset({"arrow_function", "function_expression", "generator_function", "class"})
"""Values that make a JavaScript variable a definition."""
_WRAPPERS = frozenset(
    "decorated_definition export_statement lexical_declaration variable_declaration type_declaration "
    "template_declaration type_definition ambient_declaration expression_statement".split()
)
"""Nodes around a definition that belong to it: decorators, `export`, `const`, `template <...>`."""
_ABOVE = frozenset({"comment", "line_comment", "block_comment", "attribute_item", "decorator"})
"""Nodes that belong to a definition if they are directly above it."""
LONGEST_NAME = 100
"""Maximum number of characters of a definition's own name."""
_TYPE_NAME = re.compile(r"[\w.:]+")


def definitions_of(source: bytes, grammar: Grammar) -> list[tuple[int, int, str]]:
    """Return the start, the end and the qualified name of each definition. Offsets are in bytes.

    Raises:
        DataError: If parsing exceeds a limit.
    """
    kinds = frozenset(grammar.definitions.split())
    definitions: list[tuple[int, int, str]] = []
    around: list[tuple[int, str]] = []
    for found in _walk(_parsed(source, grammar), kinds):
        while around and around[-1][0] <= found.node.start_byte:
            around.pop()
        if len(around) == MAX_NESTING or not (name := _name(found, source)):
            continue
        name = ".".join([*(outer for _, outer in around[-1:]), name])
        around.append((found.node.end_byte, name))
        definitions.append((found.start, found.end, name))
        if len(definitions) == MOST_DEFINITIONS:
            break
    return definitions


def _parsed(source: bytes, grammar: Grammar) -> Tree:
    """Return the syntax tree. If parsing exceeds a limit on steps or time, raise `DataError`."""
    from tree_sitter import Parser

    if _most_open_brackets(source) > MAX_OPEN_BRACKETS:
        raise DataError(TOO_COMPLEX)
    allowed_seconds = max(LEAST_PARSE_SECONDS, PARSE_SECONDS_PER_MB * len(source) / 2**20)
    steps, end = 0, time.thread_time() + allowed_seconds
    reads_left = SPARE_READS + MOST_READS_PER_BLOCK * (len(source) // READ_BYTES)

    def must_stop(position: int, has_error: bool) -> bool:
        nonlocal steps
        steps += STEPS_PER_REPORT * (ERROR_STEPS if has_error else 1)
        allowed = min(MAX_STEPS, SPARE_STEPS + MAX_STEPS_PER_BYTE * position)
        return steps > allowed or time.thread_time() > end

    def read(position: int, _point: object) -> bytes:
        nonlocal reads_left
        reads_left -= 1
        return source[position : position + READ_BYTES] if reads_left >= 0 else b""

    try:
        tree = Parser(_language(grammar)).parse(read, progress_callback=must_stop)
    except ValueError as error:  # the parser was stopped
        raise DataError(TOO_COMPLEX) from error
    if reads_left < 0:
        raise DataError(TOO_COMPLEX)
    return tree


def _most_open_brackets(source: bytes) -> int:
    """Return how many brackets of one kind are open at a time. Closing brackets that close nothing are ignored."""
    letters, most = np.frombuffer(source, dtype=np.uint8), 0
    for opening, closing in (b"()", b"[]", b"{}"):
        level = np.cumsum((letters == opening).astype(np.int32) - (letters == closing), dtype=np.int32)
        lowest = np.minimum.accumulate(np.minimum(level, 0))
        most = max(most, int(np.max(level - lowest, initial=0)))
    return most


class _Found(NamedTuple):
    """A definition in the tree. Its start and end, in bytes, include its wrappers and the comments above it."""

    node: Node
    parent: Node | None
    start: int
    end: int


class _Level(NamedTuple):
    """A node whose children are visited. `extent` is set if the node belongs to a definition inside it."""

    node: Node
    extent: tuple[int, int] | None


def _walk(tree: Tree, kinds: Collection[str]) -> Iterator[_Found]:
    """Yield the nodes of the kinds in order. An outer node comes before the nodes inside it.

    The walk visits every node once, without recursion. It tracks the parent and the previous sibling of each node,
    because tree-sitter would find them by a search from the root.
    """
    cursor = tree.walk()
    levels: list[_Level] = []
    above = _Above()
    outer: list[_Above] = []
    while True:
        node = cursor.node
        assert node is not None
        kind = node.type
        start = above.pass_node(node, kind)
        extent = levels[-1].extent if levels and levels[-1].extent else (start, node.end_byte)
        if kind in kinds:
            yield _Found(node, levels[-1].node if levels else None, *extent)
        if len(levels) < MAX_DEPTH and cursor.goto_first_child():
            levels.append(_Level(node, extent if kind in _WRAPPERS else None))
            outer.append(above)
            above = _Above()
            continue
        while not cursor.goto_next_sibling():
            if not levels:
                return
            cursor.goto_parent()
            levels.pop()
            above = outer.pop()


class _Above:
    """The comments and attributes directly above the next sibling, collected from left to right."""

    __slots__ = ("_comment", "_row", "_start")

    def __init__(self) -> None:
        self._start: int | None = None
        """The offset of the first of them. It is None if there are none."""
        self._row = -1
        """The row where the previous sibling ends."""
        self._comment = True
        """True if the previous sibling is a comment."""

    def pass_node(self, node: Node, kind: str) -> int:
        """Move on to the next sibling. Return the offset where it begins, including the comments that belong to it."""
        row, start = node.start_point.row, node.start_byte
        attached = self._start if self._start is not None and self._row + 1 >= row else None
        if kind not in _ABOVE or (self._row == row and not self._comment):  # the latter ends a line of code
            self._start = None
        else:
            self._start = start if attached is None else attached
        self._row, self._comment = node.end_point.row, kind.endswith("comment")
        return start if attached is None else attached


@cache
def _language(grammar: Grammar) -> Language:
    from tree_sitter import Language

    return Language(getattr(import_module(grammar.module), grammar.function)())


def _name(found: _Found, source: bytes) -> str:
    """Return the definition's own name. If the node defines nothing, return an empty string."""
    node = found.node
    if node.type in _BODIES and node.child_by_field_name("body") is None:
        return ""
    value = node.child_by_field_name("value")
    if node.type == "variable_declarator" and (value is None or value.type not in _VALUES):
        return ""
    name = node.child_by_field_name("type" if node.type == "impl_item" else "name") or _declared(node, found.parent)
    receiver = node.child_by_field_name("receiver")
    types = _TYPE_NAME.findall(_words(receiver, source)) if receiver else []
    return ".".join([*types[-1:], _words(name, source)]) if name else ""


def _declared(node: Node, parent: Node | None) -> Node | None:
    """Return the name in the declarator of a C function, or of the `typedef` around a struct."""
    if node.type in _BODIES:
        return parent.child_by_field_name("declarator") if parent and parent.type == "type_definition" else None
    inner: Node | None = node
    while inner and (inner.type == node.type or inner.type.endswith("_declarator")):
        last = inner.named_children[-1] if inner.named_children else None
        inner = inner.child_by_field_name("declarator") or (last if inner.type != node.type else None)
    return inner


def _words(node: Node, source: bytes) -> str:
    """Return the beginning of the node's text on one line."""
    text = source[node.start_byte : min(node.end_byte, node.start_byte + 4 * LONGEST_NAME)].decode("utf-8", "replace")
    return " ".join(text.split())[:LONGEST_NAME]
