"""Functions of rows as graphs, which are traced where that pays."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeVar

import tensorflow as tf
from gpflow.utilities import reset_cache_bijectors

from .row_blocks import tensors_by_blocks
from .tensorflow_private import call, forget_custom_gradients, is_differentiated

Rows = Callable[[tf.Tensor], tuple[tf.Tensor, ...]]
"""A function from rows [N, D...] to tensors [N, ...]."""

BLOCK = 2_000
"""The number of rows of a block: the arrays for it stay in the cache of a processor."""


Module = TypeVar("Module")

MAX_ATTEMPTS = 20
"""Attempts to clear a cache that another thread fills or clears at the same time."""


class Factors(Protocol):
    """Values computed in advance from variables, which may change."""

    def is_current(self) -> tf.Tensor:
        """Return True if the variables are as they were: []."""

    def renew(self) -> None:
        """Compute it anew."""


class Compiled:
    """A function of rows that is a graph from the second block of rows on, traced once.

    Tracing takes as long as ten evaluations without a graph, and TensorFlow keeps some of its
    memory for good. A tape of gradients and another graph see the function itself.

    :param function: the function.
    :param traced: what the graph is of, if that is another form of the function, with factors.
    :param factors: returns what `traced` reads, which is renewed when variables have changed.
    """

    def __init__(
        self,
        function: Rows,
        traced: Rows | None = None,
        factors: Callable[[], Factors] | None = None,
    ) -> None:
        self._function = function
        self._traced = function if traced is None else traced
        self._factors = factors
        self._called: set[Hashable] = set()
        self._graphs: dict[Hashable, Any] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the constructor and its arguments for a copy, which has no graphs."""
        return type(self), (self._function, self._traced, self._factors)

    def __call__(self, X: tf.Tensor) -> Any:
        """Return the function's value, a block of rows at a time."""
        if not tf.executing_eagerly():
            return self._function(X)
        return tensors_by_blocks(self._of_block, X, size=BLOCK)

    def _of_block(self, X: tf.Tensor) -> tuple[tf.Tensor, ...]:
        key = X.dtype, *tuple(X.shape)[1:]
        if is_differentiated():
            return self._function(X)
        graph = self._graphs.get(key)
        if graph is None:
            if key not in self._called:
                self._called.add(key)
                return self._function(X)
            with self._lock:
                if key not in self._graphs:
                    spec = tf.TensorSpec([None, *X.shape[1:]], X.dtype)
                    self._graphs[key] = self._graph(spec)
            graph = self._graphs[key]
        try:
            is_current, found = call(graph, X)
            if self._factors is not None and not is_current:
                with self._lock:
                    self._factors().renew()
                _, found = call(graph, X)
        except tf.errors.OpError:  # what a graph makes of an error that was raised in Python
            return self._function(X)
        return tuple(found)

    def _graph(self, spec: tf.TensorSpec) -> Any:
        factors = None if self._factors is None else self._factors()
        if factors is not None:
            factors.renew()

        def run(X: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
            is_current = tf.constant(True) if factors is None else factors.is_current()
            return is_current, self._traced(X)

        return without_gradients(run, spec)


def without_gradients(function: Callable[..., Any], *specs: Any) -> Any:
    """Return a function of tensors of these types as a graph that no tape of gradients will see."""
    graph = tf.function(function, autograph=False).get_concrete_function(*specs)
    forget_custom_gradients(graph.graph)
    return graph


def forget_tensors(module: Any) -> None:
    """Let the bijectors of a module forget the tensors of a graph, which would keep the graph.

    TensorFlow Probability has the tensors of all bijectors of a process in one dictionary, without
    a lock: what is to be deleted may have been deleted by another thread, and then the rest is
    left. After the last attempt it stays in memory until the tensors are gone.
    """
    for _ in range(MAX_ATTEMPTS):
        with contextlib.suppress(KeyError):
            reset_cache_bijectors(module)
            return


def deepcopy(module: Module, replaced: Sequence[tuple[Any, Any]] = ()) -> Module:
    """Return a deep copy, as `gpflow.utilities.deepcopy` does, also beside other threads.

    :param replaced: parts, and what the copy has in their place.
    """
    forget_tensors(module)
    return copy.deepcopy(module, {id(part): other for part, other in replaced})
