"""The evidence with predictions and a pattern of the noise."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import tensorflow_probability as tfp

import gpflow_gvi as gvi
from gpflow_gvi.learning.recipe import Recipe
from gpflow_gvi.regulariser.evidence import InducingEvidence
from gpflow_gvi.regulariser.evidence_fit import EvidenceFit, Rows
from tests.minimisers import comparing_with_a_tape
from tests.tolerances import ITERATIVE, assert_close


def _fit(kernel, likelihood, C, D, J, evidence):
    prior = gvi.GaussianProcess(gpflow.functions.Zero(J), gpflow.utilities.deepcopy(kernel))
    return EvidenceFit(prior, likelihood, evidence, features=[D], num_outputs=J, num_means=C)


def _rows(rng, N=7):
    return Rows(
        rng.uniform(-2.0, 2.0, size=(N, 2)),
        rng.normal(size=(N, 1)),
        rng.normal(size=(N, 2, 1)),
        rng.uniform(0.2, 2.0, size=(N, 1)),
    )


def _started(kernel, weight=0.4, exponent=0.8):
    fit = _fit(kernel, gpflow.likelihoods.Gaussian(0.1), 2, 2, 1, InducingEvidence())
    fit.start(kernel, 0.2, np.full(fit.weights.shape, weight), exponent)
    return fit


def test_with_all_inducing_points_it_is_the_density_of_a_normal_law(rng):
    rows, kernel = _rows(rng), gpflow.kernels.Matern32(0.9, [0.8, 1.3])
    kernel.variance.prior = tfp.distributions.LogNormal(np.float64(0.0), np.float64(2.0))
    fit = _started(kernel)
    residual = rows.Y[:, 0] - 0.4 * rows.means.sum(axis=1)[:, 0]
    K = kernel(rows.X).numpy() + np.diag(0.2 * rows.pattern[:, 0] ** 0.8)
    log_density = scipy.stats.multivariate_normal.logpdf(residual, cov=K)
    log_prior = scipy.stats.lognorm.logpdf(0.9, 2.0) + scipy.stats.norm.logpdf(0.8, 0.5, 0.5)
    value = fit.minimise(lambda loss, variables: None, rows.X, rows, means=True, pattern=True)
    assert_close(value, -log_density - log_prior, ITERATIVE)


@pytest.mark.parametrize(("means", "pattern"), [(True, True), (False, True), (False, False)])
def test_gradients_are_those_of_what_is_fitted(means, pattern, rng):
    rows, kernel = _rows(rng), gpflow.kernels.Matern32(0.9, [0.8, 1.3])
    fit = _started(kernel)
    seen = {}

    def check(loss, variables):
        def value(x):
            for variable, part in zip(variables, np.split(x, ends), strict=True):
                variable.assign(part.reshape(variable.shape))
            return float(loss())

        values = [2.0 * variable.numpy() + 0.1 for variable in variables]
        before = [variable.numpy() for variable in variables]
        x = [np.ravel(value) for value in values]
        ends = np.cumsum([len(part) for part in x])[:-1]
        at = dict(zip(map(id, variables), values, strict=True))
        _, gradients = loss.value_and_gradients(variables, at)
        for variable, own in zip(variables, before, strict=True):
            np.testing.assert_array_equal(variable, own)  # it is evaluated without an assignment
        seen["size"] = sum(len(part) for part in x)
        assert_close(
            np.concatenate([np.ravel(gradient) for gradient in gradients]),
            scipy.optimize.approx_fprime(np.concatenate(x), value, 1e-6),
            ITERATIVE,
        )

    fit.minimise(check, rows.X, rows, means=means, pattern=pattern)
    assert seen["size"] == 4 + 2 * means + pattern


@pytest.mark.parametrize("J", [1, 2])
def test_numpy_and_the_graph_have_the_same_value_and_gradients(J, rng):
    X, Y = rng.normal(size=(40, 3)), rng.normal(size=(40, J))
    kernel = Recipe().kernels_of_numbers(X, Y)[0]
    gpflow.set_trainable(kernel.kernels[1].variance, False)
    kernel.kernels[1].lengthscales = kernel.kernels[0].lengthscales  # shared
    fit = _fit(kernel, Recipe().noise(40, 3, 1e-6), 2, 3, J, InducingEvidence())
    fit.start(kernel, 0.3, np.full((2, J), 0.4), 0.7)
    rows = Rows(X, Y, rng.normal(size=(40, 2, J)), rng.gamma(2.0, size=(40, J)))
    value, gradients = fit._of_numpy(rows, {})
    expected, of_graph = fit.graph(X, *rows)
    assert_close(value, float(expected))
    assert len(gradients) == len(of_graph) == len(fit.variables)
    for found, by_graph in zip(gradients, of_graph, strict=True):
        assert_close(found, by_graph)


def test_a_minimiser_may_take_derivatives_by_a_tape(rng):
    rows, kernel = _rows(rng), gpflow.kernels.Matern32(0.9, [0.8, 1.3])

    compared = []
    minimise = comparing_with_a_tape(compared)
    _started(kernel).minimise(minimise, rows.X, rows, means=True, pattern=True)
    assert compared == [5]  # two of the kernel, noise, exponent, weights


def test_where_numpy_finds_no_factor_the_graph_adds_jitter(rng):
    X = np.repeat(rng.normal(size=(6, 2)), 2, axis=0)  # K is singular
    kernel = gpflow.kernels.SquaredExponential(1e12)
    noise = gpflow.likelihoods.Gaussian(1e-5)
    fit = _fit(kernel, noise, 0, 2, 1, InducingEvidence())
    rows = Rows.of(X, np.zeros((12, 1)))
    with pytest.raises(np.linalg.LinAlgError):
        fit._of_numpy(rows, {})
    value, gradients = fit.value_and_gradients(X, rows)
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(part)) for part in gradients)


def test_without_a_pattern_its_prior_is_no_part_of_the_evidence(rng):
    rows, kernel = _rows(rng), gpflow.kernels.Matern32(0.9, [0.8, 1.3])
    fit = _started(kernel, weight=0.0, exponent=0.0)
    value = fit.minimise(lambda loss, variables: None, rows.X, rows, means=False, pattern=False)
    K = kernel(rows.X).numpy() + 0.2 * np.eye(len(rows.X))
    expected = scipy.stats.multivariate_normal.logpdf(rows.Y[:, 0], cov=K)
    assert_close(value, -expected, ITERATIVE)
