"""Callbacks of Keras, and those that `fit` carries out by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .._core.errors import shown
from .backup import Backup


def checked(callbacks: Any) -> list[Any]:
    """Return the callbacks as a list, or raise if one of them could not do its work."""
    if callbacks is None:
        return []
    if not isinstance(callbacks, Iterable):
        callbacks = [callbacks]
    for callback in (callbacks := list(callbacks)):
        kind = type(callback).__name__
        if not hasattr(callback, "on_epoch_end"):
            raise TypeError(f"callbacks has {shown(callback)}, which is no callback of Keras.")
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
        if _is_backup(callback) and callback.save_freq != "epoch":
            raise ValueError(
                f"callbacks has a {kind} with save_freq={callback.save_freq!r}; it must be "
                "'epoch': a training is resumed from the end of an epoch."
            )
    return callbacks


def callback_list(
    trainer: Any,
    callbacks: Sequence[Any] = (),
    *,
    verbose: int | str,
    epochs: int = 1,
    steps: int | None,
) -> Any:
    """Return Keras's list of the user's callbacks, a history and a progress bar."""
    import keras

    return keras.callbacks.CallbackList(
        [callback for callback in callbacks if not _is_backup(callback)],
        add_history=True,
        add_progbar=bool(verbose),
        model=trainer,
        verbose=verbose,
        epochs=epochs,
        steps=steps,
    )


def backups(callbacks: Sequence[Any], trainer: Any, others: Sequence[Any]) -> list[Backup]:
    """Return a `Backup` for each `BackupAndRestore` among the callbacks.

    Keras's own restores the weights alone; ours restores the state of the optimiser and of the
    other callbacks as well.
    """
    followed = [other for other in others if type(other).__name__ != "ProgbarLogger"]
    state = (*trainer.weights, *trainer.optimizer_state)
    return [
        Backup(callback.backup_dir, state, followed, keep=not callback.delete_checkpoint)
        for callback in callbacks
        if _is_backup(callback)
    ]


def _is_backup(callback: Any) -> bool:
    return hasattr(callback, "backup_dir")
