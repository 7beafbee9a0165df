"""Fitting by sites, with a Gaussian likelihood: there the bound with Z = X is GPR's evidence."""

from __future__ import annotations

import functools

import gpflow
import numpy as np
import pytest
import scipy.optimize
import tensorflow as tf
from gpflow.functions import Zero

import gpflow_gvi as gvi
from gpflow_gvi.regulariser.lbfgs import lbfgs
from gpflow_gvi.regulariser.site_bound import Rows
from gpflow_gvi.regulariser.site_fit import TOLERANCE, SiteFit, sites_of
from gpflow_gvi.regulariser.sites import converged, covariances, first_sites, rows_of, step
from tests.minimisers import comparing_with_a_tape
from tests.tolerances import ITERATIVE, ROUNDING, assert_close


@pytest.fixture(name="rows")
def _rows(rng) -> Rows:
    X = np.linspace(-2.0, 2.0, 15)[:, None]
    return Rows(X, np.sin(2.0 * X) + 0.3 * rng.normal(size=X.shape), np.zeros((15, 0, 1)), X)


def a_fit() -> SiteFit:
    prior = gvi.GaussianProcess(Zero(), gpflow.kernels.Matern32(lengthscales=0.1))
    return SiteFit(prior, gpflow.likelihoods.Gaussian(0.2))


def test_sites_of_gaussian_observations_are_the_observations(rows):
    sites, _ = a_fit().converged(rows._replace(Z=rows.X[::3]))
    assert_close(sites.Y, rows.Y)
    assert_close(sites.variance, np.full(rows.Y.shape, 0.2))


def test_rounds_go_on_while_the_bound_gains(rows):
    """A minimiser that knows some lengthscales, each better than the last, and then no more."""
    fit = a_fit()
    lengthscales, calls = [0.2, 0.3, 0.4], []

    def evidence(lengthscale: float) -> float:
        kernel = gpflow.kernels.Matern32(lengthscales=lengthscale)
        gpr = gpflow.models.GPR(rows[:2], kernel, noise_variance=0.2)
        return float(gpr.log_marginal_likelihood())

    def minimise(loss, variables):
        lengthscale = lengthscales[min(len(calls), 2)]
        fit.bound.prior.kernel.lengthscales.assign(lengthscale)
        calls.append(float(loss()))

    evidences = list(map(evidence, lengthscales))
    assert np.all(np.diff([evidence(0.1), *evidences]) > TOLERANCE * 15)
    minus_bound, _ = fit.fit(minimise, rows, means=False)
    assert len(calls) == 4  # three that gain, and the one that does not
    assert_close(calls, [-each for each in (*evidences, evidences[-1])], ITERATIVE)
    assert_close(minus_bound, -evidences[-1], ITERATIVE)


def test_weights_of_means_are_those_of_the_greatest_evidence_and_none_is_negative(rng):
    """Of 0.6 F - 0.4 G the weight w of F is that of the greatest evidence of Y - wF, by GPR.

    Its prior is the positive half of N(0, 4).
    """
    X = np.linspace(-2.0, 2.0, 40)[:, None]
    F, G = np.sin(3.0 * X), np.cos(5.0 * X)
    Y = 0.6 * F - 0.4 * G + 0.1 * rng.normal(size=X.shape)
    rows = Rows(X, Y, np.stack([F, G], axis=1), X)
    kernel = gpflow.kernels.SquaredExponential(0.01)
    likelihood = gpflow.likelihoods.Gaussian(0.01)
    for part in (kernel, likelihood):
        gpflow.set_trainable(part, False)

    def minimise(loss, variables):
        """Step across zero before the minimum is searched for, as a line search may."""
        variables[-1].assign(-variables[-1])
        lbfgs(loss, variables)

    fit = SiteFit(gvi.GaussianProcess(Zero(), kernel), likelihood, 2)
    fit.start_weights(0.5)
    fit.fit(minimise, rows, means=True)

    def minus_evidence(weight: float) -> float:
        gpr = gpflow.models.GPR((X, Y - weight * F), kernel, likelihood=likelihood)
        return -float(gpr.log_marginal_likelihood()) + 0.125 * weight**2

    best = scipy.optimize.minimize_scalar(minus_evidence)  # a parabola
    assert_close(np.ravel(fit.bound.weights), [best.x, 0.0], ITERATIVE)


