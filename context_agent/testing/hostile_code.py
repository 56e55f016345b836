"""Hostile source code in every language that is split at definitions, made by a program.

    for name, data, attack in hostile_code(2**18):
        (folder / name).write_bytes(data)

Each file tries to cost far more memory or time than its size justifies. The target is the parser, the search for
definitions, or the chunker.
"""

from __future__ import annotations

from collections.abc import Iterator

_EXTENSIONS = (".c", ".cpp", ".go", ".java", ".js", ".py", ".rs", ".ts", ".tsx")
_UNITS = {
    "braces": ("{", "blocks that are never closed"),
    "parentheses": ("(", "parentheses that are never closed"),
    "brackets": ("[", "lists that are never closed"),
    "closed": ("}", "ends without a beginning"),
    "comparisons": ("a<", "a comparison or the argument of a type"),
    "negations": ("!", "prefix operators"),
    "stars": ("*", "pointers or products"),
    "quotes": ('"', "texts that begin and end at once"),
    "templates": ("`${", "templates in templates"),
    "characters": ("a", "one line without a space"),
    "lines": ("a\n", "lines of one character"),
    "comments": ("// c\n", "a run of comments"),
    "blocks": ("/**/\n", "a run of block comments"),
    "commas": ("a,", "a list of names"),
    "words": ("\u4e2d", "letters of three bytes"),
    "conditions": ("#if a\n", "conditions of the preprocessor"),
    "definitions": ("int f(){}\n", "many definitions"),
}
"""The texts to repeat in files of every language, each with the attack in words."""
_OWN_UNITS = {
    ".c": {
        "declarators": ("int(*", "declarators in declarators"),
        "structs": ("struct a{", "structs in structs"),
        "typedefs": ("typedef struct{", "type definitions in type definitions"),
        "macros": ("#define a(\\\n", "macros in macros"),
    },
    ".cpp": {
        "spaces": ("namespace a{", "name spaces in name spaces"),
        "parameters": ("template<", "template parameters in template parameters"),
        "lambdas": ("[](){", "lambdas in lambdas"),
        "scopes": ("a::", "a name of many scopes"),
        "constraints": ("requires(", "constraints in constraints"),
    },
    ".go": {
        "types": ("type a struct{", "types in types"),
        "functions": ("func a(){", "functions in functions"),
        "channels": ("chan ", "channels of channels"),
    },
    ".java": {
        "classes": ("class A{", "classes in classes"),
        "annotations": ("@A(", "annotations in annotations"),
        "generics": ("A<B<", "arguments of types in arguments of types"),
        "lambdas": ("()->", "lambdas in lambdas"),
    },
    ".js": {
        "functions": ("function f(){", "functions in functions"),
        "arrows": ("x=>", "functions that return functions"),
        "variables": ("const a=()=>1;", "many functions in variables"),
        "exports": ("export ", "exports of exports"),
        "expressions": ("/[", "regular expressions that are never closed"),
    },
    ".py": {
        "decorators": ("@a\n", "decorators without a function"),
        "statements": ("def f():\n  x\n", "many definitions"),
        "formats": ('f"{', "format strings in format strings"),
        "lambdas": ("lambda:", "lambdas in lambdas"),
        "comprehensions": ("[a for a in ", "comprehensions in comprehensions"),
    },
    ".rs": {
        "implementations": ("impl a{", "implementations in implementations"),
        "macros": ("a!{", "macros in macros"),
        "attributes": ("#[a]\n", "a run of attributes"),
        "paths": ("a::<", "paths with arguments"),
        "references": ("&'a ", "references to references"),
    },
    ".ts": {
        "types": ("type a={b:", "types in types"),
        "conditions": ("a extends b?", "conditional types"),
        "unions": ("|a", "a union of many types"),
        "generics": ("function f<a>(", "parameters in parameters"),
    },
    ".tsx": {"elements": ("<a>", "elements in elements"), "attributes": ("<a b={", "elements in attributes")},
}
MOST_INDENTED = 1_000
"""The indentation of the deepest line of nested Python, in spaces."""


def hostile_code(size: int) -> Iterator[tuple[str, bytes, str]]:
    """Yield about 190 hostile files, each as its name, its content and a description of the attack.

    Args:
        size: Bytes of each file.
    """
    for extension in _EXTENSIONS:
        for kind, (unit, attack) in {**_UNITS, **_OWN_UNITS[extension]}.items():
            yield f"{kind}{extension}", _repeated(unit, size), attack
    definition = "def f(): pass\n"
    yield "remarks.py", _repeated("# c\n", size - len(definition)) + definition.encode(), "comments above a definition"
    yield "nested.py", _nested("def a():", size), "functions in functions"
    yield "branches.py", _nested("if a:", size), "branches in branches"


def _repeated(unit: str, size: int) -> bytes:
    data = unit.encode()
    return data * (size // len(data))


def _nested(statement: str, size: int) -> bytes:
    """Return lines with increasing indentation. At `MOST_INDENTED` the indentation starts again at 0."""
    lines, length, depth = list[str](), 0, 0
    while length < size:
        lines.append(f"{' ' * depth}{statement}\n")
        length += len(lines[-1])
        depth = (depth + 1) % MOST_INDENTED
    return "".join(lines).encode()
