"""Training of a network by Keras, before a Gaussian process is put around it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..._core import network_layers, progress
from ..._core.network_function import as_function, is_keras
from ...errors import short_repr
from ..q_training import CosineAdam, EarlyStopping, Passes, Schedule
from ..rows.scaling import Scaling
from ..rows.split import Rows, Split
from .network_rows import Inputs, Outputs
from .reach import BLOCK

Targets = Callable[[AnyNDArray], tf.Tensor]

OF_DIFFERENCES = ("meansquarederror", "meanabsoluteerror", "huber", "logcosh")
"""Losses of differences from Y, for which any shift of Y does."""

OF_CODES = ("categorical", "binary", "kldivergence", *OF_DIFFERENCES)
"""What losses of several columns begin with that take labels as a one-hot code."""

RANGES = {
    **dict.fromkeys(("sigmoid", "hard_sigmoid", "softmax"), (0.0, 1.0)),
    **dict.fromkeys(("tanh", "hard_tanh", "softsign"), (-1.0, 1.0)),
    **dict.fromkeys(("relu", "softplus", "exponential"), (0.0, np.inf)),
    "relu6": (0.0, 6.0),
}
"""The values that activations have."""


@dataclasses.dataclass(frozen=True)
class NetworkTraining:
    """Training with the method `fit` of Keras, and early stopping by held-out rows.

    A model that is compiled is trained as it was compiled; any other by Adam, whose learning rate
    falls along a cosine, with the cross entropy of labels or the squared error of numbers.
    """

    schedule: Passes
    optimizer: CosineAdam
    seed: int
    callbacks: Sequence[Any] = ()
    """Those of the user, beside early stopping."""

    def of_all(
        self, networks: list[Any], inputs: Inputs, split: Split, outputs: Outputs, targets: Targets
    ) -> tuple[list[Any], dict[str, list[float]]]:
        """Return trained copies of networks, and the history of Keras; one after the other.

        The batches of each are in another order. The history of the second is "loss of network 2".

        :param outputs: what the networks return.
        :param targets: what makes of Y the numbers that are predicted, or the columns of labels.
        """

        def batches(
            rows: Rows, size: int, network: Any, seed: int | None = None
        ) -> tf.data.Dataset:
            """Return batches of rows, again and again in random order if there is a seed."""
            declared = [tf.as_dtype(each.dtype) for each in getattr(network, "inputs", None) or ()]
            taken = (declared or [tf.float32])[0].as_numpy_dtype
            X, Y = tf.constant(inputs.floats(rows[0]).astype(taken)), targets(rows[1])
            K = outputs.columns
            if outputs.kind is not None and K > 1 and _name_of_loss(network).startswith(OF_CODES):
                Y = tf.one_hot(Y[:, 0], K)
            numbers = tf.data.Dataset.range(len(X))
            if seed is not None:
                numbers = numbers.shuffle(len(X), seed=seed).repeat()
            return (
                numbers.batch(size).map(lambda at: (tf.gather(X, at), tf.gather(Y, at))).prefetch(2)
            )

        N = len(split.train[0])
        schedule = self.schedule(N)
        trained, history = [], dict[str, list[float]]()
        for i, network in enumerate(networks):
            progress.now(f"training network {i + 1} of {len(networks)} on {N} rows")
            if not (is_keras(network) and hasattr(network, "fit")):
                raise TypeError(
                    f"network is {short_repr(network)}; to be trained it must be a model of Keras. "
                    "Pass one, or train_network=False."
                )
            network = copy.deepcopy(as_function(network)).network
            trained.append(network)
            if schedule.epochs:
                train = batches(split.train, schedule.batch_size, network, self.seed + i)
                held_out = None
                if split.validation is not None:
                    held_out = batches(split.validation, BLOCK, network)
                named = f" of network {i + 1}" if i else ""
                found = self._fit(network, schedule, train, held_out, outputs)
                history.update({f"{key}{named}": values for key, values in found.items()})
        return trained, history

    def _fit(
        self,
        network: Any,
        schedule: Schedule,
        train: tf.data.Dataset,
        held_out: tf.data.Dataset | None,
        outputs: Outputs,
    ) -> dict[str, list[float]]:
        if not _is_compiled(network):
            network.compile(self.optimizer(schedule.steps), _loss(outputs))
        callbacks = list(self.callbacks)
        if held_out is not None:
            patience = EarlyStopping().patience_of(schedule.epochs)
            stop = keras.callbacks.EarlyStopping(patience=patience, restore_best_weights=True)
            callbacks.append(stop)
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
                f"{short_repr(network.loss)}: {error} Labels are whole numbers, or a one-hot "
                'code for "categorical_crossentropy".'
            ) from error
        return fitted.history


def units_of_training(networks: Sequence[Any], standard: Scaling) -> Scaling:
    """Return units of real-valued Y that networks can predict: standard ones, if they do.

    After an activation such as softplus they have no shift. Y is in its own units after one with
    bounds, and for a network compiled with a loss that is not of differences, as "poisson".
    """
    ends = {network_layers.output_activation(each) for each in networks}
    mean, has_bounds = standard.shift, False
    for end in ends & set(RANGES):
        low, high = RANGES[end or ""]
        if np.any((mean < low) | (mean > high)):
            raise ValueError(
                f"network ends with the activation {end!r}, whose values are from {low:g} to "
                f"{high:g}, but Y has the mean {mean.round(4).tolist()}. End it with no activation."
            )
        has_bounds = has_bounds or bool(np.isfinite(high))
    are_of_differences = all(_name_of_loss(each) in ("", *OF_DIFFERENCES) for each in networks)
    if has_bounds or not are_of_differences:
        return Scaling(np.zeros_like(mean), np.ones_like(mean))
    if ends - {None, "linear"}:
        return standard._replace(shift=np.zeros_like(mean))
    return standard


def _name_of_loss(network: Any) -> str:
    """Return the name of the loss, as `OF_DIFFERENCES` has it; none of one not compiled."""
    if not _is_compiled(network):
        return ""
    loss = network.loss
    loss = keras.losses.get(loss) if isinstance(loss, str) else loss
    return getattr(loss, "__name__", type(loss).__name__).replace("_", "").lower()


def is_of_two_classes(network: Any) -> bool:
    """Return True if a network is compiled with a cross entropy of two classes."""
    return _name_of_loss(network).startswith("binary")


def all_compiled(networks: Any) -> bool:
    """Return True if a network, or each of several, is trained as it was compiled."""
    return all(map(_is_compiled, network_layers.members(networks)))


def _is_compiled(network: Any) -> bool:
    return getattr(network, "optimizer", None) is not None


def _loss(outputs: Outputs) -> Any:
    if outputs.kind is None:
        return "mse"
    from_logits = outputs.kind == "logits"
    if outputs.columns == 1:
        return keras.losses.BinaryCrossentropy(from_logits=from_logits)
    return keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
