"""Early stopping: training for as long as validation data gain by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, RegressionData
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

    Where Q starts at P it stays there unless the gain of held-out rows exceeds its standard error,
    as the best of many epochs gains a little by chance: the simplest model within a standard error
    of the best one (Breiman, Friedman, Olshen and Stone 1984, "Classification and regression
    trees").

    :param losses: what is to be small, the `tempered_losses` of validation data; their mean is
        `val_nll` in the logs.
    :param patience: the number of epochs without a gain after which training stops.
    :param standard_errors: how many of them the start is left for; 0 where it is not P.
    """

    def __init__(
        self, losses: Callable[[], AnyNDArray], patience: int, *, standard_errors: float
    ) -> None:
        super().__init__("val_nll", mode="min", patience=patience, restore_best_weights=True)
        self._losses = losses
        self.standard_errors = standard_errors

    @property
    def epochs(self) -> int:
        """After how many epochs the weights were left: 0 for those of the start."""
        return int(self.best_epoch) + 1

    def on_train_begin(self, logs: Any = None) -> None:
        """Take the start for the best so far."""
        super().on_train_begin(logs)
        self._at_start = self._losses(), self.model.get_weights()
        self.best, self.best_epoch = float(np.mean(self._at_start[0])), -1
        self.best_weights = self._at_start[1]

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Evaluate the losses."""
        logs = {} if logs is None else logs
        logs["val_nll"] = float(np.mean(self._losses()))
        super().on_epoch_end(epoch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        """Restore the weights of the best epoch, and then, if it may be chance, of the start."""
        super().on_train_end(logs)
        losses, weights = self._at_start
        gains = losses - self._losses()
        standard_error = np.std(gains) / np.sqrt(len(gains))
        if np.mean(gains) <= self.standard_errors * standard_error:
            self.best_epoch = -1
            self.model.set_weights(weights)


def losses_of(model: GVI, data: RegressionData) -> Callable[[], AnyNDArray]:
    """Return a function without arguments: the losses of held-out data, if it were tempered."""
    tensors = list(map(tf.convert_to_tensor, data))
    specs = (tf.TensorSpec([None, *each.shape[1:]], each.dtype) for each in tensors)
    graph = without_gradients(
        lambda *rows: tempered_losses(model.variational, model.likelihood, rows), *specs
    )
    return lambda: np.asarray(graph(*tensors))


def tempered_losses(
    process: GaussianProcess, likelihood: Likelihood, data: RegressionData
) -> tf.Tensor:
    """Return the negative log density of each row that tempering with all would reach: [N].

    With noise that is Gaussian and v the variance of y it is that of N(m, a v), where a is the
    average of (y - m)² / v over the rows: a constant factor in v, which tempering finds, does not
    matter. Under another likelihood it is the density as it is.
    """
    X, Y = images.as_rows(data[0], process), data[1]
    with memoised(), inference():
        f_mean, f_variance = process.predict(X)
        if not is_gaussian(likelihood):
            Y = labels.observed(likelihood, Y)
            return -likelihood.predict_log_density(X, f_mean, f_variance, Y)
        variance = f_variance + likelihood.conditional_variance(X, f_mean)
    scale = tf.sqrt(factor_of_errors(Y, f_mean, variance) * variance)
    return -tf.reduce_sum(tfp.distributions.Normal(f_mean, scale).log_prob(Y), axis=-1)
