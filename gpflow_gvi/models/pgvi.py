"""Projected GVI: divergences of marginals, whose cost is linear in the data."""

from __future__ import annotations

from typing import Any

from gpflow.likelihoods import Likelihood

from ..divergences import Divergence, ProjectedRenyi
from ..gaussian_process import GaussianProcess
from .gvi import GVI


class PGVI(GVI):
    """`GVI` whose divergence is `ProjectedRenyi(0.5)` unless another one is given.

    With λ = 1, the default, it adds up over the data, as in the thesis.

    Wu (2023), "Generalised variational inference for Gaussian processes".
    """

    def __init__(
        self,
        regulariser: GaussianProcess,
        variational: GaussianProcess,
        likelihood: Likelihood,
        divergence: Divergence | None = None,
        **options: Any,
    ) -> None:
        divergence = ProjectedRenyi() if divergence is None else divergence
        super().__init__(regulariser, variational, likelihood, divergence, **options)
