"""Q with its factorisations computed, for predicting many times."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType, PrecomputedValue

from .._core import images
from .._core.data import inputs
from .._core.graphs import Compiled, without_gradients
from .._core.memo import Key, Memo, memoised, prepare
from .._core.mode import inference
from .._core.state import Snapshot
from ..gaussian_process import GaussianProcess


class GVIPosterior(AbstractPosterior):
    """A GPflow posterior of any variational process.

    It keeps what depends on inducing variables and observations alone (each part of Q computes it
    in its `prepare`), as tensors or as variables that `update_cache` renews. Means and variances
    come from a graph from the second call on, a block of rows at a time.

    :param process: the variational process Q.
    :param precompute_cache: how to keep it, as in GPflow.
    """

    def __init__(
        self,
        process: GaussianProcess,
        *,
        precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR,
    ) -> None:
        # Q's mean is part of the prediction; there are no inducing data that all Qs have.
        super().__init__(process.kernel, tf.zeros([0, 1]), mean_function=None)
        self.process = process
        self._known: dict[Key, Any] = {}
        self._forget_graph()
        if precompute_cache is not None:
            self.update_cache(PrecomputeCacheType(precompute_cache))

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        self._memo = _prepared(self.process)  # the keys hold ids of objects that must not die
        self._known = self._memo.by_key()  # numbers, or pairs of them
        return tuple(
            PrecomputedValue(value, (False,) * value.shape.rank)
            for value in tf.nest.flatten(list(self._known.values()))
        )

    def update_cache(self, precompute_cache: PrecomputeCacheType | None = None) -> None:
        """Compute the cache anew, as in GPflow."""
        super().update_cache(precompute_cache)
        self._forget_graph()

    def _forget_graph(self) -> None:
        """Begin a new graph: it holds the tensors of the cache."""
        self._marginals = Compiled(functools.partial(AbstractPosterior.predict_f, self))

    def is_current(self) -> tf.Tensor:
        """Return True if the variables that the cache is computed from have not changed: []."""
        return self._snapshot.is_current()

    def renew(self) -> None:
        """Compute the cache of variables as they are now."""
        self._snapshot.renew()
        self.update_cache()

    @functools.cached_property
    def _snapshot(self) -> Snapshot:
        with tf.init_scope():
            graph = without_gradients(lambda: list(_prepared(self.process).by_key().values()))
            return Snapshot(graph.variables)

    def predict_f(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Return mean and (co)variance at Xnew from the cache, in GPflow's shapes."""
        X = self._rows(Xnew)
        if full_cov or full_output_cov or self.cache is None:
            return super().predict_f(X, full_cov, full_output_cov)
        mean, variance = self._marginals(X)
        return mean, variance

    def fused_predict_f(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Return mean and (co)variance at Xnew, all computed anew."""
        return super().fused_predict_f(self._rows(Xnew), full_cov, full_output_cov)

    def _rows(self, X: TensorType) -> TensorType:
        return images.as_rows(inputs("X", X), self.process)

    def _conditional_with_precompute(
        self,
        cache: tuple[tf.Tensor, ...],
        Xnew: TensorType,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        tensors = list(map(tf.convert_to_tensor, cache))
        values = tf.nest.pack_sequence_as(list(self._known.values()), tensors)
        with memoised(given=dict(zip(self._known, values, strict=True))), inference():
            return self.process.predict(Xnew, full_cov, full_output_cov)

    def _conditional_fused(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        with memoised(), inference():
            return self.process.predict(Xnew, full_cov, full_output_cov)


def _prepared(process: GaussianProcess) -> Memo:
    """Return the values that a process computes for predictions."""
    with memoised() as memo, inference():
        prepare(process)
    return memo
