"""Covariances on the inducing variable of the regulariser: r = k - Q_Z + K_xZ Σ K_Zx'.

Q_Z(x, x') = K_xZ K_ZZ⁻¹ K_Zx' is the Nyström part of the regulariser's kernel k. The part
put back in its place is learned: a full Σ (`CholeskySVGP`), a diagonal Σ (`DiagonalSVGP`) or
another kernel (`KernelisedSVGP`). Wild, Hu and Sejdinovic (2022), "Generalized variational
inference in function spaces", eq. for GWI-net; K_ZZ stands there where K_ZZ⁻¹ is meant.

k belongs to the regulariser P, which is frozen while Q is trained: it is not among the trainable
variables of these covariances.
"""

from __future__ import annotations

import abc
import copy
from typing import Any

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.utilities import positive, triangular

from .._core import checks, images, linalg, outputs
from .._core.data import inputs
from .._core.memo import is_given, once
from . import gram
from .covariance import SparseCovariance


class OnRegulariser(SparseCovariance):
    """k without its Nyström part; a subclass adds something back."""

    # P's kernel is used here and trained nowhere.
    _TF_MODULE_IGNORED_PROPERTIES = SparseCovariance._TF_MODULE_IGNORED_PROPERTIES | {"kernel"}

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariables | TensorType,
        num_latent_gps: int | None,
    ) -> None:
        super().__init__()
        gram.require_independent_outputs(kernel)
        self.kernel = kernel
        self.inducing_variable = gram.as_inducing_variable(inducing_variable)
        self.num_outputs = gram.num_outputs(kernel, self.inducing_variable, num_latent_gps)

    @property
    def base_kernels(self) -> tuple[Kernel, ...]:
        """The kernels whose sum has its Nyström part replaced."""
        return (self.kernel,)

    def prepare(self) -> None:
        """Factorise K_ZZ."""
        gram.cholesky(self.kernel, self.inducing_variable)

    def removed(self, X: TensorType) -> tf.Tensor:
        """Return A = L⁻¹ K_ZX, for which AᵀA is the Nyström part: [J, M, N]."""
        return gram.whitened(self.kernel, self.inducing_variable, X)

    @abc.abstractmethod
    def restored(self, X: TensorType) -> tf.Tensor:
        """Return the variance of what is put in the place of the Nyström part: [N, J]."""

    def output_variance(self, X: TensorType) -> tf.Tensor:
        """Return k(x, x) - Q_Z(x, x) and the variance in its place: [N, J]."""
        X = images.as_rows(X, self)
        remaining = gram.remaining_variance(self.kernel, self.inducing_variable, X)
        variance = remaining + self.restored(X)
        return tf.broadcast_to(variance, [tf.shape(variance)[0], self.num_outputs])


