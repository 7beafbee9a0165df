"""Training of Q on all rows at once, by a minimiser that evaluates the loss with its gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import progress
from .q_training import TrainingResult

if TYPE_CHECKING:
    from gpflow.base import RegressionData

    from ..models import GVI
    from ..regulariser.lbfgs import Minimise, ValuesById
    from .hooks import Hooks
    from .start import TrainingData

Array = np.ndarray[Any, Any]


class FullBatchLoss:
    """A loss of all rows and its gradient, as one graph of the values of variables.

    A tape around a compiled loss takes several times as long for models of the size of curves.
    """

    def __init__(self, evaluate: Callable[[], Any], variables: Iterable[Any]) -> None:
        import tensorflow as tf

        from .._core.graphs import without_gradients
        from ..regulariser.lbfgs import LossWithGradients, by_tape

        self.values: list[float] = []
        """The finite ones that were found, in their order."""
        self.variables = list(variables)
        self.loss = LossWithGradients(evaluate, self._evaluate, self.variables)
        """For a minimiser."""

        def value_and_gradients(*values: Any) -> Any:
            at = dict(zip(map(id, self.variables), values, strict=True))
            return by_tape(evaluate, self.variables, at)

        specs = [tf.TensorSpec(variable.shape, variable.dtype) for variable in self.variables]
        self._graph = without_gradients(value_and_gradients, *specs)

    def _evaluate(self, at: ValuesById) -> tuple[float, list[Array]]:
        import tensorflow as tf

        values = [tf.convert_to_tensor(at.get(id(each), each)) for each in self.variables]
        try:
            loss, gradients = self._graph(*values)
        except tf.errors.InvalidArgumentError:  # the loss is not finite, or a matrix has no root
            return np.nan, [np.zeros(each.shape) for each in self.variables]
        self.values.append(float(loss))
        return self.values[-1], gradients


@dataclasses.dataclass(frozen=True)
class FullBatchTraining:
    """Training on all rows at once, as by L-BFGS; validation data are not used."""

    minimise: Minimise

    def __call__(
        self,
        model: GVI,
        data: TrainingData,
        validation: RegressionData | None,
        *,
        share: float,
        hooks: Hooks,
    ) -> TrainingResult:
        """Train a model."""
        import tensorflow as tf

        progress.now(f"training Q on {len(data.X)} rows at once")
        rows = tuple(map(tf.convert_to_tensor, (data.X, data.Y)))
        full = FullBatchLoss(lambda: model.training_loss(rows), model.trainable_variables)
        self.minimise(full.loss, full.variables)
        return TrainingResult(1.0, {"loss": full.values})


def fit_by_squares(function: Any, X: Array, Y: Any, max_iterations: int = 1000) -> None:
    """Fit a function with trainable variables to values Y at X, by least squares and L-BFGS."""
    import tensorflow as tf

    from ..regulariser.lbfgs import lbfgs

    X, Y = map(tf.convert_to_tensor, (X, Y))
    full = FullBatchLoss(
        lambda: tf.reduce_mean(tf.square(function(X) - Y)), function.trainable_variables
    )
    lbfgs(full.loss, full.variables, max_iterations=max_iterations)
