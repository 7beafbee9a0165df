"""Gaussian Wasserstein inference: GVI with the 2-Wasserstein distance on function space."""

from __future__ import annotations

from typing import Any

from gpflow.likelihoods import Likelihood

from ..divergences import Divergence, GaussianWasserstein
from ..gaussian_process import GaussianProcess
from .gvi import GVI


class GWI(GVI):
    """`GVI` whose divergence is `GaussianWasserstein()` unless another one is given.

    Wild, Hu and Sejdinovic (2022), "Generalized variational inference in function spaces:
    Gaussian measures meet Bayesian deep learning".
    """

    def __init__(
        self,
        regulariser: GaussianProcess,
        variational: GaussianProcess,
        likelihood: Likelihood,
        divergence: Divergence | None = None,
        **options: Any,
    ) -> None:
        divergence = GaussianWasserstein() if divergence is None else divergence
        super().__init__(regulariser, variational, likelihood, divergence, **options)
