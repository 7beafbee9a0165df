"""The kernel of sums of smooth and quasi-periodic functions of single features."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.kernels import Kernel
from gpflow.utilities import positive


class AdditiveSpectralMixture(Kernel):
    """k(x, x') = Σ_d Σ_q v_qd exp(-½ r_d² / ℓ_qd²) cos(2π f_qd r_d), with r = x - x'.

    For each feature d a mixture of Q Gaussians as the spectral density (Wilson and Adams 2013,
    "Gaussian process kernels for pattern discovery and extrapolation", eq. 12), and the sum over
    features of an additive Gaussian process (Duvenaud, Nickisch and Rasmussen 2011). Components of
    frequency zero are squared exponentials. Such functions extrapolate along each feature,
    also into gaps, where a product kernel over all features returns to the prior.

    :param variances: v, [Q, D].
    :param lengthscales: ℓ, [Q, D].
    :param frequencies: f in cycles per unit of the feature, [Q, D]; their sign does not matter.
    """

    def __init__(self, variances: Any, lengthscales: Any, frequencies: Any, **options: Any) -> None:
        super().__init__(**options)
        self.variances = Parameter(variances, transform=positive())
        self.lengthscales = Parameter(lengthscales, transform=positive())
        self.frequencies = Parameter(frequencies)
        shapes = [tuple(part.shape) for part in self.parameters]
        if len(set(shapes)) > 1 or len(shapes[0]) != 2:
            raise ValueError(
                "variances, lengthscales and frequencies have the shapes "
                f"{tuple(self.variances.shape)}, {tuple(self.lengthscales.shape)} and "
                f"{tuple(self.frequencies.shape)}; each must be [Q, D], Q components for every "
                "feature."
            )

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """Return k(X, X2)."""
        X = tf.convert_to_tensor(X)
        if X2 is None:
            return self._sum(X, X)
        X2 = tf.convert_to_tensor(X2)
        value = self._sum(*(tf.reshape(rows, [-1, rows.shape[-1]]) for rows in (X, X2)))
        return tf.reshape(value, tf.concat([tf.shape(X)[:-1], tf.shape(X2)[:-1]], 0))

    def _sum(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        """Return Σ_qd v exp(u) w: [..., N, N2].

        Both -½ r²/ℓ² = u and cos(2πf r) = w are products of a matrix of N rows and one of N2, so
        that only an exponential is computed for each pair of rows and each component.
        """
        v, scale, f = (
            tf.reshape(part, [-1] + [1] * X.shape.rank)  # [Q D, ..., 1, 1]
            for part in (self.variances, self.lengthscales, self.frequencies)
        )
        x, x2 = (self._each_component(rows) for rows in (X, X2))  # [Q D, ..., N, 1]
        a, a2, b, b2 = x / scale, x2 / scale, 2.0 * math.pi * f * x, 2.0 * math.pi * f * x2
        one, one2 = tf.ones_like(a), tf.ones_like(a2)
        return _sum_of_products(
            tf.concat([a, -0.5 * tf.square(a), one], -1),
            tf.concat([a2, one2, -0.5 * tf.square(a2)], -1),
            tf.concat([v * tf.cos(b), v * tf.sin(b)], -1),
            tf.concat([tf.cos(b2), tf.sin(b2)], -1),
        )

    def _each_component(self, X: tf.Tensor) -> tf.Tensor:
        """Return the feature of each component: [Q D, ..., N, 1]."""
        self._require_columns(X)
        columns = tf.stack(tf.unstack(X, axis=-1))[..., None]  # [D, ..., N, 1]
        return tf.concat([columns] * int(self.variances.shape[0]), axis=0)

    def _require_columns(self, X: TensorType) -> None:
        D = self.variances.shape[1]
        if X.shape[-1] not in (None, D):
            raise ValueError(
                f"X has {X.shape[-1]} columns, but the kernel has parameters for {D}: variances, "
                "lengthscales and frequencies are [Q, D]. Name the columns by active_dims."
            )

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        """Return Σ v for each row of X."""
        self._require_columns(X)
        return tf.fill(tf.shape(X)[:-1], tf.reduce_sum(self.variances))


@tf.custom_gradient
def _sum_of_products(*factors: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], Any]]:
    """Return Σ_c exp(A_c B_cᵀ) ∘ C_c D_cᵀ, one component after the other: [..., N, N2].

    Memory and cache hold the matrices of one component. Its gradient computes them again; with G
    from above and E = G ∘ exp(ABᵀ) it is

        (E ∘ CDᵀ) B in A,    (E ∘ CDᵀ)ᵀ A in B,    E D in C,    Eᵀ C in D.

    :param factors: A, B, C and D, [components, ..., N or N2, 2 or 3].
    """

    def value(A: tf.Tensor, B: tf.Tensor, C: tf.Tensor, D: tf.Tensor) -> tf.Tensor:
        return tf.exp(tf.matmul(A, B, transpose_b=True)) * tf.matmul(C, D, transpose_b=True)

    def gradient(upstream: tf.Tensor) -> Any:
        @tf.autograph.experimental.do_not_convert  # converted, it takes half as long again
        def of_component(factors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            A, B, C, D = factors
            E = upstream * tf.exp(tf.matmul(A, B, transpose_b=True))
            dA, dC = _products(E, C, D, B, transpose=False)
            dB, dD = _products(E, D, C, A, transpose=True)
            return [dA, dB, dC, dD]

        return tf.map_fn(of_component, list(factors))

    first, others = [part[0] for part in factors], [part[1:] for part in factors]
    return tf.foldl(lambda total, part: total + value(*part), others, value(*first)), gradient


def _products(
    E: tf.Tensor, C: tf.Tensor, D: tf.Tensor, B: tf.Tensor, *, transpose: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return (E ∘ CDᵀ) B = Σ_k C_k ∘ E (D_k ∘ B), and E D, by one product with E, or with Eᵀ."""
    K = int(D.shape[-1])
    columns = tf.concat([D, *(D[..., k, None] * B for k in range(K))], -1)
    ED, *parts = tf.split(
        tf.matmul(E, columns, transpose_a=transpose), [K, *[int(B.shape[-1])] * K], axis=-1
    )
    return tf.add_n([C[..., k, None] * part for k, part in enumerate(parts)]), ED
