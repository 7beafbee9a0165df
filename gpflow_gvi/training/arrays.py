"""Values of variables in a file that is replaced as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._core import files


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write arrays to an HDF5 file, of which at any moment the old or the new one is there."""
    import h5py

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
