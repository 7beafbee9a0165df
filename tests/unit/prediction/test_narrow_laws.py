"""Quantiles under likelihoods that are narrow beside the law of f: by adaptive quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from gpflow import likelihoods
from scipy import integrate, optimize, stats

from gpflow_gvi.prediction.predictive_law import predictive_law
from tests.tolerances import ITERATIVE, assert_close

LEVELS = np.array([0.025, 0.3, 0.5, 0.9, 0.975])
NARROW = {
    "gamma": (
        likelihoods.Gamma(shape=1e4),
        lambda y, f: stats.gamma.cdf(y, 1e4, scale=np.exp(f)),
        (1e2, 1e6),
    ),
    "student": (
        likelihoods.StudentT(0.01),
        lambda y, f: stats.t.cdf((y - f) / 0.01, 3),
        (-9.0, 9.0),
    ),
    "student of hardly any noise": (
        likelihoods.StudentT(1e-5),
        lambda y, f: stats.t.cdf((y - f) / 1e-5, 3),
        (-9.0, 9.0),
    ),
    "beta": (
        likelihoods.Beta(scale=1e5),
        lambda y, f: stats.beta.cdf(y, *(1e5 * _probit(sign * f) for sign in (1.0, -1.0))),
        (0.002, 0.998),
    ),
}


def _probit(f):
    """GPflow's inverse probit keeps a thousandth away from 0 and 1."""
    return 0.001 + 0.998 * stats.norm.cdf(f)


def mixture(cdf, y, m, s):
    """E[p(y ≤ t | f)], with panels that get small towards the place where it falls."""
    centre = optimize.brentq(lambda z: cdf(y, m + s * z) - 0.5, -12.0, 12.0)
    near = np.append(0.0, 10.0 ** np.arange(-6.0, 1.0))
    ends = np.unique(np.clip(centre + np.concatenate([-near, near]), -9.0, 9.0))
    return sum(
        integrate.quad(lambda z: cdf(y, m + s * z) * stats.norm.pdf(z), *panel, epsabs=1e-13)[0]
        for panel in zip([-9.0, *ends], [*ends, 9.0], strict=True)
        if panel[0] < panel[1]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", NARROW)
def test_quantiles_have_their_level(name):
    likelihood, cdf, bounds = NARROW[name]
    m, s = 0.3, 0.9
    ones = np.ones((len(LEVELS), 1))
    law = predictive_law(likelihood, ones, m * ones, s**2 * ones)
    found = law.quantile(LEVELS[:, None]).numpy()[:, 0]
    assert np.all((found > bounds[0]) & (found < bounds[1]))
    reached = [mixture(cdf, y, m, s) for y in found]
    assert_close(reached, LEVELS, ITERATIVE, scale=LEVELS)


@pytest.mark.parametrize("s", [0.05, 0.3, 1.0])
def test_quantiles_of_thousands_of_counts_are_the_first_that_have_their_level(s):
    ones = np.ones((len(LEVELS), 1))
    m = np.log(3000.0)
    law = predictive_law(likelihoods.Poisson(), ones, m * ones, s**2 * ones)
    found = law.quantile(LEVELS[:, None]).numpy()[:, 0]
    z = np.linspace(-9.0, 9.0, 20_001)
    weights = stats.norm.pdf(z) / np.sum(stats.norm.pdf(z))
    for y, level in zip(found, LEVELS, strict=True):
        upto, below = (weights @ stats.poisson.cdf(y - k, np.exp(m + s * z)) for k in (0, 1))
        slack = ITERATIVE.float64 * level
        assert below < level + slack
        assert upto > level - slack


def test_a_law_that_is_no_step_of_f_is_as_before():
    """With y ~ Poisson(f²) the probability rises and falls again."""
    likelihood = likelihoods.Poisson(invlink=np.square)
    law = predictive_law(likelihood, np.ones((1, 1)), np.zeros((1, 1)), np.ones((1, 1)))
    z = np.linspace(-9.0, 9.0, 20_001)
    weights = stats.norm.pdf(z) / np.sum(stats.norm.pdf(z))
    for y in (0.0, 2.0, 6.0):
        expected = weights @ stats.poisson.cdf(y, np.square(z))
        assert_close(law.cdf(np.array([[y]]))[0, 0], expected, ITERATIVE)
