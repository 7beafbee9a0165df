"""The backup: everything that the next epoch depends on, in a file that is replaced as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from .arrays import assign_values, below, numbered, read_arrays, write_arrays

PROGRESS = (
    *("history", "epoch"),  # History
    *("best", "best_epoch", "best_weights", "wait", "stopped_epoch"),  # EarlyStopping
    "cooldown_counter",  # ReduceLROnPlateau
    *("epochs_since_last_save", "_batches_seen_since_last_saving"),  # ModelCheckpoint
    *("_global_train_batch", "_global_test_batch"),  # TensorBoard
)
"""Attributes in which the callbacks of Keras remember how training went so far."""


class Backup(keras.callbacks.Callback):
    """The state of a training, written after each epoch and read when it is started again.

    Keras's own restores the weights alone.

    :param folder: where it is written.
    :param variables: those of the model and of the optimiser.
    :param callbacks: those whose `PROGRESS` is a part of the state; they come before this one.
    :param keep: whether it stays there after the training.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        variables: Sequence[Any],
        callbacks: Sequence[keras.callbacks.Callback],
        *,
        keep: bool = False,
    ) -> None:
        super().__init__()
        self.path = Path(folder) / "training.h5"
        self.variables = variables
        self.callbacks = callbacks
        self.keep = keep

    def on_train_begin(self, logs: Any = None) -> None:
        """Go on from what was written."""
        self.restore()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write what the next epoch depends on."""
        self.save(epochs=epoch + 1, stopped=self.model.stop_training)

    def on_train_end(self, logs: Any = None) -> None:
        """Remove the backup, which has done its work, and its folder if that is empty now."""
        if self.keep or not self.path.parent.is_dir():
            return
        for path in self.path.parent.glob(f"{self.path.name}*"):
            path.unlink()
        if not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()

    def next_epoch(self, epochs: range) -> int:
        """Return the first of the epochs that is not done; the last one's successor if none is."""
        if not self.path.exists():
            return epochs.start
        progress = json.loads(read_arrays(self.path)["progress"])
        return epochs.stop if progress["stopped"] else int(progress["epochs"])

    def save(self, **progress: Any) -> None:
        """Write everything down, with the progress of the epochs."""
        arrays = numbered("variables", self.variables)
        callbacks = []
        for i, callback in enumerate(self.callbacks):
            known = {name: vars(callback)[name] for name in PROGRESS if name in vars(callback)}
            arrays |= numbered(f"best_weights/{i}", known.pop("best_weights", None) or [])
            callbacks.append([type(callback).__name__, known])
        text = json.dumps({**progress, "callbacks": callbacks}, default=float)
        write_arrays(self.path, {**arrays, "progress": text})

    def restore(self) -> None:
        """Read everything back, if there is anything."""
        if not self.path.exists():
            return
        arrays = read_arrays(self.path)
        callbacks = json.loads(arrays["progress"])["callbacks"]
        written = [name for name, _ in callbacks]
        given = [type(callback).__name__ for callback in self.callbacks]
        if written != given:
            raise ValueError(
                f"callbacks are {given}, but the backup {self.path} was written with {written}. "
                "Pass the same ones in the same order, or delete the backup to start anew."
            )
        assign_values(self.variables, below("variables", arrays), source=f"The backup {self.path}")
        for i, (callback, (_, known)) in enumerate(zip(self.callbacks, callbacks, strict=True)):
            vars(callback).update(known)
            if weights := below(f"best_weights/{i}", arrays):
                callback.best_weights = weights
