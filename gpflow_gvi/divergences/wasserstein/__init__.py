"""The 2-Wasserstein distance between Gaussian processes, as Gaussian measures on L²(X, ρ).

What depends on covariances is estimated in ways that differ in cost; each is a `CovarianceDistance`
that can be made with its options and given to `GaussianWasserstein`.
"""

from .divergence import ESTIMATORS, GaussianWasserstein
from .estimators import Blocks, CovarianceDistance, Exact, Landmark, Marginal
from .low_rank import LowRank
from .newton_schulz import NewtonSchulz

__all__ = [
    "ESTIMATORS",
    "Blocks",
    "CovarianceDistance",
    "Exact",
    "GaussianWasserstein",
    "Landmark",
    "LowRank",
    "Marginal",
    "NewtonSchulz",
]
