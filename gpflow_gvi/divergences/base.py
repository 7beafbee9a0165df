"""A divergence compares two Gaussian processes, Q first, at given inputs."""

from __future__ import annotations

import abc

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Module, TensorType

from .._core import checks
from ..gaussian_process import GaussianProcess, GaussianVector
from .contexts import Context


class Divergence(Module, abc.ABC):
    """D[Q, P] as an average over the input measure, so that one weight fits all batch sizes.

    :param context: where to evaluate it instead of at the inputs that it is given; see `contexts`.
    """

    context: Context | None = None

    def __init__(self, *, context: Context | None = None) -> None:
        super().__init__()
        if not isinstance(context, Context | None):
            raise TypeError(
                f"context is a {type(context).__name__}; it must be one of gpflow_gvi.contexts. "
                "For an array of inputs, pass contexts.Inputs(array)."
            )
        self.context = context

    @check_shapes(
        "X: [N, D...]",
        "return: []",
    )
    def __call__(self, q: GaussianProcess, p: GaussianProcess, X: TensorType) -> tf.Tensor:
        """Return D[Q, P] with the rows of X as the input measure, or those of the context for X."""
        for name, process in (("q", q), ("p", p)):
            checks.instance(name, process, GaussianProcess)
        return self.compare(q.at(X), p.at(X))

    bounds_evidence = False
    """Whether the objective with it is the bound of SVGP, by which P may be trained as well."""

    def check(self, q: GaussianProcess, p: GaussianProcess) -> None:
        """Raise for a Q and a P that this divergence cannot compare; most can compare any."""
        return

    def compare(
        self, q: GaussianVector, p: GaussianVector, num_data: TensorType | None = None
    ) -> tf.Tensor:
        """Return D[Q, P] of processes at their inputs, or at those of the context for these.

        :param num_data: the number of points for which these stand, where they are a minibatch.
            What is an average over inputs, of the context or not, does not depend on it.
        """
        if q.num_outputs != p.num_outputs and 1 not in (q.num_outputs, p.num_outputs):
            raise ValueError(
                f"Q has {q.num_outputs} outputs and P has {p.num_outputs}; they must be the same "
                "in number, or one of them 1 (shared)."
            )
        if num_data is None:
            num_data = tf.shape(q.X)[0]
        if self.context is not None:
            points = self.context(q.X)
            q, p = q.process.at(points), p.process.at(points)
        return self._divergence(q, p, tf.cast(num_data, q.mean.dtype))

    @abc.abstractmethod
    def _divergence(self, q: GaussianVector, p: GaussianVector, num_data: tf.Tensor) -> tf.Tensor:
        """Return D[Q, P]: []."""
