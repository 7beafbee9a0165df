"""The default choices of `learn`: the kernel of the regulariser and the network of Q's mean.

They are for data in standard units: columns of mean zero and standard deviation one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.config import default_float
from gpflow.kernels import (
    Constant,
    Kernel,
    Linear,
    Matern32,
    Matern52,
    Product,
    SquaredExponential,
    Sum,
)
from gpflow.likelihoods import Gaussian
from gpflow.utilities import positive, set_trainable

from .._core.graphs import deepcopy
from ..kernels.integrated_brownian_motion import IntegratedBrownianMotion
from ..kernels.spectral_mixture import AdditiveSpectralMixture
from . import estimators
from .data import num_groups

if TYPE_CHECKING:
    from .start import TrainingData

Array = np.ndarray[Any, Any]

MIN_ROWS = 100
"""Of fewer rows no pattern of the noise is learned by default. Of as many rows of a single feature
there is no kernel without frequencies: its forecasts, and those into gaps, are worse than its
densities at the data say."""

MIN_ROWS_OF_TREES = 40
"""Of fewer rows no trees are grown by default."""

MAX_ROWS_OF_SHARED = 50
"""With more rows for each feature than these, no lengthscale is shared by all features, as they
suffice for one of each."""

MIN_ROWS_OF_SEASONS = 20
"""Fewer rows do not determine frequencies: a function through all of them would be known without
doubt."""

MIN_ROWS_OF_FEATURE = 10
"""With less rows for each feature than these, the noise has a prior."""

MIN_ROWS_OF_LINEAR = 40
"""Of fewer rows no linear function of few features is learned by default."""

MAX_FEATURES_OF_SUMS = 100
"""Of more features there is no sum of functions of each: it is slow to fit, with a cosine for each
pair of rows and each feature."""

MIN_LENGTHSCALE = 1e-3
"""In standard units. A feature that names a group would drive its lengthscale to zero, and the
rounding of (x / ℓ)² would make K indefinite."""

SCALE_OF_ONE = 1.0
"""The scale of the prior of log lengthscales of a single feature. In few rows noise looks like a
function that varies within the distance of neighbours, and observations would be predicted as if
they had none; of several features a function may vary along one as fast as that."""

MAX_ROWS_OF_RELEVANCE = 1000
"""The relevance of features is estimated from not more rows than these."""


def kernels(X: Array, Y: Array) -> list[Kernel]:
    """Return kernels to choose among.

    For a single feature, that of smooth or quasi-periodic functions and a trend, from two starts;
    or for few rows, which do not determine as much, that of one smooth function and a trend.
    For several features, that of a sum of such functions of each and of three functions of all,
    from two starts, unless there are many; or that of one function of all, with a lengthscale for
    each or, for few rows, one that they share beside a linear function. Variances and lengthscales
    have wide priors.

    :param X: standardised inputs, [N, D].
    :param Y: standardised outputs, [N, J].
    """
    D = X.shape[-1]
    if D == 1:
        smooth = [one_kernel(D)] if len(X) < MIN_ROWS else []
        seasons = _seasons(X, Y) if len(X) >= MIN_ROWS_OF_SEASONS else []
        return [Sum([each, *_trend()]) for each in [*seasons, *smooth]]
    sums = _sums(D) if D <= MAX_FEATURES_OF_SUMS else []
    shared = [shared_kernel(D) + linear(D)] if len(X) < MAX_ROWS_OF_SHARED * D else []
    return [*sums, *starts_of_one(X, Y), *shared]


def _sums(D: int) -> list[Kernel]:
    """Return the sum of a function of each feature and three of all, from two starts."""
    scales, variances = (2.0, 0.7, 0.25), (1.0, 0.5, 0.3)
    functions = [
        _squared_exponential(np.full(D, scale * np.sqrt(D)), variance)
        for scale, variance in zip(scales, variances, strict=True)
    ]
    short = Sum([*functions, _main_effects(np.full((1, D), 0.05), 0.3)])
    long = deepcopy(short)
    for function in long.kernels[: len(functions)]:
        function.lengthscales.assign(2.0 * function.lengthscales)
    return [short, long]


def kernels_of_series(X: Array, Y: Array) -> list[Kernel]:
    """Return kernels of one feature to choose among under Gaussian noise, beside `kernels`.

    The slope of their trend changes, and deviations last for a while, which outliers look like.
    There are none of few rows.
    """
    if len(X) < MIN_ROWS_OF_SEASONS:
        return []
    return [Sum([each, *_changing_trend()]) for each in _seasons(X, Y)]


def _seasons(X: Array, Y: Array) -> list[Kernel]:
    """Return the starts of two smooth or quasi-periodic functions of one feature."""
    high = frequencies(X[:, 0], Y[:, 0], 2)
    low = np.array([0.1, high[0]])
    return [_main_effects(f[:, None], 1.0) for f in (high, low)]


def noise(num_rows: int, num_features: int, lower: float) -> Gaussian:
    """Return the noise to start from, a tenth of the variance of Y.

    Of few rows it has a prior, as there may be an optimum of the evidence without noise: of many
    features some explain what is left of few rows by chance.

    :param lower: the least variance of the noise.
    """
    gaussian = Gaussian(max(0.1, 2.0 * lower), variance_lower_bound=lower)
    (variance,) = gaussian.parameters
    if num_rows < MIN_ROWS_OF_SEASONS:
        variance.prior = around(0.1, 1.0)
    elif num_rows < max(MIN_ROWS, MIN_ROWS_OF_FEATURE * num_features):
        variance.prior = with_mode(0.1)
    return gaussian


def kernels_of_floor(D: int) -> list[Kernel]:
    """Return the kernels of a constant and of a linear function: anything else has to be better."""
    constant = Constant(0.1)
    constant.variance.prior = around(0.1)
    return [constant, Sum([deepcopy(constant), linear(D)])]


def one_kernel(D: int) -> SquaredExponential:
    """Return a squared exponential with a lengthscale for each feature."""
    return _of_all(np.full(D, np.sqrt(D)), D)


def shared_kernel(D: int) -> SquaredExponential:
    """Return a squared exponential with the same lengthscale for all features."""
    return _of_all(np.sqrt(D), D)


def linear(D: int) -> Linear:
    """Return the kernel of a linear function of all features."""
    kernel = Linear(variance=1.0 / D)
    kernel.variance.prior = around(1.0 / D)
    return kernel


def _of_all(lengthscales: Any, D: int) -> SquaredExponential:
    """Return the kernel of one function of all features, of standardised rows √(2D) apart.

    Of several features the mode of the prior is where lengthscales start: it lets those of features
    that do not matter grow. Functions of several scales in a sum need the other prior, which keeps
    them short.
    """
    kernel = _squared_exponential(lengthscales)
    kernel.lengthscales.prior = (
        around(lengthscales, SCALE_OF_ONE) if D == 1 else with_mode(lengthscales)
    )
    return kernel


def starts_of_one(X: Array, Y: Array) -> list[Kernel]:
    """Return `one_kernel` with equal lengthscales, and with shorter ones of relevant features.

    Among many features a few relevant ones hardly change the distances that all of them make up, so
    that from equal lengthscales the evidence may be greatest where all of Y is noise.

    :param X: standardised inputs, [N, D].
    :param Y: standardised outputs, [N, J].
    """
    D = X.shape[-1]
    if D == 1 or len(X) < MIN_ROWS:
        return [one_kernel(D)]
    equal = one_kernel(D)
    relevant = deepcopy(equal)
    r = relevance(X[:MAX_ROWS_OF_RELEVANCE], Y[:MAX_ROWS_OF_RELEVANCE])
    relevant.lengthscales.assign(np.linalg.norm(r) / r)  # Σ_d ℓ_d⁻² = 1, as for equal ones
    return [equal, relevant]


def relevance(X: Array, Y: Array) -> Array:
    """Return how much of Y each feature explains in randomised trees, relative to the largest: [D].

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


