"""What observations each likelihood takes: what is wrong is named by row and column."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow_probability as tfp
from gpflow import likelihoods

from gpflow_gvi._core import domains
from gpflow_gvi._core.data import Data

X = np.linspace(0.0, 1.0, 4)[:, None]
SWITCHED = likelihoods.SwitchedLikelihood([likelihoods.Gaussian(), likelihoods.Poisson()])
BAD = {
    "negative count": (likelihoods.Poisson(), [0.0, 2.0, -1.0, 3.0], r"-1 in row 2, column 0.*cou"),
    "fractional count": (likelihoods.Poisson(), [0.0, 2.5, 1.0, 3.5], r"2\.5 in row 1.*1 others"),
    "no time": (likelihoods.Exponential(), [1.0, 0.0, 1.0, 1.0], "0 in row 1.*positive numbers"),
    "no amount": (likelihoods.Gamma(), [1.0, 2.0, 1.0, -3.0], "-3 in row 3.*positive numbers"),
    "percentage": (likelihoods.Beta(), [0.1, 55.0, 0.3, 0.2], "55 in row 1.*Divide percentages"),
    "all": (likelihoods.Beta(), [0.1, 1.0, 0.3, 0.2], "1 in row 1.*between 0 and 1"),
    "level": (
        likelihoods.Ordinal(np.array([0.0, 1.0])),
        [0.0, 1.0, 2.0, 3.0],
        r"3 in row 3.*levels 0, \.\.\., 2.*2 bin_edges",
    ),
    "columns": (
        likelihoods.HeteroskedasticTFPConditional(),
        np.ones((4, 2)),
        "Y has 2 columns.*one observation",
    ),
    "no switch": (SWITCHED, [0.0, 1.0, 0.0, 1.0], "Y has 1 column.*which likelihood"),
    "switch": (SWITCHED, np.c_[np.ones(4), [0, 1, 2, 0]], "Y has 2 in row 2 of its last column"),
    "switched": (SWITCHED, np.c_[[0.5, 1.0, 0.5, 0.5], [0, 1, 0, 1]], r"0\.5 in row 3.*Poisson"),
}


@pytest.mark.parametrize("case", BAD)
def test_observations_that_a_likelihood_does_not_take(case):
    likelihood, Y, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        Data.of((X, Y), likelihood)


def test_observations_that_it_takes():
    for likelihood, Y in (
        (likelihoods.Poisson(), [0, 1, 5, 10**6]),
        (likelihoods.Gamma(), [1e-9, 1.0, 2.0, 1e9]),
        (likelihoods.Beta(), [1e-9, 0.5, 0.9, 1.0 - 1e-9]),
        (likelihoods.Ordinal(np.array([0.0, 1.0])), [0, 1, 2, 0]),
        (SWITCHED, np.c_[[-0.5, 1.0, 0.5, 3.0], [0, 1, 0, 1]]),
        (likelihoods.StudentT(), [-1e9, 0.0, 0.5, 1.0]),
    ):
        np.testing.assert_array_equal(Data.of((X, Y), likelihood).Y, np.reshape(Y, (4, -1)))


def test_what_has_a_unit_can_be_given_in_another():
    """Where y = a y', and its latent functions likewise, densities differ by the factor a alone."""
    scaled = [None, likelihoods.Gaussian(), likelihoods.StudentT()]
    assert all(map(domains.has_scale, scaled))
    for likelihood in (likelihoods.Poisson(), likelihoods.Beta(), likelihoods.Bernoulli()):
        assert not domains.has_scale(likelihood)
    hetero = likelihoods.HeteroskedasticTFPConditional
    assert domains.has_scale(hetero())
    assert domains.has_scale(hetero(tfp.distributions.Laplace))
    assert not domains.has_scale(hetero(tfp.distributions.LogNormal))  # of a logarithm
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        assert domains.has_scale(hetero())
