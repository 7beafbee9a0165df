"""An inter-domain inducing variable that GPflow does not know: steps on the circle."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorLike


class CircleArcCosine(gpflow.kernels.Kernel):
    """The arc-cosine kernel of order 0 between angles: k(θ, θ') = variance · (π - d(θ, θ')).

    d is the distance along the circle, in [0, π]. As π - d = |π - (θ - θ' mod 2π)|, k is a triangle
    wave of the difference; its Fourier coefficients are not negative, so it is a covariance.
    """

    def __init__(self, variance: float = 1.0) -> None:
        super().__init__()
        self.variance = gpflow.Parameter(variance, transform=gpflow.utilities.positive())

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        other = X if X2 is None else X2
        return self.of_difference(X - tf.linalg.matrix_transpose(other))

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return self.of_difference(tf.zeros_like(X[:, 0]))

    def of_difference(self, angle: tf.Tensor) -> tf.Tensor:
        return self.variance * tf.abs(np.pi - tf.math.floormod(angle, 2 * np.pi))


class Heaviside(gpflow.inducing_variables.InducingVariables):
    """u_m = ( f(θ_m + w) - f(θ_m - w) ) / 2w + ∫ f dθ, the integral over the whole circle.

    The limit w → 0 is the derivative at θ_m plus the integral. Its covariance with f is a Heaviside
    step at θ_m (and one back at the antipode), but f has no derivative: Var(u_m) would be infinite.
    With a finite half-width w every covariance is finite and exact. With κ(θ - θ') = k(θ, θ'):

        Cov(u_m, f(θ)) = ( κ(θ_m + w - θ) - κ(θ_m - w - θ) ) / 2w + π² variance,
        Cov(u_m, u_n)  = ( 2κ(t) - κ(t + 2w) - κ(t - 2w) ) / 4w² + 2π³ variance,   t = θ_m - θ_n,

    because ∫ κ = π² variance wherever κ is centred, so that a difference of f has no covariance
    with ∫ f. Centres should not be antipodal: f(θ) + f(θ + π) is the same for all θ under k.
    """

    def __init__(self, centres: np.ndarray, half_width: float = 0.2) -> None:
        super().__init__()
        self.centres = gpflow.Parameter(centres)  # [M]
        self.half_width = half_width

    @property
    def num_inducing(self) -> tf.Tensor:
        return tf.shape(self.centres)[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.centres.shape[0], 1, 1)


@gpflow.covariances.Kuf.register(Heaviside, CircleArcCosine, TensorLike)
def _kuf(steps: Heaviside, kernel: CircleArcCosine, X: tf.Tensor) -> tf.Tensor:
    w = steps.half_width
    difference = steps.centres[:, None] - tf.linalg.matrix_transpose(X)  # [M, N]
    rise = kernel.of_difference(difference + w) - kernel.of_difference(difference - w)
    return rise / (2 * w) + np.pi**2 * kernel.variance


@gpflow.covariances.Kuu.register(Heaviside, CircleArcCosine)
def _kuu(steps: Heaviside, kernel: CircleArcCosine, *, jitter: float = 0.0) -> tf.Tensor:
    w = steps.half_width
    t = steps.centres[:, None] - steps.centres[None, :]
    bend = (
        2 * kernel.of_difference(t)
        - kernel.of_difference(t + 2 * w)
        - kernel.of_difference(t - 2 * w)
    )
    Kuu = bend / (4 * w**2) + 2 * np.pi**3 * kernel.variance
    return Kuu + jitter * tf.eye(steps.num_inducing, dtype=Kuu.dtype)
