"""Every divergence of the package, between the same two Gaussian processes."""

import gpflow
import numpy as np

import gpflow_gvi as gvi

X = np.linspace(-2.0, 2.0, 50)[:, None]
kernel = gpflow.kernels.SquaredExponential(lengthscales=0.7)
P = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
# P conditioned on three observations.
Q = P.condition(np.array([[-1.0], [0.0], [1.5]]), np.array([[0.5], [1.0], [-1.0]]), 0.01)

for divergence in (
    gvi.divergences.ProjectedKL(),
    gvi.divergences.ProjectedReverseKL(),
    gvi.divergences.ProjectedRenyi(alpha=0.5),
    gvi.divergences.ProjectedBhattacharyya(),
    gvi.divergences.ProjectedHellinger(),
    gvi.divergences.ProjectedWasserstein(),
    gvi.divergences.ProjectedSquaredDifference(),
    gvi.divergences.RegularisedKL(gamma=0.01),
    gvi.divergences.GaussianWasserstein(),
    gvi.divergences.GaussianWasserstein("marginal"),
):
    print(f"{type(divergence).__name__:<28}{float(divergence(Q, P, X)):10.4f}")
