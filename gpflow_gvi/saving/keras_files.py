"""Files of networks, which Keras writes and reads; a network that could run code is refused."""

from __future__ import annotations

import builtins
import importlib
import io
import json
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from .._core.network_variables import keras_of

_OPERATIONS = re.compile(
    r"(math|nn|linalg|signal|image|__operators__)\..+|broadcast_to|cast|clip_by_value|concat"
    r"|expand_dims|gather|identity|ones_like|pad|repeat|reshape|reverse|shape|slice|split|squeeze"
    r"|stack|stop_gradient|tile|transpose|unstack|where|zeros_like"
)
"""The functions of TensorFlow that may be layers in tf_keras: they compute and do nothing else."""


def weights(network: Any) -> list[Any]:
    """Return the weights of a network, as far as it has made them."""
    return list(network.weights) if network.built else []


def write(network: Any, file: Path) -> dict[str, Any]:
    """Let Keras write a network, and return the arguments of `read`."""
    package = keras_of(type(network))
    is_layer = not hasattr(network, "save")
    model = _model(network, package) if is_layer else network
    file.parent.mkdir(exist_ok=True)
    try:
        model.save(file)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise ValueError(f"Keras says: {error}") from error
    for part in _named_parts(_config(file)):
        _require_no_code(part)
    return {"package": package, "is_layer": is_layer}


def read(content: bytes, custom_objects: Mapping[str, Any], *, package: str, is_layer: bool) -> Any:
    """Return the network that `write` wrote to a file of this content."""
    if package not in ("keras", "tf_keras"):
        raise ValueError(f"package is {package!r}; it must be keras or tf_keras.")
    keras = importlib.import_module(package)
    for part in _named_parts(_config(io.BytesIO(content))):
        _require_no_code(part)
        if package == "tf_keras":  # Keras 3 sees to this itself
            _require_known(part, keras, custom_objects)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.keras"
        file.write_bytes(content)
        try:
            with keras.saving.custom_object_scope(dict(custom_objects)):
                model = keras.models.load_model(file, compile=False, safe_mode=True)
        except TypeError as error:
            raise ValueError(
                "Keras does not know all of the network. Pass your own layers to load in "
                "custom_objects, or register them with "
                f"keras.saving.register_keras_serializable. {error}"
            ) from error
    return model.layers[-1] if is_layer else model


def _model(layer: Any, package: str | None) -> Any:
    if not layer.built:
        raise ValueError("it is a layer that has no weights yet. Call it once before saving.")
    model = importlib.import_module(str(package)).Sequential([layer])
    model.build(layer.get_build_config()["input_shape"])
    return model


def _config(file: Path | IO[bytes]) -> Any:
    with zipfile.ZipFile(file) as archive:
        return json.loads(archive.read("config.json"))


def _named_parts(config: Any) -> Iterator[dict[str, Any]]:
    """Return everything in a configuration that names a class or a function."""
    if isinstance(config, dict):
        if "class_name" in config:
            yield config
        config = list(config.values())
    if isinstance(config, list):
        for item in config:
            yield from _named_parts(item)


def _require_no_code(part: dict[str, Any]) -> None:
    """Raise if a part brings code, or does more than compute."""
    inside = part["config"] if isinstance(part.get("config"), dict) else {}
    if part["class_name"] == "__lambda__" or inside.get("function_type") == "lambda":
        raise ValueError("a layer of it is a lambda. Make that a class with a call method.")
    function = str(inside.get("function"))
    if part["class_name"] == "TFOpLambda" and not _OPERATIONS.fullmatch(function):
        raise ValueError(f"a layer of it is tf.{function}. Make that a class with a call method.")


def _require_known(part: dict[str, Any], keras: Any, custom_objects: Mapping[str, Any]) -> None:
    """Raise if a part is neither of Keras nor of the caller, as tf_keras would import it."""
    module = str(part.get("module") or "keras")
    is_function = part["class_name"] == "function"
    name = str(part["config"] if is_function else part.get("registered_name") or part["class_name"])
    if keras.saving.get_registered_object(name, custom_objects=dict(custom_objects)) is not None:
        return
    is_ours = module.split(".")[0] in ("keras", "tf_keras")
    if not is_ours and (module != "builtins" or hasattr(builtins, name)):
        raise ValueError(
            f"the network uses {module}.{name}, which is not of Keras. Pass it in custom_objects, "
            "or register it with keras.saving.register_keras_serializable."
        )
