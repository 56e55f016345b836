"""A bounded cache of values that were computed from texts."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class TextCache(Generic[T]):
    """A cache of values, found by the digest of the text that they were computed from. Threads may share it.

    No text is stored. If there are more than `limit` values, the least recently used ones are dropped.

    Args:
        limit: The maximum number of values to keep.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[bytes, T] = OrderedDict()
        self._lock = threading.Lock()

    def values(self, texts: Sequence[str], compute: Callable[[list[str]], Iterable[T]]) -> list[T]:
        """Return the value of each text.

        Args:
            texts: The texts.
            compute: A function that returns the values of texts that the cache lacks. A value must depend only on its
                own text.
        """
        keys = [hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest() for text in texts]
        with self._lock:
            known = {key: self._values[key] for key in keys if key in self._values}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if missing:
            known |= zip(missing, compute([*missing.values()]), strict=True)
        with self._lock:
            for key in dict.fromkeys(keys):
                self._values[key] = known[key]
                self._values.move_to_end(key)
            while len(self._values) > self._limit:
                self._values.popitem(last=False)
        return [known[key] for key in keys]

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()
