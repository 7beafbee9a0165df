"""Training of a network by Keras, before a Gaussian process is put around it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..._core import network_layers, progress
from ..._core.errors import shown
from ..._core.network_function import as_function
from ..._core.network_variables import is_keras, keras_of
from ..rows.split import Rows, Split
from ..schedules import EarlyStopping, Passes
from .network_rows import BLOCK, Inputs


@dataclasses.dataclass(frozen=True)
class NetworkTraining:
    """Training with the method `fit` of Keras, and early stopping by held-out rows.

    A model that is compiled is trained as it was compiled; any other by Adam, whose learning rate
    falls along a cosine, with the cross entropy of labels or the squared error of numbers.
    """

    schedule: Passes
    learning_rate: float
    early_stopping: EarlyStopping
    seed: int
    callbacks: Sequence[Any] = ()
    """Those of the user, beside early stopping."""

    def of_all(
        self, networks: list[Any], inputs: Inputs, split: Split, loss: str | None
    ) -> tuple[list[Any], dict[str, list[float]]]:
        """Return trained copies of networks, and the history of Keras; one after the other.

        The batches of each are in another order. The history of the second is "loss of network 2".
        """
        trained, history = [], {}
        for i, network in enumerate(networks):
            which = f" {i + 1} of {len(networks)}" if len(networks) > 1 else ""
            progress.now(f"training the network{which} on {len(split.train[0])} rows")
            training = dataclasses.replace(self, seed=self.seed + i)
            result, of_network = training(network, inputs, split, loss)
            trained.append(result)
            named = f" of network {i + 1}" if i else ""
            history.update({f"{key}{named}": values for key, values in of_network.items()})
        return trained, history

    def __call__(
        self, network: Any, inputs: Inputs, split: Split, loss: str | None
    ) -> tuple[Any, dict[str, list[float]]]:
        """Return a trained copy of a network, and the history of Keras.

        :param network: a model of Keras 3 or tf_keras.
        :param inputs: what it takes.
        :param split: the rows to train with, and those to stop by; numbers are predicted in
            standard units.
        :param loss: "logits" or "probabilities", what the network returns for labels; or None for
            numbers.
        """
        if not (is_keras(network) and hasattr(network, "fit")):
            raise TypeError(
                f"network is {shown(network)}; to be trained it must be a model of Keras. Pass "
                "one, or train_network=False."
            )
        network = copy.deepcopy(as_function(network)).network
        schedule = self.schedule(len(split.train[0]))
        if schedule.epochs == 0:
            return network, {}
        keras = keras_of(network)
        if not _is_compiled(network):
            rate = keras.optimizers.schedules.CosineDecay(self.learning_rate, schedule.steps)
            network.compile(keras.optimizers.Adam(rate), _loss(keras, network, loss))
        X, Y = split.train[0], _targets(split, split.train, loss)
        train = _batches(inputs.floats(X), Y, schedule.batch_size, seed=self.seed)
        held_out, callbacks = None, list(self.callbacks)
        if split.validation is not None:
            X, Y = split.validation[0], _targets(split, split.validation, loss)
            held_out = _batches(inputs.floats(X), Y, BLOCK)
            stop = keras.callbacks.EarlyStopping
            patience = self.early_stopping.patience
            callbacks.append(stop(patience=patience, restore_best_weights=True))
        try:
            fitted = network.fit(
                train,
                epochs=schedule.epochs,
                steps_per_epoch=schedule.steps_per_epoch,
                validation_data=held_out,
                callbacks=callbacks,
                shuffle=False,  # the batches are
                verbose=0,
            )
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"network {network.name!r} cannot be trained as it is compiled, with the loss "
                f"{shown(network.loss)}: {error} Labels are whole numbers, not a one-hot code."
            ) from error
        return network, fitted.history


def all_compiled(networks: Any) -> bool:
    """Return True if a network, or each of several, is trained as it was compiled."""
    return all(map(_is_compiled, network_layers.members(networks)))


def _is_compiled(network: Any) -> bool:
    return getattr(network, "optimizer", None) is not None


def _loss(keras: Any, network: Any, loss: str | None) -> Any:
    if loss is None:
        return "mse"
    from_logits = loss == "logits"
    if network.output_shape[-1] == 1:
        return keras.losses.BinaryCrossentropy(from_logits=from_logits)
    return keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)


def _targets(split: Split, rows: Rows, loss: str | None) -> AnyNDArray:
    """Return labels as whole numbers, or numbers in standard units."""
    if loss is not None:
        return rows[1].astype(np.int32)
    return np.asarray(split.outputs.standard(rows[1]))


def _batches(
    X: AnyNDArray, Y: AnyNDArray, size: int, *, seed: int | None = None
) -> tf.data.Dataset:
    """Return batches of rows, again and again in random order if there is a seed."""
    numbers = tf.data.Dataset.range(len(X))
    if seed is not None:
        numbers = numbers.shuffle(len(X), seed=seed).repeat()
    inputs, targets = tf.constant(X, tf.float32), tf.constant(Y)
    batches = numbers.batch(size)
    return batches.map(lambda at: (tf.gather(inputs, at), tf.gather(targets, at))).prefetch(2)
