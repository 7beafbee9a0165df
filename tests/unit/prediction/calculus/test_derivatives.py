"""Slopes against differences, a textbook formula and drawn functions."""

from __future__ import annotations

import gpflow
import mpmath
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels

import gpflow_gvi as gvi
from gpflow_gvi.kernels import FeatureMap, LogInputs
from gpflow_gvi.prediction import calculus, samples
from tests import catalogue
from tests.tolerances import assert_close, assert_estimates
from tests.unit.prediction.calculus.processes import (
    M,
    network,
    prior,
    require_slopes,
    variational,
)

PROFILES = {
    "SquaredExponential": lambda r2: mpmath.exp(-r2 / 2),
    "RationalQuadratic": lambda r2: (1 + r2 / 3) ** mpmath.mpf(-1.5),
    "Matern32": lambda r2: (1 + mpmath.sqrt(3 * r2)) * mpmath.exp(-mpmath.sqrt(3 * r2)),
    "Matern52": lambda r2: (
        (1 + mpmath.sqrt(5 * r2) + 5 * r2 / 3) * mpmath.exp(-mpmath.sqrt(5 * r2))
    ),
}


@pytest.mark.parametrize("name", PROFILES)
def test_slopes_of_stationary_kernels(name, rng):
    """The variance of (f(x + h) - f(x)) / h is 2 (k(0) - k(h)) / h², here to fifty digits."""
    options = {"alpha": 1.5} if name == "RationalQuadratic" else {}
    kernel = getattr(kernels, name)(1.7, [0.5, 2.0], active_dims=[0, 2], **options)
    mean, variance = calculus.derivative(prior(kernel), rng.normal(size=(4, 3)))
    with mpmath.workdps(50):
        h = mpmath.mpf(10) ** -12
        slopes = [2 * 1.7 * (1 - PROFILES[name]((h / scale) ** 2)) / h**2 for scale in (0.5, 2.0)]
        expected = np.array([float(slopes[0]), 0.0, float(slopes[1])])
    assert_close(variance[..., 0], np.tile(expected, (4, 1)))
    np.testing.assert_array_equal(mean, np.zeros((4, 3, 1)))


@pytest.mark.parametrize(("name", "J"), [*catalogue.covariances_in_turn([1]), ("CholeskySVGP", 2)])
def test_slopes_of_variational_processes(name, J, rng):
    Z = rng.uniform(-2.0, 2.0, size=(M, 2))
    kernel = catalogue.kernels(J)["single" if J == 1 else "separate"]
    process = variational(name, kernel, J, Z, rng)
    require_slopes(process, rng.uniform(-3.0, 3.0, size=(4, 2)))


@pytest.mark.parametrize("kernel", [kernels.Matern32(1.3, [0.8, 1.1]), kernels.Matern52(1.3)])
def test_slopes_at_inducing_points(kernel, rng):
    """The distance is zero there, and has no derivative; the kernel has."""
    Z = rng.uniform(-2.0, 2.0, size=(M, 2))
    process = variational("CholeskySVGP", kernel, 1, Z, rng)
    require_slopes(process, Z)


