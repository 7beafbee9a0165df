"""Predictions in original units: the moments as graphs, and the laws of y.

A graph, of `Learned` or to be exported, scales rows, predicts f with factors that are computed in
advance, and returns f, y or the probabilities of classes in the units that the data had.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, MeanAndVariance
from gpflow.posteriors import PrecomputeCacheType

from .._core import checks
from .._core.graphs import Compiled
from .._core.images import as_rows
from ..likelihoods import degrees_of_freedom
from ..models import GVI
from ..models.posterior import GVIPosterior
from ..prediction.class_probabilities import moments_of_y, probabilities_given
from .around_network.network_rows import NetworkInputs
from .rows.scaling import Scaling
from .rows.targets import Units, units_of_f, units_of_predictions

NUM_HALVINGS = 60
"""Halvings of the interval that holds a quantile: down to the precision of float64."""

TAIL = np.logspace(-7.0, -3.0, 9)
LEVELS = np.concatenate([TAIL, np.linspace(0.005, 0.995, 100), 1.0 - TAIL])
"""Levels whose quantiles are the nodes of integrals."""


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


@dataclasses.dataclass(frozen=True)
class Law:
    """The law of y at rows, whose outputs are independent: Σ_c w_c p_c(y)."""

    parts: Sequence[tuple[Any, Units]]
    """For each p_c a distribution of SciPy, [N, J], of y in its standard units, and these units."""
    weights: Sequence[float] = (1.0,)

    def cdf(self, Y: AnyNDArray) -> AnyNDArray:
        """Return P(· ≤ y), [..., N, J], for numbers y [..., N, J], or [N] of one output."""
        return self._cdf(self._rows(Y))

    def _cdf(self, Y: AnyNDArray) -> AnyNDArray:
        each = [law.cdf(np.asarray(units.scaled(np.asarray(Y)))) for law, units in self.parts]
        return np.sum([w * F for w, F in zip(self.weights, each, strict=True)], axis=0)

    def quantile(self, level: float) -> AnyNDArray:
        """Return the quantiles of a level between 0 and 1: [N, J]."""
        checks.coverage(level, "level")
        ends = self._quantiles(level)  # that of a mixture is between them
        below, above = ends.min(axis=0), ends.max(axis=0)
        for _ in range(NUM_HALVINGS if len(ends) > 1 else 0):
            middle = 0.5 * (below + above)
            is_below = self._cdf(middle) < level
            below, above = np.where(is_below, middle, below), np.where(is_below, above, middle)
        return above

    def crps(self, Y: AnyNDArray) -> AnyNDArray:
        """Return the continuous ranked probability score ∫ (F(z) - 1{y ≤ z})² dz: [N, J].

        y is [N, J], or where there is one output a vector [N].

        Gneiting and Raftery (2007), "Strictly proper scoring rules, prediction, and estimation",
        equation 20 with the sign turned, by the trapezoidal rule between quantiles of the parts.
        """
        Y = np.broadcast_to(self._rows(Y, sets=False), self._shape)
        nodes = np.concatenate([self._quantiles(level) for level in LEVELS])
        z = np.sort([*nodes, Y], axis=0)  # [S, N, J]
        F = self._cdf(z)
        below, above = np.square(F), np.square(1.0 - F)
        width = np.diff(z, axis=0)
        left = 0.5 * width * (below[1:] + below[:-1])
        right = 0.5 * width * (above[1:] + above[:-1])
        return np.sum(np.where(z[1:] <= Y, left, right), axis=0)

    @property
    def _shape(self) -> tuple[int, ...]:
        """[N, J]."""
        return np.shape(self.parts[0][0].ppf(0.5))

    def _rows(self, Y: Any, *, sets: bool = True) -> AnyNDArray:
        """Return values of y as a number or [..., N, J], without another shape to broadcast.

        :param sets: whether several values of each y may be given.
        """
        values, shape = np.asarray(checks.array_of_any("Y", Y)), self._shape
        if values.ndim == 1 and values.shape == shape[:1] and shape[1:] == (1,):
            return values[:, None]
        if values.ndim == 0 or (values.shape[-2:] if sets else values.shape) == shape:
            return values
        raise ValueError(
            f"Y has shape {values.shape}, but the law is of {shape[0]} rows and {shape[1]} "
            f"outputs. Pass Y of shape {shape}, a value for each."
        )

    def _quantiles(self, level: float) -> AnyNDArray:
        """Return the quantiles of each part: [C, N, J]."""
        return np.array([units.original(law.ppf(level)) for law, units in self.parts])
