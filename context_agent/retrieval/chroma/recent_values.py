"""A bounded cache of values by id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")


class RecentValues(Generic[V]):
    """A thread-safe cache of at most `size` values by id. When it is full, it drops the older half."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._cached: dict[str, V] = {}
        self._lock = Lock()

    def get(self, ids: Iterable[str], fetch: Callable[[list[str]], Mapping[str, V]]) -> dict[str, V]:
        """Return the values in the order of the ids. Unknown ids are left out.

        Values that are not in the cache are fetched in one call of `fetch`.
        """
        ids, cached = list(ids), self._cached
        values = {value_id: cached[value_id] for value_id in ids if value_id in cached}
        if missing := [value_id for value_id in ids if value_id not in values]:
            fetched = fetch(missing)
            values.update(fetched)
            self._add(fetched)
        return {value_id: values[value_id] for value_id in ids if value_id in values}

    def _add(self, fetched: Mapping[str, V]) -> None:
        with self._lock:
            if len(self._cached) + len(fetched) > self._size:
                # A new dict: a reader in another thread continues with the old one.
                self._cached = dict(islice(self._cached.items(), len(self._cached) // 2, None))
            self._cached.update(fetched)
