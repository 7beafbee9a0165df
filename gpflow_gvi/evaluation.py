"""The engine room: what one evaluation of a model computes once, and what it noticed.

A variational mean and a variational covariance on the same inducing variable need the same
Cholesky factor of K_ZZ and the same projection of K_ZX, and so do the loss and the divergence.
Inside a `with Evaluation():` block every function marked `@once` is computed a single time for the
same arguments (the same objects, not equal ones). Outside such a block `@once` does nothing.

A posterior that caches its factors is the same mechanism: an evaluation that is *given* them.
"""

from __future__ import annotations

import contextvars
import functools
import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, TypeVar

import tensorflow as tf

logger = logging.getLogger("gpflow_gvi")

_P = ParamSpec("_P")
_T = TypeVar("_T")

Key = tuple[Any, ...]


class Notice(NamedTuple):
    """Something to tell the user if `amount` turns out positive; `{}` stands for the amount."""

    message: str
    amount: tf.Tensor
    urgent: bool = False
    """Whether to log it from within a graph if there is no other way, at the price of XLA."""


class Evaluation:
    """A block of code in which `@once` functions are evaluated once.

    :param given: values that are known beforehand, by the keys of an earlier evaluation's `memo`.
    :param collect: leave notices in `notices` even where their amounts are known.
    :param training: whether networks behave as in training: dropout drops, and batch
        normalisation uses the batch's statistics and updates its own.
    """

    def __init__(
        self,
        given: Mapping[Key, Any] | None = None,
        *,
        collect: bool = False,
        training: bool = False,
    ) -> None:
        self.collect = collect
        self.training = training
        self.frozen: set[int] = set()
        self.given: dict[Key, Any] = dict(given or {})
        self.memo: dict[Key, Any] = {}
        self.notices: list[Notice] = []
        # A key holds ids; the objects behind them must live as long as the key.
        self._alive: list[Any] = []

    def __enter__(self) -> Evaluation:
        self._token = _current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _current.reset(self._token)

    def recall(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return the function's value, computed at most once in each graph of this evaluation."""
        named = ((name, id(value)) for name, value in sorted(kwargs.items()))
        key: Key = (function, *map(id, args), *named)
        if key in self.given:
            return self.given[key]
        # A tensor of an inner graph (a loop, a branch) must not leak into the outer one.
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        if (graph, key) not in self.memo:
            self._alive.append((args, kwargs))
            self.memo[graph, key] = function(*args, **kwargs)
        return self.memo[graph, key]


_current: contextvars.ContextVar[Evaluation | None] = contextvars.ContextVar(
    "gpflow_gvi_evaluation", default=None
)


def once(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Mark a function of objects and tensors as computed once per `Evaluation`."""

    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        current = _current.get()
        if current is None:
            return function(*args, **kwargs)
        value: _T = current.recall(function, args, kwargs)
        return value

    return wrapper


def is_training(part: tf.Module | None = None) -> bool:
    """Return whether the current evaluation is one of training: of `part`, if that is given."""
    current = _current.get()
    return current is not None and current.training and id(part) not in current.frozen


def freeze(module: tf.Module) -> None:
    """Let the parts of a module behave as out of training for the rest of this evaluation.

    The networks of the regulariser P keep their moving statistics while Q trains.
    """
    current = _current.get()
    if current is not None and current.training:
        current.frozen.update(id(part) for part in (module, *module.submodules))


def prepare(module: tf.Module) -> None:
    """Let every part of a module compute what does not depend on the inputs of a prediction."""
    for part in (module, *module.submodules):
        own = getattr(part, "prepare", None)
        if own is not None:
            own()


def notice(message: str, amount: tf.Tensor, *, urgent: bool = False) -> None:
    """Tell the user `message`, with `amount` in place of `{}`, if the amount is positive.

    Told at once where values are known. In a graph the notice is left with the evaluation, whose
    owner (the training closure) tells it after the step: an operation that logs from within the
    graph could be compiled by XLA as little as it could be exported.
    """
    note = Notice(message, amount, urgent)
    current = _current.get()
    if current is not None and (current.collect or not tf.executing_eagerly()):
        current.notices.append(note)
    elif tf.executing_eagerly():
        tell(note)


def tell(note: Notice) -> bool:
    """Log an evaluated notice if its amount is positive; return whether it was."""
    amount = float(note.amount)
    if amount > 0.0:
        logger.warning(note.message.format(f"{amount:.3g}"))
        return True
    return False
