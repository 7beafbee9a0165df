"""Covariances of the shape of a noise-free posterior: r = r_0 - r_0(x, Z) G r_0(Z, x').

Inside, r_0 is a kernel of Q's own that starts as a copy of the regulariser's and is learned.
"""

from __future__ import annotations

import copy

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.config import default_jitter
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.utilities import set_trainable

from .._core import linalg, outputs
from . import gram
from .covariance import SparseCovariance


class _OnOwnKernel(SparseCovariance):
    """r_0 without a part spanned by r_0(Z, x)."""

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariables | TensorType,
        *,
        base_kernel: Kernel | None = None,
        num_latent_gps: int | None = None,
    ) -> None:
        super().__init__()
        self.base_kernel = copy.deepcopy(kernel) if base_kernel is None else base_kernel
        gram.require_independent_outputs(self.base_kernel)
        self.inducing_variable = gram.as_inducing_variable(inducing_variable)
        wanted = max(num_latent_gps or 1, outputs.num_outputs(kernel))
        self.num_outputs = gram.num_outputs(self.base_kernel, self.inducing_variable, wanted)
        self._freeze(kernel)

    def _freeze(self, kernel: Kernel) -> None:
        """Compute what stays as it is of the regulariser's kernel."""

    @property
    def base_kernels(self) -> tuple[Kernel, ...]:
        """The learned kernel r_0."""
        return (self.base_kernel,)


class SparsePosterior(_OnOwnKernel):
    """r = r_0 - r_0(x, Z) r_0(Z, Z)⁻¹ r_0(Z, x'), the posterior given exact values at Z.

    r(z, z) = 0 at inducing points (up to jitter), which is finite under a likelihood with noise.

    :param kernel: the regulariser's kernel; r_0 starts as a copy of it.
    :param inducing_variable: any of GPflow's; an array is taken as fixed inducing points.
    :param base_kernel: another r_0, used as it is.
    :param num_latent_gps: the number J of outputs, where the kernels leave it open.
    """

    def factors(self, X: TensorType) -> list[tf.Tensor]:
        """Return L⁻¹ r_0(Z, X), with L the factor of r_0(Z, Z)."""
        return [gram.whitened(self.base_kernel, self.inducing_variable, X)]

    def prepare(self) -> None:
        """Factorise r_0(Z, Z)."""
        gram.cholesky(self.base_kernel, self.inducing_variable)


class FixedSparsePosterior(_OnOwnKernel):
    """r = r_0 - r_0(x, Z) k(Z, Z)⁻¹ r_0(Z, x') with k(Z, Z)⁻¹ frozen: no factorisation to train.

    r is positive semi-definite while r_0(Z, Z) ⪯ k(Z, Z). It starts there (r_0 = k) and may leave
    in training; then marginal variances below zero are raised to a small positive floor, and the
    number of them is logged. An r_0 that cannot leave, as s·k with s < 1, needs no floor:

        r_0 = Tempered(k, Parameter(0.9, transform=tfp.bijectors.Sigmoid()))
        FixedSparsePosterior(k, Z, base_kernel=r_0)

    The inducing variable is frozen with the factor that was computed on it.

    :param kernel: the regulariser's kernel k; r_0 starts as a copy of it.
    :param inducing_variable: any of GPflow's; an array is taken as fixed inducing points.
    :param base_kernel: another r_0, used as it is.
    :param num_latent_gps: the number J of outputs, where the kernels leave it open.
    """

    def _freeze(self, kernel: Kernel) -> None:
        gram.require_independent_outputs(kernel)
        if self.inducing_variable.trainable_variables:
            self.inducing_variable = copy.deepcopy(self.inducing_variable)
            set_trainable(self.inducing_variable, False)
        L = gram.cholesky(kernel, self.inducing_variable)
        self.frozen_cholesky = Parameter(L, trainable=False)  # [J, M, M]

    def factors(self, X: TensorType) -> list[tf.Tensor]:
        """Return L⁻¹ r_0(Z, X), with L the frozen factor of k(Z, Z)."""
        cross = gram.cross_covariance(self.base_kernel, self.inducing_variable, X)
        return [tf.linalg.triangular_solve(self.frozen_cholesky, cross)]

    def _floored(self, variance: tf.Tensor, base: tf.Tensor) -> tf.Tensor:
        name = type(self).__name__
        return linalg.floor(variance, base, relative=default_jitter(), suspect=name)
