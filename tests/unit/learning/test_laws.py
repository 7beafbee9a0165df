"""Laws of y: scores and quantiles of Gaussians, Student's t, log scales and their mixtures."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

import gpflow_gvi as gvi
from gpflow_gvi.learning.predictions import Law
from gpflow_gvi.learning.rows.log_scale import LogScale
from gpflow_gvi.learning.rows.scaling import Scaling
from tests.tolerances import ITERATIVE, assert_close

LINEAR = Scaling(np.array([2.0]), np.array([3.0]))
LOGS = LogScale(np.array([5.0]), Scaling(np.array([-1.0]), np.array([0.7])), np.array([2.0]))
LAWS = {
    "normal": Law([(stats.norm(np.array([[0.3], [-1.0]]), 0.5), LINEAR)]),
    "t": Law([(stats.t(3.0, np.array([[0.3], [-1.0]]), 0.5), LINEAR)]),
    "logs": Law([(stats.norm(np.array([[0.3], [-1.0]]), 0.5), LOGS)]),
}
LAWS["mixture"] = Law([part for law in LAWS.values() for part in law.parts], (0.5, 0.2, 0.3))
Y = np.array([[2.5], [4.0]])


@pytest.mark.parametrize("name", LAWS)
def test_the_score_is_its_integral(name):
    law = LAWS[name]
    expected = []
    for n in range(2):

        def cdf(z, n=n):
            return law.cdf(np.array([[z], [z]]))[n, 0]

        y = Y[n, 0]
        low, high = law.quantile(1e-9)[n, 0], law.quantile(1.0 - 1e-9)[n, 0]
        below, _ = integrate.quad(lambda z, F=cdf: F(z) ** 2, min(low, y), y, limit=500)
        above, _ = integrate.quad(lambda z, F=cdf: (1.0 - F(z)) ** 2, y, max(high, y), limit=500)
        expected.append([below + above])
    np.testing.assert_allclose(law.crps(Y), expected, rtol=2e-3)


@pytest.mark.parametrize("name", LAWS)
def test_a_vector_is_a_column(name):
    law = LAWS[name]
    assert_close(law.cdf(Y[:, 0]), law.cdf(Y))
    assert_close(law.crps(Y[:, 0]), law.crps(Y))
    assert_close(law.cdf(np.stack([Y, Y + 1.0]))[1], law.cdf(Y + 1.0))
    assert_close(law.cdf(2.5)[0], law.cdf(Y)[0])


@pytest.mark.parametrize("shape", [(1,), (3,), (1, 2), (2, 2), (3, 1, 1)])
def test_values_of_another_shape_are_refused(shape):
    for ask in (LAWS["normal"].cdf, LAWS["mixture"].crps):
        with pytest.raises(ValueError, match=r"Y has shape \(.*2 rows and 1 outputs. .*\(2, 1\)"):
            ask(np.ones(shape))
    with pytest.raises(ValueError, match=r"Y has shape \(4, 2, 1\)"):
        LAWS["t"].crps(np.ones((4, 2, 1)))
    two = Law([(stats.norm(np.zeros((2, 2)), 1.0), LINEAR)])
    with pytest.raises(ValueError, match=r"Y has shape \(2,\).* 2 outputs. .*\(2, 2\)"):
        two.cdf(np.ones(2))


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("level", [0.001, 0.3, 0.975])
def test_quantiles_invert_the_distribution_function(name, level):
    law = LAWS[name]
    assert_close(law.cdf(law.quantile(level)), level, ITERATIVE)


@pytest.mark.parametrize("level", [95, 0.0, 1.0, np.nan, "0.5", None, [0.1, 0.9]])
def test_a_level_is_one_number_between_0_and_1(level):
    with pytest.raises(ValueError, match=r"level is .*; it must lie between 0 and 1"):
        LAWS["normal"].quantile(level)


@pytest.mark.slow
def test_metrics_are_those_of_the_law(rng):
    X = rng.uniform(-2.0, 2.0, size=(200, 1))
    y = np.exp(X + 0.5 * rng.normal(size=X.shape))
    learned = gvi.learn((X[:120], y[:120]))
    found = gvi.metrics.evaluate(learned, (X[120:], y[120:]), coverage_level=0.9)
    lower, upper = (np.asarray(end) for end in learned.predict_interval(X[120:], 0.9))
    assert_close(found["coverage"], np.mean((lower <= y[120:]) & (upper >= y[120:])))
    assert_close(found["width"], np.mean(upper - lower))
    samples = np.sort(learned.predict_y_samples(X[120:], 2000, seed=0)[..., 0], axis=0)  # [S, N]
    to_y = np.mean(np.abs(samples - y[120:, 0]), axis=0)
    order = 2.0 * np.arange(1, 2001)[:, None] - 2001.0
    between = np.sum(order * samples, axis=0) * 2.0 / (2000 * 1999)
    np.testing.assert_allclose(found["crps"], np.mean(to_y - 0.5 * between), rtol=0.02)
    pit = learned.pit(X[120:], y[120:])
    levels = np.array(gvi.metrics.regression.LEVELS)
    observed = np.mean(np.abs(2.0 * pit - 1.0).ravel() <= levels[:, None], axis=1)
    assert_close(found["calibration_error"], np.mean(np.abs(observed - levels)))


@pytest.mark.slow
def test_counts_have_quantiles_alone(rng):
    import gpflow

    X = rng.uniform(-1.0, 1.0, size=(30, 1))
    Y = rng.poisson(np.exp(X)).astype(float)
    learned = gvi.learn((X, Y), likelihood=gpflow.likelihoods.Poisson())
    with pytest.raises(ValueError, match=r"predict_law.*Poisson.*predict_interval"):
        learned.predict_law(X)
