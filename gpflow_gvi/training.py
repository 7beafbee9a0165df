"""Training: the closure that an optimiser calls, and the guard that keeps what was learned."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from .errors import NonFiniteLossError
from .evaluation import Evaluation, Notice, logger

Told = dict[str, int]


class LossTerms(NamedTuple):
    """The two terms of the objective, each an average over the data."""

    loss: tf.Tensor
    """The average of E_Q[ℓ(f(x), y)]."""

    divergence: tf.Tensor
    """D[Q, P], not yet weighted."""


RESTORED = "The parameters of the last finite loss have been restored."


def require_finite(
    total: tf.Tensor, terms: LossTerms, names: tuple[str, str], *, consequence: str = ""
) -> tf.Tensor:
    """Return the total if it is finite, and otherwise raise saying which of the terms is not.

    In a graph the error is TensorFlow's `InvalidArgumentError`, raised when the graph runs.
    """
    what = (f"the loss ({names[0]})", f"the divergence ({names[1]})")
    if not tf.executing_eagerly():
        words = f"The training loss is not finite. {consequence} {what[0]} and {what[1]} are"
        good = tf.math.is_finite(total)
        with tf.control_dependencies([tf.debugging.Assert(good, [words, *terms])]):
            return tf.identity(total)
    if math.isfinite(total):
        return total
    bad = [
        f"{name} is {float(value)}"
        for name, value in zip(what, terms, strict=True)
        if not math.isfinite(value)
    ]
    reason = " and ".join(bad) or "its terms are, but their sum is not"
    raise NonFiniteLossError(
        f"The training loss is not finite: {reason}. "
        f"{consequence} A smaller learning rate, a larger noise variance or fewer inducing points "
        "often help; a Rényi divergence with α > 1 is infinite where Q is too wide."
    )


class LastGood:
    """Remembers the variables of the last finite loss and gives them back after one that is not.

    The copies live in `tf.Variable`s and are written inside the graph of the step, so that the
    guard holds as well in a step that the caller has compiled around it.

    :param variables: the variables to remember.
    """

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        self.variables = tuple(variables)
        with tf.init_scope():
            self.copies = tuple(
                tf.Variable(variable, trainable=False) for variable in self.variables
            )

    def keep_if(self, good: tf.Tensor) -> tf.Operation:
        """Keep the variables as they are if `good`, and otherwise bring back what was kept."""

        def keep() -> tf.Tensor:
            for copy, variable in zip(self.copies, self.variables, strict=True):
                copy.assign(variable, read_value=False)
            return tf.constant(True)

        def restore() -> tf.Tensor:
            for copy, variable in zip(self.copies, self.variables, strict=True):
                variable.assign(copy, read_value=False)
            return tf.constant(False)

        return tf.cond(good, keep, restore)


class GuardedStep:
    """The training loss on one batch, evaluated with its guard.

    Called eagerly it raises `NonFiniteLossError` itself. Called while a graph is traced (as
    `gpflow.optimizers.Scipy` and a user's own `tf.function` do) the guard becomes part of that
    graph and TensorFlow raises `InvalidArgumentError` with the same words when the graph runs.

    :param evaluate: from a batch to the total loss and its terms.
    :param names: what to call the two terms.
    :param variables: what an optimiser may change.
    """

    def __init__(
        self,
        evaluate: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, LossTerms]],
        names: tuple[str, str],
        variables: Sequence[tf.Variable],
    ) -> None:
        self.evaluate = evaluate
        self.names = names
        self.last_good = LastGood(variables)
        self.told: Told = {}
        self._messages: list[str] = []

    def run(
        self, X: tf.Tensor, Y: tf.Tensor
    ) -> tuple[tf.Tensor, LossTerms, tf.Tensor, list[tf.Tensor]]:
        """Return the loss, its terms, whether it is finite, and the amounts of the notices."""
        with Evaluation() as evaluation:
            total, terms = self.evaluate(X, Y)
        good = tf.math.is_finite(total)
        self.last_good.keep_if(good)
        self._messages = [note.message for note in evaluation.notices]
        return total, terms, good, [note.amount for note in evaluation.notices]

    def conclude(
        self, total: tf.Tensor, terms: LossTerms, good: tf.Tensor, amounts: list[tf.Tensor]
    ) -> tf.Tensor:
        """Tell what there is to tell about a step that was run, and return its loss."""
        total = require_finite(total, terms, self.names, consequence=RESTORED)
        if tf.executing_eagerly():
            for message, amount in zip(self._messages, amounts, strict=True):
                self._tell_sometimes(Notice(message, amount))
        return total

    def _tell_sometimes(self, note: Notice) -> None:
        """Log a notice the 1st, 10th, 100th ... time that it is due: steps are many."""
        if float(note.amount) <= 0.0:
            return
        count = self.told[note.message] = self.told.get(note.message, 0) + 1
        if 10 ** round(math.log10(count)) == count:
            text = note.message.format(f"{float(note.amount):.3g}")
            logger.log(logging.WARNING, "%s (step %d with this)", text, count)
