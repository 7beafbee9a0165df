"""Q with its factorisations computed, for predicting many times."""

from __future__ import annotations

import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.posteriors import (
    AbstractPosterior,
    PrecomputeCacheType,
    PrecomputedValue,
)

from .._core import images
from .._core.data import inputs
from .._core.memo import Key, memoised, prepare
from .._core.mode import inference
from ..gaussian_process import GaussianProcess


class GVIPosterior(AbstractPosterior):
    """A GPflow posterior of any variational process.

    It keeps what depends on inducing variables and observations alone (each part of Q computes it
    in its `prepare`), as tensors or as variables that `update_cache` renews.

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
        self._keys: tuple[Key, ...] = ()
        kind = PrecomputeCacheType.NOCACHE if precompute_cache is None else precompute_cache
        self.update_cache(PrecomputeCacheType(kind))

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        with memoised() as memo, inference():
            prepare(self.process)
        self._memo = memo  # the keys hold ids of objects that must not die
        values = memo.by_key()
        self._keys = tuple(values)
        return tuple(
            PrecomputedValue(value, (False,) * value.shape.rank) for value in values.values()
        )

    def predict_f(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Return mean and (co)variance at Xnew from what is kept, in GPflow's shapes."""
        return super().predict_f(self._rows(Xnew), full_cov, full_output_cov)

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
        known = zip(self._keys, map(tf.convert_to_tensor, cache), strict=True)
        with memoised(given=dict(known)), inference():
            return self.process.predict(Xnew, full_cov, full_output_cov)

    def _conditional_fused(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        with memoised(), inference():
            return self.process.predict(Xnew, full_cov, full_output_cov)