COMPOSED = {
    "Sum": lambda: kernels.SquaredExponential() + kernels.Linear([0.3, 2.0]) + kernels.Constant(),
    "Product": lambda: (
        kernels.SquaredExponential(1.3, 0.8, active_dims=[1])
        * kernels.Linear(0.7)
        * kernels.Matern52(0.9)
        * kernels.Constant(2.0)
    ),
    "Tempered": lambda: gvi.covariances.Tempered(kernels.SquaredExponential(), [0.3, 2.0]),
    "SharedIndependent": lambda: kernels.SharedIndependent(kernels.Matern52(), 2),
    "SeparateIndependent": lambda: kernels.SeparateIndependent(
        [kernels.Matern52(), kernels.Linear(2.0) * kernels.Linear([0.3, 0.9])]
    ),
    "FeatureMap": lambda: FeatureMap(kernels.SquaredExponential(1.2, [0.7, 0.5, 1.0]), network),
    "LogInputs": lambda: LogInputs(
        kernels.SquaredExponential(1.2, [0.7, 0.5]), np.eye(2) + 0.5, np.array([-3.5, np.nan])
    ),
    "Product of FeatureMaps": lambda: (
        FeatureMap(kernels.Linear(), network) * kernels.SquaredExponential()
    ),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_slopes_of_composed_kernels(name, rng):
    kernel = COMPOSED[name]()
    process = gvi.GaussianProcess(gpflow.functions.Linear(rng.normal(size=(2, 2))), kernel)
    require_slopes(process, rng.normal(size=(4, 2)))


def test_slopes_of_gaussian_process_regression(rng):
    """McHutchon (2013), "Differentiating Gaussian processes", with the inverse written out."""
    Z, U, x = rng.normal(size=(5, 2)), rng.normal(size=(5, 1)), rng.normal(size=(1, 2))
    scale, noise = np.array([0.8, 1.5]), 0.1
    mean, variance = calculus.derivative(
        prior(kernels.SquaredExponential(1.4, scale)).condition(Z, U, noise), x
    )

    def k(A, B):
        return 1.4 * np.exp(-0.5 * np.sum(((A[:, None] - B[None]) / scale) ** 2, axis=-1))

    inverse = np.linalg.inv(k(Z, Z) + noise * np.eye(5))
    slopes = k(x, Z)[0][:, None] * (Z - x) / scale**2  # [M, D]
    assert_close(mean[0, :, 0], slopes.T @ inverse @ U[:, 0])
    expected = 1.4 / scale**2 - np.einsum("md,mn,nd->d", slopes, inverse, slopes)
    assert_close(variance[0, :, 0], expected)


def test_slopes_of_a_weight_space_posterior(rng):
    process = prior(FeatureMap(kernels.Linear(), network)).condition(
        rng.normal(size=(9, 2)), rng.normal(size=(9, 1)), 0.1
    )
    assert type(process.kernel).__name__ == "WeightCovariance"
    require_slopes(process, rng.normal(size=(4, 2)))


def test_slopes_of_drawn_functions(rng):
    """The slopes of functions drawn from the process are distributed as they should be."""
    S, N, Z = 2000, 4, np.linspace(-2.0, 2.0, M)[:, None]
    process = variational("CholeskySVGP", kernels.Matern52(lengthscales=0.9), 1, Z, rng)
    functions = samples.draw_functions(process, S, seed=1)
    X = tf.constant(rng.uniform(-2.5, 2.5, size=(N, 1)))
    with tf.autodiff.ForwardAccumulator(X, tf.ones_like(X)) as forward:
        values = functions(X)
    slopes = forward.jvp(values).numpy()[..., 0]  # [S, N]
    mean, variance = (part.numpy()[:, 0, 0] for part in calculus.derivative(process, X))
    assert_estimates(slopes.mean(axis=0), mean, np.sqrt(variance / S))
    assert_estimates(slopes.var(axis=0), variance, np.sqrt(2.0 / S) * variance)


@pytest.mark.slow
def test_slopes_in_a_graph_and_in_single_precision():
    signature = [tf.TensorSpec([None, 2], gpflow.default_float())]
    process = variational(
        "CholeskySVGP",
        kernels.Matern52(),
        1,
        np.random.default_rng(0).normal(size=(M, 2)),
        np.random.default_rng(1),
    )
    X = np.random.default_rng(2).normal(size=(3, 2))
    eager = calculus.derivative(process, X)
    compiled = tf.function(
        lambda X: calculus.derivative(process, X), input_signature=signature, autograph=False
    )
    for first, second in zip(eager, compiled(X), strict=True):
        assert_close(first, second)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        process = variational(
            "CholeskySVGP",
            kernels.Matern52(),
            1,
            np.random.default_rng(0).normal(size=(M, 2)).astype(np.float32),
            np.random.default_rng(1),
        )
        for double, single in zip(
            eager, calculus.derivative(process, X.astype(np.float32)), strict=True
        ):
            assert single.dtype == tf.float32
            assert_close(single, double)


@pytest.mark.parametrize("kernel", [kernels.Matern12(), kernels.White(), kernels.Polynomial()])
def test_kernels_without_slopes(kernel):
    with pytest.raises(TypeError, match=rf"kernel is a {type(kernel).__name__}.*register"):
        calculus.derivative(prior(kernel), np.zeros((1, 1)))


def test_slopes_are_those_of_a_process():
    with pytest.raises(TypeError, match=r"process is <.*SquaredExp.*must be a GaussianProcess"):
        calculus.derivative(kernels.SquaredExponential(), np.zeros((1, 1)))


def test_predictors_have_no_slopes():
    """TensorFlow would take what runs in Python for a constant."""
    line = gvi.mean_functions.Predictor(lambda X: 2.0 * X[:, 0])
    process = gvi.GaussianProcess(line + gpflow.functions.Zero(), kernels.SquaredExponential())
    with pytest.raises(TypeError, match="process has predictors in its mean"):
        calculus.derivative(process, np.zeros((1, 1)))
