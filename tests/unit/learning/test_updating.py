"""More rows, without the old ones: against a fit to all of them at once."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from scipy import stats

import gpflow_gvi as gvi
from gpflow_gvi._core import outputs
from gpflow_gvi.regulariser.evidence import DataEvidence
from gpflow_gvi.regulariser.site_fit import sites_of
from tests.tolerances import STANDARD_ERRORS, assert_close, assert_estimates

RNG = np.random.default_rng(20261122)
X = RNG.uniform(-3.0, 3.0, size=(90, 1))
F = 2.0 * np.sin(2.0 * X)
REAL = 50.0 + 10.0 * (F + 0.3 * RNG.normal(size=F.shape))
COUNTS = RNG.poisson(np.exp(F)).astype(float)
AT = np.linspace(-2.5, 2.5, 9)[:, None]
OLD, NEW = slice(60), slice(60, None)


def _learn(Y, likelihood=None, rows=OLD):
    kernel = gpflow.kernels.Matern52()
    return gvi.learn((X[rows], Y[rows]), kernel=kernel, likelihood=likelihood, num_inducing=15)


@pytest.fixture(scope="module")
def learned():
    return _learn(REAL)


def _of_all_rows(learned, Y):
    """The sparse posterior of all rows, by Titsias, at the same points and hyper-parameters."""
    P, Z = learned.regulariser, learned.regulariser.inducing_points
    rows = learned.inputs.standard(X), learned.outputs.standard(Y)
    if isinstance(P.likelihood, gpflow.likelihoods.Gaussian):
        noise = outputs.noise_variance_at(P.likelihood, rows[0], 1)
        return DataEvidence().posterior(P.prior, noise, (Z, None), rows)
    sites = sites_of(P.likelihood, P.prior, Z, rows)
    return DataEvidence().posterior(P.prior, sites.variance, (Z, None), (rows[0], sites.Y))


def test_under_gaussian_noise_it_is_the_posterior_of_all_rows(learned):
    expected = _of_all_rows(learned, REAL).predict(learned.inputs.standard(AT))
    at_once = learned.update(X[NEW], REAL[NEW], num_inducing=0)
    one_by_one = learned
    for rows in (slice(60, 61), slice(61, 75), slice(75, None)):
        one_by_one = one_by_one.update(X[rows], REAL[rows, 0], num_inducing=0)
    factor = learned.model.variational.kernel.factor  # all else is that of the regulariser
    for updated in (at_once, one_by_one):
        mean, variance = updated.model.predict_f(learned.inputs.standard(AT))
        assert_close(mean, expected[0])
        assert_close(variance, factor * expected[1])
        posterior = updated.regulariser.posterior.predict(learned.inputs.standard(AT))
        assert_close(posterior, expected)
        assert int(updated.model.num_data) == 90
    before = learned.model.predict_f(learned.inputs.standard(AT))[0]
    assert np.max(np.abs(before - expected[0])) > 1e-3  # the new rows say something


@pytest.mark.slow
def test_of_counts_it_is_near_to_the_posterior_of_all_rows():
    learned = _learn(COUNTS, gpflow.likelihoods.Poisson())
    at = learned.inputs.standard(AT)
    mean, variance = _of_all_rows(learned, COUNTS).predict(at)
    updated = learned.update(X[NEW], COUNTS[NEW], num_inducing=0).regulariser.posterior
    before, of_old = learned.regulariser.posterior.predict(at)
    error = np.abs(updated.mean(at) - mean) / np.sqrt(variance)
    assert np.max(error) < 0.3
    assert np.max(error) < 0.5 * np.max(np.abs(before - mean) / np.sqrt(variance))
    ratios = [np.abs(np.log(v / variance)) for v in (updated.variance(at), of_old)]
    assert np.max(ratios[0]) < 0.5 * np.max(ratios[1])


def test_far_from_the_old_rows_points_are_added(learned):
    far = np.linspace(5.0, 7.0, 30)[:, None]
    Y = 50.0 + 20.0 * np.sin(2.0 * far)
    without = learned.update(far, Y, num_inducing=0)
    updated = learned.update(far, Y)
    M = len(learned.regulariser.inducing_points)
    assert M < len(updated.regulariser.inducing_points) <= M + 20
    residual = [np.abs(each.predict_f(far)[0] - Y).mean() for each in (updated, without)]
    assert residual[0] < 2.0 < residual[1]
    mean, variance = learned.predict_f(AT)  # what is far says nothing here
    assert np.all(np.abs(updated.predict_f(AT)[0] - mean) < 0.5 * np.sqrt(variance))
    lower, upper = updated.predict_interval(far, 0.99)
    covered = np.mean((lower <= Y) & (upper >= Y))
    assert covered > 0.99 - STANDARD_ERRORS * np.sqrt(0.99 * 0.01 / 30)


def test_it_can_be_saved_and_the_first_is_as_it_was(learned, tmp_path):
    learned.predict_y(AT)
    before = learned.predict_y(AT)  # a graph, from the second call on
    updated = learned.update(X[NEW], REAL[NEW])
    np.testing.assert_array_equal(learned.predict_y(AT), before)
    updated.save(tmp_path / "model")
    assert_close(gvi.load(tmp_path / "model").predict_y(AT), updated.predict_y(AT))


def test_what_does_not_fit_is_refused(learned):
    with pytest.raises(ValueError, match="pass the same columns"):
        learned.update(np.ones((3, 2)), np.ones((3, 1)))
    with pytest.raises(ValueError, match="pass the same columns"):
        learned.update(np.ones((3, 1)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="3 rows and Y has 2"):
        learned.update(np.ones((3, 1)), np.ones((2, 1)))
    with pytest.raises(ValueError, match="num_inducing is -1"):
        learned.update(X[NEW], REAL[NEW], num_inducing=-1)


def test_where_to_look_next(learned):
    """In original units, as from mean and variance; information has none."""
    candidates = np.linspace(-4.0, 4.0, 17)[:, None]
    mean, variance = (np.asarray(part)[:, 0] for part in learned.predict_f(candidates))
    assert_close(learned.acquire(candidates, "variance"), variance)
    noise = np.asarray(learned.predict_y(candidates)[1])[:, 0] - variance
    expected = 0.5 * np.log1p(variance / noise)
    assert_close(learned.acquire(candidates, "bald"), expected)
    bound = learned.acquire(candidates, "upper_confidence_bound", beta=1.5)
    assert_close(bound, 1.5 * np.sqrt(variance) - mean)
    best = 45.0
    found = learned.acquire(candidates, "expected_improvement", best=best)
    draws = stats.norm.rvs(mean, np.sqrt(variance), (200_000, 17), random_state=0)
    gains = np.maximum(best - draws, 0.0)
    error = gains.std(axis=0) / np.sqrt(len(gains))
    error += np.sqrt(variance) / len(gains)  # one draw more or less, where hardly any gains
    assert_estimates(found, gains.mean(axis=0), error)
    where = candidates[np.argmax(learned.acquire(candidates, "expected_improvement")), 0]
    truth = candidates[np.argmin(2.0 * np.sin(2.0 * candidates)), 0]
    assert abs(where - truth) < 1.0 or abs(where) > 3.0  # at a minimum, or outside
