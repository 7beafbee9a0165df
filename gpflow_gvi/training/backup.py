"""Values of variables in a file that is replaced as a whole: weights, and the backup of a training.

The backup is everything that the next epoch depends on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from .._core import files
from .._core.network_graph import finalize

PROGRESS = (
    *("history", "epoch"),  # History
    *("best", "best_epoch", "best_weights", "wait", "stopped_epoch"),  # EarlyStopping
    "cooldown_counter",  # ReduceLROnPlateau
    *("epochs_since_last_save", "_batches_seen_since_last_saving"),  # ModelCheckpoint
    *("_global_train_batch", "_global_test_batch"),  # TensorBoard
)
"""Attributes in which the callbacks of Keras remember how training went so far."""


def write_arrays(path: str | os.PathLike[str], groups: Mapping[str, Iterable[Any]]) -> None:
    """Write groups of arrays, or of variables, to an HDF5 file: the old or the new one is there."""
    import h5py

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.new_file(path) as stream, h5py.File(stream, "w") as file:
        for group, values in groups.items():
            for i, value in enumerate(values):
                # Variables may be of TensorFlow or of Keras 3.
                file[f"{group}/{i:05d}"] = value.numpy() if hasattr(value, "numpy") else value


def read_arrays(path: str | os.PathLike[str]) -> dict[str, list[Any]]:
    """Return the groups of arrays that `write_arrays` wrote, but for empty ones."""
    import h5py

    with h5py.File(path, "r") as file:  # which has names in their order
        return {
            name: [array[()] for array in group.values() if isinstance(array, h5py.Dataset)]
            for name, group in file.items()
            if isinstance(group, h5py.Group)  # files of others have other things
        }


def assign_values(variables: Sequence[Any], values: Sequence[Any], *, source: str) -> None:
    """Assign values to variables: to all of them or, where one does not fit, to none."""
    if len(values) != len(variables):
        raise ValueError(
            f"{source} has the values of {len(values)} variables, but there are {len(variables)}; "
            "it belongs to another model or optimiser."
        )
    pairs = list(zip(variables, values, strict=True))
    for variable, value in pairs:
        if tuple(variable.shape) != np.shape(value):
            raise ValueError(
                f"{source} has a value of shape {np.shape(value)} for the variable "
                f"{variable.name}, whose shape is {tuple(variable.shape)}; it belongs to "
                "another model or optimiser."
            )
    for variable, value in pairs:
        variable.assign(value)


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

    def next_epoch(self, epochs: range) -> int:
        """Return the first of the epochs that is not done; the last one's successor if none is."""
        if not self.path.exists():
            return epochs.start
        progress = json.loads(*read_arrays(self.path)["progress"])
        return epochs.stop if progress["stopped"] else int(progress["epochs"])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write what the next epoch depends on."""
        groups: dict[str, Iterable[Any]] = {"variables": self.variables}
        callbacks = []
        for i, callback in enumerate(self.callbacks):
            known = {name: vars(callback)[name] for name in PROGRESS if name in vars(callback)}
            groups[f"best_weights_{i}"] = known.pop("best_weights", None) or []
            callbacks.append([type(callback).__name__, known])
        stopped = self.model.stop_training
        progress = {"epochs": epoch + 1, "stopped": stopped, "callbacks": callbacks}
        groups["progress"] = [json.dumps(progress, default=float)]
        write_arrays(self.path, groups)

    def on_train_begin(self, logs: Any = None) -> None:
        """Go on from what was written, if anything was."""
        if not self.path.exists():
            return
        groups = read_arrays(self.path)
        callbacks = json.loads(*groups["progress"])["callbacks"]
        written = [name for name, _ in callbacks]
        given = [type(callback).__name__ for callback in self.callbacks]
        if written != given:
            raise ValueError(
                f"callbacks are {given}, but the backup {self.path} was written with {written}. "
                "Pass the same ones in the same order, or delete the backup to start anew."
            )
        values = groups.get("variables", [])
        assign_values(self.variables, values, source=f"The backup {self.path}")
        finalize(self.model.model)
        for i, (callback, (_, known)) in enumerate(zip(self.callbacks, callbacks, strict=True)):
            vars(callback).update(known)
            if weights := groups.get(f"best_weights_{i}"):
                callback.best_weights = weights

    def on_train_end(self, logs: Any = None) -> None:
        """Remove the backup, which has done its work, and its folder if that is empty now."""
        if self.keep or not self.path.parent.is_dir():
            return
        for path in self.path.parent.glob(f"{self.path.name}*"):
            path.unlink()
        if not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()
