"""Small models that were not fitted, with data, for tests of what is done to a fitted model."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
from gpflow.functions import MeanFunction

import gpflow_gvi as gvi

M, N = 4, 60
Z = np.linspace(-2.0, 2.0, M)[:, None]


def data(J: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(N, 1))
    return X, np.sin(2.0 * X + np.arange(J)) + 0.4 * rng.normal(size=(N, J))


def make(
    J: int = 1,
    likelihood: gpflow.likelihoods.Likelihood | None = None,
    *,
    kind: type[gvi.models.GVI] = gvi.models.PGVI,
    mean: MeanFunction | None = None,
    covariance: Callable[..., gpflow.kernels.Kernel] = gvi.covariances.CholeskySVGP,
    scale: float = 1.0,
) -> gvi.models.GVI:
    """Return a model that was not fitted; `scale` is that of its variances."""
    P = gvi.GaussianProcess(
        gpflow.functions.Zero(), gpflow.kernels.SquaredExponential(variance=scale)
    )
    dtype = gpflow.default_float()
    inducing_variable = gpflow.inducing_variables.InducingPoints(Z.astype(dtype))
    if mean is None:
        q_mu = np.random.default_rng(1).normal(size=(M, J)).astype(dtype)
        mean = gvi.mean_functions.Inducing(P.kernel, inducing_variable, q_mu=q_mu)
    r = covariance(P.kernel, inducing_variable, num_latent_gps=J)
    likelihood = gpflow.likelihoods.Gaussian(0.3) if likelihood is None else likelihood
    return kind(P, gvi.GaussianProcess(mean, r), likelihood, num_data=N)
