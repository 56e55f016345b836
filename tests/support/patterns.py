"""The regular expressions of the package, and texts that are hostile to each: built from its own parse tree."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import context_agent

PACKAGE = Path(context_agent.__file__).parent
METHODS = frozenset(("compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"))
MOST_TURNS = 20_000
"""Maximum number of turns of a loop that may be remembered."""
CALLS = re.compile(rf"\bre\.(?:{'|'.join(METHODS)})\b")
ANCHORED = frozenset(("match", "fullmatch"))
"""Methods that try one start only."""


@dataclass(frozen=True)
class Found:
    """A call of `re` in the package. `pattern` is None if its source is known at run time only."""

    module: str
    name: str
    source: str
    pattern: re.Pattern[Any] | None
    methods: frozenset[str] = field(default=frozenset())

    @property
    def id(self) -> str:
        """The module, and the pattern's name or else its source."""
        return f"{self.module}:{self.name or self.source}"

    def run(self, text: str) -> None:
        """Use the pattern on a text as the package does."""
        assert self.pattern is not None
        value: Any = text.encode("latin-1", "replace") if isinstance(self.pattern.pattern, bytes) else text
        if self.methods and self.methods <= ANCHORED:
            for method in self.methods:
                getattr(self.pattern, method)(value)
        else:
            for _ in self.pattern.finditer(value):
                pass


def pattern_modules() -> list[str]:
    """Return the modules of the package that call `re`, sorted. No module is parsed."""
    return [_module_name(file) for file, text in _sources().items() if CALLS.search(text)]


def package_patterns() -> Iterator[Found]:
    """Yield every call of `re` in the package, in the order of the files."""
    texts = _sources()
    nodes = {file: _nodes(text) for file, text in texts.items() if CALLS.search(text)}
    assigned = (node for found in nodes.values() for node in found if _is_assignment(node))
    names = {node.targets[0].id for node in assigned if _is_compilation(node.value)}
    # Public constants may be used where `re` is not imported.
    mentioned = re.compile(rf"\b(?:{'|'.join(filter(_is_public_constant, names))})\b")
    nodes |= {file: _nodes(text) for file, text in texts.items() if file not in nodes and mentioned.search(text)}
    by_file = {file: _methods_by_name(found) for file, found in nodes.items()}
    everywhere: dict[str, frozenset[str]] = {}
    for methods in by_file.values():
        for name, called in methods.items():
            everywhere[name] = everywhere.get(name, frozenset()) | called
    for file, found in nodes.items():
        module = _module_name(file)
        targets = {id(node.value): node.targets[0].id for node in found if _is_assignment(node)}
        for call in found:
            if isinstance(call, ast.Call) and (method := _method_of_re(call)):
                name = targets.get(id(call), "") if method == "compile" else ""
                used = (everywhere if _is_public_constant(name) else by_file[file]).get(name, frozenset())
                methods = used if method == "compile" else frozenset((method,))
                yield Found(module, name, ast.unparse(call.args[0]), _compiled(module, call, method), methods)


def _sources() -> dict[Path, str]:
    return {file: file.read_text(encoding="utf-8") for file in sorted(PACKAGE.rglob("*.py"))}


def _module_name(file: Path) -> str:
    return ".".join(("context_agent", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def _nodes(text: str) -> list[ast.AST]:
    return [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assign | ast.Attribute | ast.Call | ast.Name)
    ]


def _is_public_constant(name: str) -> bool:
    return name[:1].isupper()


def _is_assignment(node: ast.AST) -> Any:
    return isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)


