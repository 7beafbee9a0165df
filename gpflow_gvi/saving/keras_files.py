"""Files of networks, which Keras writes and reads; a network that could run code is refused.

Keras looks a name of a configuration up among what any imported package has registered, and may
import the module that it names. TensorFlow Probability registers layers that run code from their
configuration, and Keras has layers that read files or call other programs' models. So each name is
looked up here beforehand: among the lists below, which have what computes and does nothing else,
and among the caller's `custom_objects`.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import keras
import tensorflow as tf

from .._core.network_function import is_keras, require_config
from ..training.trainer import Trainer
from .archive import members, objects

_WEIGHTS = "model.weights.h5"

_MORE_NUMBERS = 10**6
"""The number of weights that a network may make in addition to those saved."""

_LAYERS = """
    Activation ActivityRegularization Add AdditiveAttention AlphaDropout Attention Average
    AveragePooling1D AveragePooling2D AveragePooling3D BatchNormalization Bidirectional
    CategoryEncoding CenterCrop Concatenate Conv1D Conv1DTranspose Conv2D Conv2DTranspose Conv3D
    Conv3DTranspose ConvLSTM1D ConvLSTM2D ConvLSTM3D Cropping1D Cropping2D Cropping3D Dense
    DepthwiseConv1D DepthwiseConv2D Discretization Dot Dropout ELU EinsumDense Embedding Flatten GRU
    GRUCell GaussianDropout GaussianNoise GlobalAveragePooling1D GlobalAveragePooling2D
    GlobalAveragePooling3D GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D
    GroupNormalization GroupQueryAttention Identity InputLayer LSTM LSTMCell LayerNormalization
    LeakyReLU Masking MaxPooling1D MaxPooling2D MaxPooling3D Maximum Minimum MultiHeadAttention
    Multiply Normalization PReLU Permute RMSNormalization RNN RandomBrightness RandomContrast
    RandomCrop RandomErasing RandomFlip RandomRotation RandomTranslation RandomZoom ReLU
    RepeatVector Rescaling Reshape Resizing SeparableConv1D SeparableConv2D SimpleRNN SimpleRNNCell
    Softmax SpatialDropout1D SpatialDropout2D SpatialDropout3D SpectralNormalization StackedRNNCells
    Subtract TimeDistributed UnitNormalization UpSampling1D UpSampling2D UpSampling3D ZeroPadding1D
    ZeroPadding2D ZeroPadding3D
"""

_INITIALIZERS = """
    Constant GlorotNormal GlorotUniform HeNormal HeUniform Identity LecunNormal LecunUniform Ones
    Orthogonal RandomNormal RandomUniform TruncatedNormal VarianceScaling Zeros
"""

_CLASSES = {
    "layers": _LAYERS,
    "initializers": _INITIALIZERS,
    "regularizers": "L1 L1L2 L2 OrthogonalRegularizer",
    "constraints": "MaxNorm MinMaxNorm NonNeg UnitNorm",
    "random": "SeedGenerator",
    "mixed_precision": "Policy",
    "dtype_policies": "DTypePolicy FloatDTypePolicy",
    "models": "Functional Model Sequential",
    "": "DTypePolicy Functional Model Sequential",
    "src.ops.core": "Cast",  # others of this module call functions
    "src.models.functional": "Functional",
}
"""The names of classes by the module of Keras that has them."""

_NO_CLASSES = ("__ellipsis__", "__keras_tensor__", "__numpy__", "__slice__", "__tensor__")
"""What Keras writes in the form of a class, though it is a value."""

_ACTIVATIONS = """
    celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu
    linear log_sigmoid log_softmax mish relu relu6 selu sigmoid silu soft_shrink softmax softplus
    softsign sparse_plus sparse_sigmoid sparsemax squareplus swish tanh tanh_shrink threshold
