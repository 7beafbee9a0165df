"""The mean of several outputs that are one function of the input and the output's number."""

from __future__ import annotations

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.functions import MeanFunction

from ..kernels.output_as_input import at_output, without_output


class MeanOfOutputs(MeanFunction):
    """E f_j(x) = m([x, j]), for J outputs: the mean that goes with `kernels.OutputAsInput`.

    :param mean_function: m, of rows [N, D + 1] with the number of the output in the last column.
    :param num_outputs: J.
    """

    def __init__(self, mean_function: MeanFunction, num_outputs: int) -> None:
        super().__init__()
        self.mean_function = mean_function
        self.num_outputs = num_outputs

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """(D,), if the inducing points of m say so."""
        return without_output(self.mean_function)

    @check_shapes(
        "X: [N, D]",
        "return: [N, J]",
    )
    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return the means of all outputs: [N, J]."""
        J = self.num_outputs
        return tf.reshape(self.mean_function(at_output(X, tf.range(J))), [-1, J])
