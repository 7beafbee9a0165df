"""The process of the log variance, against other ways to its definition, and on simulated noise."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from gpflow_gvi.learning import log_process
from gpflow_gvi.learning.log_process import LogProcess, fitted_hyperparameters
from gpflow_gvi.learning.noise import MIN_RATIO, gain
from gpflow_gvi.regulariser.evidence_fit import BOUNDS_OF_EXPONENT
from gpflow_gvi.saving import load, save
from tests.tolerances import ITERATIVE, assert_close, assert_estimates

THETA = np.log([0.8, 0.7, 2.0])


def _log_variance(X):
    return 2.0 * np.sin(1.5 * X[:, 0])


@pytest.fixture
def to_the_end(monkeypatch):
    """Fisher scoring goes on to the mode, and no variance is left by pivots."""
    monkeypatch.setattr(log_process, "TOLERANCE", 1e-10)
    monkeypatch.setattr(log_process, "MAX_STEPS", 100)
    monkeypatch.setattr(log_process, "MAX_LEFT", 1e-12)


@pytest.fixture(scope="module")
def simulated():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(400, 2))
    return X, np.exp(_log_variance(X)) * rng.normal(size=400) ** 2


def _kernel():
    s, *lengthscales = np.exp(THETA)
    return ConstantKernel(s) * RBF(lengthscales) + ConstantKernel(1.0)


@pytest.mark.usefixtures("to_the_end")
def test_it_is_the_normal_law_around_the_mode_of_the_density(simulated):
    X, errors = (part[:40] for part in simulated)
    scale = np.mean(errors)
    L = np.linalg.cholesky(_kernel()(X) + 1e-10 * np.eye(40))

    def loss(whitened):
        law = scipy.stats.gamma(0.5, scale=2.0 * np.exp(L @ whitened))
        return 0.5 * np.sum(whitened**2) - np.sum(law.logpdf(errors / scale))

    mode = L @ scipy.optimize.minimize(loss, np.zeros(40), tol=1e-9).x
    # Around the mode the density is that of a regression with noise of variance 2.
    responses = mode + errors / scale * np.exp(-mode) - 1.0
    regression = GaussianProcessRegressor(_kernel(), alpha=2.0, optimizer=None).fit(X, responses)
    rows = np.concatenate([X, X + 5.0])
    mean, deviation = regression.predict(rows, return_std=True)
    found = np.log(LogProcess(THETA).fit(X, errors).predict(rows) / scale)
    assert_close(mean[:40], mode, ITERATIVE)
    assert_close(found, mean + 0.5 * deviation**2, ITERATIVE)


def test_hyperparameters_of_errors_with_outliers_are_finite():
    rng = np.random.default_rng(159)  # the line search extrapolates far
    X = rng.uniform(-3.0, 3.0, size=(150, 1))
    outlier = rng.uniform(size=X.shape) < 0.3
    errors = np.where(outlier, rng.uniform(-3.0, 3.0, X.shape), 0.3 * rng.normal(size=X.shape))
    found = fitted_hyperparameters(X, errors**2)
    # The evidence is flat where errors have no pattern: priors hold the hyper-parameters.
    assert np.all(np.abs(found - np.log([0.5, np.std(X)])) <= 3.0 + 1e-6)


def test_hyperparameters_have_the_largest_density(simulated):
    X = simulated[0][:30]
    z = np.random.default_rng(1).normal(size=(30, 2))
    prior = THETA + 0.3
    law = scipy.stats.multivariate_normal(np.zeros(30), _kernel()(X) + 2.0 * np.eye(30))
    density = law.logpdf(z.T).sum() + scipy.stats.norm(prior, 1.0).logpdf(THETA).sum()
    constant = 0.5 * np.log(2.0 * np.pi) * len(THETA)
    value, gradient = log_process._loss(THETA, X, z, prior)
    assert_close(value, -density - constant)
    numerical = scipy.optimize.approx_fprime(
        THETA, lambda theta: log_process._loss(theta, X, z, prior)[0], 1e-6
    )
    assert_close(gradient, numerical, ITERATIVE)


def test_noise_that_varies_smoothly_is_found(simulated):
    X, errors = simulated
    rows = np.random.default_rng(2).uniform(-2.0, 2.0, size=(500, 2))
    process = LogProcess().fit(X, errors)
    assert np.std(np.log(process.predict(rows)) - _log_variance(rows)) < 0.35
    _, relevant, irrelevant = process.hyperparameters_
    assert relevant < irrelevant - 0.5


def test_constant_noise_has_hardly_a_pattern():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(400, 3))
    found = LogProcess().fit(X, 7.0 * rng.normal(size=400) ** 2).predict(X)
    assert np.std(np.log(found)) < 0.25
    assert_estimates(np.exp(np.mean(np.log(found))), 7.0, 7.0 * np.sqrt(2.0 / 400))


def test_units_do_not_matter(simulated):
    X, errors = (part[:100] for part in simulated)
    ours = LogProcess().fit(X, errors).predict(X)
    theirs = LogProcess().fit([100.0, 0.01] * X, 1e6 * errors).predict([100.0, 0.01] * X)
    assert_close(theirs, 1e6 * ours, ITERATIVE)


@pytest.mark.usefixtures("to_the_end")
def test_columns_have_processes_of_their_own(simulated):
    X, errors = (part[:100] for part in simulated)
    columns = np.stack([errors, errors[::-1]], axis=1)
    found = LogProcess(THETA).fit(X, columns).predict(X[:7])
    each = [LogProcess(THETA).fit(X, column).predict(X[:7]) for column in columns.T]
    assert_close(found, np.stack(each, axis=1), ITERATIVE)


def test_a_column_of_one_value_does_no_harm(simulated):
    X, errors = (part[:100] for part in simulated)
    with_constant = np.c_[X, np.ones(len(X))]
    assert np.all(np.isfinite(fitted_hyperparameters(with_constant, errors)))


def test_it_is_saved_without_pickle(simulated, tmp_path):
    X, errors = (part[:50] for part in simulated)
    process = LogProcess(THETA).fit(X, errors)
    save(process, tmp_path / "saved")
    loaded = load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict(X), process.predict(X))


def test_the_gain_is_that_of_the_best_normal_density(simulated):
    X, errors = simulated
    pattern = np.exp(0.5 * _log_variance(X))[:, None]
    densities = [
        scipy.stats.norm.logpdf(np.sqrt(errors), scale=np.sqrt(np.mean(errors / h) * h)).mean()
        for h in (pattern[:, 0] ** exponent for exponent in np.linspace(*BOUNDS_OF_EXPONENT, 301))
    ]
    assert pattern.min() > MIN_RATIO * pattern.mean()
    assert_close(gain(pattern, errors[:, None]), max(densities) - densities[0], ITERATIVE)
    for useless in (np.ones_like(pattern), 1.0 / pattern):
        assert_close(gain(useless, errors[:, None]), 0.0, ITERATIVE, scale=1.0)
