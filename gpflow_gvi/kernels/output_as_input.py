"""Several outputs as one function of the input and the number of the output."""

from __future__ import annotations

import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import TensorType
from gpflow.kernels import Kernel, MultioutputKernel

from .._core import images, outputs

ROWS_AT_ONCE = 500
"""Rows [x, j] whose covariances are all computed at once, though only those at one x are kept: it
takes far less time than one x after the other."""


class OutputAsInput(MultioutputKernel):
    """Cov(f_i(x), f_j(x')) = k([x, i], [x', j]), for J outputs.

    Any kernel k of rows with the number of the output in their last column makes a kernel of
    correlated outputs: a product of a kernel of x and GPflow's `Coregion` makes that of intrinsic
    coregionalisation, and a sum of such products that of linear coregionalisation (Álvarez, Rosasco
    and Lawrence 2012, "Kernels for vector-valued functions: a review", section 4.2). Observations
    need not be of all outputs at one x.

    :param kernel: k, of rows [N, D + 1].
    :param num_outputs: J.
    """

    def __init__(self, kernel: Kernel, num_outputs: int) -> None:
        super().__init__()
        self.kernel = kernel
        self._num_outputs = num_outputs

    @property
    def num_latent_gps(self) -> int:
        """J."""
        return self._num_outputs

    @property
    def latent_kernels(self) -> tuple[Kernel, ...]:
        """The kernel that all outputs make up."""
        return (self.kernel,)

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """(D,), if the inducing points of k say so."""
        return without_output(self.kernel)

    @inherit_check_shapes
    def K(
        self, X: TensorType, X2: TensorType | None = None, full_output_cov: bool = True
    ) -> tf.Tensor:
        """Return the covariance of all outputs, or of each: [N, J, N2, J] or [J, N, N2]."""
        if not full_output_cov:
            return tf.stack([self._between(X, X2, [j]) for j in range(self._num_outputs)])
        full = self._between(X, X2, tf.range(self._num_outputs))
        of_rows = [tf.shape(X)[0], self._num_outputs]
        of_columns = of_rows if X2 is None else [tf.shape(X2)[0], self._num_outputs]
        return tf.reshape(full, [*of_rows, *of_columns])

    @inherit_check_shapes
    def K_diag(self, X: TensorType, full_output_cov: bool = True) -> tf.Tensor:
        """Return the covariance at each input, or the variances: [N, J, J] or [N, J]."""
        J, numbers = self._num_outputs, tf.range(self._num_outputs)
        if not full_output_cov:
            return tf.reshape(outputs.variance(self.kernel, at_output(X, numbers)), [-1, J])
        X = tf.convert_to_tensor(X)
        N = tf.shape(X)[0]
        size = tf.clip_by_value(N, 1, max(1, ROWS_AT_ONCE // J))
        count = -(-N // size)
        places = tf.minimum(tf.range(count * size), N - 1)  # the last block is filled up
        blocks = tf.reshape(tf.gather(X, places), [count, size, tf.shape(X)[1]])
        # AutoGraph would take longer to convert what lies beneath than that takes to run.
        of_block = tf.autograph.experimental.do_not_convert(
            lambda rows: tf.einsum("ninj->nij", self.K(rows))
        )
        found = tf.map_fn(of_block, blocks)  # [count, size, J, J]
        return tf.reshape(found, [count * size, J, J])[:N]

    def _between(self, X: TensorType, X2: TensorType | None, numbers: TensorType) -> tf.Tensor:
        rows = at_output(X, numbers), None if X2 is None else at_output(X2, numbers)
        return outputs.covariance(self.kernel, *rows)[0]


@check_shapes(
    "X: [N, D]",
    "numbers: [J]",
)
def at_output(X: TensorType, numbers: TensorType) -> tf.Tensor:
    """Return each row once for each number of an output, which is its last column: [N J, D + 1]."""
    X = tf.convert_to_tensor(X)
    N, J = tf.shape(X)[0], tf.shape(numbers)[0]
    numbers = tf.cast(tf.tile(numbers, [N]), X.dtype)  # [N J]
    rows = tf.repeat(X, J, axis=0)  # [N J, D]
    return tf.concat([rows, numbers[:, None]], axis=1)


def without_output(part: tf.Module) -> tuple[int, ...] | None:
    """Return (D,) for a part that takes rows [N, D + 1], if it is known."""
    shape = images.input_shape(part)
    return None if shape is None else (shape[-1] - 1,)
