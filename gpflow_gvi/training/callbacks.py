"""Callbacks: what those of Keras need of a model, and those that `fit` treats by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from .backup import Backup


class KerasView:
    """A model as the callbacks of Keras see it: `self.model` in a callback.

    What Keras would ask of its own models is answered here, everything else by the model itself.

    :param model: the model in training.
    :param optimizer: the optimiser it was compiled with.
    """

    metrics = ()
    # TensorBoard would draw these.
    train_function = train_tf_function = None
    _is_graph_network = False

    def __init__(self, model: Any, optimizer: Any) -> None:
        self.model = model
        self.optimizer = optimizer
        self.stop_training = False
        # The counters of tf_keras's TensorBoard.
        self._train_counter = optimizer.iterations
        self._test_counter = tf.Variable(0, dtype=tf.int64, trainable=False)

    def __getattr__(self, name: str) -> Any:
        if name == "model":  # while a copy of the view is being made
            raise AttributeError(name)
        return getattr(self.model, name)

    @property
    def distribute_strategy(self) -> tf.distribute.Strategy:
        """The strategy in whose scope the training runs."""
        return tf.distribute.get_strategy()

    def save(self, *_: Any, **__: Any) -> None:
        """Raise: there is no file format of Keras for a Gaussian process."""
        raise TypeError(
            f"A {type(self.model).__name__} cannot be saved as a Keras model. Save its weights: "
            "ModelCheckpoint('name.weights.h5', save_weights_only=True), and model.load_weights."
        )


def checked(callbacks: Any) -> list[Any]:
    """Return the callbacks as a list after looking for those that could not do their work."""
    if callbacks is None:
        return []
    if not isinstance(callbacks, Iterable):
        callbacks = [callbacks]
    for callback in (callbacks := list(callbacks)):
        kind = type(callback).__name__
        if not hasattr(callback, "on_epoch_end"):
            raise TypeError(f"callbacks has {callback!r}, which is no callback of Keras.")
        if getattr(callback, "save_weights_only", True) is False:
            raise ValueError(
                f"callbacks has a {kind} with save_weights_only=False, but Keras has no file "
                "format for a Gaussian process. Pass save_weights_only=True and a name that ends "
                "in .weights.h5, which model.load_weights reads."
            )
        if getattr(callback, "histogram_freq", 0):
            raise ValueError(
                f"callbacks has a {kind} with histogram_freq={callback.histogram_freq}; it must be "
                "0: a Gaussian process has no layers to draw histograms of."
            )
        if _asks_for_backup(callback) and callback.save_freq != "epoch":
            raise ValueError(
                f"callbacks has a {kind} with save_freq={callback.save_freq!r}; it must be "
                "'epoch': a training is resumed from the end of an epoch."
            )
    return callbacks


def callback_list(
    view: KerasView, callbacks: Sequence[Any], *, verbose: Any, epochs: int, steps: int | None
) -> Any:
    """Return Keras's list of the user's callbacks, a history and a progress bar."""
    import keras

    own = [keras.callbacks.History()]
    if verbose:
        own.append(keras.callbacks.ProgbarLogger())
    others = [callback for callback in callbacks if not _asks_for_backup(callback)]
    return keras.callbacks.CallbackList(
        [*others, *own], model=view, verbose=verbose, epochs=epochs, steps=steps
    )


def backups(
    callbacks: Sequence[Any], variables: Sequence[Any], others: Sequence[Any]
) -> list[Backup]:
    """Return what carries out the `BackupAndRestore`s among the callbacks.

    Keras's own would bring back the weights alone. Ours also have the state of the optimiser and
    of the other callbacks.
    """
    followed = [other for other in others if type(other).__name__ != "ProgbarLogger"]
    return [
        Backup(callback.backup_dir, variables, followed, keep=not callback.delete_checkpoint)
        for callback in callbacks
        if _asks_for_backup(callback)
    ]


def _asks_for_backup(callback: Any) -> bool:
    return hasattr(callback, "backup_dir")
