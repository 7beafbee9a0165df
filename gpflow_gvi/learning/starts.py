"""Kernels and noise where fits start, with priors, for data in standard units.

Columns have mean zero and standard deviation one. Variances and lengthscales have wide priors.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import numpy as np
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.config import default_float
from gpflow.kernels import (
    Constant,
    IsotropicStationary,
    Kernel,
    Linear,
    Matern32,
    Matern52,
    Product,
    SquaredExponential,
    Sum,
)
from gpflow.utilities import positive, set_trainable

from .._core.graphs import deepcopy
from ..kernels.integrated_brownian_motion import IntegratedBrownianMotion
from ..kernels.spectral_mixture import AdditiveSpectralMixture
from .row_facts import gap_of_values

Array = np.ndarray[Any, Any]
Kind = TypeVar("Kind", bound=IsotropicStationary)

MIN_LENGTHSCALE = 1e-3
"""In standard units. A feature that names a group would drive its lengthscale to zero, and the
rounding of (x / ℓ)² would make K indefinite."""

SCALE_OF_ONE = 1.0
"""The scale of the prior of log lengthscales of a single feature. In few rows noise looks like a
function that varies within the distance of neighbours, and observations would be predicted as if
they had none; of several features a function may vary along one as fast as that."""

MIN_DIRECTION = 1e-6
"""Columns whose difference is a smaller part of them differ by the rounding of what was written. A
function of it would have slopes whose squares, in a covariance, leave nothing of the noise."""

MAX_ROWS_OF_RELEVANCE = 1000
"""The relevance of features is estimated from not more rows than these."""


def sums(D: int) -> list[Kernel]:
    """Return the sum of a function of each feature and three of all, from two starts."""
    scales, variances = (2.0, 0.7, 0.25), (1.0, 0.5, 0.3)
    functions = [
        _stationary(SquaredExponential, np.full(D, scale * np.sqrt(D)), variance)
        for scale, variance in zip(scales, variances, strict=True)
    ]
    short = Sum([*functions, _main_effects(np.full((1, D), 0.05), 0.3)])
    long = deepcopy(short)
    for function in long.kernels[: len(functions)]:
        function.lengthscales.assign(2.0 * function.lengthscales)
    return [short, long]


def groups(X: Array, column: int) -> SquaredExponential:
    """Return the kernel of a function with a value of its own for each value of a column.

    Rows with the same value are a group, and say next to nothing of those with the next one.

    :param X: standardised inputs, [N, D].
    """
    lengthscales = np.full(X.shape[-1], np.sqrt(X.shape[-1]))
    lengthscales[column] = max(0.5 * gap_of_values(X[:, column]), 2.0 * MIN_LENGTHSCALE)
    return _stationary(SquaredExponential, lengthscales, 0.5)


def seasons(X: Array, Y: Array) -> list[Kernel]:
    """Return the starts of two smooth or quasi-periodic functions of one feature."""
    high = frequencies(X[:, 0], Y[:, 0], 2)
    low = np.array([0.1, high[0]])
    return [_main_effects(f[:, None], 1.0) for f in (high, low)]


def one_kernel(D: int) -> SquaredExponential:
    """Return a squared exponential with a lengthscale for each feature."""
    return _of_all(np.full(D, np.sqrt(D)), D)


def shared_kernel(D: int) -> SquaredExponential:
    """Return a squared exponential with the same lengthscale for all features."""
    return _of_all(np.sqrt(D), D)


def linear(D: int, variance: float | None = None) -> Linear:
    """Return the kernel of a linear function of all features.

    :param variance: the slopes' to start from; by default the usual one, which the prior is around.
    """
    kernel = Linear(variance=variance or 1.0 / D)
    kernel.variance.prior = around(1.0 / D)
    return kernel


def variance_of_slopes(X: Array, Y: Array) -> float:
    """Return the mean square of the slopes by least squares.

    Where columns almost agree and Y depends on their small difference it is large, which the
    evidence does not find from usual slopes: to these the difference is nothing.
    """
    return float(np.mean(np.square(np.linalg.lstsq(X, Y, rcond=MIN_DIRECTION)[0])))


def _of_all(lengthscales: Any, D: int) -> SquaredExponential:
    """Return the kernel of one function of all features, of standardised rows √(2D) apart.

    With several features, lengthscales start at the mode of their prior, whose wide tail lets
    irrelevant features switch off. Functions of several scales in a sum need the other prior, which
    keeps them short.
    """
    kernel = _stationary(SquaredExponential, lengthscales)
    kernel.lengthscales.prior = (
        around(lengthscales, SCALE_OF_ONE) if D == 1 else with_mode(lengthscales)
    )
    return kernel


def relevant_first(X: Array, Y: Array) -> SquaredExponential:
    """Return `one_kernel` with shorter lengthscales of relevant features.

    Among many features a few relevant ones hardly change the distances that all of them make up, so
    that from equal lengthscales the evidence may be greatest where all of Y is noise.

    :param X: standardised inputs, [N, D].
    :param Y: standardised outputs, [N, J].
    """
    kernel = one_kernel(X.shape[-1])
    r = relevance(X[:MAX_ROWS_OF_RELEVANCE], Y[:MAX_ROWS_OF_RELEVANCE])
    kernel.lengthscales.assign(np.linalg.norm(r) / r)  # Σ_d ℓ_d⁻² = 1, as for equal ones
    return kernel


def fast_kernel(D: int) -> SquaredExponential:
    """Return a kernel with one lengthscale of a function that varies fast.

    From the usual lengthscale the evidence of labels of such a function is the greater, the less f
    varies: a fit would end where there is none.
    """
    kernel = shared_kernel(D)
    kernel.lengthscales.assign(0.25 * kernel.lengthscales.numpy())
    return kernel


def constant() -> Constant:
    """Return the kernel of a constant, of real numbers whose mean is zero."""
    kernel = Constant(0.1)
    kernel.variance.prior = around(0.1)
    return kernel


def constant_of_classes() -> Constant:
    """Return the kernel of a constant f, which tells how frequent classes are.

    The evidence alone decides how far they are from being equally frequent.
    """
    return Constant(0.5)


def relevance(X: Array, Y: Array) -> Array:
    """Return the importance of each feature in randomised trees, relative to the largest: [D].

    It is the decrease of the impurity (Breiman 2001, "Random forests"), and not less than a
    twentieth, so that the evidence can find a feature that the trees do not use.
    """
    from sklearn.ensemble import ExtraTreesRegressor

    trees = ExtraTreesRegressor(50, min_samples_leaf=3, random_state=0)
    found = trees.fit(X, Y[:, 0] if Y.shape[-1] == 1 else Y).feature_importances_
    return np.clip(found / max(np.max(found), 1e-9), 0.05, 1.0)


def frequencies(x: Array, y: Array, count: int) -> Array:
    """Return the frequencies of the sinusoids that take most of y away, one after the other.

    They are peaks of the Lomb-Scargle periodogram (Lomb 1976; Scargle 1982) of what a parabola and
    the sinusoids before leave of y.
    """
    from scipy.signal import lombscargle

    width = float(np.ptp(x)) or 1.0
    grid = np.linspace(0.25, min(0.25 * len(x), 100.0), 2000) / width
    basis = np.vander(x, 3)
    found: list[float] = []
    for _ in range(count):
        y = y - basis @ np.linalg.lstsq(basis, y, rcond=None)[0]
        power = lombscargle(x, y, 2.0 * np.pi * grid)
        found.append(float(grid[np.argmax(power)]))
        angle = 2.0 * np.pi * found[-1] * x
        basis = np.column_stack([np.ones_like(x), np.sin(angle), np.cos(angle)])
    return np.array(found)


def rough_kernel() -> Kernel:
    """Return the kernel of a function of a single feature with kinks, and a trend."""
    return Sum([_stationary(Matern52, np.array(0.5)), *trend()])


def _main_effects(frequency: Array, variance: float) -> AdditiveSpectralMixture:
    variances = np.full(frequency.shape, variance / frequency.size)
    lengthscales = np.ones(frequency.shape)
    kernel = AdditiveSpectralMixture(variances, lengthscales, frequency)
    kernel.lengthscales = _lengthscales(lengthscales)
    kernel.variances.prior = around(variances)
    is_single = frequency.shape[-1] == 1
    kernel.lengthscales.prior = around(lengthscales, SCALE_OF_ONE if is_single else 2.0)
    return kernel


def trend() -> list[Kernel]:
    """Return the kernels of a line and of a parabola.

    A stationary kernel returns to the mean where there are no data, so that the forecast of a
    series that rises would fall. Without a prior the variances may become zero.
    """
    factor = Linear()
    set_trainable(factor, False)
    return [Linear(), Product([Linear(variance=0.1), factor])]


def changing_trend() -> list[Kernel]:
    """Return the kernels of a line, of changes of its slope, and of what lasts for a while.

    A parabola is known beyond the data as well as within them; how the slope will change is not, so
    that the variance of a forecast grows with the third power of its distance. Few changes are in
    the data, so that the prior of their variance is narrow: within the data the slope changes by
    about half of what it is. Without deviations that last for a while these would be changes, too.
    """
    change = IntegratedBrownianMotion(0.1)
    change.variance.prior = around(0.1, 0.5)
    return [Linear(), change, _stationary(Matern32, np.array(0.1), 0.05)]


def _stationary(kind: type[Kind], scale: Any, variance: float = 1.0) -> Kind:
    """Return a kernel with priors around a scale and a variance, where it starts."""
    kernel = kind(variance=variance)
    kernel.lengthscales = _lengthscales(scale)
    kernel.variance.prior = around(variance)
    kernel.lengthscales.prior = around(scale)
    return kernel


def _lengthscales(values: Any) -> Parameter:
    return Parameter(values, transform=_above_least(default_float()))


@functools.cache
def _above_least(dtype: type) -> tfp.bijectors.Bijector:
    """Return the transform of lengthscales, which takes longer to make than a parameter."""
    return positive(lower=MIN_LENGTHSCALE)


def around(value: Any, scale: float = 2.0) -> tfp.distributions.Distribution:
    """Return a log-normal prior by its median; a scale of 2 is orders of magnitude."""
    location = np.log(np.asarray(value, dtype=default_float()))
    return tfp.distributions.LogNormal(location, np.asarray(scale, dtype=default_float()))


def with_mode(value: Any, scale: float = 2.0) -> tfp.distributions.Distribution:
    """Return a log-normal prior whose density is greatest at a value.

    With a median μ it is greatest at μ exp(-σ²), which for σ = 2 is μ/55.
    """
    return around(np.asarray(value) * np.exp(scale**2), scale)
