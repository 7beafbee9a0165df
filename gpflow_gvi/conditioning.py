"""A Gaussian process after exact observations: the mean and the kernel of the posterior.

For outputs that are independent this is J systems of size M; for outputs that are correlated (a
`LinearCoregionalization`, say) it is one system of size M·J. Both are written as a batch of systems
`[b, m, m]` with one right-hand side: b = J, m = M or b = 1, m = M·J.
"""

from __future__ import annotations

import tensorflow as tf
from gpflow.base import Module, TensorType
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, MultioutputKernel

from . import linalg, outputs
from .covariances.base import Covariance
from .evaluation import once


class Observations(Module):
    """Values U of a Gaussian process at Z, seen through noise; what mean and kernel share.

    :param mean_function: the mean m_P before the observations.
    :param kernel: the kernel k before the observations.
    :param Z: where it was observed, [M, D].
    :param U: what was observed, [M, J].
    :param noise_variance: σ², one for all outputs or [J]; zero for exact values.
    """

    def __init__(
        self,
        mean_function: MeanFunction,
        kernel: Kernel,
        Z: tf.Tensor,
        U: tf.Tensor,
        noise_variance: tf.Tensor,
    ) -> None:
        super().__init__()
        self.mean_function = mean_function
        self.kernel = kernel
        self.Z = Z
        self.U = U
        self.noise_variance = noise_variance
        self.num_outputs = int(U.shape[-1])

    @once
    def cholesky(self) -> tf.Tensor:
        """Return the lower factor of K_ZZ + σ² I: [b, m, m]."""
        gram = self.gram(self.Z, None)
        noise = tf.reshape(self.noise_variance, [-1, 1])  # [1, 1] or [J, 1]
        if outputs.correlated(self.kernel):
            noise = tf.broadcast_to(noise, [self.num_outputs, 1])
            noise = tf.tile(noise, [tf.shape(self.Z)[0], 1])[None, :, 0]  # [1, M·J]
        noise = noise + tf.zeros_like(tf.linalg.diag_part(gram))
        return linalg.cholesky(gram + tf.linalg.diag(noise), name="K_ZZ + σ² I")

    @once
    def whitened(self, X: TensorType) -> tf.Tensor:
        """Return A = L⁻¹ K_ZX: [b, m, n], with n = N or N·J."""
        return tf.linalg.triangular_solve(self.cholesky(), self.gram(self.Z, X))

    @once
    def whitened_residual(self) -> tf.Tensor:
        """Return L⁻¹ (U - m_P(Z)): [b, m, 1]."""
        residual = self.U - self.mean_function(self.Z)  # [M, J]
        if outputs.correlated(self.kernel):
            residual = tf.reshape(residual, [1, -1, 1])
        else:
            residual = tf.linalg.matrix_transpose(residual)[..., None]
        return tf.linalg.triangular_solve(self.cholesky(), residual)

    def gram(self, X: TensorType, X2: TensorType | None) -> tf.Tensor:
        """Return the kernel matrix as a batch of systems: [b, n, n2]."""
        if not outputs.correlated(self.kernel):
            return outputs.covariance(self.kernel, X, X2)
        J = self.num_outputs
        joint = outputs.joint_covariance(self.kernel, X, X2, J)  # [N, J, N2, J]
        shape = tf.shape(joint)
        return tf.reshape(joint, [1, shape[0] * J, shape[2] * J])


class ConditionalMean(MeanFunction):
    """m_P(x) + K_xZ (K_ZZ + σ² I)⁻¹ (U - m_P(Z)). Rasmussen and Williams (2006), eq. 2.38."""

    def __init__(self, observations: Observations) -> None:
        super().__init__()
        self.observations = observations

    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return the posterior mean: [N, J]."""
        seen = self.observations
        shift = tf.matmul(seen.whitened(X), seen.whitened_residual(), transpose_a=True)[..., 0]
        if outputs.correlated(seen.kernel):
            shift = tf.reshape(shift, [-1, seen.num_outputs])
        else:
            shift = tf.linalg.matrix_transpose(shift)
        return seen.mean_function(X) + shift

    def prepare(self) -> None:
        """Solve what depends on the observations alone, for a posterior to keep."""
        self.observations.cholesky()
        self.observations.whitened_residual()


class ConditionalCovariance(Covariance):
    """k(x, x') - K_xZ (K_ZZ + σ² I)⁻¹ K_Zx', for independent outputs.

    Rasmussen and Williams (2006), eq. 2.24 and 2.26.
    """

    def __init__(self, observations: Observations) -> None:
        super().__init__()
        self.observations = observations
        noises = observations.noise_variance.shape.num_elements()
        self.num_outputs = max(outputs.num_outputs(observations.kernel), noises)

    def output_variance(self, X: TensorType) -> tf.Tensor:
        """Return the posterior variance of each output: [N, J]."""
        base = outputs.variance(self.observations.kernel, X)
        explained = tf.reduce_sum(tf.square(self.observations.whitened(X)), axis=-2)  # [J, N]
        return _floored(base - tf.linalg.matrix_transpose(explained), base)

    def output_covariance(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """Return the posterior covariance of each output: [J, N, N2]."""
        left = self.observations.whitened(X)
        right = left if X2 is None else self.observations.whitened(X2)
        base = outputs.covariance(self.observations.kernel, X, X2)
        return base - tf.matmul(left, right, transpose_a=True)


class CorrelatedConditionalCovariance(MultioutputKernel):
    """k(x, x') - K_xZ (K_ZZ + σ² I)⁻¹ K_Zx', for outputs that are correlated."""

    def __init__(self, observations: Observations) -> None:
        super().__init__()
        self.observations = observations

    @property
    def num_latent_gps(self) -> int:
        """The number J of outputs."""
        return self.observations.num_outputs

    @property
    def latent_kernels(self) -> tuple[Kernel, ...]:
        """The kernel itself: its outputs are not independent after conditioning."""
        return (self,)

    def K(
        self, X: TensorType, X2: TensorType | None = None, full_output_cov: bool = True
    ) -> tf.Tensor:
        """Return the covariance, [N, J, N2, J], or that of each output, [J, N, N2]."""
        seen = self.observations
        left = seen.whitened(X)
        right = left if X2 is None else seen.whitened(X2)
        joint = seen.gram(X, X2) - tf.matmul(left, right, transpose_a=True)  # [1, N·J, N2·J]
        J = self.num_latent_gps
        shape = tf.shape(joint)
        joint = tf.reshape(joint, [shape[1] // J, J, shape[2] // J, J])
        if full_output_cov:
            return joint
        return tf.transpose(tf.linalg.diag_part(tf.transpose(joint, [0, 2, 1, 3])), [2, 0, 1])

    def K_diag(self, X: TensorType, full_output_cov: bool = True) -> tf.Tensor:
        """Return the covariance of the outputs at each input, [N, J, J] or its diagonal [N, J]."""
        seen = self.observations
        J = self.num_latent_gps
        A = tf.reshape(seen.whitened(X)[0], [tf.shape(seen.Z)[0] * J, -1, J])  # [M·J, N, J]
        if full_output_cov:
            base = outputs.joint_variance(seen.kernel, X, J)
            return base - tf.einsum("mni,mnj->nij", A, A)
        base = outputs.variance(seen.kernel, X)
        return _floored(base - tf.reduce_sum(tf.square(A), axis=0), base)


def _floored(variance: tf.Tensor, base: tf.Tensor) -> tf.Tensor:
    relative = linalg.epsilon(variance.dtype)
    return linalg.floor(variance, base, relative=relative)
