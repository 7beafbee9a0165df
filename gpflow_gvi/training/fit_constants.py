"""What no step of a fit changes, computed once a fit."""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import tensorflow as tf

from .._core.graphs import without_gradients
from .._core.memo import lending, memoised
from .._core.notices import Notice, collected
from .._core.row_blocks import tensors_by_blocks
from .._core.state import Snapshot
from .batches import ALL

_T = TypeVar("_T")

BLOCK = 2_000
"""The number of rows of a block: the arrays for it stay in the cache of a processor."""

MAX_NUMBERS = 2**24
"""Values that are wider than the data are kept if they are not more numbers: 128 MiB of doubles."""


class Constants:
    """Values of `@once` functions that no step changes, such as the moments of P at all rows.

    While a step is traced it asks for each value that it needs. A value that depends on no variable
    of those that a step changes is computed at once, and becomes a variable of the graph: in later
    fits it is computed anew, by `begin`, and the graph is the same.

    Values at all rows, [N, C] or [J, M, N], are kept if they are no more numbers than the data
    themselves, or not more than `MAX_NUMBERS`, so that a step takes those of its batch. Where a
    batch is all rows they may be larger, as a step would hold them, too.

    :param changing: the variables that a step changes.
    """

    def __init__(self, changing: Iterable[tf.Variable]) -> None:
        self._changing = {id(variable) for variable in changing}
        self._known: dict[tuple[Any, ...], _Constant | None] = {}
        self._alive: list[Any] = []
        self._X: tf.Tensor | None = None
        self._numbers: Any = None
        self._rows: tf.Tensor | None = None
        self._Y: tf.Tensor | None = None
        self._snapshot: Snapshot | None = None

    def begin(self, X: tf.Tensor | None = None, Y: tf.Tensor | None = None) -> None:
        """Compute all values anew, with those at all rows if the data are given."""
        if X is not None:
            for constant in self._found:
                constant.require_columns(X)
        self._rows, self._Y = X, Y
        for constant in self._found:
            if X is not None or not constant.is_at_rows:
                constant.renew(X)
        self._snapshot = None
        self.watch()

    def watch(self) -> None:
        """Note the variables that values found meanwhile were computed from."""
        if self._snapshot is None and self._found:
            read = {id(v): v for constant in self._found for v in constant.variables}
            self._snapshot = Snapshot(read.values())
            self._snapshot.renew()

    def refresh(self) -> None:
        """Compute all values anew if something else, such as a callback, has changed variables."""
        if self._found and (self._snapshot is None or not self._snapshot.is_current()):
            self.begin(self._rows, self._Y)

    def end(self) -> None:
        """Forget values at rows, which may be large."""
        self._rows = self._Y = None
        for constant in self._found:
            constant.release()

    @contextlib.contextmanager
    def at(self, X: tf.Tensor, numbers: Any) -> Iterator[None]:
        """Lend values within a block that is a part of a graph.

        :param X: the inputs of a batch.
        :param numbers: the numbers of its rows, or `ALL`; None where they are not known.
        """
        self._X, self._numbers = X, None if self._rows is None else numbers
        try:
            with lending(self.lend):
                yield
        finally:
            self._X = self._numbers = None

    @property
    def are_at_rows(self) -> bool:
        """Whether there are values at rows, which a graph needs."""
        return any(constant.is_at_rows for constant in self._found)

    def have_room(self, num_rows: int) -> bool:
        """Return True unless values at as many rows are too large to be kept."""
        return all(constant.has_room(num_rows) for constant in self._found)

    @property
    def _found(self) -> list[_Constant]:
        return [constant for constant in self._known.values() if constant is not None]

    def _knows(self, X: Any) -> bool:
        return X is self._X and self._numbers is not None

    def lend(self, function: Callable[..., Any], args: tuple[Any, ...]) -> tf.Tensor | None:
        """Return the value of a function of modules, and of the rows if they are known."""
        given = tuple(None if self._knows(arg) else arg for arg in args)
        if not all(self._knows(arg) or isinstance(arg, tf.Module) for arg in args):
            return None
        at_rows, are_all = None in given, self._numbers is ALL
        key = (function, at_rows and are_all, *map(id, given))
        if key not in self._known:
            self._alive.append(given)  # as long as its id is in use
            self._known[key] = _outside_of_graphs(lambda: self._constant(function, given))
            self._snapshot = None
        constant = self._known[key]
        if constant is None:
            return None
        if at_rows and not are_all:
            return constant.of_batch(self._numbers)
        return tf.convert_to_tensor(constant.value)

    def _constant(self, function: Callable[..., Any], given: tuple[Any, ...]) -> _Constant | None:
        modules = [arg for arg in given if arg is not None]
        if any(id(variable) in self._changing for part in modules for variable in part.variables):
            return None

        def evaluate(*rows: tf.Tensor) -> Any:
            return function(*(rows[0] if arg is None else arg for arg in given))

        rows = self._rows if None in given else None
        most = None if self._numbers is ALL else _columns(self._rows) + _columns(self._Y)
        constant = _Constant(evaluate, rows, most)
        if constant.graph is None or self._changing & set(map(id, constant.variables)):
            return None
        constant.renew(rows)
        return constant


