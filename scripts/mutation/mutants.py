"""The mutants of a module: its source with one change each. Most operators are mutmut's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider, WhitespaceInclusivePositionProvider
from mutmut.mutation import mutators

LARGEST_NUMBER = 16
"""The largest whole number that is changed. A bound of 4097 instead of 4096 makes no difference to anybody."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one expression or statement."""

    line: int
    function: str
    """The name within the module, such as `View.fit`, or an empty string for the module's own level."""
    before: str
    after: str
    """The changed lines, before and after. If a line is left out, `after` is empty."""
    source: str
    """The whole module with the change."""
    statement: range
    """The lines of the changed statement. A test that runs one of them may notice the change."""
    in_body: bool
    """True if the change is inside a function. Other changes take effect when the module is imported."""


def mutants_of(path: Path) -> list[Mutant]:
    """Return the mutants of a file, in the order of its lines."""
    source = path.read_text(encoding="utf-8")
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    finder = _Finder(source, wrapper)
    wrapper.module.visit(finder)
    return sorted(finder.mutants, key=lambda mutant: mutant.line)


def _other_number(node: cst.BaseNumber) -> Iterable[cst.CSTNode]:
    if isinstance(node, cst.Float) or (isinstance(node, cst.Integer) and node.evaluated_value <= LARGEST_NUMBER):
        return mutators.operator_number(node)
    return ()


def _without_keyword(node: cst.Call) -> Iterator[cst.CSTNode]:
    """Leave out an argument that is passed by name, so that its default applies."""
    for position, argument in enumerate(node.args):
        if argument.keyword is not None and not _is_strict(argument):
            yield node.with_changes(args=[*node.args[:position], *node.args[position + 1 :]])


def _without_call(node: cst.Expr) -> Iterator[cst.CSTNode]:
    """Leave out a statement that calls a function for its effect."""
    if isinstance(node.value, cst.Call | cst.Await):
        yield cst.Pass()


OPERATORS: list[tuple[type[cst.CSTNode], Callable[[Any], Iterable[cst.CSTNode]]]] = [
    (cst.BaseNumber, _other_number),
    (cst.Call, _without_keyword),
    (cst.Expr, _without_call),
    (cst.Name, mutators.operator_name),
    (cst.AugAssign, mutators.operator_augmented_assignment),
    (cst.UnaryOperation, mutators.operator_remove_unary_ops),
    (cst.Call, mutators.operator_symmetric_string_methods_swap),
    (cst.Call, mutators.operator_unsymmetrical_string_methods_swap),
    (cst.CSTNode, mutators.operator_keywords),
    (cst.CSTNode, mutators.operator_swap_op),
    (cst.IfExp, mutators.operator_if_exp),
]
"""The changes that are tried, by the kind of node.

Texts are not changed, because most are messages. mutmut's operator that replaces a value by None is left out, because
the type checker would notice it.
"""

NOTHING_TO_TEST = (cst.Annotation, cst.Assert, cst.Decorator, cst.Import, cst.ImportFrom, cst.Raise)
"""The nodes that are not changed, because they do not affect a result that a test could see.

The same is true of the argument in `zip(…, strict=True)`.
"""


def _mutations(node: cst.CSTNode, code: Callable[[cst.CSTNode], str]) -> Iterator[tuple[cst.CSTNode, str]]:
    """Yield parts of a node, each with the code that replaces it."""
    for kind, operator in OPERATORS:
        if isinstance(node, kind):
            for changed in operator(node):
                yield node, code(changed)
    if isinstance(node, cst.If | cst.While | cst.CompIf | cst.MatchCase):
        condition = node.guard if isinstance(node, cst.MatchCase) else node.test
        # Other conditions, such as comparisons, have their own operators.
        if isinstance(condition, cst.Attribute | cst.Await | cst.Call | cst.Name | cst.NamedExpr | cst.Subscript):
            yield condition, f"{' ' if code(condition).startswith(' ') else ''}not ({code(condition)})"
    if isinstance(node, cst.MatchCase) and node.guard is None:
        yield node.pattern, f"{code(node.pattern)} if False"


def _has_nothing_to_test(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.If):
        return isinstance(node.test, cst.Name) and node.test.value == "TYPE_CHECKING"
    return isinstance(node, NOTHING_TO_TEST) or (isinstance(node, cst.Arg) and _is_strict(node))


def _is_strict(argument: cst.Arg) -> bool:
    return argument.keyword is not None and argument.keyword.value == "strict"


class _Finder(cst.CSTVisitor):
    """A visitor of a module that collects its mutants."""

    def __init__(self, source: str, wrapper: MetadataWrapper) -> None:
        super().__init__()
        self.mutants: list[Mutant] = []
        self._lines = source.split("\n")
        self._module = wrapper.module
        self._positions = wrapper.resolve(PositionProvider)
        self._spans = wrapper.resolve(WhitespaceInclusivePositionProvider)
        self._names: list[str] = []
        self._statements: list[range] = []
        self._bodies: list[cst.CSTNode] = []
        self._depth = 0
        """The number of function bodies around the current node."""

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _has_nothing_to_test(node):
            return False
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._names.append(node.name.value)
        if isinstance(node, cst.FunctionDef):
            self._bodies.append(node.body)
        self._depth += any(node is body for body in self._bodies)
        if isinstance(node, cst.BaseCompoundStatement | cst.MatchCase | cst.SimpleStatementLine):
            self._statements.append(self._own_lines(node))
        if self._statements:
            for part, code in _mutations(node, self._module.code_for_node):
                self._add(part, code)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if _has_nothing_to_test(original_node):
            return
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self._names.pop()
        if isinstance(original_node, cst.FunctionDef):
            self._bodies.pop()
        self._depth -= any(original_node is body for body in self._bodies)
        if isinstance(original_node, cst.BaseCompoundStatement | cst.MatchCase | cst.SimpleStatementLine):
            self._statements.pop()

    def _own_lines(self, node: cst.BaseCompoundStatement | cst.MatchCase | cst.SimpleStatementLine) -> range:
        """Return the lines of a statement without the lines of its inner statements."""
        where = self._positions[node]
        if isinstance(node, cst.SimpleStatementLine):
            return range(where.start.line, where.end.line + 1)
        inside = node.cases[0] if isinstance(node, cst.Match) else node.body
        return range(where.start.line, max(where.start.line + 1, self._spans[inside].start.line + 1))

    def _add(self, node: cst.CSTNode, code: str) -> None:
        span = self._spans[node]
        first, last = span.start.line - 1, span.end.line
        before = self._lines[first:last]
        after = (before[0][: span.start.column] + code + before[-1][span.end.column :]).split("\n")
        self.mutants.append(
            Mutant(
                line=self._positions[node].start.line,
                function=".".join(self._names),
                before=_other_lines(before, after),
                after=_other_lines(after, before),
                source="\n".join([*self._lines[:first], *after, *self._lines[last:]]),
                statement=self._statements[-1],
                in_body=self._depth > 0,
            )
        )


def _other_lines(lines: list[str], others: list[str]) -> str:
    """Return the lines without those that both versions share at the beginning and at the end."""
    mine, theirs = ([line.strip() for line in version if line.strip()] for version in (lines, others))
    while mine and theirs and mine[0] == theirs[0]:
        mine, theirs = mine[1:], theirs[1:]
    while mine and theirs and mine[-1] == theirs[-1]:
        mine, theirs = mine[:-1], theirs[:-1]
    return " ".join(mine)
