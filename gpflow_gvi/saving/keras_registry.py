"""What the configuration of a saved network may name: all else is for the caller to allow.

Keras looks a name up among what any imported package has registered, and may import the module that
a configuration names. TensorFlow Probability registers layers that run code from their
configuration, and Keras has layers that read files or call other programs' models. So each name is
looked up here beforehand: among the lists below, which have what computes and does nothing else,
and among the caller's `custom_objects`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

_LAYERS = """
    Activation ActivityRegularization Add AdditiveAttention AlphaDropout Attention Average
    AveragePooling1D AveragePooling2D AveragePooling3D BatchNormalization Bidirectional
    CategoryEncoding CenterCrop Concatenate Conv1D Conv1DTranspose Conv2D Conv2DTranspose Conv3D
    Conv3DTranspose ConvLSTM1D ConvLSTM2D ConvLSTM3D Cropping1D Cropping2D Cropping3D Dense
    DepthwiseConv1D DepthwiseConv2D Discretization Dot Dropout ELU EinsumDense Embedding Flatten GRU
    GRUCell GaussianDropout GaussianNoise GlobalAveragePooling1D GlobalAveragePooling2D
    GlobalAveragePooling3D GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D
    GroupNormalization GroupQueryAttention Identity InputLayer LSTM LSTMCell LayerNormalization
    LeakyReLU LocallyConnected1D LocallyConnected2D Masking MaxPooling1D MaxPooling2D MaxPooling3D
    Maximum Minimum MultiHeadAttention Multiply Normalization PReLU Permute RMSNormalization RNN
    RandomBrightness RandomContrast RandomCrop RandomErasing RandomFlip RandomHeight RandomRotation
    RandomTranslation RandomWidth RandomZoom ReLU RepeatVector Rescaling Reshape Resizing
    SeparableConv1D SeparableConv2D SimpleRNN SimpleRNNCell Softmax SpatialDropout1D
    SpatialDropout2D SpatialDropout3D SpectralNormalization StackedRNNCells Subtract ThresholdedReLU
    TimeDistributed UnitNormalization UpSampling1D UpSampling2D UpSampling3D ZeroPadding1D
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
    "src.engine.functional": "Functional",
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

_KERAS_OPERATIONS = re.compile(r"src\.ops\.(numpy|nn|math|linalg|image)")
"""The modules of Keras 3 whose operations may be layers; others call functions."""

_TF_OPERATIONS = re.compile(
    r"(math|nn|linalg|signal|image|__operators__)\..+|broadcast_to|cast|clip_by_value|concat"
    r"|expand_dims|gather|identity|ones_like|pad|repeat|reshape|reverse|shape|slice|split|squeeze"
    r"|stack|stop_gradient|tile|transpose|unstack|where|zeros_like"
)
"""The functions of TensorFlow that may be layers in tf_keras: they compute and do nothing else."""


def checked(config: Any, custom_objects: Mapping[str, Any]) -> Any:
    """Return a configuration without what Keras would compile; raise if it names anything else."""
    if isinstance(config, list):
        return [checked(item, custom_objects) for item in config]
    if not isinstance(config, dict):
        return config
    result = {
        key: checked(value, custom_objects)
        for key, value in config.items()
        if key != "compile_config"
    }
    for key, value in config.items():
        if key.endswith("activation") and isinstance(value, str):
            _require(value in _ACTIVATIONS.split() or value in custom_objects, f"{key} {value}")
    if "class_name" not in config:
        return result
    require_no_code(config)
    own = _own_name(config, custom_objects)
    if own is not None:
        return result | {"registered_name": own}  # it is found by this one and no other
    name = config["config"] if config["class_name"] == "function" else config["class_name"]
    registered = config.get("registered_name") or name
    full_name = f"{config.get('module') or ''}.{registered}".lstrip(".")
    _require(registered == name and _is_known(config), full_name)
    return result


def require_no_code(part: Mapping[str, Any]) -> None:
    """Raise if a part of a configuration has code, or does more than compute."""
    name, inside = part["class_name"], part.get("config")
    inside = inside if isinstance(inside, dict) else {}
    if name in ("Lambda", "__lambda__") or inside.get("function_type") == "lambda":
        raise ValueError("a layer of it is a lambda. Make that a class with a call method.")
    if name in ("TFOpLambda", "SlicingOpLambda"):
        function = str(inside.get("function"))
        if not _TF_OPERATIONS.fullmatch(function):
            raise ValueError(f"a layer of it is tf.{function}. Make that a class with call.")


def _require(is_allowed: bool, name: str) -> None:
    if not is_allowed:
        last = re.split(r"[. >]", name)[-1]
        raise ValueError(
            f"the network uses {name:.200}, which may not be used: it is not among the parts of "
            "networks that load builds by itself. If you know it, pass it, load(folder, "
            f"custom_objects={{{last[:80]!r}: {last[:80]}}})."
        )


def _own_name(part: Mapping[str, Any], custom_objects: Mapping[str, Any]) -> str | None:
    """Return the name under which the caller has given what a part names."""
    names = [part.get("registered_name"), part["class_name"]]
    if part["class_name"] == "function":
        names = [part.get("registered_name"), part.get("config")]
    names += [str(name).rpartition(">")[2] for name in names]
    return next((n for n in names if isinstance(n, str) and n in custom_objects), None)


def _is_known(part: Mapping[str, Any]) -> bool:
    name, module = part["class_name"], part.get("module")
    if name in _NO_CLASSES:
        return True
    if module is None and "module" not in part:  # as earlier versions of Keras wrote it
        return any(name in names.split() for names in _CLASSES.values())
    home, _, place = str(module).partition(".")
    if name == "function":
        return str(module) in ("builtins", f"{home}.activations") and (
            home in ("builtins", "keras", "tf_keras") and part.get("config") in _ACTIVATIONS.split()
        )
    if home not in ("keras", "tf_keras"):
        return False
    if place == "src.layers.core.tf_op_layer":
        return name in ("TFOpLambda", "SlicingOpLambda")
    if _KERAS_OPERATIONS.fullmatch(place):
        operation = getattr(sys.modules.get(str(module)), str(name), None)
        kinds = operation.__mro__ if isinstance(operation, type) else ()
        return "Operation" in [kind.__name__ for kind in kinds]
    return name in _CLASSES.get(place, "").split()
