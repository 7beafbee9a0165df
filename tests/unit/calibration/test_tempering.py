"""Tempering against likelihoods maximised by other means."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.functions import Linear, MeanFunction
from gpflow.utilities import parameter_dict, read_values, set_trainable
from scipy import integrate, optimize, stats

import gpflow_gvi as gvi
from gpflow_gvi.calibration.tempering import PRIOR_DEVIATION, temper, tempered_by
from gpflow_gvi.errors import NumericsWarning
from tests.designs import each_value
from tests.models import N, data, make
from tests.tolerances import (
    ITERATIVE,
    ROUNDING,
    assert_close,
    assert_differ,
    assert_estimates,
)


class Wave(MeanFunction):
    """J waves: the means of the classes."""

    def __init__(self, J: int, size: float) -> None:
        super().__init__()
        self.J, self.size = J, size

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        phases = np.pi * np.arange(self.J) / self.J
        return self.size * tf.sin(2.0 * X + tf.constant(phases, X.dtype))


def best(nll: Callable[[np.ndarray], float], J: int) -> tuple[np.ndarray, float]:
    """Minimise over positive factors without derivatives."""
    found = optimize.minimize(
        lambda logs: nll(np.exp(logs)),
        np.zeros(J),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 10_000},
    )
    return np.exp(found.x), found.fun


def nll(model: gpflow.models.GPModel, data: tuple[np.ndarray, np.ndarray]) -> float:
    return -float(np.mean(model.predict_log_density(data)))


# Tempering under Gaussian noise.

GAUSSIANS: dict[str, Callable[[], gpflow.likelihoods.Gaussian]] = {
    "variance": lambda: gpflow.likelihoods.Gaussian(0.3),
    "small variance": lambda: gpflow.likelihoods.Gaussian(1.1e-6),
    "variance of each output": lambda: gpflow.likelihoods.Gaussian([0.3, 0.02]),
    "scale": lambda: gpflow.likelihoods.Gaussian(scale=0.4),
    "variance function": lambda: gpflow.likelihoods.Gaussian(Linear([[0.1]], [0.3])),
    "scale function": lambda: gpflow.likelihoods.Gaussian(scale=Linear([[0.1]], [0.5])),
    "bounded variance function": lambda: gpflow.likelihoods.Gaussian(
        Linear([[0.3]], [0.0]), variance_lower_bound=0.05
    ),
}


@pytest.mark.parametrize("likelihood", ["variance of each output", "scale function"])
def test_gaussian_factors_are_those_of_maximum_likelihood(likelihood: str) -> None:
    model = make(2, GAUSSIANS[likelihood]())
    X, Y = data(2)
    mean, variance = (part.numpy() for part in model.predict_y(X))

    def by_hand(factors: np.ndarray) -> float:
        logs = stats.norm.logpdf(Y, mean, np.sqrt(factors * variance))
        return -np.mean(np.sum(logs, axis=-1))

    factors, lowest = best(by_hand, 2)
    tempered = temper(model, (X, Y))
    assert_close(tempered.variational.kernel.factor, factors, ITERATIVE)
    assert_close(nll(tempered, (X, Y)), lowest)


@pytest.mark.parametrize(("likelihood", "J"), each_value(GAUSSIANS, [2, 1]))
def test_gaussian_tempering_scales_every_variance(likelihood: str, J: int) -> None:
    model = make(J, GAUSSIANS[likelihood]())
    # Small residuals: the tempered noise falls below the lower bound that it had.
    X, Y = data(J)
    Y = model.predict_f(X)[0].numpy() + 1e-3 * (Y - Y.mean(axis=0))
    tempered = temper(model, (X, Y))
    factor = tempered.variational.kernel.factor.numpy()
    assert factor.shape == (J,)
    assert np.all(
        factor * model.predict_y(X)[1] < gpflow.config.default_likelihood_positive_minimum()
    )
    new = np.linspace(-3.0, 3.0, 7)[:, None]
    for method, noisy in ((model.predict_f, False), (model.predict_y, True)):
        mean, variance = method(new)
        of_tempered = tempered.predict_y if noisy else tempered.predict_f
        assert_close(of_tempered(new)[0], mean)
        assert_close(of_tempered(new)[1], factor * variance, scale=factor * variance)
    noise = model.predict_y(new)[1] - model.predict_f(new)[1]
    zeros = np.zeros((7, J))
    found = tempered.likelihood.conditional_variance(new, zeros)
    assert_close(found, factor * noise, scale=factor * noise)
    covariance = factor[:, None, None] * model.predict_f(new, full_cov=True)[1]
    scale = factor[:, None, None] * np.ones((7, 7))
    assert_close(tempered.predict_f(new, full_cov=True)[1], covariance, scale=scale)


def test_noise_and_expectations_of_each_output() -> None:
    """GPflow's Gaussian takes one variance for each output, where it is used at all."""
    X, Y = data(2)
    tempered = temper(make(2), (X, Y))
    variance = tempered.likelihood.variance.numpy()
    assert_close(variance, 0.3 * tempered.variational.kernel.factor)
    mean, f_variance = (part.numpy() for part in tempered.predict_f(X))
    f = np.random.default_rng(0).normal(mean, np.sqrt(f_variance), size=(4000, N, 2))
    logs = np.sum(stats.norm.logpdf(Y, f, np.sqrt(variance)), axis=-1)  # [S, N]
    expectations = tempered.likelihood.variational_expectations(X, mean, f_variance, Y)
    assert_estimates(logs.mean(axis=0), expectations, stats.sem(logs))


