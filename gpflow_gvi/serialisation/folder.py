"""The shelf: folders that are complete, or not there at all."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.config import default_float, default_jitter

import gpflow_gvi

from ..errors import NumericsWarning
from . import atomic, names
from .decoder import Decoder
from .encoder import Encoder

FORMAT = 1
"""The version of the format that is written, and the only one that is read."""

_PACKAGES = (gpflow_gvi, gpflow, tf, tfp)


def save(thing: Any, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a model, or any part of one, to a folder, from which `load` reads it.

    Optimisers, compiled functions and cached factors are left behind. The folder is complete or not
    there at all, whatever happens meanwhile; one that is replaced is there until the new one is.

    :param thing: a model, a process, a kernel ..., or an object, tuple or dict of such. Classes and
        functions of your own are saved by name, and have to be given to `load`.
    :param folder: where to: a new or an empty folder.
    :param overwrite: replace what was saved there before.
    """
    with atomic.written(folder, "structure.json", overwrite=overwrite) as partial:
        _write(thing, partial)


def load(folder: str | os.PathLike[str], *, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Return what `save` wrote to a folder.

    Every number, what is trainable, and what is shared (an inducing variable between mean and
    covariance, say) is as it was. Nothing that the folder brings along is run, and no class or
    function is used but those of GPflow, TensorFlow Probability and this package, and yours.

    :param folder: where it was saved.
    :param custom_objects: your own classes and functions by name, as in Keras (`{"MyKernel":
        MyKernel}`), or by `"module:name"`.
    """
    folder = atomic.present(Path(folder).resolve())
    structure = _read_structure(folder)
    custom_objects = custom_objects or {}
    for name in structure["custom_objects"]:
        names.find(name, custom_objects)
    with np.load(folder / "values.npz", allow_pickle=False) as values:
        decoder = Decoder(folder, dict(values), custom_objects)
    try:
        return decoder.decode(structure["root"])
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{folder} cannot be read ({type(error).__name__}: {error}). It is damaged, or was "
            f"written with versions too far from those installed: {structure['versions']}."
        ) from error


def _write(thing: Any, folder: Path) -> None:
    encoder = Encoder(folder)
    root = encoder.encode(thing, type(thing).__name__)
    with (folder / "values.npz").open("wb") as stream:
        np.savez(stream, **encoder.values)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    structure = {
        "format": FORMAT,
        "versions": {package.__name__: package.__version__ for package in _PACKAGES},
        "float": np.dtype(default_float()).name,
        "jitter": default_jitter(),
        "files": {path.relative_to(folder).as_posix(): _digest(path) for path in files},
        "custom_objects": sorted(encoder.custom_objects),
        "root": root,
    }
    text = json.dumps(structure, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "structure.json").write_text(text, encoding="utf-8")


def _read_structure(folder: Path) -> dict[str, Any]:
    """Return what is in `structure.json`, if all that belongs to it is there and fits."""
    try:
        structure: dict[str, Any] = json.loads((folder / "structure.json").read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(
            f"folder {folder} holds no saved model: it has no structure.json. Give the folder that "
            "was given to save."
        ) from error
    except ValueError as error:
        raise ValueError(f"{folder}/structure.json is damaged ({error}). Save anew.") from error
    if structure.get("format") != FORMAT:
        raise ValueError(
            f"{folder} has format {structure.get('format')!r}, but {FORMAT} is read here. Load it "
            f"with the versions that wrote it: {structure.get('versions')}."
        )
    for name, digest in structure["files"].items():
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has lost {name}. Copy the whole folder once more.")
        if _digest(folder / name) != digest:
            raise ValueError(
                f"{folder}/{name} is not what was saved with structure.json. Copy the whole folder "
                "once more, or save anew."
            )
    here = np.dtype(default_float()).name
    if structure["float"] != here:
        raise ValueError(
            f"{folder} was saved in {structure['float']}, but GPflow's default float is {here}. "
            f"Call gpflow.config.set_default_float(np.{structure['float']}) before loading."
        )
    if structure["jitter"] != default_jitter():
        warnings.warn(
            f"{folder} was saved with default jitter {structure['jitter']}, and it is "
            f"{default_jitter()} now, so predictions differ a little. "
            f"gpflow.config.set_default_jitter({structure['jitter']}) makes them the same.",
            NumericsWarning,
            stacklevel=3,
        )
    return structure


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
