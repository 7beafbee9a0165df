"""Training for as long as held-out data gain by it."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.likelihoods import Gaussian, Likelihood

from . import inputs, labels
from .evaluation import Evaluation
from .gaussian_process import GaussianProcess
from .models import GVI

FEWEST_STEPS = 50
"""At least so many steps between two looks at the held-out data."""

PASSES = 2
"""So many passes over the data between two looks, where they take more steps."""


class Found(NamedTuple):
    """How a training went."""

    epochs: int
    """After how many epochs the held-out data were predicted best; none if they never gained."""
    history: dict[str, list[float]]
    """Of each epoch: the training loss, its terms, and `val_nll`."""


class Training(NamedTuple):
    """Adam with a learning rate that falls along a cosine, on batches in a seeded order."""

    epochs: int
    """At most so many epochs, as one look at the held-out data and the steps before are called."""
    batch_size: int
    learning_rate: float
    seed: int

    def run(
        self,
        model: GVI,
        data: RegressionData,
        held_out: RegressionData | None = None,
        *,
        epochs: int | None = None,
        patience: int = 5,
    ) -> Found:
        """Train a model, and leave it as it was when the held-out data were predicted best.

        :param model: the model, at its start.
        :param data: (X, Y) to train with.
        :param held_out: (X, Y) to stop by; without, all epochs are run.
        :param epochs: stop after so many, on the same course of the learning rate.
        :param patience: stop when so many epochs have brought no gain.
        """
        import keras

        epochs = self.epochs if epochs is None else epochs
        if epochs == 0:
            return Found(0, {})
        steps = max(FEWEST_STEPS, PASSES * len(data[0]) // self.batch_size)
        rate = keras.optimizers.schedules.CosineDecay(self.learning_rate, self.epochs * steps)
        model.compile(keras.optimizers.Adam(rate), steps_per_execution=steps)
        watch = [] if held_out is None else [_keep_best(model, held_out, patience)]
        history = model.fit(
            data,
            epochs=epochs,
            batch_size=min(self.batch_size, len(data[0])),
            steps_per_epoch=steps,
            callbacks=watch,
            seed=self.seed,
            verbose=0,
        ).history
        if watch:
            model.set_weights(watch[0].weights)
            epochs = watch[0].epochs
        return Found(epochs, history)


def _keep_best(model: GVI, held_out: RegressionData, patience: int) -> Any:
    """Return a callback of Keras that remembers the weights of the best held-out density."""
    import keras

    score = tf.function(
        functools.partial(tempered_nll, model.variational, model.likelihood, held_out),
        autograph=False,
    )

    class KeepBest(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            self.epochs, self.best, self.weights = 0, float(score()), model.get_weights()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            value = float(score())
            if logs is not None:
                logs["val_nll"] = value
            if value < self.best:
                self.epochs, self.best, self.weights = epoch + 1, value, model.get_weights()
            elif epoch + 1 - self.epochs >= patience:
                self.model.stop_training = True

    return KeepBest()


def tempered_nll(
    process: GaussianProcess, likelihood: Likelihood, data: RegressionData
) -> tf.Tensor:
    """Return the negative log density of data that tempering with them would reach: [].

    With noise that is Gaussian and v the variance of y it is
    ½ log( average of (y - m)² / v ) + ½ average of log v, up to a constant and summed over outputs:
    a constant factor in v, which tempering would mend, does not matter. Under another likelihood
    it is the density as it is.
    """
    X, Y = inputs.as_rows(data[0], process), data[1]
    with Evaluation():
        f_mean, f_variance = process.predict(X)
        if not isinstance(likelihood, Gaussian):
            Y = labels.observed(likelihood, Y)
            return -tf.reduce_mean(likelihood.predict_log_density(X, f_mean, f_variance, Y))
        variance = f_variance + likelihood.conditional_variance(X, f_mean)
    factor = tf.reduce_mean(tf.square(Y - f_mean) / variance, axis=0)  # [J]
    logs = tf.math.log(factor) + tf.reduce_mean(tf.math.log(variance), axis=0)
    return 0.5 * tf.reduce_sum(logs + 1.0 + np.log(2.0 * np.pi))
