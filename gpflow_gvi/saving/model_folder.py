"""Folders of saved models that are complete, or not there at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
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

from .._core import files
from ..errors import NumericsWarning, short_repr
from . import archive
from .serialisation import Reader, Writer

FORMAT = 2
"""The version of the format that is written, and the only one that is read."""

_PACKAGES = (gpflow_gvi, gpflow, tf, tfp)

_FILES = re.compile(r"values\.npz|networks/[0-9]+\.keras|estimators/[0-9]+\.skops")
"""The names of the files beside `structure.json`."""

_PARTS = {"versions": dict, "float": str, "jitter": int | float, "files": dict, "root": object}
"""The other entries of `structure.json`, beside the format, and their types."""


def save(thing: Any, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a model, or any part of one, to a folder, from which `load` reads it.

    Optimisers, compiled functions and cached factors are left behind. The folder is complete or not
    there at all, whatever happens meanwhile; one that is replaced is there until the new one is.

    :param thing: a model, a process, a kernel ..., or an object, tuple or dict of such. Classes and
        functions of your own are saved by name, and have to be given to `load`.
    :param folder: where to: a new or an empty folder.
    :param overwrite: replace what was saved there before.
    """
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder is {short_repr(folder)}; it must be the path of a folder.")
    if hasattr(thing, "learned_") and hasattr(thing, "get_params"):
        raise TypeError(
            f"thing is a {type(thing).__name__}, an estimator of scikit-learn. Save its learned_, "
            "or write it with joblib.dump."
        )
    if Path(folder).suffix in (".keras", ".h5"):
        raise ValueError(
            f"folder is {os.fspath(folder)!r}, as a file of Keras, which has no place for a "
            "Gaussian process. Name a folder; network.save writes the network alone."
        )
    with files.new_folder(folder, "structure.json", overwrite=overwrite) as partial:
        _write(thing, partial)


def load(folder: str | os.PathLike[str], *, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Return the object that `save` wrote to a folder.

    Every number, what is trainable, and what is shared (an inducing variable between mean and
    covariance, say) is as it was. No code of the folder is run: only the classes
    and functions of `saving.registry` and `saving.keras_files`, parts of models and networks all
    of them, are used, and yours; those that you have registered with Keras have to be given, too.

    :param folder: where it was saved.
    :param custom_objects: your own classes and functions by name, as in Keras (`{"MyKernel":
        MyKernel}`), or by `"module:name"`.
    """
    # `resolve` raises for links in a circle.
    folder = Path(os.path.realpath(os.path.expanduser(folder)))
    structure, contents = _read(folder)
    _validate_settings(structure, folder)
    try:
        values = archive.arrays(contents.pop("values.npz"))
        return Reader(values, contents, custom_objects or {}).read(structure["root"])
    except Exception as error:  # a damaged folder can raise any, in TensorFlow or Keras
        raise ValueError(
            f"{folder} cannot be read ({type(error).__name__}: {error!s:.2000}). If nothing "
            "else helps, it is damaged, or was written with versions too far from those installed: "
            f"{structure['versions']}; save anew."
        ) from error


def _write(thing: Any, folder: Path) -> None:
    writer = Writer(folder)
    root = writer.write(thing, type(thing).__name__)
    with (folder / "values.npz").open("wb") as stream:
        np.savez(stream, **writer.values)
    written = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    structure = {
        "format": FORMAT,
        "versions": {package.__name__: package.__version__ for package in _PACKAGES},
        "float": np.dtype(default_float()).name,
        "jitter": default_jitter(),
        "files": {
            path.relative_to(folder).as_posix(): _digest(path.read_bytes()) for path in written
        },
        "root": root,
    }
    text = json.dumps(structure, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "structure.json").write_text(text, encoding="utf-8")


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the content of `structure.json`, and that of the files that belong to it.

    All is of one save: where the folder is replaced meanwhile, the new one is read.
    """
    while True:
        before = _identity(folder)
        try:
            return _read_once(files.present(folder), folder)
        except (FileNotFoundError, ValueError):
            if _identity(folder) == before:
                raise


def _identity(folder: Path) -> tuple[Path, int, int] | None:
    """Return the path of a folder, and numbers that differ if another has taken its place."""
    source = files.present(folder)
    try:
        status = source.stat()
    except OSError:
        return None
    return source, status.st_ino, status.st_mtime_ns


def _read_once(source: Path, folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read a folder whose content is at `source`."""
    try:
        structure: dict[str, Any] = json.loads(_content(source / "structure.json"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(
            f"folder {folder} holds no saved model: it has no structure.json. Give the folder that "
            "was given to save."
        ) from error
    except (RecursionError, ValueError) as error:
        raise ValueError(f"{folder}/structure.json is damaged ({error}). Save anew.") from error
    if not isinstance(structure, dict) or structure.get("format") != FORMAT:
        found = structure if isinstance(structure, dict) else {}
        raise ValueError(
            f"{folder} has format {found.get('format')!r:.50}, but {FORMAT} is read here. Load it "
            f"with the versions that wrote it: {found.get('versions')!r:.500}."
        )
    for key, kind in _PARTS.items():
        if key not in structure or not isinstance(structure[key], kind):
            raise ValueError(f"{folder}/structure.json is damaged (no {key}). Save anew.")
    contents = {}
    for name, digest in structure["files"].items():
        if not _FILES.fullmatch(name):
            raise ValueError(
                f"{folder} names the file {name!r:.200}, which save does not write. Save anew."
            )
        try:
            contents[name] = _content(source / name)
        except FileNotFoundError as error:
            message = f"{folder} has lost {name}. Copy the whole folder once more."
            raise FileNotFoundError(message) from error
        if _digest(contents[name]) != digest:
            raise ValueError(
                f"{folder}/{name} is not what was saved with structure.json. Copy the whole folder "
                "once more, or save anew."
            )
    return structure, contents


def _content(file: Path) -> bytes:
    """Return the content of a file; a folder, a pipe or a device is none."""
    if not file.is_file():
        raise FileNotFoundError(file)
    return file.read_bytes()


def _validate_settings(structure: dict[str, Any], folder: Path) -> None:
    """Raise if GPflow's default float is not that of the save, and warn of another jitter."""
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


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