class SVGPCovariance(OnRegulariser):
    """The covariances of an inducing distribution: Q's law of u, and P's law of f given u.

    For these, and for these alone, KL[Q, P] is finite; it is the one between q(u) and p(u).
    """

    @abc.abstractmethod
    def whitened_sqrt(self) -> tf.Tensor:
        """Return a triangular T with T Tᵀ = Lᵀ Σ L, the covariance of L⁻¹u under Q: [J, M, M]."""

    def prepare(self) -> None:
        """Factorise K_ZZ, and compute the root of Σ and the difference that predictions take."""
        super().prepare()
        root = self.whitened_sqrt()
        if gram.has_digits_for_inverse(root.dtype):
            self.difference()

    def output_variance(self, X: TensorType) -> tf.Tensor:
        """Return k(x, x) - Q_Z(x, x) + K_xZ Σ K_Zx: [N, J].

        A prediction takes one product with rows of K_ZX in place of a solve and a product.
        """
        if not is_given(SVGPCovariance.difference, self):
            return super().output_variance(X)
        X = images.as_rows(X, self)
        W, signs = self.difference()
        Kzx = gram.cross_covariance(self.kernel, self.inducing_variable, X)
        of_rows = tf.square(tf.matmul(W, Kzx))
        removed = tf.matmul(of_rows, signs[..., None], transpose_a=True)[..., 0]  # [J, N]
        base = outputs.variance(self.kernel, X)
        variance = self._floored(base - tf.linalg.matrix_transpose(removed), base)
        return tf.broadcast_to(variance, [tf.shape(variance)[0], self.num_outputs])

    @once
    def difference(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Return W and signs s with K_ZZ⁻¹ - Σ = L⁻ᵀ(I - T Tᵀ)L⁻¹ = Wᵀ diag(s) W.

        They are [J, M, M] and [J, M]. All signs are positive where Q is nowhere less certain than
        P.
        """
        T = self.whitened_sqrt()
        identity = tf.eye(tf.shape(T)[-1], dtype=T.dtype)
        root, signs = linalg.signed_root(identity - tf.matmul(T, T, transpose_b=True))
        L = gram.cholesky(self.kernel, self.inducing_variable)
        return tf.linalg.matrix_transpose(tf.linalg.triangular_solve(L, root, adjoint=True)), signs


class CholeskySVGP(SVGPCovariance):
    """r = k - Q_Z + K_xZ Σ K_Zx' with any positive definite Σ; the covariance of GPflow's SVGP.

    Σ is written as in GPflow, by the lower Cholesky factor `q_sqrt` of the covariance S of the
    inducing variable u (`whiten=False`, Σ = K_ZZ⁻¹ S K_ZZ⁻¹) or of L⁻¹u (`whiten=True`,
    Σ = L⁻ᵀ S L⁻¹, with K_ZZ = L Lᵀ). Without a `q_sqrt`, S is the identity.

    :param kernel: the regulariser's kernel k, one for all outputs or a GPflow kernel of
        independent outputs.
    :param inducing_variable: any of GPflow's; an array is taken as fixed inducing points.
    :param q_sqrt: the start of the factor, [J, M, M].
    :param whiten: whether q_sqrt belongs to L⁻¹u or to u.
    :param num_latent_gps: the number J of outputs, where kernel and q_sqrt leave it open.
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariables | TensorType,
        *,
        q_sqrt: Any = None,
        whiten: bool = True,
        num_latent_gps: int | None = None,
    ) -> None:
        q_sqrt = gram.as_start("q_sqrt", q_sqrt, "[J, M, M]")
        if q_sqrt is not None and num_latent_gps is None:
            num_latent_gps = int(q_sqrt.shape[0])
        super().__init__(kernel, inducing_variable, num_latent_gps)
        self.whiten = whiten
        M = int(self.inducing_variable.num_inducing)
        shape = (self.num_outputs, M, M)
        if q_sqrt is None:
            q_sqrt = tf.eye(shape[1], batch_shape=shape[:1], dtype=default_float())
        if tuple(q_sqrt.shape) != shape:
            raise ValueError(f"q_sqrt has shape {tuple(q_sqrt.shape)}; it must be {shape}.")
        if not isinstance(q_sqrt, Parameter):
            q_sqrt = Parameter(tf.linalg.band_part(q_sqrt, -1, 0), transform=triangular())
        self.q_sqrt = q_sqrt

    @classmethod
    def from_data(
        cls,
        kernel: Kernel,
        inducing_variable: InducingVariables | TensorType,
        X: TensorType,
        noise_variance: TensorType,
        *,
        whiten: bool = True,
        num_latent_gps: int | None = None,
    ) -> CholeskySVGP:
        """Start at the optimum for Gaussian noise, Σ = (K_ZZ + σ⁻² K_ZX K_XZ)⁻¹ (Titsias 2009)."""
        inducing_variable = gram.as_inducing_variable(inducing_variable)
        X = images.process_rows(inputs("X", X), kernel, inducing_variable)
        J = gram.num_outputs(kernel, inducing_variable, num_latent_gps)
        gram.require_noise(noise_variance, X.shape[0], J if J > 1 else None)
        inner = gram.optimal_precision(gram.features(kernel, inducing_variable, X), noise_variance)
        q_sqrt = linalg.cholesky_of_inverse(inner)  # of (Lᵀ Σ L), L⁻¹u's covariance
        if not whiten:
            q_sqrt = tf.matmul(gram.cholesky(kernel, inducing_variable), q_sqrt)
        q_sqrt = tf.broadcast_to(q_sqrt, [max(J, q_sqrt.shape[0]), *q_sqrt.shape[1:]])
        return cls(kernel, inducing_variable, q_sqrt=q_sqrt, whiten=whiten)

    def factors(self, X: TensorType) -> list[tf.Tensor]:
        """Return A = L⁻¹ K_ZX and Tᵀ A."""
        removed = self.removed(X)
        return [removed, tf.matmul(self.whitened_sqrt(), removed, transpose_a=True)]

    def restored(self, X: TensorType) -> tf.Tensor:
        """Return the squares of Tᵀ A: [N, J]."""
        if not gram.by_products(self.kernel, self.inducing_variable, X):
            return outputs.squares(self.factors(X)[1])
        L = gram.cholesky(self.kernel, self.inducing_variable)
        root = tf.linalg.triangular_solve(L, self.whitened_sqrt(), adjoint=True)  # L⁻ᵀ T
        Kzx = gram.cross_covariance(self.kernel, self.inducing_variable, X)
        return outputs.squares(tf.matmul(root, Kzx, transpose_a=True))

    @once
    def whitened_sqrt(self) -> tf.Tensor:
        """Return q_sqrt where it is whitened already, and L⁻¹ q_sqrt where not: [J, M, M]."""
        if self.whiten:
            return tf.convert_to_tensor(self.q_sqrt)
        L = gram.cholesky(self.kernel, self.inducing_variable)
        return tf.linalg.triangular_solve(L, self.q_sqrt)


