"""Files of networks, which Keras writes and reads; a network that could run code is refused."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import tensorflow as tf

from .._core.network_variables import is_keras, keras_of
from ..training.trainer import Trainer
from . import keras_registry
from .archive import members, parsed

_WEIGHTS = "model.weights.h5"

_MORE_NUMBERS = 10**6
"""The number of weights that a network may make in addition to those saved."""


def is_theirs(thing: Any) -> bool:
    """Return True if Keras writes a thing: a layer or a model of either Keras.

    What trains a compiled model is one of Keras's, too, and is left out of copies.
    """
    return is_keras(thing) and not isinstance(thing, Trainer)


def weights(network: Any) -> list[Any]:
    """Return the weights of a network, as far as it has made them."""
    return list(network.weights) if network.built else []


def write(network: Any) -> tuple[bytes, dict[str, Any]]:
    """Return the file that Keras writes of a network, and the options of `read`."""
    is_layer = not hasattr(network, "save")
    model = _model(network) if is_layer else network
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.keras"
        try:
            model.save(file)
        except (NotImplementedError, TypeError, ValueError) as error:
            raise ValueError(f"Keras says: {error}") from error
        content = file.read_bytes()
    for part in _named_parts(parsed(members(content, "config.json")["config.json"])):
        keras_registry.require_no_code(part)
    return content, {"package": keras_of(network).__name__, "is_layer": is_layer}


def read(content: bytes, custom_objects: Mapping[str, Any], *, package: str, is_layer: bool) -> Any:
    """Return the network that `write` wrote to a file of this content."""
    if package not in ("keras", "tf_keras"):
        raise ValueError(f"package is {package!r}; it must be keras or tf_keras.")
    keras = importlib.import_module(package)
    found = members(content, "config.json", "metadata.json", _WEIGHTS)
    config = keras_registry.checked(parsed(found["config.json"]), custom_objects)
    found["config.json"] = json.dumps(config).encode()
    limit = _count_numbers(found[_WEIGHTS]) + _MORE_NUMBERS
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.keras"
        with zipfile.ZipFile(file, "w") as archive:
            for name, part in found.items():
                archive.writestr(name, part)
        with (
            keras.saving.custom_object_scope(dict(custom_objects)),
            tf.variable_creator_scope(_Creator(limit)),
        ):
            model = keras.models.load_model(file, compile=False, safe_mode=True)
    return model.layers[-1] if is_layer else model


def _model(layer: Any) -> Any:
    if not layer.built:
        raise ValueError("it is a layer that has no weights yet. Call it once before saving.")
    model = keras_of(layer).Sequential([layer])
    model.build(layer.get_build_config()["input_shape"])
    return model


def _named_parts(config: Any) -> Iterator[dict[str, Any]]:
    """Return everything in a configuration that names a class or a function."""
    if isinstance(config, dict):
        if "class_name" in config:
            yield config
        config = list(config.values())
    if isinstance(config, list):
        for item in config:
            yield from _named_parts(item)


def _count_numbers(content: bytes) -> int:
    """Return the number of weights in a file; raise if it links to others, or declares more.

    HDF5 may refer to other files, and declare arrays of any size that are stored nowhere.
    """
    total = 0
    with h5py.File(io.BytesIO(content), "r") as file:
        groups, seen = [file["/"]], set()
        while groups:
            group = groups.pop()
            for name in group:
                if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                    raise ValueError(f"the weights {name} of the network are in another file.")
                part = group[name]
                place = h5py.h5o.get_info(part.id).addr
                if place in seen:
                    continue
                seen.add(place)
                if isinstance(part, h5py.Group):
                    groups.append(part)
                    continue
                stored = part.id.get_storage_size()
                if part.external or part.is_virtual or part.dtype.hasobject or stored < part.nbytes:
                    raise ValueError(f"the weights {name} of the network are not in its file.")
                total += int(np.prod(part.shape, dtype=object))
    return total


class _Creator:
    """Makes variables up to a number of entries in all: a configuration may ask for any."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def __call__(self, create: Any, **options: Any) -> Any:
        value = options.get("initial_value")
        shape = options.get("shape")
        if shape is None and callable(value):
            # An initialiser of the caller's need not be traced.
            with contextlib.suppress(Exception):
                shape = tf.function(value, autograph=False).get_concrete_function().output_shapes
        count = tf.TensorShape(shape).num_elements()
        self._left -= count or 0
        if self._left < 0:
            raise ValueError("the network has more weights than were saved with it.")
        return create(**options)
