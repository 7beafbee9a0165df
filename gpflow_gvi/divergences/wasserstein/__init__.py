"""The 2-Wasserstein distance between Gaussian processes, as Gaussian measures on L²(X, ρ).

What depends on covariances is estimated in ways that differ in cost; each is a `CovarianceDistance`
that can be made with its options and given to `GaussianWasserstein`.
"""

from .base import CovarianceDistance
from .block_average import Blocks
from .divergence import ESTIMATORS, GaussianWasserstein
from .exact import Exact
from .landmark import Landmark
from .low_rank import LowRank
from .marginal import Marginal
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
