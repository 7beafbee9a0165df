"""Integrals against quadrature and limits."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import tensorflow as tf
from gpflow import kernels
from gpflow.inducing_variables import (
    InducingPoints,
    Multiscale,
    SeparateIndependentInducingVariables,
)
from gpflow.probability_distributions import DiagonalGaussian

import gpflow_gvi as gvi
from gpflow_gvi.kernels.feature_map import FeatureMap
from gpflow_gvi.prediction import calculus
from tests import catalogue
from tests.designs import each_value
from tests.tolerances import ITERATIVE, assert_close
from tests.unit.prediction.calculus.processes import (
    MEASURES,
    WEIGHTS,
    M,
    network,
    prior,
    require_integrals,
    require_slopes,
    variational,
)


@pytest.mark.parametrize(
    ("name", "case"),
    catalogue.covariances_in_turn([(1, "single", "gaussian"), (2, "separate", "uniform")]),
)
def test_integrals_of_variational_processes(name, case, rng):
    J, kind, measure = case
    Z = rng.uniform(-2.0, 2.0, size=(M, 1))
    process = variational(name, catalogue.kernels(J)[kind], J, Z, rng)
    require_integrals(process, measure, 1)


INTEGRABLE = {
    "ARD": lambda: kernels.SquaredExponential(1.3, [0.6, 1.4]),
    "active_dims": lambda: kernels.SquaredExponential(1.3, 0.6, active_dims=[1]),
    "Sum": lambda: kernels.SquaredExponential() + kernels.Linear([0.3, 2.0]) + kernels.Constant(),
    "Product": lambda: (
        kernels.SquaredExponential(1.3, 0.8, active_dims=[1]) * kernels.Linear(active_dims=[0])
    ),
    "Tempered": lambda: gvi.covariances.Tempered(kernels.SquaredExponential(), [0.3, 2.0]),
    "SharedIndependent": lambda: kernels.SharedIndependent(kernels.SquaredExponential(), 2),
    "SeparateIndependent": lambda: kernels.SeparateIndependent(
        [kernels.SquaredExponential(), kernels.Linear(2.0)]
    ),
    "FeatureMap(Linear)": lambda: FeatureMap(kernels.Linear(), network),
}


@pytest.mark.parametrize(("name", "measure"), each_value(INTEGRABLE, MEASURES))
def test_integrals_of_prior_kernels(name, measure, rng):
    mean = gpflow.functions.Constant([1.0, -2.0]) + gpflow.functions.Linear(rng.normal(size=(2, 2)))
    process = gvi.GaussianProcess(mean, INTEGRABLE[name]())
    require_integrals(process, measure, 2, n=40)


@pytest.mark.parametrize(
    ("name", "measure"), each_value(["ARD", "Sum", "FeatureMap(Linear)"], MEASURES)
)
def test_integrals_of_conditioned_processes(name, measure, rng):
    """And of an SVGP on the posterior of such a process, whose kernel is a posterior itself."""
    Z, U = rng.normal(size=(8, 2)), rng.normal(size=(8, 1))
    process = prior(INTEGRABLE[name]()).condition(Z, U, 0.1)
    n = 50 if "FeatureMap" in name else 26
    require_integrals(process, measure, 2, n)
    points = catalogue.inducing_points(rng.normal(size=(3, 2)))
    above = gvi.GaussianProcess(
        gvi.mean_functions.Inducing(
            process.kernel,
            points,
            mean_function=process.mean_function,
            q_mu=rng.normal(size=(3, 1)),
        ),
        gvi.covariances.CholeskySVGP(process.kernel, points, q_sqrt=0.5 * np.eye(3)[None]),
    )
    require_integrals(above, measure, 2, n)


def test_integrals_of_a_covariance_on_a_covariance(rng):
    below = variational(
        "CholeskySVGP", kernels.SquaredExponential(), 1, rng.normal(size=(M, 1)), rng
    )
    process = prior(gvi.covariances.DiagonalSVGP(below.kernel, rng.normal(size=(3, 1))))
    require_integrals(process, "gaussian", 1)


def test_integrals_of_affine_functions(rng):
    """In any number of columns: the value at the mean of x, without quadrature."""
    process = prior(kernels.Linear() + kernels.Constant()).condition(
        rng.normal(size=(9, 3)), rng.normal(size=(9, 1)), 0.1
    )
    assert type(process.kernel).__name__ == "WeightCovariance"
    for make in MEASURES.values():
        measure = make(3)
        mean, variance = calculus.integrate(process, measure)
        assert_close(mean, process.mean(measure.mean[None])[0])
        assert_close(variance, process.variance(measure.mean[None])[0])


def test_embeddings_of_gaussians_are_those_of_gpflow(rng):
    kernel = kernels.SquaredExponential(1.3, [0.6, 1.4], active_dims=[0, 2]) + kernels.Linear(0.7)
    Z = rng.normal(size=(4, 3))
    measure = MEASURES["gaussian"](3)
    law = DiagonalGaussian(*(row[None] for row in measure.rows))
    expected = gpflow.expectations.expectation(law, (kernel, InducingPoints(Z)))
    assert_close(calculus.embedding(kernel, measure, tf.constant(Z)), expected)


@pytest.mark.slow
def test_integrals_with_separate_inducing_points(rng):
    kernel = kernels.SeparateIndependent([kernels.SquaredExponential(), kernels.Linear(0.5)])
    Z = SeparateIndependentInducingVariables(
        [InducingPoints(rng.uniform(-2.0, 2.0, size=(3, 1))) for _ in range(2)]
    )
    process = gvi.GaussianProcess(
        gvi.mean_functions.Inducing(kernel, Z, q_mu=rng.normal(size=(3, 2))),
        gvi.covariances.CholeskySVGP(kernel, Z),
    )
    require_integrals(process, "uniform", 1)
    measure = MEASURES["uniform"](1)
    in_graph = tf.function(lambda: calculus.integrate(process, measure))()
    assert_close(in_graph, calculus.integrate(process, measure))


@pytest.mark.parametrize("D", [1, 2])
def test_integrals_of_a_network_mean(D):
    process = gvi.GaussianProcess(gvi.mean_functions.Network(network), kernels.SquaredExponential())
    mean, _ = calculus.integrate(process, MEASURES["uniform"](D))
    low, high = [-1.0, 0.0], [0.5, 2.0]
    for j in range(3):
        integral, _ = scipy.integrate.nquad(
            lambda *x, j=j: np.tanh(np.array(x) @ WEIGHTS[:D, j]),
            list(zip(low, high, strict=True))[:D],
        )
        volume = np.prod(np.subtract(high, low)[:D])
        assert_close(mean[j], integral / volume)


def test_narrow_measures_give_the_value(rng):
    """A measure that shrinks to a point: no digits are lost on the way."""
    process = variational(
        "CholeskySVGP", kernels.SquaredExponential(), 1, rng.normal(size=(M, 1)), rng
    )
    x = np.array([0.4])
    for measure in (
        calculus.GaussianMeasure(x, [1e-14]),
        calculus.UniformMeasure(x - 1e-7, x + 1e-7),
    ):
        mean, variance = calculus.integrate(process, measure)
        # Differences of distribution functions 2e-7 apart have half of their digits.
        assert_close(mean, process.mean(x[None])[0], ITERATIVE)
        assert_close(variance, process.variance(x[None])[0], ITERATIVE)


def test_integrals_in_single_precision():
    results = []
    for dtype in (np.float64, np.float32):
        with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
            rng = np.random.default_rng(0)
            Z = rng.normal(size=(M, 1)).astype(dtype)
            process = variational("CholeskySVGP", kernels.SquaredExponential(), 1, Z, rng)
            for make in MEASURES.values():
                results.append(calculus.integrate(process, make(1)))
                assert {part.dtype for part in results[-1]} == {tf.as_dtype(dtype)}
    for double, single in zip(results[:2], results[2:], strict=True):
        assert_close(single, double, ITERATIVE)


def test_outputs_may_share_a_kernel(rng):
    """The covariance has one output then, and the mean two."""
    Z = rng.uniform(-2.0, 2.0, size=(M, 1))
    several = variational("CholeskySVGP", kernels.SquaredExponential(), 2, Z, rng)
    single = gvi.covariances.SparsePosterior(kernels.SquaredExponential(), Z)
    for process in (several, gvi.GaussianProcess(several.mean_function, single)):
        require_integrals(process, "gaussian", 1)
        require_slopes(process, rng.normal(size=(3, 1)))


def test_calculus_with_a_frozen_factor(rng):
    """The factor of FixedSparsePosterior is that of k, whatever has become of r_0."""
    Z = rng.uniform(-2.0, 2.0, size=(M, 1))
    covariance = gvi.covariances.FixedSparsePosterior(
        kernels.SquaredExponential(),
        Z,
        base_kernel=gvi.covariances.Tempered(kernels.SquaredExponential(), 0.6),
    )
    require_integrals(prior(covariance), "uniform", 1)
    require_slopes(prior(covariance), rng.normal(size=(4, 1)))


# Bad input.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: calculus.GaussianMeasure([0.0], [-1.0]), r"variance is \[-1"),
        (lambda: calculus.GaussianMeasure([0.0], [1.0, 2.0]), r"mean has shape \(1,\)"),
        (lambda: calculus.GaussianMeasure(0.0, 1.0), "number for each column of X"),
        (lambda: calculus.UniformMeasure([0.0], [0.0]), "upper - lower"),
        (lambda: calculus.UniformMeasure([0.0], [np.inf]), "upper - lower"),
    ],
)
def test_bad_measures(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (kernels.Matern52(), r"kernel is a Matern52.*embedding\.register"),
        (kernels.Polynomial(), "kernel is a Polynomial"),
        (kernels.SquaredExponential() * kernels.Linear(), "share columns.*active_dims"),
    ],
)
def test_kernels_without_integrals(kernel, message):
    with pytest.raises(TypeError, match=message):
        calculus.integrate(prior(kernel), MEASURES["gaussian"](2))


def test_what_else_cannot_be_integrated(rng):
    process = variational(
        "CholeskySVGP", kernels.SquaredExponential(), 1, rng.normal(size=(M, 2)), rng
    )
    with pytest.raises(ValueError, match=r"measure is of 1 columns.*inputs of 2"):
        calculus.integrate(process, MEASURES["gaussian"](1))
    with pytest.raises(TypeError, match="measure is 3"):
        calculus.integrate(process, 3)
    with pytest.raises(TypeError, match=r"process is <.*SquaredExp.*must be a GaussianProcess"):
        calculus.integrate(kernels.SquaredExponential(), MEASURES["gaussian"](1))
    curved = gvi.GaussianProcess(gvi.mean_functions.Network(tf.sin), kernels.Constant())
    with pytest.raises(TypeError, match=r"Network over 3 columns.*draw_functions"):
        calculus.integrate(curved, MEASURES["gaussian"](3))
    other = Multiscale(rng.normal(size=(3, 1)), np.ones((3, 1)))
    covariance = gvi.covariances.SparsePosterior(kernels.SquaredExponential(), other)
    with pytest.raises(TypeError, match=r"inducing_variable is .*Multiscale"):
        calculus.integrate(prior(covariance), MEASURES["gaussian"](1))
