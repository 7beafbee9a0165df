"""The backup: everything that the next epoch depends on, in a file that is replaced as a whole."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._core import files
from .replicas import is_first

PROGRESS = (
    *("history", "epoch"),  # History
    *("best", "best_epoch", "best_weights", "wait", "stopped_epoch"),  # EarlyStopping
    "cooldown_counter",  # ReduceLROnPlateau
    *("epochs_since_last_save", "_batches_seen_since_last_saving"),  # ModelCheckpoint
    *("_global_train_batch", "_global_test_batch"),  # TensorBoard
)
"""Attributes in which the callbacks of Keras remember how training went so far."""


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write arrays to an HDF5 file, of which at any moment the old or the new one is there.

    Only the first of many workers writes, as all of them have the same arrays.
    """
    import h5py

    if not is_first():
        return
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.new_file(path) as stream, h5py.File(stream, "w") as file:
        for name, array in arrays.items():
            file[name] = array


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the arrays that `write_arrays` wrote."""
    import h5py

    arrays: dict[str, Any] = {}

    def keep(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()]

    with h5py.File(path, "r") as file:
        file.visititems(keep)
    return arrays


def numbered(group: str, values: Iterable[Any]) -> dict[str, Any]:
    """Return arrays, or the values of variables of TensorFlow or Keras 3, by `group/number`."""
    arrays = (value.numpy() if hasattr(value, "numpy") else value for value in values)
    return {f"{group}/{i:05d}": array for i, array in enumerate(arrays)}


def below(group: str, arrays: Mapping[str, Any]) -> list[Any]:
    """Return in order what `numbered` has put below a group."""
    return [arrays[name] for name in sorted(arrays) if name.startswith(f"{group}/")]


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


@dataclasses.dataclass(frozen=True)
class Backup:
    """The state of a training, written after each epoch and read when it is started again."""

    folder: str | os.PathLike[str]
    variables: Sequence[Any]
    """Those of the model and of the optimiser."""
    callbacks: Sequence[Any]
    """Those whose `PROGRESS` is a part of the state."""
    keep: bool = False
    """Whether it stays there after the training."""

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.folder) / "training.h5"

    def save(self, **progress: Any) -> None:
        """Write everything down, with the progress of the loop itself."""
        arrays = numbered("variables", self.variables)
        callbacks = []
        for i, callback in enumerate(self.callbacks):
            known = {name: vars(callback)[name] for name in PROGRESS if name in vars(callback)}
            arrays |= numbered(f"best_weights/{i}", known.pop("best_weights", None) or [])
            callbacks.append([type(callback).__name__, known])
        text = json.dumps({**progress, "callbacks": callbacks}, default=float)
        write_arrays(self.path, {**arrays, "progress": text})

    def restore(self) -> dict[str, Any]:
        """Read everything back and return the progress of the loop; nothing if there is none."""
        if not self.path.exists():
            return {}
        arrays = read_arrays(self.path)
        progress: dict[str, Any] = json.loads(arrays["progress"])
        callbacks = progress.pop("callbacks")
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
        return progress

    def conclude(self) -> None:
        """Remove the backup, which has done its work, and its folder if that is empty now."""
        if self.keep or not is_first() or not self.path.parent.is_dir():
            return
        for path in self.path.parent.glob(f"{self.path.name}*"):
            path.unlink()
        if not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()
