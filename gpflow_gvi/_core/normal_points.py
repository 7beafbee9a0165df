"""Points of the standard normal distribution for expectations without a rule of quadrature."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy.stats import qmc


@functools.lru_cache(maxsize=16)
def normal_points(num_points: int, J: int, dtype: Any) -> AnyNDArray:
    """Return quasi-random points, [S, J], with mean zero and, where S ≥ 2 J, covariance I.

    Their first moments are those of the distribution, so that expectations of quadratic functions,
    and derivatives by a small variance, are exact.

    :param num_points: S; an odd number is rounded up.
    :param J: the dimension.
    :param dtype: the type of a number.
    """
    sampler = qmc.MultivariateNormalQMC(np.zeros(J), seed=np.random.default_rng(0))
    half = sampler.random((num_points + 1) // 2)
    points = np.concatenate([half, -half])
    if len(half) >= J:  # fewer do not span all directions
        factor = np.linalg.cholesky(points.T @ points / len(points))
        points = np.linalg.solve(factor, points.T).T
    points = np.asarray(points, dtype=dtype)
    points.flags.writeable = False  # the next caller has the same ones
    return points
