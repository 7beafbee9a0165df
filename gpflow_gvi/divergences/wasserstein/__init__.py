"""The 2-Wasserstein distance between Gaussian processes, as Gaussian measures on L²(X, ρ).

What depends on covariances is estimated in ways that differ in cost; each is a `CovarianceDistance`
that can be made with its options and given to `GaussianWasserstein`.
"""

from .divergence import ESTIMATORS, GaussianWasserstein
from .estimators import CovarianceDistance, Exact, Landmark, Marginal, NewtonSchulz
from .low_rank import LowRank

__all__ = [
    "ESTIMATORS",
    "CovarianceDistance",
    "Exact",
    "GaussianWasserstein",
    "Landmark",
    "LowRank",
    "Marginal",
    "NewtonSchulz",
]
