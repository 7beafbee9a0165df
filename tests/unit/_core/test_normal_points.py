"""Points in place of the standard normal distribution."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from gpflow_gvi._core.normal_points import normal_points


@pytest.mark.parametrize(("S", "J"), [(64, 3), (63, 3), (64, 32)])
def test_first_moments_are_those_of_the_distribution(S, J):
    points = normal_points(S, J, float)
    assert points.shape == (64, J)
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(points.T @ points / 64, np.eye(J), atol=1e-8)


def test_fewer_points_than_dimensions_have_marginals_of_the_distribution():
    points = normal_points(64, 40, np.float32)
    assert points.dtype == np.float32
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=1e-6)
    assert scipy.stats.kstest(points.ravel(), "norm").statistic < 0.02
