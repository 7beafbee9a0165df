"""Fitting by sites, with a Gaussian likelihood: there the bound with Z = X is GPR's evidence."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from gpflow.functions import Zero

import gpflow_gvi as gvi
from gpflow_gvi.regulariser.site_fit import TOLERANCE, Rows, SiteFit
from gpflow_gvi.regulariser.sites import first_sites


@pytest.fixture(name="rows")
def _rows(rng) -> Rows:
    X = np.linspace(-2.0, 2.0, 15)[:, None]
    return Rows(X, np.sin(2.0 * X) + 0.3 * rng.normal(size=X.shape), np.zeros((15, 0, 1)))


def a_fit() -> SiteFit:
    prior = gvi.GaussianProcess(Zero(), gpflow.kernels.Matern32(lengthscales=0.1))
    return SiteFit(prior, gpflow.likelihoods.Gaussian(0.2))


def test_sites_of_gaussian_observations_are_the_observations(rows):
    sites = a_fit().sites(rows.X[::3], rows, first_sites(np.zeros_like(rows.Y)))
    np.testing.assert_allclose(sites.Y, rows.Y, atol=1e-9)
    np.testing.assert_allclose(sites.variance, np.full(rows.Y.shape, 0.2), rtol=1e-9)


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
        fit.prior.kernel.lengthscales.assign(lengthscale)
        calls.append(float(loss()))

    evidences = list(map(evidence, lengthscales))
    assert np.all(np.diff([evidence(0.1), *evidences]) > TOLERANCE * 15)
    minus_bound, _ = fit.fit(
        minimise, rows.X, rows, first_sites(np.zeros_like(rows.Y)), means=False
    )
    assert len(calls) == 4  # three that gain, and the one that does not
    np.testing.assert_allclose(calls, [-each for each in (*evidences, evidences[-1])], atol=1e-3)
    np.testing.assert_allclose(minus_bound, -evidences[-1], atol=1e-3)
