"""Values that are computed once within a block of code, and values that are given to it.

A variational mean and a variational covariance on the same inducing variable need the same
Cholesky factor of K_ZZ and the same projection of K_ZX, and so do the loss and the divergence.
Inside a `with memoised():` block every function marked `@once` is computed a single time for the
same positional arguments (the same objects, not equal ones). Outside such a block `@once` does
nothing.

A posterior that caches its factors uses the same mechanism: a block that is *given* them. And in a
fit values that no step changes are lent (`lending`).
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar

import tensorflow as tf

_P = ParamSpec("_P")
_T = TypeVar("_T")

Key = tuple[Any, ...]
"""A function and the identities of its arguments."""


Lend = Callable[[Callable[..., Any], tuple[Any, ...]], Any]
"""Takes an `@once` function and its arguments; returns the value, or None to have it computed."""


class Memo:
    """The values of `@once` functions within one block, of which some may be `given`."""

    def __init__(self, given: Mapping[Key, Any]) -> None:
        self.given = given
        self._values: dict[tuple[tf.Graph | None, Key], Any] = {}
        # A key holds ids; the objects behind them must live as long as the key.
        self._alive: list[Any] = []

    def by_key(self) -> dict[Key, Any]:
        """Return the values that were computed. Keep the memo as long as the keys are used."""
        return {key: value for (_, key), value in self._values.items()}

    def value(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Return the function's value, computed at most once in each graph."""
        key: Key = (function, *map(id, args))
        if key in self.given:
            return self.given[key]
        # A tensor of an inner graph (a loop, a branch) must not leak into the outer one.
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        if (graph, key) not in self._values:
            self._alive.append(args)
            lend = _lend.get()
            value = None if lend is None else lend(function, args)
            self._values[graph, key] = function(*args) if value is None else value
        return self._values[graph, key]


_current: contextvars.ContextVar[Memo | None] = contextvars.ContextVar(
    "gpflow_gvi_memo", default=None
)
_lend: contextvars.ContextVar[Lend | None] = contextvars.ContextVar("gpflow_gvi_lend", default=None)


@contextlib.contextmanager
def lending(lend: Lend) -> Iterator[None]:
    """Let blocks within this one have values from before them."""
    token = _lend.set(lend)
    try:
        yield
    finally:
        _lend.reset(token)


def is_lent(function: Callable[..., Any], *args: Any) -> bool:
    """Return True if this block has the value of a function marked `@once` by `lending`."""
    lend = None if _current.get() is None else _lend.get()
    return lend is not None and lend(inspect.unwrap(function), args) is not None


@contextlib.contextmanager
def memoised(given: Mapping[Key, Any] | None = None) -> Iterator[Memo]:
    """Let `@once` functions be computed once within a block, which starts with no value.

    :param given: values that are known beforehand, as an earlier memo's `by_key` returns them.
    """
    memo = Memo(given or {})
    token = _current.set(memo)
    try:
        yield memo
    finally:
        _current.reset(token)


def once(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Mark a function of objects and tensors as computed once within `memoised()`."""

    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        memo = _current.get()
        if memo is None or kwargs:
            return function(*args, **kwargs)
        value: _T = memo.value(function, args)
        return value

    return wrapper


def is_given(method: Callable[[Any], Any], part: Any) -> bool:
    """Return True if the value of a method marked `@once` is given to this block.

    :param method: the method, of the class.
    :param part: the object whose method it is.
    """
    memo = _current.get()
    return memo is not None and (inspect.unwrap(method), id(part)) in memo.given


def prepare(module: tf.Module) -> None:
    """Let every part of a module compute what does not depend on the inputs of a prediction."""
    for part in (module, *module.submodules):
        if hasattr(part, "prepare"):
            part.prepare()