class DiagonalSVGP(SVGPCovariance):
    """r = k - Q_Z + K_xZ diag(v) K_Zx', with M positive numbers v for each output.

    Without a `v`, all are equal and such that r has the variance of k at Z, on average.

    :param kernel: the regulariser's kernel k.
    :param inducing_variable: any of GPflow's; an array is taken as fixed inducing points.
    :param v: the start of the diagonal, [M, J].
    :param num_latent_gps: the number J of outputs, where kernel and v leave it open.
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariables | TensorType,
        *,
        v: Any = None,
        num_latent_gps: int | None = None,
    ) -> None:
        v = gram.as_start("v", v, "[M, J]")
        if v is not None and num_latent_gps is None:
            num_latent_gps = int(v.shape[-1])
        super().__init__(kernel, inducing_variable, num_latent_gps)
        shape = (int(self.inducing_variable.num_inducing), self.num_outputs)
        if v is None:
            L = gram.cholesky(kernel, self.inducing_variable)
            Kzz = tf.matmul(L, L, transpose_b=True)  # [J, M, M]
            v = tf.linalg.trace(Kzz) / tf.reduce_sum(tf.square(Kzz), axis=(-2, -1))
            v = tf.broadcast_to(v, shape)
        if tuple(v.shape) != shape:
            raise ValueError(f"v has shape {tuple(v.shape)}; it must be {shape}.")
        if not isinstance(v, Parameter):
            checks.positive("v", v)
            # v spans many orders of magnitude (it scales as K_ZZ⁻¹): learn its logarithm.
            v = Parameter(v, transform=positive(base="exp"))
        self.v = v

    @classmethod
    def from_data(
        cls,
        kernel: Kernel,
        inducing_variable: InducingVariables | TensorType,
        X: TensorType,
        noise_variance: TensorType,
        *,
        num_latent_gps: int | None = None,
    ) -> DiagonalSVGP:
        """Start at the best diagonal for Gaussian noise, v_m = 1 / [K_ZZ + σ⁻² K_ZX K_XZ]_mm.

        The terms of the evidence lower bound that depend on v are
        -½ Σ_m ( v_m [K_ZZ + σ⁻² K_ZX K_XZ]_mm - log v_m ). The best v is the
        reciprocal of the diagonal of the precision Σ⁻¹, as in any mean field; the diagonal of Σ
        itself would make variances enormous where points are close.
        """
        inducing_variable = gram.as_inducing_variable(inducing_variable)
        X = images.process_rows(inputs("X", X), kernel, inducing_variable)
        J = gram.num_outputs(kernel, inducing_variable, num_latent_gps)
        gram.require_noise(noise_variance, X.shape[0], J if J > 1 else None)
        L = gram.cholesky(kernel, inducing_variable)
        Kzx = gram.cross_covariance(kernel, inducing_variable, X)
        noise = outputs.noise_of_rows(noise_variance)[:, None, :]  # [J, 1, N]
        of_data = tf.reduce_sum(tf.square(Kzx) / noise, axis=-1)
        precision = tf.reduce_sum(tf.square(L), axis=-1) + of_data  # [J, M]
        v = tf.linalg.matrix_transpose(1.0 / precision)  # [M, J]
        v = tf.broadcast_to(v, [v.shape[0], max(J, v.shape[1])])
        return cls(kernel, inducing_variable, v=v)

    def factors(self, X: TensorType) -> list[tf.Tensor]:
        """Return A = L⁻¹ K_ZX and √v K_ZX."""
        Kzx = gram.cross_covariance(self.kernel, self.inducing_variable, X)
        return [self.removed(X), self._root() * Kzx]

    def restored(self, X: TensorType) -> tf.Tensor:
        """Return Σ_m v_m K_mx²: [N, J]."""
        Kzx = gram.cross_covariance(self.kernel, self.inducing_variable, X)
        v = tf.linalg.matrix_transpose(self.v)[..., None]  # [J, M, 1]
        sums = tf.matmul(tf.square(Kzx), v, transpose_a=True)[..., 0]  # [J, N]
        return tf.linalg.matrix_transpose(sums)

    @once
    def whitened_sqrt(self) -> tf.Tensor:
        """Return Lᵀ √v, which is upper triangular: [J, M, M]."""
        L = gram.cholesky(self.kernel, self.inducing_variable)
        return tf.linalg.matrix_transpose(self._root() * L)

    @once
    def _root(self) -> tf.Tensor:
        return tf.sqrt(tf.linalg.matrix_transpose(self.v))[..., None]  # [J, M, 1]


class KernelisedSVGP(OnRegulariser):
    """r = k - Q_Z + r_0, with the hyper-parameters of r_0 learned.

    :param kernel: the regulariser's kernel k.
    :param inducing_variable: any of GPflow's; an array is taken as fixed inducing points.
    :param base_kernel: r_0; a copy of k if not given.
    :param num_latent_gps: the number J of outputs, where the kernels leave it open.
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariables | TensorType,
        *,
        base_kernel: Kernel | None = None,
        num_latent_gps: int | None = None,
    ) -> None:
        base_kernel = copy.deepcopy(kernel) if base_kernel is None else base_kernel
        gram.require_independent_outputs(base_kernel)
        wanted = max(num_latent_gps or 1, outputs.num_outputs(base_kernel))
        super().__init__(kernel, inducing_variable, wanted)
        self.base_kernel = base_kernel

    @property
    def base_kernels(self) -> tuple[Kernel, ...]:
        """Both kernels: the Nyström part of k alone is taken away."""
        return (self.kernel, self.base_kernel)

    def factors(self, X: TensorType) -> list[tf.Tensor]:
        """Return A = L⁻¹ K_ZX."""
        return [self.removed(X)]

    def restored(self, X: TensorType) -> tf.Tensor:
        """Return r_0(x, x): [N, J]."""
        return outputs.variance(self.base_kernel, X)
