"""What was lately fetched from a store, by id, so that it need not be fetched again. Safe for several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """Holds at most `size` values; when it is full, the older half of them goes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: dict[str, V] = {}
        self._lock = Lock()

    def get(self, ids: Iterable[str], fetch: Callable[[list[str]], Mapping[str, V]]) -> dict[str, V]:
        """The values of the ids in their order; those not held are fetched in one call. Unknown ids are left out."""
        wanted = list(ids)
        held = self._held
        found = {one: held[one] for one in wanted if one in held}
        if missing := [one for one in wanted if one not in found]:
            fetched = fetch(missing)
            found.update(fetched)
            self._keep(fetched)
        return {one: found[one] for one in wanted if one in found}

    def _keep(self, fetched: Mapping[str, V]) -> None:
        with self._lock:
            if len(self._held) + len(fetched) > self._size:
                # A new dict: a reader in another thread goes on with the old one.
                self._held = dict(islice(self._held.items(), len(self._held) // 2, None))
            self._held.update(fetched)
