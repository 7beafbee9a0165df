"""Training of Q on all rows at once, by a minimiser that evaluates the loss with its gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import progress
from ..learning.q_training import TrainingResult
from .parts.base import tf

if TYPE_CHECKING:
    from gpflow.base import RegressionData

    from ..learning.procedure import Hooks
    from ..learning.start import TrainingData
    from ..models import GVI
    from ..regulariser.lbfgs import Minimise

Array = np.ndarray[Any, Any]


class FullBatchLoss:
    """The training loss of all rows and its gradient, as one graph of the values of variables.

    A tape around a compiled loss takes several times as long for models of the size of curves.

    :param model: the model.
    :param data: (X, Y).
    """

    def __init__(self, model: GVI, data: RegressionData) -> None:
        from .._core.graphs import without_gradients
        from ..regulariser.lbfgs import LossWithGradients

        self.values: list[float] = []
        """The finite ones that were found, in their order."""
        self.variables = list(model.trainable_variables)
        self._rows = tuple(map(tf.convert_to_tensor, data))
        self.loss = LossWithGradients(
            lambda: model.training_loss(self._rows), self._evaluate, self.variables
        )
        """For a minimiser."""

        def value_and_gradients(*values: Any) -> Any:
            for variable, value in zip(self.variables, values, strict=True):
                variable.assign(value)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(self.variables)
                loss = model.training_loss(self._rows)
            return loss, tape.gradient(loss, self.variables, unconnected_gradients="zero")

        specs = [tf.TensorSpec(variable.shape, variable.dtype) for variable in self.variables]
        self._graph = without_gradients(value_and_gradients, *specs)

    def _evaluate(self, at: Mapping[int, Array]) -> tuple[float, list[Array]]:
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
        progress.now(f"training Q on {len(data.X)} rows at once")
        full = FullBatchLoss(model, (data.X, data.Y))
        self.minimise(full.loss, full.variables)
        return TrainingResult(1.0, {"loss": full.values})
