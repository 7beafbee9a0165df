"""The mean of a Gaussian process after exact observations."""

from __future__ import annotations

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.functions import MeanFunction

from .._core import outputs
from ..covariances.conditional import Observations


class ConditionalMean(MeanFunction):
    """m_P(x) + K_xZ (K_ZZ + σ² I)⁻¹ (U - m_P(Z)). Rasmussen and Williams (2006), eq. 2.38."""

    def __init__(self, observations: Observations) -> None:
        super().__init__()
        self.observations = observations
        self.num_outputs = observations.num_outputs

    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return the posterior mean: [N, J]."""
        seen = self.observations
        shift = tf.matmul(seen.whitened(X), seen.whitened_residual(), transpose_a=True)[..., 0]
        if outputs.correlated(seen.kernel):
            shift = tf.reshape(shift, [-1, seen.num_outputs])
        else:
            shift = tf.linalg.matrix_transpose(shift)
        return outputs.mean(seen.mean_function, X) + shift

    def prepare(self) -> None:
        """Solve what depends on the observations alone, for a posterior to keep."""
        self.observations.cholesky()
        self.observations.whitened_residual()
