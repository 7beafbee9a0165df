"""Many steps in one compiled call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from .._core.tensorflow_private import forget_custom_gradients
from .batches import Rows, Stream


class Outcome(NamedTuple):
    """The results of one step, or of several one below the other."""

    rows: Any
    """The number of rows of its batch."""

    finite: Any
    """Whether the loss is finite, and each gradient, if there are any: [1 + V]."""

    values: Any
    """The training loss, and its two terms: [3]."""

    amounts: Any
    """The amounts of the notices."""


class Loop:
    """A step and the loop over many of them, each traced once for data of any length.

    Keras's own loop of `steps_per_execution` steps takes each batch from a `tf.data` iterator,
    which costs as much again as a small step, and goes on after a step that is not finite.

    :param step: from (X, Y, numbers of rows) to an outcome; XLA compiles it if `jit_compile`.
    :param after_tracing: is called each time that the step was traced.
    """

    def __init__(
        self,
        step: Callable[..., Outcome],
        *,
        jit_compile: bool,
        after_tracing: Callable[[], Any],
    ) -> None:
        self._after_tracing = after_tracing
        self._step = tf.function(step, jit_compile=jit_compile or None, autograph=False)
        # TensorFlow counts traces by code, to warn of too many. A partial function has no code, so
        # that the traces of other models are not counted in.
        self._loop = tf.function(functools.partial(self._run), autograph=False)

    def run(self, source: Rows | Stream, count: int) -> Outcome:
        """Return as arrays the outcomes of so many steps, or of fewer, if one is not finite."""
        outcomes = self._loop(source, tf.constant(count))
        return Outcome(*(tensor.numpy() for tensor in outcomes))

    def _run(self, source: Rows | Stream, count: tf.Tensor) -> Outcome:
        step = self._step.get_concrete_function(*source.spec)
        forget_custom_gradients(step.graph)  # it has them already
        self._after_tracing()
        found = [
            tf.TensorArray(part.dtype, count, element_shape=part.shape)
            for part in step.structured_outputs
        ]

        def body(i: tf.Tensor, _: tf.Tensor, found: list[tf.TensorArray]) -> tuple[Any, ...]:
            batch = zip(source.batch(i), source.spec, strict=True)
            tensors = (pair for pair in batch if isinstance(pair[1], tf.TensorSpec))
            outcome = step(*(tf.ensure_shape(part, spec.shape) for part, spec in tensors))
            found = [each.write(i, part) for each, part in zip(found, outcome, strict=True)]
            return i + 1, tf.reduce_all(outcome.finite), found

        steps, _, found = tf.while_loop(
            lambda i, finite, _: tf.logical_and(finite, i < count),
            body,
            (tf.constant(0), tf.constant(True), found),
        )
        return Outcome(*(each.stack()[:steps] for each in found))
