"""Values that are kept for a while."""

from __future__ import annotations

import threading
from collections import UserDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Value = TypeVar("Value")


class LRUCache(UserDict[Hashable, Any]):
    """A few values; the least recently used one is removed where there are more.

    One thread makes a value at a time. A copy or a pickle of a cache is None.

    :param max_size: the maximal number of values.
    """

    def __init__(self, max_size: int) -> None:
        super().__init__()
        self.max_size = max_size
        self._lock = threading.RLock()

    def get_or_make(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key, made if it is not there."""
        with self._lock:
            value: Value = self.pop(key) if key in self else make()
            self[key] = value
            while len(self) > self.max_size:
                del self[next(iter(self))]
            return value

    def __reduce__(self) -> tuple[Any, ...]:
        """Let what holds a cache be copied and saved without it."""
        return type(None), ()
