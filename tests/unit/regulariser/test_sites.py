"""Gaussian observations in place of a likelihood: against GPflow's SVGP, of the same optimum."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods
from gpflow.kernels import SquaredExponential
from scipy import optimize, stats

from gpflow_gvi.gaussian_process import GaussianProcess
from gpflow_gvi.regulariser import site_fit
from gpflow_gvi.regulariser import sites as module_of_sites
from gpflow_gvi.regulariser.evidence import DataEvidence
from gpflow_gvi.regulariser.expectations import NUM_SAMPLES, expected_log_density
from gpflow_gvi.regulariser.fit import fit_regulariser
from gpflow_gvi.regulariser.inducing_points import uniform
from gpflow_gvi.regulariser.leave_one_out import leave_one_out
from gpflow_gvi.regulariser.site_fit import sites_of
from gpflow_gvi.regulariser.sites import (
    TOLERANCE,
    Sites,
    converged,
    covariances,
    first_sites,
    left_out,
    rows_of,
    step,
)
from tests.tolerances import ITERATIVE, assert_close, assert_estimates

N, M = 60, 6


def _x():
    return np.linspace(-3.0, 3.0, N)[:, None]


def _observations(name):
    """A likelihood, and observations under it of a smooth function."""
    rng = np.random.default_rng(20261122)
    X = _x()
    f = 2.0 * np.sin(2.0 * X)
    noisy = f + 0.5 * rng.normal(size=X.shape)
    return {
        "bernoulli": lambda: (likelihoods.Bernoulli(), np.where(noisy > 0.0, 1.0, 0.0)),
        "logistic": lambda: (
            likelihoods.Bernoulli(invlink=tf.sigmoid),
            np.where(noisy > 0.0, 1.0, 0.0),
        ),
        "poisson": lambda: (likelihoods.Poisson(), rng.poisson(np.exp(f)).astype(float)),
        "exponential": lambda: (likelihoods.Exponential(), rng.exponential(np.exp(f))),
        "gamma": lambda: (likelihoods.Gamma(), rng.gamma(2.0, np.exp(f))),
        "beta": lambda: (likelihoods.Beta(), rng.beta(2.0, 3.0, size=f.shape)),
        "student": lambda: (likelihoods.StudentT(0.5), f + 0.5 * rng.standard_t(3, size=f.shape)),
    }[name]()


def _prior(J=1):
    kernel = SquaredExponential(variance=2.0, lengthscales=0.8)
    return GaussianProcess(gpflow.functions.Zero(J), kernel)


def _bound(likelihood, data, sites, Z, prior):
    rows = rows_of(covariances(prior.kernel, Z, data[0]), *data, tf.zeros([N, 1], tf.float64))
    return float(step([rows], likelihood, sites).bound)


def _train(svgp, data):
    closure = svgp.training_loss_closure(data, compile=False)
    loss = tf.function(closure, autograph=False)  # whose conversion takes seconds
    options = {"maxiter": 10_000, "maxfun": 10_000, "ftol": 1e-15, "gtol": 1e-8}
    gpflow.optimizers.Scipy().minimize(loss, svgp.trainable_variables, options=options)


@pytest.fixture
def to_the_end(monkeypatch):
    """Sites are updated, and hyper-parameters fitted, until the bound gains nothing.

    And with little jitter: that of SVGP is absolute, and that of sites relative to the kernel.
    """
    monkeypatch.setattr(module_of_sites, "TOLERANCE", 1e-12)
    monkeypatch.setattr(site_fit, "TOLERANCE", 1e-8)
    monkeypatch.setattr(module_of_sites, "MAX_UPDATES", 500)
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-10)):
        yield


def slowly(*names):
    """Cases that are slow and differ little from the others."""
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["bernoulli", "beta", "student", *slowly("logistic", "poisson", "exponential", "gamma")],
)
@pytest.mark.usefixtures("to_the_end")
def test_sites_reach_the_bound_that_svgp_is_trained_to(name):
    likelihood, Y = _observations(name)
    prior, Z = _prior(), _x()[:: N // M]
    sites = sites_of(likelihood, prior, Z, (_x(), Y))
    bound = _bound(likelihood, (_x(), Y), sites, Z, prior)
    svgp = gpflow.models.SVGP(prior.kernel, likelihood, Z)
    gpflow.set_trainable(svgp.kernel, False)
    gpflow.set_trainable(svgp.inducing_variable, False)
    gpflow.set_trainable(svgp.likelihood, False)
    _train(svgp, (_x(), Y))
    expected = float(svgp.elbo((_x(), Y)))
    if name == "student":  # a density that is not log-concave asks for negative precision
        assert expected - 1e-3 * N < bound < expected
        return
    assert_close(bound, expected, ITERATIVE)
    posterior = DataEvidence().posterior(prior, sites.variance, (Z, None), (_x(), sites.Y))
    for found, by_svgp in zip(posterior.predict(_x()), svgp.predict_f(_x()), strict=True):
        assert_close(found, by_svgp, ITERATIVE)


@pytest.mark.usefixtures("to_the_end")
def test_under_gaussian_noise_sites_are_the_observations_and_their_noise():
    rng = np.random.default_rng(1)
    Y = np.sin(_x()) + 0.3 * rng.normal(size=(N, 1))
    Z = _x()[:: N // M]
    sites = sites_of(likelihoods.Gaussian(0.09), _prior(), Z, (_x(), Y))
    assert_close(sites.Y, Y)
    assert_close(sites.variance, np.full((N, 1), 0.09))
    sgpr = gpflow.models.SGPR((_x(), Y), _prior().kernel, Z, noise_variance=0.09)
    bound = _bound(likelihoods.Gaussian(0.09), (_x(), Y), sites, Z, _prior())
    assert_close(bound, float(sgpr.elbo()), ITERATIVE)


def _left_out_poisson():
    """P, Poisson counts, their sites, and mean and variance of f given all other sites."""
    likelihood, Y = _observations("poisson")
    prior, Z = _prior(), _x()[::3]
    sites = sites_of(likelihood, prior, Z, (_x(), Y))
    loo = left_out(leave_one_out(prior, sites.variance, Z, (_x(), sites.Y)), sites)
    return prior, (likelihood, Y), sites, loo


def _given(prior, sites, others, n):
    """Mean and variance of f at a row, given the sites of others."""
    Y, variance = sites
    posterior = DataEvidence().posterior(prior, variance, (_x()[::3], None), (_x()[others], Y))
    return (part.numpy().item() for part in posterior.predict(_x()[n : n + 1]))


def test_predictions_left_out_are_those_given_the_other_sites():
    prior, _, sites, loo = _left_out_poisson()
    for n in (0, 17, 40, N - 1):
        others = np.delete(np.arange(N), n)
        mean, variance = _given(prior, (part.numpy()[others] for part in sites), others, n)
        assert_close(loo[0][n].numpy().item(), mean, ITERATIVE)  # little jitter: K_ZZ is singular
        assert_close(loo[1][n].numpy().item(), variance, ITERATIVE)


@pytest.mark.usefixtures("to_the_end")
def test_predictions_left_out_are_those_of_a_fit_to_the_other_rows():
    """But for what the other sites would be without the row: it matters less than its own site."""
    prior, (likelihood, Y), sites, loo = _left_out_poisson()
    rows = 0, 17, 40, N - 1
    refitted, kept = [], []
    for n in rows:
        others = np.delete(np.arange(N), n)
        refit = sites_of(likelihood, prior, _x()[::3], (_x()[others], Y[others]))
        refitted.append(tuple(_given(prior, refit, others, n)))
        kept.append(tuple(_given(prior, sites, np.arange(N), n)))
    for found, kept_in, expected in zip(
        loo, np.transpose(kept), np.transpose(refitted), strict=True
    ):
        error = np.abs(found.numpy()[list(rows), 0] - expected)
        assert np.sum(error) < 0.5 * np.sum(np.abs(kept_in - expected))


@pytest.mark.usefixtures("to_the_end")
def test_two_classes_by_softmax_are_those_of_a_logistic_function():
    """p(y = 1) = 1 / (1 + exp(f_0 - f_1)), and f_1 - f_0 has twice the variance of each.

    They are a little apart, as the posterior of f_0 and f_1 is taken for independent.
    """
    labels = _observations("bernoulli")[1].astype(int)
    prior, Z = _prior(2), _x()[::5]
    sites = sites_of(likelihoods.Softmax(2), prior, Z, (_x(), labels))
    posterior = DataEvidence().posterior(prior, sites.variance, (Z, None), (_x(), sites.Y))
    mean = posterior.mean(_x())
    assert_close(mean[:, 0], -mean[:, 1], ITERATIVE)
    doubled = SquaredExponential(variance=4.0, lengthscales=0.8)
    one = GaussianProcess(gpflow.functions.Zero(1), doubled)
    logistic = likelihoods.Bernoulli(invlink=tf.sigmoid)
    of_one = sites_of(logistic, one, Z, (_x(), labels.astype(float)))
    expected = DataEvidence().posterior(one, of_one.variance, (Z, None), (_x(), of_one.Y))
    of_one, variance = (part.numpy()[:, 0] for part in expected.predict(_x()))
    assert np.all(np.abs(mean[:, 1] - mean[:, 0] - of_one) < 0.2 * np.sqrt(variance))


def test_expected_log_density_of_softmax_is_that_of_many_samples(rng):
    likelihood = likelihoods.Softmax(3)
    mean, variance = rng.normal(size=(4, 3)), rng.uniform(0.1, 2.0, size=(4, 3))
    Y = np.array([[0], [1], [2], [1]])
    ours = expected_log_density(
        likelihood, np.zeros((4, 1)), *map(tf.constant, (mean, variance)), Y
    )
    f = mean + np.sqrt(variance) * rng.normal(size=(200_000, 4, 3))
    logs = f - np.log(np.sum(np.exp(f), axis=-1, keepdims=True))
    expected = np.mean(logs[:, np.arange(4), Y[:, 0]], axis=0)
    error = np.std(logs[:, np.arange(4), Y[:, 0]], axis=0)
    assert_estimates(ours, expected, error / np.sqrt(NUM_SAMPLES))


@pytest.mark.parametrize("name", ["poisson", *slowly("logistic", "gamma")])
@pytest.mark.usefixtures("to_the_end")
def test_hyper_parameters_have_the_bound_of_an_svgp_trained_with_them(name):
    likelihood, Y = _observations(name)
    found = fit_regulariser(
        (_x(), Y),
        _prior().kernel,
        M,
        likelihood=likelihood,
        evidence=DataEvidence(),
        select=uniform,
        max_rounds=1,
    )
    svgp = gpflow.models.SVGP(_prior().kernel, likelihood, found.inducing_points)
    gpflow.set_trainable(svgp.inducing_variable, False)
    _train(svgp, (_x(), Y))
    assert_close(found.log_evidence, float(svgp.elbo((_x(), Y))), ITERATIVE)


@pytest.mark.usefixtures("to_the_end")
def test_a_single_row_has_the_gaussian_approximation_of_least_divergence():
    """Of one Poisson count, by a search over mean and variance with SciPy."""
    likelihood, Y = likelihoods.Poisson(), np.array([[3.0]])
    X, variance = np.zeros((1, 1)), 2.0
    prior = _prior()
    sites = sites_of(likelihood, prior, X, (X, Y))
    posterior = DataEvidence().posterior(prior, sites.variance, (X, None), (X, sites.Y))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)

    def divergence(parameters):
        mean, log_sd = parameters
        f = mean + np.exp(log_sd) * nodes
        logs = stats.poisson.logpmf(3, np.exp(f)) + stats.norm.logpdf(f, 0.0, np.sqrt(variance))
        return -log_sd - np.sum(weights * logs) / np.sum(weights)

    best = optimize.minimize(divergence, [0.0, 0.0], tol=1e-10).x
    assert_close(posterior.mean(X).numpy().item(), best[0], ITERATIVE)
    assert_close(posterior.variance(X).numpy().item(), np.exp(2.0 * best[1]), ITERATIVE)


@pytest.mark.usefixtures("to_the_end")
def test_a_step_that_is_too_long_is_shortened():
    """From sites far from the optimum the bound still only rises."""
    likelihood, Y = _observations("poisson")
    prior, Z = _prior(), _x()[::5]
    bounds = []

    def take_step(sites):
        rows = rows_of(covariances(prior.kernel, Z, _x()), _x(), Y, tf.zeros([N, 1], tf.float64))
        result = step([rows], likelihood, sites)
        bounds.append(float(result.bound))
        return result

    start = first_sites(tf.zeros([N, 1], tf.float64))
    far = start._replace(Y=start.Y + 5.0, variance=tf.fill([N, 1], tf.constant(0.1, tf.float64)))
    _, bound = converged(take_step, far)
    assert bound == max(bounds)
    best = sites_of(likelihood, prior, Z, (_x(), Y))
    assert_close(bound, _bound(likelihood, (_x(), Y), best, Z, prior), ITERATIVE)


def test_extrapolated_updates_of_a_softmax_arrive_where_plain_ones_do_and_earlier(rng):
    X = rng.normal(size=(60, 2))
    Y = np.argmax(X @ rng.normal(size=(2, 3)) + rng.gumbel(size=(60, 3)), axis=1)[:, None]
    at = covariances(SquaredExponential(5.0, 1.5), X[:30], X)
    rows = rows_of(at, X, Y, tf.zeros([60, 3], tf.float64))
    bounds = []

    def take_step(sites):
        result = step([rows], likelihoods.Softmax(3), sites)
        bounds.append(float(result.bound))
        return result

    _, bound = converged(take_step, first_sites(rows.m))
    count, sites, rate = len(bounds), first_sites(rows.m), 0.3
    for _ in range(100):  # short steps in natural parameters
        updated = take_step(sites).updated
        precision = (1.0 - rate) / sites.variance + rate / updated.variance
        linear = (1.0 - rate) * sites.Y / sites.variance + rate * updated.Y / updated.variance
        sites = Sites(linear / precision, 1.0 / precision)
    assert_close(bound, bounds[-1], ITERATIVE)
    reached = np.flatnonzero(np.array(bounds[count:]) > bound - TOLERANCE * 60)
    assert count < reached[0]


@pytest.mark.parametrize("name", ["bernoulli", "gamma"])
def test_rows_in_blocks_have_the_sites_of_all_at_once(name, monkeypatch):
    likelihood, Y = _observations(name)
    prior, Z = _prior(), _x()[::5]
    expected = sites_of(likelihood, prior, Z, (_x(), Y))
    monkeypatch.setattr(site_fit, "MAX_ROWS_AT_ONCE", 7)
    found = sites_of(likelihood, prior, Z, (_x(), Y))
    assert_close(found.Y, expected.Y)
    assert_close(found.variance, expected.variance)


@pytest.mark.slow
@pytest.mark.usefixtures("to_the_end")
def test_a_prior_of_large_variance_has_the_same_optimum_as_svgp():
    """Far from zero the probit's logarithm is cut off: a start there would find no slope."""
    likelihood, Y = likelihoods.Bernoulli(), np.where(_x() > 0.0, 1.0, 0.0)
    kernel = SquaredExponential(variance=350.0, lengthscales=1.5)
    prior, Z = GaussianProcess(gpflow.functions.Zero(1), kernel), _x()[::15]
    sites = sites_of(likelihood, prior, Z, (_x(), Y))
    svgp = gpflow.models.SVGP(kernel, likelihood, Z, q_sqrt=0.05 * np.eye(len(Z))[None])
    gpflow.set_trainable(svgp.kernel, False)
    gpflow.set_trainable(svgp.inducing_variable, False)
    _train(svgp, (_x(), Y))
    bound = _bound(likelihood, (_x(), Y), sites, Z, prior)
    assert_close(bound, float(svgp.elbo((_x(), Y))), ITERATIVE)
