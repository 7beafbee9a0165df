"""The guard: a step that is not finite is named and undone, and notices reach the user."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import TensorType

from .._core import linalg
from .._core.memo import memoised
from .._core.mode import training
from .._core.notices import collected, logger
from .._core.state import state
from ..errors import NonFiniteLossError
from .numbers import Numbers


class LossTerms(NamedTuple):
    """The two terms of the objective, each an average over the data."""

    loss: tf.Tensor
    """The average of E_Q[ℓ(f(x), y)]."""

    divergence: tf.Tensor
    """D[Q, P], not yet weighted."""


RESTORED = "The parameters of the last finite loss have been restored."
OFTEN_HELPS = (
    "A smaller learning rate, a larger noise variance or fewer inducing points often help; "
    "a Rényi divergence with α > 1 is infinite where Q is too wide, and FixedSparsePosterior is no "
    "covariance where its r₀ is larger than k, but SparsePosterior is one."
)


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
        # A branch (`tf.debugging.Assert`) has the whole graph run as one of control flow.
        return _behind(tf.raw_ops.Assert(condition=good, data=[words, *terms]), total)
    if math.isfinite(total):
        return total
    bad = [
        f"{name} is {float(value)}"
        for name, value in zip(what, terms, strict=True)
        if not math.isfinite(value)
    ]
    reason = " and ".join(bad) or (
        "its terms are, but log_prior_density, of priors on parameters and of regularisers of "
        "networks, is not, or the sum is too large; check that priors allow the parameters' values"
    )
    raise NonFiniteLossError(
        f"The training loss is not finite: {reason}. {consequence} {OFTEN_HELPS}"
    )


def _behind(operation: tf.Operation, total: tf.Tensor) -> tf.Tensor:
    """Return the total, so that neither it nor its gradient exists before the operation is done."""

    @tf.custom_gradient
    def ordered(value: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([operation]):
                return tf.identity(upstream)

        with tf.control_dependencies([operation]):
            return tf.identity(value), gradient

    return ordered(total)


def put(variables: Sequence[tf.Variable], values: Sequence[TensorType]) -> None:
    """Assign a value to each of the variables."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value, read_value=False)


class NoticeLog:
    """Logs each notice the first time that its amount is positive: steps are many."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def add(self, message: str, amount: float) -> None:
        """Log a notice, with `{}` for the amount, if that is positive and it was not logged yet."""
        if amount > 0.0 and message not in self._logged:
            self._logged.add(message)
            logger.warning(message.format(f"{amount:.3g}"))


class GuardedStep:
    """The training loss on one batch, evaluated with its guard.

    It remembers the variables of the last finite loss, and gives them back after one that is not.
    The copies live in `tf.Variable`s and are written inside the graph of the step, so that the
    guard holds as well in a step that the caller has compiled around it.

    Called eagerly it raises `NonFiniteLossError` itself. Called while a graph is traced (as
    `gpflow.optimizers.Scipy` and a user's own `tf.function` do) the guard becomes part of that
    graph and TensorFlow raises `InvalidArgumentError` with the same words when the graph runs.

    :param model: a `Trainable`. What an optimiser may change in it is restored, and what a forward
        pass may (the statistics of a batch normalisation).
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.numbers = Numbers(model)
        self.variables = (*model.trainable_variables, *state(model))
        with tf.init_scope():
            self.copies = tuple(
                tf.Variable(variable, trainable=False) for variable in self.variables
            )
        self.notice_log = NoticeLog()
        self._notices: list[tuple[str, bool]] = []

    def closure(
        self, batch: Callable[[], Any], *, compile: bool, signature: Any = None
    ) -> Callable[[], tf.Tensor]:
        """Return a function of nothing that does a step.

        :param batch: returns the next (X, Y).
        :param compile: whether the step is a graph, which is traced once.
        :param signature: the specification of all batches, if it is known.
        """
        run = self.run
        if compile:
            run = tf.function(run, input_signature=signature, autograph=False)

        def step() -> tf.Tensor:
            self.numbers.refresh()
            return self.conclude(*run(*batch()))

        return step

    def run(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, LossTerms, list[tf.Tensor]]:
        """Return the loss, its terms, and the amounts of the notices."""
        with memoised(), training(), collected() as notices, self.numbers.lent():
            total, terms = self.model._objective(X, Y)
        done = tf.cond(tf.math.is_finite(total), self._keep, self._restore)
        with tf.control_dependencies([done]):
            total = tf.identity(total)
        self._notices = [(note.message, note.urgent) for note in notices]
        return total, terms, [note.amount for note in notices]

    def _keep(self) -> tf.Tensor:
        put(self.copies, self.variables)
        return tf.constant(True)

    def _restore(self) -> tf.Tensor:
        put(self.variables, self.copies)
        return tf.constant(False)

    def conclude(self, total: tf.Tensor, terms: LossTerms, amounts: list[tf.Tensor]) -> tf.Tensor:
        """Return the loss of a step that was run, or raise if it is not finite; log its notices."""
        total = require_finite(total, terms, self.model._term_names, consequence=RESTORED)
        for (message, is_urgent), amount in zip(self._notices, amounts, strict=True):
            if tf.executing_eagerly():
                self.notice_log.add(message, float(amount))
            elif is_urgent and linalg.may_call_host():
                log = functools.partial(self.notice_log.add, message)
                tf.numpy_function(log, [tf.cast(amount, tf.float64)], [])
        return total