def test_tempering_what_is_tempered_changes_nothing() -> None:
    X, Y = data(2)
    once = temper(make(2), (X, Y))
    twice = temper(once, (X, Y))
    assert_close(twice.variational.kernel.factor, 1.0)
    assert_close(nll(twice, (X, Y)), nll(once, (X, Y)))
    # On other data it composes.
    again = temper(once, (X, 3.0 * Y))
    direct = temper(make(2), (X, 3.0 * Y))
    for part, expected in zip(again.predict_y(X), direct.predict_y(X), strict=True):
        assert_close(part, expected)


def test_factors_of_one_fit_serve_another() -> None:
    X, Y = data(2)
    model = make(2, GAUSSIANS["variance function"]())
    tempered = temper(model, (X, Y))
    again = tempered_by(model, tempered.variational.kernel.factor)
    for part, expected in zip(again.predict_y(X), tempered.predict_y(X), strict=True):
        assert_close(part, expected)
    assert again.variational.kernel.factor is not tempered.variational.kernel.factor
    other = make(2, GAUSSIANS["variance function"](), mean=Wave(2, 1.0), scale=2.0)
    _, variance = tempered_by(other, np.array([4.0, 0.5])).predict_y(X)
    assert_close(variance, np.array([4.0, 0.5]) * other.predict_y(X)[1])


@pytest.mark.parametrize(
    ("error", "factor", "message"),
    [
        (ValueError, 2.0, r"factor has shape \(\); give one for each output"),
        (ValueError, [1.0, 0.0], "factor is .*must be positive"),
        (ValueError, [1.0, 1.0, 1.0], r"factor has shape \(3,\), but the kernel has 2 outputs"),
    ],
)
def test_bad_factors(error: type[Exception], factor: object, message: str) -> None:
    with pytest.raises(error, match=message):
        tempered_by(make(2), factor)
    with pytest.raises(TypeError, match=r"model is .*must be a GVI"):
        tempered_by(gpflow.kernels.White(), [1.0])


# Tempering under other likelihoods.


