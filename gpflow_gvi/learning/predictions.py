"""Predictions in original units, as graphs: those of `Learned`, and those that are exported.

A graph scales rows, predicts f with factors that are computed in advance, and returns f, y or the
probabilities of classes in the units that the data had.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, MeanAndVariance
from gpflow.posteriors import PrecomputeCacheType

from .._core.graphs import Compiled
from .._core.images import as_rows
from ..likelihoods import degrees_of_freedom
from ..models import GVI
from ..models.posterior import GVIPosterior
from ..prediction.class_probabilities import moments_of_y, probabilities_given
from .around_network.network_rows import NetworkInputs
from .rows.scaling import Scaling
from .rows.targets import Units, units_of_f, units_of_predictions


def moments_of_mixture(
    weights: Sequence[float], moments: Sequence[MeanAndVariance], *, joint: bool = False
) -> MeanAndVariance:
    """Return Σ w m and Σ w (v + (m - Σ w m)²), mean and variance of a mixture: [N, J] each.

    :param joint: whether variances are covariances between rows, [J, N, N].
    """
    if len(moments) == 1:
        return moments[0]
    parts = list(zip(weights, *zip(*moments, strict=True), strict=True))
    mean = tf.add_n([w * m for w, m, _ in parts])
    squares = "nj,mj->jnm" if joint else "nj,nj->nj"
    spread = [w * (v + tf.einsum(squares, m - mean, m - mean)) for w, m, v in parts]
    return mean, tf.add_n(spread)


def weighted(weights: Sequence[float], parts: Sequence[Any]) -> AnyNDArray:
    """Return Σ w p in the precision of p."""
    return np.asarray(sum(float(w) * np.asarray(p) for w, p in zip(weights, parts, strict=True)))


class Predictions:
    """Predictions of a model in original units, at rows that `inputs.validated` returns.

    They follow the variables of the model, which may be trained further. Units are those of X, f
    and y.
    """

    def __init__(
        self, model: GVI, inputs: Scaling | NetworkInputs, of_f: Units, of_y: Units
    ) -> None:
        self._model = model
        self._inputs = inputs
        self._of_f = of_f
        self._of_y = of_y
        df = degrees_of_freedom(model.likelihood)
        self._df = None if df is None else df.numpy()
        self.f = self._compiled(self.f_given)
        self.y = self._compiled(self.y_given)
        self.standard_y = self._compiled(self.standard_y_given)
        self.probabilities = self._compiled(self.probabilities_given)

    @classmethod
    def of(cls, model: GVI, inputs: Scaling | NetworkInputs, outputs: Units) -> Predictions:
        """Return predictions in the units of X and Y."""
        units = (each(model.likelihood, outputs) for each in (units_of_f, units_of_predictions))
        return cls(model, inputs, *units)

    def _compiled(self, formula: Callable[..., Any]) -> Compiled:
        return Compiled(
            lambda X: formula(*self._latent(X, self._model.predict_f)),
            lambda X: formula(*self.latent(X)),
            lambda: self._posterior,
        )

    @functools.cached_property
    def _posterior(self) -> GVIPosterior:
        with tf.init_scope():
            return self._model.posterior(PrecomputeCacheType.VARIABLE)

    def latent(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return rows in standard units, and mean and variance of f there, by kept factors."""
        return self._latent(X, self._posterior.predict_f)

    def _latent(
        self, X: tf.Tensor, predict_f: Callable[[tf.Tensor], MeanAndVariance]
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        X = as_rows(self._inputs.scaled(X), self._model.variational, self._model.regulariser)
        return (X, *predict_f(X))

    def f_given(self, X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> MeanAndVariance:
        """Return mean and variance of f, given those in standard units: [N, J] each."""
        return self._of_f.moments(mean, variance)

    def y_given(self, X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> MeanAndVariance:
        """Return mean and variance of y: [N, P] each; of classes, probabilities p and p(1 - p)."""
        return self._of_y.moments(*self.standard_y_given(X, mean, variance), self._df)

    def standard_y_given(
        self, X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor
    ) -> MeanAndVariance:
        """Return mean and variance of y in standard units: [N, P] each."""
        return moments_of_y(self._model.likelihood, X, mean, variance)

    def probabilities_given(
        self, X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor
    ) -> tuple[tf.Tensor]:
        """Return the probabilities of the classes, as `class_probabilities` does: [N, J]."""
        return (probabilities_given(self._model.likelihood, mean, variance),)
