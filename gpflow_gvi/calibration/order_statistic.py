"""The quantile of calibration scores that split conformal prediction takes."""

from __future__ import annotations

import math

import numpy as np
from gpflow.base import AnyNDArray


def order_statistic(scores: AnyNDArray, coverage: float) -> AnyNDArray:
    """Return the ⌈(n+1)·coverage⌉-th smallest score of each column: [J]."""
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage is {coverage}; it must lie between 0 and 1, as 0.95 does.")
    n, J = scores.shape
    # In floating point 100 * 0.55 is more than 55, and the rank would be one too high.
    rank = math.ceil((n + 1) * coverage * (1.0 - 1e-12))
    return scores[rank - 1] if rank <= n else np.full(J, np.inf, scores.dtype)