def bernoulli_density(mean: np.ndarray, variance: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """E Φ(f) = Φ(m / √(1 + v)); GPflow's link keeps p off 0 and 1 by a thousandth."""
    p = 1e-3 + (1.0 - 2e-3) * stats.norm.cdf(mean / np.sqrt(1.0 + variance))
    return np.where(Y == 1.0, p, 1.0 - p)[:, 0]


def robust_max_density(mean: np.ndarray, variance: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """The probability that f_y is largest, by sums on a grid, and a thousandth of errors."""
    sd = np.sqrt(variance)
    u = np.linspace(-7.0, 7.0, 141)  # in standard deviations of the observed class
    K = mean.shape[1]
    p = np.empty(len(Y))
    for c in range(K):
        rows = Y[:, 0] == c
        f = mean[rows, c] + u[:, None] * sd[rows, c]
        others = [j for j in range(K) if j != c]
        below = np.prod([stats.norm.cdf(f, mean[rows, j], sd[rows, j]) for j in others], axis=0)
        p[rows] = integrate.trapezoid(stats.norm.pdf(u)[:, None] * below, u, axis=0)
    return p * (1.0 - 1e-3) + (1.0 - p) * 1e-3 / (K - 1)


def softmax_density(mean: np.ndarray, variance: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """E softmax(f)_y by a product of Gauss-Hermite rules."""
    points, weights = np.polynomial.hermite_e.hermegauss(10)
    u = np.stack(np.meshgrid(*[points] * mean.shape[1]), axis=-1).reshape(-1, 1, mean.shape[1])
    w = np.prod(np.stack(np.meshgrid(*[weights] * mean.shape[1])), axis=0).ravel()
    f = mean + u * np.sqrt(variance)  # [S, N, J]
    p = np.exp(f - np.log(np.sum(np.exp(f), axis=-1, keepdims=True)))
    chosen = np.take_along_axis(p, Y[None, :, :].astype(int), axis=-1)[..., 0]
    return w @ chosen / np.sum(w)


CLASSIFIERS = {
    "Bernoulli": (1, gpflow.likelihoods.Bernoulli, bernoulli_density),
    "MultiClass": (3, lambda: gpflow.likelihoods.MultiClass(3), robust_max_density),
    "Softmax": (3, lambda: gpflow.likelihoods.Softmax(3), softmax_density),
}


def over_confident(name: str, size: float = 3.0) -> tuple[gvi.models.GVI, tuple[np.ndarray, ...]]:
    """Return a classifier, sure of itself and right in most places, and data to say so."""
    J, likelihood, _ = CLASSIFIERS[name]
    model = make(J, likelihood(), mean=Wave(J, size), scale=0.3)
    rng = np.random.default_rng(11)
    X = rng.normal(size=(200, 1))
    f = size * np.sin(2.0 * X + np.pi * np.arange(J) / J) + rng.logistic(
        scale=0.5 * size, size=(200, J)
    )
    Y = np.argmax(f, axis=1)[:, None] if J > 1 else 1.0 * (f > 0.0)
    return model, (X, Y if name == "Softmax" else Y.astype(float))


def posterior_by_hand(
    name: str, model: gvi.models.GVI, data: tuple[np.ndarray, np.ndarray]
) -> Callable[[float], float]:
    """The logarithm of the posterior density of log α ~ N(0, 1/4), but for a constant."""
    (X, Y), density = data, CLASSIFIERS[name][2]
    mean, variance = (part.numpy() for part in model.predict_f(X))
    return lambda g: float(np.sum(np.log(density(mean, np.exp(g) * variance, Y)))) - 2.0 * g**2


def greatest(log_posterior: Callable[[float], float]) -> tuple[float, float]:
    """Where it is greatest, by a grid that is then refined, and its value there."""
    grid = np.linspace(np.log(0.01), np.log(100.0), 41)
    i = int(np.clip(np.argmax([log_posterior(g) for g in grid]), 1, 39))
    bounds = grid[i - 1], grid[i + 1]
    found = optimize.minimize_scalar(lambda g: -log_posterior(g), bounds=bounds, method="bounded")
    return found.x, -found.fun


@pytest.mark.parametrize(("name", "rows"), each_value(CLASSIFIERS, [200, 20]))
def test_the_factor_of_a_classifier_is_that_of_a_search_by_hand(name: str, rows: int) -> None:
    model, (X, Y) = over_confident(name)
    X, Y = X[:rows], Y[:rows]
    factor = temper(model, (X, Y)).variational.kernel.factor.numpy()
    assert factor.shape == (CLASSIFIERS[name][0],)
    assert np.all(factor == factor[0]), "the outputs share it"
    log_posterior = posterior_by_hand(name, model, (X, Y))
    best, expected = greatest(log_posterior)
    assert rows < 200 or best > PRIOR_DEVIATION, "the predictions were not over-confident"
    # The density under Softmax is an average over points.
    tolerance = ITERATIVE if name == "Softmax" else ROUNDING
    assert_close(log_posterior(np.log(factor[0])), expected, tolerance)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_few_labels_that_are_predicted_well_leave_the_factor_at_one(name: str) -> None:
    """By the density alone it would be at its bound: the smaller, the more certain."""
    model, (X, _) = over_confident(name, size=8.0)
    mean = model.variational.mean(X[:20]).numpy()
    Y = np.argmax(mean, axis=1)[:, None] if mean.shape[1] > 1 else 1.0 * (mean > 0.0)
    factor = temper(model, (X[:20], Y)).variational.kernel.factor.numpy()
    assert np.all(np.abs(np.log(factor)) < 0.5 * PRIOR_DEVIATION)


def test_samples_of_a_likelihood_do_not_depend_on_chance() -> None:
    factors = []
    for seed in (1, 2):
        tf.random.set_seed(seed)
        factors.append(temper(*over_confident("Softmax")).variational.kernel.factor.numpy())
    np.testing.assert_array_equal(*factors)


def test_an_overconfident_classifier_is_corrected() -> None:
    """Sure and wrong: the classes are so far apart that the density has no gradient at α = 1."""
    model = make(2, gpflow.likelihoods.MultiClass(2), mean=Wave(2, 8.0), scale=0.3)
    X = np.repeat([[-0.8], [0.8]], 50, axis=0)  # two clusters, on either side
    Y = np.argmax(model.variational.mean(X), axis=1)[:, None].astype(float)
    Y[::5] = 1.0 - Y[::5]
    tempered = temper(model, (X, Y))
    log_posterior = posterior_by_hand("MultiClass", model, (X, Y))
    found = np.log(tempered.variational.kernel.factor[0])
    assert_close(log_posterior(found), greatest(log_posterior)[1])  # else it is a local optimum
    # That of one in five labels that are wrong, in both clusters.
    entropy = -0.8 * np.log(0.8) - 0.2 * np.log(0.2)
    assert nll(tempered, (X, Y)) < 1.2 * entropy
    assert nll(model, (X, Y)) > 2.0 * entropy


@pytest.mark.parametrize(
    ("likelihood", "J"),
    [
        (gpflow.likelihoods.Poisson(), 1),
        (gpflow.likelihoods.HeteroskedasticTFPConditional(), 2),
    ],
)
def test_no_likelihood_is_made_worse(likelihood: gpflow.likelihoods.Likelihood, J: int) -> None:
    columns = 1 if likelihood.latent_dim else J
    X, Y = data(columns)
    Y = np.floor(np.abs(3.0 * Y)) if J == 1 else 3.0 * Y  # counts
    model = make(J, likelihood)
    tempered = temper(model, (X, Y))
    assert nll(tempered, (X, Y)) < nll(model, (X, Y))
    assert_differ(nll(tempered, (X, Y)), nll(model, (X, Y)))
    # Only a Gaussian likelihood has a noise that is scaled with Q.
    assert read_values(tempered.likelihood) == read_values(likelihood)


def test_variances_of_zero_are_tempered_too() -> None:
    """A linear function is certain at the origin, where the deviation has no derivative."""
    linear = gpflow.kernels.Linear(variance=0.01)
    P = gvi.GaussianProcess(gpflow.functions.Zero(), linear)
    model = gvi.models.PGVI(P, P, gpflow.likelihoods.StudentT(0.1, df=4.0), num_data=N)
    X, Y = data()
    X[::4] = 0.0
    tempered = temper(model, (X, Y))
    assert nll(tempered, (X, Y)) < nll(model, (X, Y))
    assert_differ(nll(tempered, (X, Y)), nll(model, (X, Y)))


# The tempered model as a model.


@pytest.mark.parametrize("kind", [gvi.models.PGVI, gvi.models.GWI])
def test_a_tempered_model_is_a_model_of_its_kind(kind: type[gvi.models.GVI]) -> None:
    X, Y = data(2)
    model = make(2, kind=kind)
    before = {name: np.copy(value) for name, value in read_values(model).items()}
    tempered = temper(model, (X, Y))
    assert type(tempered) is kind
    # What is shared stays shared, with nothing of the original.
    Q = tempered.variational
    assert Q.kernel.kernel.kernel is Q.mean_function.kernel is tempered.kernel
    assert Q.kernel.kernel.inducing_variable is Q.mean_function.inducing_variable
    ids = {id(variable) for variable in model.variables}
    assert not any(id(variable) in ids for variable in tempered.variables)
    for name, value in read_values(model).items():
        np.testing.assert_array_equal(value, before[name])
    # The factors are no more trained; all that was, is.
    assert len(tempered.trainable_variables) == len(model.trainable_variables) == 4
    assert not Q.kernel.factor.trainable
    assert ".variational.kernel.factor" in parameter_dict(tempered)
    # Training moves the tempered model, and the original stays.
    with tf.GradientTape() as tape:
        loss = tempered.training_loss((X, Y))
    for variable, gradient in zip(
        tempered.trainable_variables,
        tape.gradient(loss, tempered.trainable_variables),
        strict=True,
    ):
        variable.assign_sub(1e-6 * gradient)
    assert tempered.training_loss((X, Y)) < loss
    for name, value in read_values(model).items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize(("likelihood", "trainable"), [("scale", False), ("scale function", True)])
def test_noise_is_trained_after_tempering_if_it_was_before(
    likelihood: str, trainable: bool
) -> None:
    model = make(2, GAUSSIANS[likelihood]())
    set_trainable(model.likelihood, trainable)
    tempered = temper(model, data(2)).likelihood
    assert len(tempered.trainable_variables) == len(model.likelihood.trainable_variables)
    assert bool(tempered.trainable_variables) == trainable


@pytest.mark.parametrize("likelihood", ["variance function", "Bernoulli"])
def test_tempering_in_single_precision(likelihood: str) -> None:
    factors = []
    for dtype in (np.float32, np.float64):
        with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
            if likelihood in GAUSSIANS:
                model, (X, Y) = make(2, GAUSSIANS[likelihood]()), data(2)
            else:
                model, (X, Y) = over_confident(likelihood)
            tempered = temper(model, (X.astype(dtype), Y.astype(dtype)))
            factor = tempered.variational.kernel.factor
            assert factor.dtype == tempered.predict_y(X)[1].dtype == dtype
            factors.append(factor.numpy())
    assert_close(*factors, ROUNDING if likelihood in GAUSSIANS else ITERATIVE)


class Broken(MeanFunction):
    """A mean that is not a number at the first point."""

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return tf.where(X < 1.0, X, tf.cast(np.nan, X.dtype))


ONES = np.ones((12, 1))

BAD_TEMPERING = {
    "no GVI": (
        TypeError,
        lambda: (gpflow.models.GPR((ONES, ONES), gpflow.kernels.White()), (ONES, ONES)),
        "model is .*GPR.* must be a GVI, GWI or PGVI.*conformal",
    ),
    "one point": (
        ValueError,
        lambda: (make(), (ONES[:1], ONES[:1])),
        "validation_data has 1 row, .*at least 2, better 10",
    ),
    "columns": (
        ValueError,
        lambda: (make(2), (ONES, ONES)),
        "Y has 1 columns, but Q has 2 outputs",
    ),
    "columns of labels": (
        ValueError,
        lambda: (make(2, gpflow.likelihoods.Bernoulli()), (ONES, ONES)),
        "Y has 1 columns, but Q has 2 outputs",
    ),
    "a mean that is NaN": (
        ValueError,
        lambda: (make(mean=Broken()), (ONES, ONES)),
        "predictions are NaN or infinite at 12 of the 12 rows of validation_data .*row 0",
    ),
    "no error at all": (
        ValueError,
        lambda: (make(), (ONES, make().predict_f(ONES)[0].numpy())),
        r"validation_data is predicted without any error in outputs \[0\] of 1.*held-out",
    ),
    "no density": (
        ValueError,
        lambda: (make(1, gpflow.likelihoods.Gamma()), (ONES, -ONES)),
        "-1 in row 0, column 0 .*Gamma must be positive",
    ),
    "correlated outputs": (
        TypeError,
        lambda: (correlated(), (ONES, np.ones((12, 2)) * [1.0, 2.0])),
        "LinearCoregionalization, whose outputs are correlated",
    ),
}


def correlated() -> gvi.models.GVI:
    W = np.array([[1.0, 0.0], [0.5, 1.0]])
    kernels = [gpflow.kernels.SquaredExponential() for _ in range(2)]
    process = gvi.GaussianProcess(
        gpflow.functions.Zero(2), gpflow.kernels.LinearCoregionalization(kernels, W)
    )
    likelihood = gpflow.likelihoods.Gaussian(0.3)
    return gvi.models.PGVI(process, process, likelihood, num_data=N)


@pytest.mark.parametrize("case", BAD_TEMPERING)
def test_temper_says_what_is_wrong(case: str) -> None:
    error, arguments, message = BAD_TEMPERING[case]
    with pytest.raises(error, match=message):
        temper(*arguments())


def test_few_points_give_a_warning() -> None:
    X, Y = data()
    with pytest.warns(NumericsWarning, match=r"has 5 rows.*√\(2/5\) = 0.63; hold out 10") as record:
        temper(make(), (X[:5], Y[:5]))
    assert record[0].filename == __file__
    temper(make(), (X[:10], Y[:10]))  # a warning would be an error here