def test_where_means_tell_all_labels_apart_their_weight_is_that_of_the_greatest_posterior():
    """Without a prior it had no bound, and one new label of another class the density zero."""
    y = np.repeat([1.0, 0.0], 15)[:, None]
    F = 3.0 * (2.0 * y - 1.0)
    kernel = gpflow.kernels.SquaredExponential(1e-8)
    gpflow.set_trainable(kernel, False)
    likelihood = gpflow.likelihoods.Bernoulli(invlink=tf.math.sigmoid)
    fit = SiteFit(gvi.GaussianProcess(Zero(), kernel), likelihood, 1)
    fit.start_weights(1.0)
    X = np.linspace(-1.0, 1.0, 30)[:, None]
    fit.fit(lbfgs, Rows(X, y, F[:, None], X), means=True)

    def minus_log_posterior(weight: float) -> float:
        return 30.0 * np.log1p(np.exp(-3.0 * weight)) + 0.125 * weight**2

    best = scipy.optimize.minimize_scalar(minus_log_posterior)
    assert_close(np.ravel(fit.bound.weights), best.x, ITERATIVE)


def _labels(
    rng, kernel, likelihood, *, step: int | None, fits_mean: bool = True
) -> tuple[SiteFit, Rows]:
    """A fit with a mean, and rows, each of which is an inducing point if there is no step."""
    X, labels = rng.normal(size=(20, 2)), rng.integers(3, size=(20, 1))
    J = 3 if isinstance(likelihood, gpflow.likelihoods.Softmax) else 1
    Y = labels if J == 3 else labels.astype(float)
    mean_function = gpflow.functions.Constant(np.linspace(-1.0, 1.0, J))
    gpflow.set_trainable(mean_function, fits_mean)
    fit = SiteFit(gvi.GaussianProcess(mean_function, kernel), likelihood, 1)
    fit.start_weights(0.4)
    Z = None if step is None else X[::step]
    return fit, Rows(X, Y, rng.normal(size=(20, 1, J)), Z)


def _known() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(2.0, [0.6, 1.1]) + gpflow.kernels.Linear(0.3)


@pytest.mark.parametrize("step", [None, 3])
@pytest.mark.parametrize(
    ("likelihood", "fits_mean"),
    [
        (gpflow.likelihoods.StudentT(), True),
        (gpflow.likelihoods.Softmax(3), True),
        (gpflow.likelihoods.Softmax(3), False),
    ],
)
def test_derivatives_by_numpy_are_those_by_a_tape(likelihood, fits_mean, step, rng):
    """Also those of a trainable mean function, of the likelihood, and of the weights."""
    fit, rows = _labels(rng, _known(), likelihood, step=step, fits_mean=fits_mean)
    compared = []
    # The K_ZZ of a tape has jitter, and without inducing points NumPy has none.
    tolerance = ITERATIVE if step is None else ROUNDING
    minimise = comparing_with_a_tape(compared, tolerance)
    minus_bound, sites = fit.fit(minimise, rows, means=True)
    assert compared
    # At the sites of these parameters the bound is what `fit` returns.
    bound, _ = fit.value_and_gradients(rows, sites)
    assert_close(minus_bound, -bound)


@pytest.mark.parametrize(
    "likelihood", [gpflow.likelihoods.StudentT(), gpflow.likelihoods.Softmax(3)]
)
def test_without_inducing_points_it_is_that_of_all_rows_as_points(likelihood, rng):
    fit, rows = _labels(rng, _known(), likelihood, step=None)
    points = rows._replace(Z=rows.X)
    found, expected = fit.converged(rows), fit.converged(points)
    assert_close(found[1], expected[1], ITERATIVE)
    new = rows._replace(X=rows.X + 0.3)
    at = fit.predict(rows, expected[0], new)
    for one, other in zip(
        at, fit.predict(points, expected[0], new._replace(Z=rows.X)), strict=True
    ):
        assert_close(one, np.broadcast_to(other, one.shape), ITERATIVE)


def test_sites_of_all_rows_are_those_with_all_rows_as_points(rng):
    """Some of them are equal; the order of the points does not matter."""
    X = rng.normal(size=(30, 2)).round(1)
    X[:5] = X[5:10]
    Y, kernel = rng.integers(3, size=(30, 1)), _known()
    prior, softmax = gvi.GaussianProcess(Zero(3), kernel), gpflow.likelihoods.Softmax(3)
    Z = np.unique(X, axis=0)[::-1]
    found = sites_of(softmax, prior, Z, (X, Y))
    rows = rows_of(
        covariances(kernel, Z, X), tf.constant(X), tf.constant(Y), tf.zeros([30, 3], X.dtype)
    )
    expected, _ = converged(functools.partial(step, [rows], softmax), first_sites(rows.m))
    assert_close(found.Y / found.variance, np.asarray(expected.Y / expected.variance), ITERATIVE)
    assert_close(1.0 / found.variance, np.asarray(1.0 / expected.variance), ITERATIVE)


def test_what_is_not_finite_is_no_error(rows):
    """So that a search for hyper-parameters can go back."""
    fit = a_fit()
    exact = rows._replace(Z=None)
    sites, _ = fit.converged(exact)
    variance = fit.bound.prior.kernel.variance.unconstrained_variable
    with np.errstate(all="ignore"):
        value, _ = fit.value_and_gradients(exact, sites, at={id(variance): np.array(np.nan)})
    assert np.isnan(value)