class _Constant:
    """A value as a graph, and as the variable that has it.

    :param evaluate: a function, of rows if there are any.
    :param rows: the rows.
    :param most: the most columns that the value may have; None for any shape.
    """

    def __init__(
        self, evaluate: Callable[..., Any], rows: tf.Tensor | None, most: int | None
    ) -> None:
        self.is_at_rows, self._is_whole = rows is not None, most is None
        self._rows_are_last = False
        self.value: tf.Variable | None = None
        self.graph: Any = None
        self._messages: list[str] = []
        self._row_shape = None if rows is None else rows.shape[1:]
        specs = [] if rows is None else [tf.TensorSpec([None, *rows.shape[1:]], rows.dtype)]

        def traced(*rows: tf.Tensor) -> Any:
            with memoised(), collected() as notices:
                value = evaluate(*rows)
            self._messages = [each.message for each in notices]
            if specs and most is not None and getattr(value, "shape", None) is not None:
                self._rows_are_last = value.shape.rank == 3
                value = tf.transpose(value, [2, 0, 1]) if self._rows_are_last else value
            return value, [each.amount for each in notices]

        graph = without_gradients(traced, *specs)
        self._shape: Any = getattr(graph.structured_outputs[0], "shape", None)
        if self._shape is None:
            return
        self._most = most if specs else None
        if rows is None or self.has_room(len(rows)):
            self.graph = graph

    def has_room(self, num_rows: int) -> bool:
        """Return True unless the value at as many rows is too large to be kept."""
        if self._most is None:
            return True
        if self._shape.rank not in (2, 3) or None in self._shape[1:]:
            return False
        columns = math.prod(self._shape[1:])
        return columns <= self._most or num_rows * columns <= MAX_NUMBERS

    def of_batch(self, numbers: tf.Tensor) -> tf.Tensor:
        """Return the value at some of the rows."""
        found = tf.gather(self.value, numbers)
        return tf.transpose(found, [1, 2, 0]) if self._rows_are_last else found

    @property
    def variables(self) -> tuple[tf.Variable, ...]:
        """What the value is computed from."""
        return tuple(self.graph.variables)

    def require_columns(self, rows: tf.Tensor) -> None:
        """Raise unless rows have the columns of those that the graph was made for."""
        if self._row_shape is not None and rows.shape[1:] != self._row_shape:
            raise ValueError(
                f"X has shape {tuple(rows.shape)}, but rows had the shape "
                f"{tuple(self._row_shape)} before; pass the columns that the model was made for, "
                "in their order."
            )

    def renew(self, rows: tf.Tensor | None) -> None:
        """Compute the value of the variables as they are now."""
        if rows is None or not self.is_at_rows:
            value = self._evaluate()
        elif self._is_whole:
            value = self._evaluate(rows)
        else:
            (value,) = tensors_by_blocks(lambda X: (self._evaluate(X),), rows, size=BLOCK)
        if self.value is None:
            shape = self._shape if self.is_at_rows else None  # the next data have other rows
            self.value = tf.Variable(value, trainable=False, shape=shape)
        else:
            self.value.assign(value)

    def _evaluate(self, *rows: tf.Tensor) -> tf.Tensor:
        value, amounts = self.graph(*rows)
        for message, amount in zip(self._messages, amounts, strict=True):
            Notice(message, amount).log()
        return value

    def release(self) -> None:
        """Forget the value if it is one at rows."""
        if self.is_at_rows and self.value is not None:
            none = [0 if size is None else size for size in self._shape]
            self.value.assign(tf.zeros(none, self.value.dtype))


def _outside_of_graphs(make: Callable[[], _T]) -> _T:
    """Call a function that makes variables, in a thread of its own.

    TensorFlow makes no variable while it traces a function another time, in `tf.init_scope` either.
    Which graph is traced is known to each thread alone.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(contextvars.copy_context().run, make).result()


def _columns(rows: tf.Tensor | None) -> int:
    """The number of numbers in a row."""
    return 0 if rows is None else math.prod(rows.shape[1:])
