"""The kernel of a function whose slope is a Brownian motion: a trend that changes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.kernels import Kernel
from gpflow.utilities import positive
from gpflow.utilities.ops import broadcasting_elementwise


class IntegratedBrownianMotion(Kernel):
    """The integral of a Brownian motion, for x of one column.

    ``k(x, x') = v (|x - x'|³ - |x|³ - |x'|³ + 3 x x' (|x| + |x'|)) / 12``

    The slope is a Brownian motion on both sides of x = 0, where it is zero, and so is the function;
    its variance ``v |x|³/3`` grows without bound. With a constant and a line of large variances the
    posterior mean is a cubic smoothing spline (Wahba 1978, "Improper priors, spline smoothing and
    the problem of guarding against model errors in regression"), and the origin does not matter.

    :param variance: v, the variance by which the slope changes within a unit of x.
    """

    def __init__(self, variance: Any = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.variance = Parameter(variance, transform=positive())

    @check_shapes(
        "X: [batch..., N, 1]",
        "X2: [batch2..., N2, 1]",
        "return: [batch..., N, batch2..., N2] if X2 is not None",
        "return: [batch..., N, N] if X2 is None",
    )
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """Return k(X, X2)."""
        x = tf.convert_to_tensor(X)[..., 0]
        if X2 is None:
            return self._of_pairs(x[..., :, None], x[..., None, :])
        x2 = tf.convert_to_tensor(X2)[..., 0]
        return broadcasting_elementwise(self._of_pairs, x, x2)

    def _of_pairs(self, s: tf.Tensor, t: tf.Tensor) -> tf.Tensor:
        a, b = tf.abs(s), tf.abs(t)
        cubes = tf.abs(s - t) ** 3 - a**3 - b**3 + 3.0 * s * t * (a + b)
        return self.variance * cubes / 12.0

    @check_shapes(
        "X: [batch..., N, 1]",
        "return: [batch..., N]",
    )
    def K_diag(self, X: TensorType) -> tf.Tensor:
        """Return ``v |x|³/3`` for each row of X."""
        return self.variance * tf.abs(tf.convert_to_tensor(X)[..., 0]) ** 3 / 3.0
