"""The substitution of a mutant for its module. It changes the imported module, or takes effect at the next import."""

from __future__ import annotations

import gc
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType


class CannotExchangeError(Exception):
    """The error if the functions of a module cannot take the code of a mutant.

    A mutant may have other functions, its functions may use other enclosing variables, or no function is known.
    """


class ImportedModule:
    """An imported module and its functions."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._codes = self._codes_of(path.read_text(encoding="utf-8"))
        self._functions: dict[CodeType, list[FunctionType]] = defaultdict(list)
        # `get_objects` leaves out what the tests have frozen.
        gc.unfreeze()
        for function in gc.get_objects():
            # `isinstance` would read `__class__`. Lazy objects would then import their modules.
            if type(function) is FunctionType and function.__code__.co_filename == str(path):
                self._functions[function.__code__].append(function)

    def exchange_functions(self, source: str) -> None:
        """Replace the code of each function by its code in another source of the module.

        Raises:
            CannotExchangeError: If the mutant must be imported instead.
        """
        codes = self._codes_of(source)
        if len(codes) != len(self._codes):
            raise CannotExchangeError
        exchanged = False
        for code, changed in zip(self._codes, codes, strict=True):
            for function in self._functions[code] if code != changed else ():
                try:
                    function.__code__ = changed
                except ValueError as error:
                    raise CannotExchangeError from error
                exchanged = True
        if not exchanged:
            raise CannotExchangeError

    def _codes_of(self, source: str) -> list[CodeType]:
        return list(_with_nested(compile(source, str(self._path), "exec", dont_inherit=True)))


def _with_nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_nested(constant)


def import_at_next_use(name: str, path: Path, source: str) -> None:
    """Forget the package and the tests. The next import loads them again, with another source for one module."""
    own_packages = {name.split(".", maxsplit=1)[0], "tests"}
    for known in [known for known in sys.modules if known.split(".")[0] in own_packages]:
        del sys.modules[known]
    sys.meta_path.insert(0, _Finder(name, path, source))


class _Finder:
    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name = name
        self._path = path
        self._source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the mutant. For other modules, return None."""
        if fullname != self._name:
            return None
        return spec_from_file_location(fullname, self._path, loader=_Loader(fullname, self._path, self._source))


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: Path, source: str) -> None:
        super().__init__(fullname, str(path))
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)
