"""A divergence compares two Gaussian processes, Q first, at given inputs."""

from __future__ import annotations

import abc

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..gaussian_process import GaussianProcess, GaussianVector


class Divergence(abc.ABC):
    """D[Q, P] as an average over the input measure, so that one weight fits all batch sizes."""

    @check_shapes(
        "X: [N, D...]",
        "return: []",
    )
    def __call__(self, q: GaussianProcess, p: GaussianProcess, X: TensorType) -> tf.Tensor:
        """Return D[Q, P] with the rows of X as the input measure.

        :param q: the variational process Q.
        :param p: the regulariser P.
        :param X: the inputs, [N, D].
        """
        for name, process in (("q", q), ("p", p)):
            if not isinstance(process, GaussianProcess):
                raise TypeError(f"{name} is {process!r}; it must be a GaussianProcess.")
        return self.compare(q.at(X), p.at(X))

    def check(self, q: GaussianProcess, p: GaussianProcess) -> None:
        """Raise for a Q and a P that this divergence cannot compare; most can compare any."""
        return

    def compare(
        self, q: GaussianVector, p: GaussianVector, num_data: TensorType | None = None
    ) -> tf.Tensor:
        """Return D[Q, P] of processes that are at their inputs already.

        :param num_data: the number of points for which these stand, where they are a minibatch.
        """
        if q.num_outputs != p.num_outputs and 1 not in (q.num_outputs, p.num_outputs):
            raise ValueError(
                f"Q has {q.num_outputs} outputs and P has {p.num_outputs}; they must be the same "
                "in number, or one of them 1 (shared)."
            )
        if num_data is None:
            num_data = tf.shape(q.X)[0]
        return self._divergence(q, p, tf.cast(num_data, q.mean.dtype))

    @abc.abstractmethod
    def _divergence(self, q: GaussianVector, p: GaussianVector, num_data: tf.Tensor) -> tf.Tensor:
        """Return D[Q, P]: []."""
