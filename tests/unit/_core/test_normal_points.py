"""Points in place of the standard normal distribution."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from gpflow_gvi._core.normal_points import normal_points
from tests.tolerances import P_VALUE, assert_close


@pytest.mark.parametrize(("S", "J"), [(64, 3), (63, 3), (64, 32)])
def test_first_moments_are_those_of_the_distribution(S, J):
    points = normal_points(S, J, float)
    assert points.shape == (64, J)
    assert_close(points.mean(axis=0), 0.0, scale=1.0)
    assert_close(points.T @ points / 64, np.eye(J))


def test_fewer_points_than_dimensions_have_marginals_of_the_distribution():
    points = normal_points(64, 40, np.float32)
    assert points.dtype == np.float32
    assert_close(points.mean(axis=0), 0.0, scale=1.0)
    assert scipy.stats.kstest(points.ravel(), "norm").pvalue > P_VALUE
