"""Training of Q on all rows at once, by a minimiser that evaluates the loss with its gradient."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import progress
from .q_training import TrainingResult

if TYPE_CHECKING:
    from ..models import GVI
    from ..regulariser.lbfgs import Minimise, ValuesById
    from .start import TrainingData

Array = np.ndarray[Any, Any]


def minimised(
    minimise: Minimise, evaluate: Callable[[], Any], variables: Sequence[Any]
) -> list[float]:
    """Minimise a loss of all rows, and return its finite values in their order.

    It is one graph with its gradient: a tape around a compiled loss takes several times as long for
    models of the size of curves.
    """
    import tensorflow as tf

    from .._core.graphs import without_gradients
    from ..regulariser.lbfgs import LossWithGradients, assign_by_id, by_tape

    graph, values = without_gradients(lambda: by_tape(evaluate, variables)), list[float]()

    def value_and_gradients(at: ValuesById) -> tuple[float, list[Array]]:
        assign_by_id(variables, at)
        try:
            loss, gradients = graph()
        except tf.errors.InvalidArgumentError:  # the loss is not finite, or a matrix has no root
            return np.nan, [np.zeros(each.shape) for each in variables]
        values.append(float(loss))
        return values[-1], gradients

    minimise(LossWithGradients(evaluate, value_and_gradients, variables), variables)
    return values


@dataclasses.dataclass(frozen=True)
class FullBatchTraining:
    """Training on all rows at once, as by L-BFGS; validation data are not used."""

    minimise: Minimise

    def __call__(self, model: GVI, data: TrainingData, *_: Any, **__: Any) -> TrainingResult:
        """Train a model."""
        import tensorflow as tf

        progress.now(f"training Q on {len(data.X)} rows at once")
        rows = tuple(map(tf.convert_to_tensor, (data.X, data.Y)))
        variables = model.trainable_variables
        losses = minimised(self.minimise, lambda: model.training_loss(rows), variables)
        return TrainingResult(1.0, {"loss": losses})


def fit_by_squares(function: Any, X: Array, Y: Any, max_iterations: int = 1000) -> None:
    """Fit a function with trainable variables to values Y at X, by least squares and L-BFGS."""
    import tensorflow as tf

    from ..regulariser.lbfgs import lbfgs

    X, Y = map(tf.convert_to_tensor, (X, Y))
    minimise = functools.partial(lbfgs, max_iterations=max_iterations)
    variables = function.trainable_variables
    minimised(minimise, lambda: tf.reduce_mean(tf.square(function(X) - Y)), variables)
