"""The curvature of likelihoods, by which rows say where a network is to be trusted."""

from __future__ import annotations

from functools import singledispatch

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood


@singledispatch
def inverse_curvature(likelihood: Likelihood) -> AnyNDArray:
    """Return 1/W, [1] for all classes: the smallest under a softmax (Böhning 1992).

    For numbers it is the noise variance of each column: [J].
    """
    return np.full(1, 2.0, default_float())


@inverse_curvature.register
def _(likelihood: Bernoulli) -> AnyNDArray:
    return np.full(1, 4.0, default_float())


@inverse_curvature.register
def _(likelihood: Gaussian) -> AnyNDArray:
    return np.asarray(likelihood.variance)
