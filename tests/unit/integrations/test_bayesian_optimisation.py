"""Acquisitions are the integrals they stand for; maxima and minima are found."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import tensorflow as tf

from gpflow_gvi.integrations import bayesian_optimisation as bo
from gpflow_gvi.prediction.samples import draw_functions
from tests import models
from tests.tolerances import ITERATIVE, assert_close

CASES = [(0.3, 0.5, 0.1), (-1.0, 2.0, 0.4), (2.0, 0.04, 0.0), (0.0, 1e-4, 0.05)]
"""Mean, variance and the best that was found."""


def of_marginals(acquisition: bo.Acquisition, dtype: type = np.float64) -> np.ndarray:
    means, variances, bests = np.array(CASES, dtype).T
    return np.array(
        [
            acquisition.of_marginals(mean[None], variance[None], best)[0].numpy()
            for mean, variance, best in zip(means, variances, bests, strict=True)
        ]
    )


def by_quadrature(gain, mean: float, variance: float, best: float) -> float:
    density = scipy.stats.norm(mean, np.sqrt(variance)).pdf
    ends = mean - 12.0 * np.sqrt(variance), best
    if ends[0] >= ends[1]:
        return 0.0
    value, _ = scipy.integrate.quad(
        lambda f: gain(best - f) * density(f), *ends, points=[min(mean, best)], limit=200
    )
    return value


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("acquisition", "gain"),
    [
        (bo.ExpectedImprovement(), lambda improvement: improvement),
        (bo.ProbabilityOfImprovement(), lambda improvement: 1.0),
    ],
    ids=["EI", "PI"],
)
def test_improvement_is_the_integral(acquisition, gain, dtype):
    expected = [by_quadrature(gain, *case) for case in CASES]
    assert_close(of_marginals(acquisition, dtype), expected)


def test_lower_confidence_bound_is_a_quantile():
    mean, variance, _ = np.array(CASES).T
    expected = scipy.stats.norm(mean, np.sqrt(variance)).ppf(0.05)
    beta = -scipy.stats.norm.ppf(0.05)
    assert_close(-of_marginals(bo.LowerConfidenceBound(beta)), expected)


def gpr(data: gpflow.base.RegressionData, *, seed: int = 0) -> gpflow.models.GPR:
    """A model that is there at once."""
    return gpflow.models.GPR(data, gpflow.kernels.Matern52(lengthscales=0.3), noise_variance=1e-4)


def data(rng: np.random.Generator, D: int = 2) -> tuple[np.ndarray, np.ndarray]:
    X = rng.random((6, D))
    return X, np.sin(5.0 * X[:, :1])


def test_best_is_the_least_mean_at_what_was_evaluated(rng):
    X, Y = data(rng)
    model, new = gpr((X, Y)), rng.random((5, 2))
    means, variances = (part.numpy()[:, 0] for part in model.predict_f(new))
    best = model.predict_f(X)[0].numpy().min()
    expected = [
        by_quadrature(lambda improvement: improvement, mean, variance, best)
        for mean, variance in zip(means, variances, strict=True)
    ]
    function = bo.ExpectedImprovement()(model, (X, Y))
    assert_close(function(tf.constant(new)), expected)


def test_slope_at_what_was_evaluated_is_finite(rng):
    X, Y = data(rng)
    model = gpflow.models.GPR((X, Y), gpflow.kernels.Matern52(), noise_variance=1.1e-6)
    function = bo.LowerConfidenceBound()(model, (X, Y))
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        values = function(x)
    assert np.all(np.isfinite(tape.gradient(values, x)))


def test_thompson_sampling_is_minus_a_draw():
    model = models.make()
    X, Y = models.data()
    function = bo.ThompsonSampling()(model, (X, Y), seed=3)
    drawn = draw_functions(model.variational, 1, num_features=1024, seed=3)
    assert_close(function(tf.constant(X)), -drawn(X)[0, :, 0])
    with pytest.raises(TypeError, match="model is a GPR"):
        bo.ThompsonSampling()(gpr((X, Y)), (X, Y))


# The maximiser.


def test_maximum_is_that_of_a_grid(rng):
    X, Y = data(rng, D=1)
    function = bo.ExpectedImprovement()(gpr((X, Y)), (X, Y))
    grid = np.linspace(0.0, 1.0, 20_001)[:, None]
    expected = grid[np.argmax(function(tf.constant(grid)))]
    found = bo.maximise(function, [(0.0, 1.0)])
    assert np.abs(found - expected) <= 1.0 / 20_000  # it is next to the best of the grid


@pytest.mark.parametrize("scale", [1.0, 1e-12])
def test_maximum_is_found_however_small(scale):
    peak = np.array([0.25, -3.0])
    found = bo.maximise(
        lambda X: scale * tf.exp(-tf.reduce_sum(tf.square(X - peak), -1)),
        [(-2.0, 2.0), (-8.0, 8.0)],
    )
    assert_close(found, peak, ITERATIVE)


def test_maximum_at_the_boundary_is_within():
    found = bo.maximise(lambda X: X[:, 0] - X[:, 1], [(0.1, 0.7), (-0.3, 5.0)])
    np.testing.assert_array_equal(found, [0.7, -0.3])


def test_narrow_peak_is_found_near_the_best():
    peak = np.full(6, 0.37)
    found = bo.maximise(
        lambda X: tf.exp(-500.0 * tf.reduce_sum(tf.square(X - peak), -1)),
        [(0.0, 1.0)] * 6,
        near=peak + 0.02,
    )
    assert_close(found, peak, ITERATIVE)


# The loop.


def bowl(x: np.ndarray) -> float:
    return 300.0 + (x[0] - 4.0) ** 2 + 2.0 * (x[1] + 1.0) ** 2


BOUNDS = [(0.0, 10.0), (-3.0, 2.0)]


def test_result_has_all_evaluations_in_their_order():
    seen = []

    def objective(x: np.ndarray) -> float:
        seen.append(x)
        return bowl(x)

    result = bo.minimise(objective, BOUNDS, num_initial=5, num_steps=2, fit=gpr, seed=1)
    np.testing.assert_array_equal(result.X, seen)
    np.testing.assert_array_equal(result.Y[:, 0], [bowl(x) for x in seen])
    assert (result.nfev, result.nit) == (7, 2)
    assert result.fun == result.Y.min() == bowl(result.x)
    lower, upper = np.array(BOUNDS).T
    assert np.all((lower <= result.X) & (upper >= result.X))
    cells = np.floor(5.0 * (result.X[:5] - lower) / (upper - lower))  # a Latin hypercube
    assert np.array_equal(np.sort(cells, axis=0), np.tile(np.arange(5.0)[:, None], 2))
    again = bo.minimise(bowl, BOUNDS, num_initial=5, num_steps=1, fit=gpr, seed=1)
    np.testing.assert_array_equal(again.X, result.X[:-1])


@pytest.fixture
def little_jitter():
    """The usual one is of the order of variances that few rows without noise leave."""
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-10)):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("little_jitter")
def test_default_model_starts_at_the_posterior_and_learns(rng):
    X = rng.random((12, 2))
    Y = np.sin(5.0 * X[:, :1]) + X[:, 1:]
    Y = (Y - Y.mean()) / Y.std()
    start, trained = bo.fit_pgvi((X, Y), iterations=0), bo.fit_pgvi((X, Y))
    noise = float(start.likelihood.variance.numpy())
    k = start.variational.kernel.kernel
    exact = gpflow.models.GPR((X, Y), k, noise_variance=noise)
    new = rng.random((5, 2))
    for ours, theirs in zip(start.predict_f(new), exact.predict_f(new), strict=True):
        assert_close(ours, theirs, ITERATIVE)
    assert trained.training_loss((X, Y)) < start.training_loss((X, Y))
    assert not trained.likelihood.trainable_variables


def branin(x: np.ndarray) -> float:
    """Minimum 0.397887, at three points of [-5, 10] × [0, 15]. Dixon and Szegő (1978)."""
    a, b = x
    valley = b - 5.1 * a**2 / (4.0 * np.pi**2) + 5.0 * a / np.pi - 6.0
    return valley**2 + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(a) + 10.0


@pytest.mark.slow
def test_minimum_of_branin(rng):
    result = bo.minimise(branin, [(-5.0, 10.0), (0.0, 15.0)], num_steps=20)
    assert result.nfev == 25
    lower, upper = np.array([-5.0, 0.0]), np.array([10.0, 15.0])
    by_chance = branin((lower + (upper - lower) * rng.random((100_000, 2))).T)
    assert result.fun > 0.39788  # and fewer than one random point in a thousand is as low
    assert np.mean(by_chance <= result.fun) < 1e-3


@pytest.mark.slow
def test_minimum_of_a_bowl(rng):
    result = bo.minimise(bowl, BOUNDS, num_steps=8, acquisition=bo.ThompsonSampling())
    lower, upper = np.array(BOUNDS).T
    by_chance = bowl((lower + (upper - lower) * rng.random((100_000, 2))).T)
    assert result.fun >= 300.0
    assert np.mean(by_chance <= result.fun) < 1e-2


# What cannot be.


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"bounds": [(0.0, 1.0, 2.0)]}, "bounds is"),
        ({"bounds": [(0.0, 0.0)]}, "below the upper"),
        ({"num_initial": 1}, "num_initial is 1"),
        ({"num_steps": -1}, "num_steps is -1"),
        ({"objective": lambda x: np.nan}, "objective is nan"),
    ],
)
def test_what_cannot_be_minimised(options, match):
    arguments = {"objective": bowl, "bounds": BOUNDS, "num_steps": 1, "fit": gpr, **options}
    with pytest.raises(ValueError, match=match):
        bo.minimise(**arguments)


@pytest.mark.parametrize("acquisition", [bo.ExpectedImprovement, "ei"])
def test_an_acquisition_is_an_object(acquisition):
    with pytest.raises(TypeError, match=r"acquisition is .*; it must be an object, such as Exp"):
        bo.minimise(bowl, BOUNDS, num_steps=1, acquisition=acquisition)


def test_a_function_that_is_nowhere_finite():
    with pytest.raises(ValueError, match="finite at none"):
        bo.maximise(lambda X: X[:, 0] * np.nan, [(0.0, 1.0)])


def test_several_outputs_are_refused(rng):
    X = rng.random((4, 1))
    Y = np.tile(X, 2)
    with pytest.raises(ValueError, match="Y has 2 columns"):
        bo.ExpectedImprovement()(gpr((X, Y)), (X, Y))
