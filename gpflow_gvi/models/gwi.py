"""Gaussian Wasserstein inference: GVI with the 2-Wasserstein distance on function space."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from gpflow.likelihoods import Likelihood

from ..divergences import Divergence, GaussianWasserstein
from ..gaussian_process import GaussianProcess
from .gvi import GVI


class GWI(GVI):
    """`GVI` with the objective of Gaussian Wasserstein inference,

        Σ_n E_Q[ℓ(f(x_n), y_n)]  +  D[Q, P],

    a sum over the data beside a divergence that is an average over inputs: λ = 1/N in the
    objective of `GVI`. D is `GaussianWasserstein()` unless another one is given.

    Wild, Hu and Sejdinovic (2022), "Generalized variational inference in function spaces:
    Gaussian measures meet Bayesian deep learning".

    :param divergence_weight: λ; None for 1/N, also when `num_data` is a variable that changes. With
        λ = 1 a divergence weighs N times as much as in the paper.
    """

    def __init__(
        self,
        regulariser: GaussianProcess,
        variational: GaussianProcess,
        likelihood: Likelihood,
        divergence: Divergence | None = None,
        *,
        divergence_weight: float | tf.Variable | None = None,
        **options: Any,
    ) -> None:
        divergence = GaussianWasserstein() if divergence is None else divergence
        if divergence_weight is not None:
            options["divergence_weight"] = divergence_weight
        super().__init__(regulariser, variational, likelihood, divergence, **options)
        if divergence_weight is None:
            self.divergence_weight = None

    @property
    def divergence_weight(self) -> Any:
        """λ."""
        if self._weight is not None:
            return self._weight
        N = self.num_data
        return 1.0 / (tf.cast(N, tf.float64) if tf.is_tensor(N) else N)

    @divergence_weight.setter
    def divergence_weight(self, weight: Any) -> None:
        self._weight = weight
