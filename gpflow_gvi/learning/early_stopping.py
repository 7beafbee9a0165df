"""Early stopping: training for as long as validation data gain by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.likelihoods import Likelihood

from .._core import images, labels
from .._core.graphs import without_gradients
from .._core.memo import memoised
from .._core.mode import inference
from ..calibration.tempering import factor_of_errors
from ..gaussian_process import GaussianProcess
from ..likelihoods import is_gaussian
from ..models import GVI


class KeepBest(keras.callbacks.EarlyStopping):
    """Early stopping that leaves the weights of the best epoch, or those of the start.

    :param score: what is to be small, the `tempered_nll` of validation data; `val_nll` in the logs.
    :param patience: the number of epochs without a gain after which training stops.
    """

    def __init__(self, score: Callable[[], float], patience: int) -> None:
        super().__init__("val_nll", mode="min", patience=patience, restore_best_weights=True)
        self._score = score

    @property
    def epochs(self) -> int:
        """After how many epochs the score was best: 0 if none was better than the start."""
        return int(self.best_epoch) + 1

    def on_train_begin(self, logs: Any = None) -> None:
        """Take the start for the best so far."""
        super().on_train_begin(logs)
        self.best, self.best_epoch, self.best_weights = self._score(), -1, self.model.get_weights()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Evaluate the score."""
        logs = {} if logs is None else logs
        logs["val_nll"] = self._score()
        super().on_epoch_end(epoch, logs)


def score_of(model: GVI, data: RegressionData) -> Callable[[], float]:
    """Return a function without arguments: −log density of held-out data, if it were tempered."""
    tensors = list(map(tf.convert_to_tensor, data))
    specs = (tf.TensorSpec([None, *each.shape[1:]], each.dtype) for each in tensors)
    graph = without_gradients(
        lambda *rows: tempered_nll(model.variational, model.likelihood, rows), *specs
    )
    return lambda: float(graph(*tensors))


def tempered_nll(
    process: GaussianProcess, likelihood: Likelihood, data: RegressionData
) -> tf.Tensor:
    """Return the negative log density of data that tempering with them would reach: [].

    With noise that is Gaussian and v the variance of y it is
    ½ log( average of (y - m)² / v ) + ½ average of log v, up to a constant and summed over outputs:
    a constant factor in v, which tempering finds, does not matter. Under another likelihood
    it is the density as it is.
    """
    X, Y = images.as_rows(data[0], process), data[1]
    with memoised(), inference():
        f_mean, f_variance = process.predict(X)
        if not is_gaussian(likelihood):
            Y = labels.observed(likelihood, Y)
            return -tf.reduce_mean(likelihood.predict_log_density(X, f_mean, f_variance, Y))
        variance = f_variance + likelihood.conditional_variance(X, f_mean)
    logs = tf.math.log(factor_of_errors(Y, f_mean, variance)) + tf.reduce_mean(
        tf.math.log(variance), axis=0
    )
    return 0.5 * tf.reduce_sum(logs + 1.0 + np.log(2.0 * np.pi))
