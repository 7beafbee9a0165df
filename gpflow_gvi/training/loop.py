"""Many steps in one compiled call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from .._core.tensorflow_private import forget_custom_gradients
from .batches import Rows, Stream


class Outcome(NamedTuple):
    """The results of one step."""

    rows: tf.Tensor
    """The number of rows of its batch."""

    finite: tf.Tensor
    """Whether the loss is finite, and each gradient, if there are any: [1 + V]."""

    values: tf.Tensor
    """The training loss, and its two terms: [3]."""

    amounts: tf.Tensor
    """The amounts of the notices."""


class Tally(NamedTuple):
    """The results of the steps of one call."""

    steps: tf.Tensor
    rows: tf.Tensor

    sums: tf.Tensor
    """The values, summed over the rows: [3]."""

    times: tf.Tensor
    """In how many steps the amount of each notice was positive."""

    amounts: tf.Tensor
    """The largest amount of each notice."""

    last: Outcome

    @classmethod
    def start(cls, nothing: Outcome) -> Tally:
        """Return the tally before the first step.

        :param nothing: an outcome of zeros.
        """
        return cls(
            steps=tf.constant(0, tf.int64),
            rows=nothing.rows,
            sums=tf.cast(nothing.values, tf.float64),
            times=tf.zeros_like(nothing.amounts, tf.int64),
            amounts=nothing.amounts,
            last=nothing,
        )

    def add(self, outcome: Outcome) -> Tally:
        """Return the tally with one more step."""
        rows = tf.cast(outcome.rows, tf.float64)
        return Tally(
            steps=self.steps + 1,
            rows=self.rows + outcome.rows,
            sums=self.sums + rows * tf.cast(outcome.values, tf.float64),
            times=self.times + tf.cast(outcome.amounts > 0.0, tf.int64),
            amounts=tf.maximum(self.amounts, outcome.amounts),
            last=outcome,
        )


class Loop:
    """A step and the loop over many of them, each traced once for data of any length.

    Keras's own loop of `steps_per_execution` steps takes each batch from a `tf.data` iterator,
    which costs as much again as a small step, and goes on after a step that is not finite.

    :param step: from (X, Y) to an outcome.
    :param jit_compile: whether XLA compiles the step.
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

    def run(self, source: Rows | Stream, count: int) -> Tally:
        """Do so many steps, or fewer, if one is not finite."""
        computed = self._loop(source, tf.constant(count, tf.int64))
        tally: Tally = tf.nest.map_structure(lambda tensor: tensor.numpy(), computed)
        return tally

    def _run(self, source: Rows | Stream, count: tf.Tensor) -> Tally:
        step = self._step.get_concrete_function(*source.spec)
        forget_custom_gradients(step.graph)  # it has them already
        self._after_tracing()
        zeros = tf.nest.map_structure(
            lambda tensor: tf.zeros(tensor.shape, tensor.dtype), step.structured_outputs
        )

        def body(_: tf.Tensor, tally: Tally) -> tuple[tf.Tensor, Tally]:
            batch = zip(source.batch(tally.steps), source.spec, strict=True)
            outcome = step(*(tf.ensure_shape(part, spec.shape) for part, spec in batch))
            return tf.reduce_all(outcome.finite), tally.add(outcome)

        def more(finite: tf.Tensor, tally: Tally) -> tf.Tensor:
            return tf.logical_and(finite, tally.steps < count)

        _, tally = tf.while_loop(more, body, (tf.constant(True), Tally.start(zeros)))
        return tally