"""
"""The functions that may be named."""

_OPERATIONS = re.compile(r"src\.ops\.(numpy|nn|math|linalg|image)")
"""The modules of Keras whose operations may be layers; others call functions."""


def is_theirs(thing: Any) -> bool:
    """Return True for a layer or a model of Keras, but not for what trains a compiled model."""
    return is_keras(thing) and not isinstance(thing, Trainer)


def weights(network: Any) -> list[Any]:
    """Return the weights of a network, as far as it has made them."""
    return list(network.weights) if network.built else []


def write(network: Any) -> tuple[bytes, dict[str, Any]]:
    """Return the file that Keras writes of a network, and the options of `read`."""
    require_config(network)
    is_layer, model = not hasattr(network, "save"), network
    if is_layer:
        if not network.built:
            raise ValueError("it is a layer that has no weights yet. Call it once before saving.")
        model = keras.Sequential([network])
        model.build(network.get_build_config()["input_shape"])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.keras"
        try:
            model.save(file)
        except (NotImplementedError, TypeError, ValueError) as error:
            raise ValueError(f"Keras says: {error}") from error
        content = file.read_bytes()
    for part in objects(json.loads(members(content, "config.json")["config.json"])):
        _require_no_code(part)
    return content, {"is_layer": is_layer}


def read(content: bytes, custom_objects: Mapping[str, Any], *, is_layer: bool) -> Any:
    """Return the network that `write` wrote to a file of this content."""
    found = members(content, "config.json", "metadata.json", _WEIGHTS)
    config = json.loads(found["config.json"])
    for part in objects(config):
        part.pop("compile_config", None)  # which Keras would compile
        _require_known(part, custom_objects)
    found["config.json"] = json.dumps(config).encode()
    _require_within(found[_WEIGHTS])
    limit = len(found[_WEIGHTS]) + _MORE_NUMBERS  # a number takes a byte at least
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.keras"
        with zipfile.ZipFile(file, "w") as archive:
            for name, member in found.items():
                archive.writestr(name, member)
        with (
            keras.saving.custom_object_scope(dict(custom_objects)),
            tf.variable_creator_scope(_creator(limit)),
        ):
            model = keras.models.load_model(file, compile=False, safe_mode=True)
    return model.layers[-1] if is_layer else model


def _require_known(part: dict[str, Any], custom_objects: Mapping[str, Any]) -> None:
    """Raise if a part of a configuration names what is in no list and not the caller's."""
    for key, value in part.items():
        if key.endswith("activation") and isinstance(value, str):
            _require(value in _ACTIVATIONS.split() or value in custom_objects, f"{key} {value}")
    if "class_name" not in part:
        return
    _require_no_code(part)
    name = part["config"] if part["class_name"] == "function" else part["class_name"]
    registered = part.get("registered_name") or name
    own = (registered, name, *(str(each).rpartition(">")[2] for each in (registered, name)))
    found = [each for each in own if isinstance(each, str) and each in custom_objects]
    if found:
        part["registered_name"] = found[0]  # Keras finds it by this one and no other
        return
    full_name = f"{part.get('module') or ''}.{registered}".lstrip(".")
    _require(registered == name and _is_known(part), full_name)


def _require_no_code(part: Mapping[str, Any]) -> None:
    """Raise if a part of a configuration has code."""
    name, inside = part.get("class_name"), part.get("config")
    inside = inside if isinstance(inside, dict) else {}
    if name in ("Lambda", "__lambda__") or inside.get("function_type") == "lambda":
        raise ValueError("a layer of it is a lambda. Make that a class with a call method.")


def _require(is_allowed: bool, name: str) -> None:
    if not is_allowed:
        last = re.split(r"[. >]", name)[-1]
        raise ValueError(
            f"the network uses {name:.200}, which may not be used: it is not among the parts of "
            "networks that load builds by itself. If you know it, pass it, load(folder, "
            f"custom_objects={{{last[:80]!r}: {last[:80]}}})."
        )


def _is_known(part: Mapping[str, Any]) -> bool:
    name, module = part["class_name"], part.get("module")
    if name in _NO_CLASSES:
        return True
    if name == "function":
        is_function = module in ("builtins", "keras.activations")
        return is_function and part["config"] in _ACTIVATIONS.split()
    home, _, place = str(module).partition(".")
    if home != "keras":
        return False
    if _OPERATIONS.fullmatch(place):
        operation = getattr(sys.modules.get(str(module)), str(name), None)
        kinds = operation.__mro__ if isinstance(operation, type) else ()
        return "Operation" in [kind.__name__ for kind in kinds]
    return name in _CLASSES.get(place, "").split()


def _require_within(content: bytes) -> None:
    """Raise unless all weights are in a file itself.

    HDF5 may refer to other files, and declare arrays of any size that are stored nowhere.
    """

    def check(name: str, link: Any) -> None:
        part: Any = file[name] if isinstance(link, h5py.HardLink) else None
        if isinstance(part, h5py.Group):
            return
        is_elsewhere = part is None or part.external or part.is_virtual or part.dtype.hasobject
        if is_elsewhere or part.id.get_storage_size() < part.nbytes:
            raise ValueError(f"the weights {name} of the network are not in its file.")

    with h5py.File(io.BytesIO(content), "r") as file:
        file.visititems_links(check)


def _creator(limit: int) -> Any:
    """Return a maker of variables, up to a number of entries: a configuration may ask for any."""
    left = limit

    def create(make: Any, **options: Any) -> Any:
        nonlocal left
        value, shape = options.get("initial_value"), options.get("shape")
        if shape is None and callable(value):
            # An initialiser of the caller's need not be traced.
            with contextlib.suppress(Exception):
                shape = tf.function(value, autograph=False).get_concrete_function().output_shapes
        left -= tf.TensorShape(shape).num_elements() or 0
        if left < 0:
            raise ValueError("the network has more weights than were saved with it.")
        return make(**options)

    return create