def predictors(data: TrainingData) -> list[Any]:
    """Return estimators whose cross-fitted predictions P may be around.

    Gradient boosting with histograms, and for not too many rows extremely randomised trees
    (Geurts, Ernst and Wehenkel 2006); and where rows are few for each feature a linear function of
    some of them (Tibshirani 1996), as a kernel cannot find by so few rows which ones these are. For
    a single feature there are none: a kernel says more.
    """
    N, D = num_groups(data.X), data.D  # what repeats is known
    if D == 1:
        return []
    trees = estimators.trees(data) if N >= MIN_ROWS_OF_TREES else []
    few = MIN_ROWS_OF_LINEAR <= N < MAX_ROWS_OF_SHARED * D
    return [*trees, *([estimators.linear_of_few(data.J)] if few else [])]


def networks(data: TrainingData) -> list[Any]:
    """Return networks whose cross-fitted predictions P may be around beside `predictors`.

    For many rows there is one, which tells more of a smooth function of several features than trees
    and few inducing points do.
    """
    N, D = data.X.shape
    return [estimators.network(data)] if D > 1 and N >= estimators.MIN_ROWS_OF_NETWORK else []


def noise_models(X: Array, errors: Array) -> list[Any]:
    """Return estimators of the pattern of the noise, to choose among.

    They are fitted to squared errors, which are Gamma distributed under Gaussian noise: a Gaussian
    process of the log variance, and of several features boosted trees with few leaves.

    :param X: the inputs, in the units that the estimators will have, [N, D].
    :param errors: squared, [N, J].
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    from .candidates.log_process import LogProcess, fitted_hyperparameters

    # Few hyper-parameters of all rows hardly flatter predictions of one fold, and save time.
    process = LogProcess(fitted_hyperparameters(X, errors))
    if X.shape[-1] == 1:
        return [process]
    boosting = HistGradientBoostingRegressor(
        loss="gamma",
        learning_rate=0.05,
        max_iter=100,
        max_leaf_nodes=8,
        min_samples_leaf=max(10, len(X) // 20),
        l2_regularization=1.0,
        early_stopping=False,
        random_state=0,
    )
    return [estimators.of_outputs(boosting, errors.shape[-1]), process]


def rough_kernel() -> Kernel:
    """Return the kernel of a function of a single feature with kinks, and a trend."""
    rough = Matern52(variance=1.0)
    rough.lengthscales = _lengthscales(np.array(0.5))
    rough.variance.prior = around(1.0)
    rough.lengthscales.prior = around(0.5)
    return Sum([rough, *_trend()])


def _main_effects(frequency: Array, variance: float) -> AdditiveSpectralMixture:
    variances = np.full(frequency.shape, variance / frequency.size)
    lengthscales = np.ones(frequency.shape)
    kernel = AdditiveSpectralMixture(variances, lengthscales, frequency)
    kernel.lengthscales = _lengthscales(lengthscales)
    kernel.variances.prior = around(variances)
    is_single = frequency.shape[-1] == 1
    kernel.lengthscales.prior = around(lengthscales, SCALE_OF_ONE if is_single else 2.0)
    return kernel


def _trend() -> list[Kernel]:
    """Return the kernels of a line and of a parabola.

    A stationary kernel returns to the mean where there are no data, so that the forecast of a
    series that rises would fall. Without a prior the variances may become zero.
    """
    factor = Linear()
    set_trainable(factor, False)
    return [Linear(), Product([Linear(variance=0.1), factor])]


def _changing_trend() -> list[Kernel]:
    """Return the kernels of a line, of changes of its slope, and of what lasts for a while.

    A parabola is known beyond the data as well as within them; how the slope will change is not, so
    that the variance of a forecast grows with the third power of its distance. Few changes are in
    the data, so that the prior of their variance is narrow: within the data the slope changes by
    about half of what it is. Without deviations that last for a while these would be changes, too.
    """
    change, deviation = IntegratedBrownianMotion(0.1), Matern32(variance=0.05)
    change.variance.prior = around(0.1, 0.5)
    deviation.lengthscales = _lengthscales(np.array(0.1))
    deviation.variance.prior = around(0.05)
    deviation.lengthscales.prior = around(0.1)
    return [Linear(), change, deviation]


def _squared_exponential(scale: Any, variance: float = 1.0) -> SquaredExponential:
    """Return a kernel with priors around a scale and a variance, where it starts."""
    kernel = SquaredExponential(variance=variance)
    kernel.lengthscales = _lengthscales(scale)
    kernel.variance.prior = around(variance)
    kernel.lengthscales.prior = around(scale)
    return kernel


def _lengthscales(values: Any) -> Parameter:
    return Parameter(values, transform=positive(lower=MIN_LENGTHSCALE))


def around(value: Any, scale: float = 2.0) -> tfp.distributions.Distribution:
    """Return a log-normal prior by its median; a scale of 2 is orders of magnitude."""
    location = np.log(np.asarray(value, dtype=default_float()))
    return tfp.distributions.LogNormal(location, np.asarray(scale, dtype=default_float()))


def with_mode(value: Any, scale: float = 2.0) -> tfp.distributions.Distribution:
    """Return a log-normal prior whose density is greatest at a value.

    With a median μ it is greatest at μ exp(-σ²), which for σ = 2 is μ/55.
    """
    return around(np.asarray(value) * np.exp(scale**2), scale)


def network(D: int, J: int, *, units: int = 50, seed: int = 0) -> Any:
    """Return a network of two hidden layers that starts at zero.

    It is added to the mean of a sparse GP, so that Q starts at the posterior of the regulariser and
    learns what that has missed.
    """
    import keras

    dtype = np.dtype(default_float()).name

    def dense(size: int, layer_seed: int) -> Any:
        start = keras.initializers.GlorotUniform(seed=layer_seed)
        return keras.layers.Dense(size, "relu", kernel_initializer=start, dtype=dtype)

    readout = keras.layers.Dense(J, kernel_initializer="zeros", dtype=dtype)
    layers = [keras.Input((D,), dtype=dtype), dense(units, seed), dense(units, seed + 1), readout]
    return keras.Sequential(layers)