def _is_compilation(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _method_of_re(node) == "compile"


def _method_of_re(call: ast.Call) -> str:
    """Return the method if `re` itself is called, else an empty string. A pattern is its first argument."""
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "re":
        return function.attr if function.attr in METHODS and call.args else ""
    return ""


def _methods_by_name(nodes: Sequence[ast.AST]) -> dict[str, frozenset[str]]:
    """Return the methods that a file calls on each name. One that is passed on may be searched for anywhere."""
    methods: dict[str, set[str]] = {}
    called = {id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr in METHODS}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in METHODS:
            methods.setdefault(node.value.id, set()).add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in called:
            methods.setdefault(node.id, set()).add("search")
    return {name: frozenset(found) for name, found in methods.items()}


def _compiled(module: str, call: ast.Call, method: str) -> re.Pattern[Any] | None:
    """Return the pattern of a call, None if it depends on values that are known at run time only."""
    arguments = {argument.arg: argument.value for argument in call.keywords}
    position = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(method, 2)
    flags = arguments.get("flags") or (call.args[position] if len(call.args) > position else ast.Constant(0))
    try:
        scope = vars(importlib.import_module(module))
    except Exception:  # noqa: BLE001 (an extra that is not installed)
        scope = {"re": re}
    try:
        source, value = (eval(ast.unparse(node), dict(scope)) for node in (call.args[0], flags))
        return re.compile(source, value)
    except Exception:  # noqa: BLE001 (a name of a function, not of the module)
        return None


def remembers_each_turn(pattern: re.Pattern[Any]) -> bool:
    """Return True if the pattern has a loop without a bound that remembers each turn, to go back to it.

    A turn takes about 100 bytes. A loop over single characters and a possessive loop, as `(?:ab)++`, remember none.
    """
    return _remembers(_tree(pattern))


def _tree(pattern: re.Pattern[Any]) -> Any:
    is_text = isinstance(pattern.pattern, str)
    source = pattern.pattern if is_text else pattern.pattern.decode("latin-1")
    return re._parser.parse(source, pattern.flags if is_text else pattern.flags & ~re.U)  # type: ignore[attr-defined]


def _remembers(items: Any) -> bool:
    for op, value in items:
        loops = str(op) in ("MAX_REPEAT", "MIN_REPEAT")
        is_single = loops and len(value[2]) == 1 and str(value[2][0][0]) in ("LITERAL", "NOT_LITERAL", "IN", "ANY")
        if loops and value[1] > MOST_TURNS and not is_single:
            return True
        if any(map(_remembers, _inside(str(op), value))):
            return True
    return False


def _inside(op: str, value: Any) -> Sequence[Any]:
    """Return the parts that a node of a pattern consists of."""
    if op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return [value[2]]
    if op == "GROUPREF_EXISTS":
        return [part for part in value[1:] if part]
    places = {"SUBPATTERN": 3, "ASSERT": 1, "ASSERT_NOT": 1}
    if op in places:
        return [value[places[op]]]
    return list(value[1]) if op == "BRANCH" else [value] if op == "ATOMIC_GROUP" else []


# Texts ------------------------------------------------------------------------------------------------------------

CHARACTERS = "a A0.\n\t-_<>[](){}\"'`,;:!?#|/\\é漢。\x00"
MISMATCHES = ("", "\x00", "\n!", "a")
MOST_UNITS = 6


def hostile_texts(pattern: re.Pattern[Any], length: int) -> Iterator[str]:
    """Yield texts of about this length: for each loop what leads to it, its body again and again, and a mismatch."""
    for prefix, unit in _prefixes_and_units(pattern):
        run = unit * (length // len(unit) + 1)
        yield from (prefix + run + mismatch for mismatch in MISMATCHES)
        if prefix:
            # What leads to a loop, again and again, so that the loop begins at many places.
            yield (prefix + unit) * (length // len(prefix + unit) + 1)


@cache
def _prefixes_and_units(pattern: re.Pattern[Any]) -> tuple[tuple[str, str], ...]:
    """Return what leads to each loop, and what its body matches, each pair once."""
    source = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    tree = _tree(pattern)
    literals = "".join(dict.fromkeys(char for char in source if not char.isalnum())) + CHARACTERS
    sampler = _Sampler("".join(dict.fromkeys(literals)))
    whole = sampler.sample(tree)
    pairs = dict.fromkeys([("", whole), ("", whole[:-1]), *sampler.loops(tree, "")])
    return tuple((prefix, unit) for prefix, unit in pairs if unit)


class _Sampler:
    """Samples of what parts of a pattern match."""

    def __init__(self, characters: str) -> None:
        self._characters = characters
        self._groups: dict[int, str] = {}

    def sample(self, items: Iterable[Any]) -> str:
        """Return a short text that the items match."""
        return "".join(self._one(str(op), value) for op, value in items)

    def loops(self, items: Iterable[Any], prefix: str) -> Iterator[tuple[str, str]]:
        """Yield what leads to each loop, and what its body matches."""
        for op, value in items:
            match str(op):
                case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                    if value[1] > 8:
                        yield from ((prefix, unit) for unit in self._units(value[2]))
                    yield from self.loops(value[2], prefix)
                case "SUBPATTERN":
                    yield from self.loops(value[3], prefix)
                case "ATOMIC_GROUP":
                    yield from self.loops(value, prefix)
                case "BRANCH":
                    for branch in value[1]:
                        yield from self.loops(branch, prefix)
                case "ASSERT" | "ASSERT_NOT":
                    yield from self.loops(value[1], prefix)
            prefix += self._one(str(op), value)

    def _units(self, body: Sequence[Any]) -> list[str]:
        """Return texts that a loop's body matches."""
        op, value = (str(body[0][0]), body[0][1]) if len(body) == 1 else ("", None)
        if op in ("IN", "ANY", "NOT_LITERAL"):
            return [char for char in self._characters if self._fits(op, value, char)][:MOST_UNITS] or [
                self.sample(body)
            ]
        if op == "SUBPATTERN":
            return self._units(value[3])
        if op == "BRANCH":
            return [self.sample(branch) for branch in value[1]][:MOST_UNITS]
        return [self.sample(body)]

    def _one(self, op: str, value: Any) -> str:  # noqa: PLR0911 (a case for each kind of node)
        match op:
            case "LITERAL":
                return chr(value)
            case "IN" | "ANY" | "NOT_LITERAL":
                fitting = (char for char in self._characters if self._fits(op, value, char))
                return next(fitting, None) or self._member(value)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                return self.sample(value[2]) * max(value[0], min(1, value[1]))
            case "SUBPATTERN":
                text = self.sample(value[3])
                if value[0] is not None:
                    self._groups[value[0]] = text
                return text
            case "ATOMIC_GROUP":
                return self.sample(value)
            case "BRANCH":
                return self.sample(value[1][0])
            case "GROUPREF":
                return self._groups.get(value, "")
            case "ASSERT":
                # What looks behind has to be there; what looks ahead is sampled by what follows.
                return self.sample(value[1]) if value[0] < 0 else ""
        return ""

    def _fits(self, op: str, value: Any, char: str) -> bool:
        if op == "ANY":
            return char != "\n"
        if op == "NOT_LITERAL":
            return ord(char) != value
        negated = bool(value) and str(value[0][0]) == "NEGATE"
        return any(self._contains(str(kind), item, char) for kind, item in value) != negated

    def _contains(self, kind: str, item: Any, char: str) -> bool:
        if kind == "LITERAL":
            return ord(char) == item
        if kind == "RANGE":
            return bool(item[0] <= ord(char) <= item[1])
        if kind == "CATEGORY":
            letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[str(item).rpartition("_")[2]]
            return bool(re.match(f"\\{letter.upper() if '_NOT_' in str(item) else letter}", char))
        return False

    def _member(self, value: Any) -> str:
        """Return the first character of a set."""
        for kind, item in value if isinstance(value, list) else ():
            if str(kind) in ("LITERAL", "RANGE"):
                return chr(item if str(kind) == "LITERAL" else item[0])
        return "a"
