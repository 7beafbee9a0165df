"""The quantile of calibration scores that split conformal prediction takes."""

from __future__ import annotations

import math

import numpy as np
from gpflow.base import AnyNDArray

from .._core import checks


def order_statistic(scores: AnyNDArray, coverage: float) -> AnyNDArray:
    """Return the ⌈(n+1)·coverage⌉-th smallest score of each column: [J]."""
    checks.coverage(coverage)
    n, J = scores.shape
    # In floating point 100 * 0.55 is more than 55, and the rank would be one too high.
    rank = math.ceil((n + 1) * coverage * (1.0 - 1e-12))
    return scores[rank - 1] if rank <= n else np.full(J, np.inf, scores.dtype)
