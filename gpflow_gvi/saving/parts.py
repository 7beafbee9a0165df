"""How each kind of part is taken apart into its `config`, and built from that again.

An object is its class and its attributes, as for Python's `copy`; what is more than that has a way
of its own below.
"""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.likelihoods import HeteroskedasticTFPConditional
from gpflow.posteriors import AbstractPosterior

from .._core.network_function import NetworkFunction, restored
from . import registry

Bijector, Distribution = tfp.bijectors.Bijector, tfp.distributions.Distribution

_PLAIN = object().__reduce_ex__(2)[0]
"""How Python copies an object that is its class and its attributes."""

_INTERNAL = ("_self_", "_tf_", "_name_scope", "_scope_name", "_obj_reference_counts")
"""How the attributes begin in which TensorFlow keeps records of its own."""

_ARGUMENTS = (
    *(bool, int, float, str, type(None), np.ndarray, np.generic, tf.DType, tf.Tensor, tf.Variable),
    *(tf.TensorShape, Parameter, Bijector, Distribution),
)
"""What constructors of bijectors and distributions take, alone or in lists, tuples and dicts."""


class Way(NamedTuple):
    """A way to write things, and to build them."""

    config: Callable[[Any], Any]
    """What there is to write: plain values, arrays and other parts, or a dict of them by name."""
    build: Callable[[Any, Any], Any]
    """The thing, of its class and of what `config` returned."""
    name: str = ""
    """What is written for the class, if it is the same for all."""
    is_value: bool = False
    """Whether it is written anew in each place: no other part refers to it."""


def way_of(cls: type) -> Way:
    """The way in which things of a class are written and built."""
    if issubclass(cls, type):
        return NAMED
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _RECORD
    for base in cls.__mro__:
        # A subclass of Python's own types has more to it, unless it is a wrapper of TensorFlow's.
        is_more = base.__module__ == "builtins" and not cls.__module__.startswith("tensorflow.")
        if base in _WAYS and (cls is base or not is_more):
            return _WAYS[base]
    return OBJECT


def attributes(thing: Any) -> dict[str, Any] | None:
    """The attributes of an object, or None if its class says that copies leave it out."""
    try:
        reduced = thing.__reduce_ex__(2)
    except TypeError as error:
        raise ValueError(f"{error}. Remove it before saving.") from error
    if reduced[0] is type(None):
        return None
    is_plain = reduced[0] is _PLAIN and len(reduced[1]) == 1 and isinstance(reduced[2], dict | None)
    if not is_plain or hasattr(thing, "__setstate__"):
        raise ValueError(
            "it is more than its attributes. Make it one of Python's own lists, tuples or dicts, "
            "or an array, before saving."
        )
    return {
        name: value
        for name, value in (reduced[2] or {}).items()
        if not name.startswith(_INTERNAL)
        and not isinstance(value, tf.types.experimental.PolymorphicFunction)
    }


def set_attributes(thing: Any, named: Mapping[str, Any]) -> None:
    """Give an object its attributes, as far as they are none of Python's."""
    # A tf.Module tracks what is set; a frozen dataclass lets nothing be set but in this way.
    put = setattr if isinstance(thing, tf.Module) else object.__setattr__
    for name, value in named.items():
        if name.startswith("__"):
            raise ValueError(f"{name} of a {type(thing).__name__} may not be set.")
        put(thing, name, value)


def _build_object(cls: Any, config: Mapping[str, Any]) -> Any:
    """An object without its attributes, which may refer to it."""
    thing = cls.__new__(cls)
    if isinstance(thing, tf.Module):
        tf.Module.__init__(thing, name=config.get("_name"))
    return thing


def _heteroskedastic_config(likelihood: Any) -> dict[str, Any]:
    # Only a function inside the constructor knows the class of the distribution.
    function = inspect.unwrap(likelihood.conditional_distribution)
    return {
        "distribution_class": inspect.getclosurevars(function).nonlocals["distribution_class"],
        "scale_transform": likelihood.scale_transform,
        "quadrature": likelihood.quadrature,
    }


def _arguments(thing: Any) -> dict[str, Any]:
    """The arguments of a bijector or a distribution; some defaults are functions."""
    defaults = inspect.signature(type(thing).__init__).parameters
    return {
        name: value
        for name, value in thing.parameters.items()
        if name not in defaults or value is not defaults[name].default
    }


def _build_by_arguments(cls: Any, config: dict[str, Any]) -> Any:
    if registry.qualified_name(cls) in registry.table():  # one of the caller's may take anything
        for name, value in config.items():
            for part in tf.nest.flatten(value):
                _require(part, _ARGUMENTS, f"{name} of {cls.__name__}")
    return cls(**config)


def _require(part: Any, kinds: Any, name: str) -> None:
    if not isinstance(part, kinds):
        raise ValueError(f"{name} may not be a {type(part).__name__}.")


def _parameter_config(parameter: Any) -> dict[str, Any]:
    parts = ("transform", "prior", "prior_on", "shape", "name")
    named = {part: getattr(parameter, part) for part in parts}
    return {"variable": parameter.unconstrained_variable, **named}


def _build_parameter(cls: Any, config: dict[str, Any]) -> Any:
    variable, transform, prior = config["variable"], config["transform"], config["prior"]
    _require(variable, tf.Variable, "the variable of a parameter")
    _require(transform, Bijector, "the transform of a parameter")
    _require(prior, Distribution | None, "the prior of a parameter")
    parameter = cls(
        transform.forward(tf.zeros_like(variable)),
        transform=transform,
        prior=prior,
        prior_on=config["prior_on"],
        trainable=variable.trainable,
        dtype=variable.dtype,
        name=config["name"],
        unconstrained_shape=variable.shape,
        constrained_shape=config["shape"],
    )
    # There and back through the transform the value would be another one in its last digits.
    parameter.unconstrained_variable.assign(variable)
    return parameter


def _array_config(thing: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(thing)
    if isinstance(thing, np.ma.MaskedArray) or array.dtype.hasobject or array.dtype.kind == "V":
        raise ValueError(f"its dtype is {array.dtype}. Make it an array of numbers before saving.")
    return array


def _network_config(function: Any) -> dict[str, Any]:
    _, (_, *arguments) = function.__reduce__()
    return dict(zip(("network", "trainable", "state"), arguments, strict=True))


def _variable_config(variable: Any) -> dict[str, Any]:
    return {
        "value": np.asarray(variable.read_value()),
        "trainable": variable.trainable,
        "shape": variable.shape,
        "name": variable.name.split(":")[0],
    }


def _tensor_config(tensor: Any) -> np.ndarray[Any, Any]:
    if tf.is_symbolic_tensor(tensor):
        raise ValueError("it belongs to a graph. Save outside of tf.function.")
    return np.asarray(tensor)


def _refuse_posterior(posterior: Any) -> None:
    raise ValueError("save the model, and call its posterior() again after loading.")


OBJECT = Way(attributes, _build_object)
"""The way of all objects that have none of their own: `set_attributes` follows."""

NAMED = Way(registry.name_of, registry.find, "named", is_value=True)
"""Classes and functions; they are found, not built."""

ARRAY = Way(_array_config, lambda _, array: array, "array")
LIST = Way(list, lambda _, items: items, "list", is_value=True)

_RECORD = Way(lambda record: record._asdict(), lambda cls, config: cls(**config), is_value=True)
_BY_ARGUMENTS = Way(_arguments, _build_by_arguments, is_value=True)


def _value(name: str, config: Callable[[Any], Any], build: Callable[[Any], Any]) -> Way:
    """The way of a class that is made of one part, and written anew in each place."""
    return Way(config, lambda _, part: build(part), name, is_value=True)


_WAYS: dict[Any, Way] = {
    list: LIST,
    float: _value("float", repr, float),
    tuple: _value("tuple", list, tuple),
    dict: _value("dict", lambda table: [*table.items()], dict),
    slice: _value("slice", lambda ends: [*ends.__reduce__()[1]], lambda ends: slice(*ends)),
    enum.Enum: Way(lambda member: member.name, lambda cls, config: cls[config], is_value=True),
    types.FunctionType: NAMED,
    types.BuiltinFunctionType: NAMED,
    np.ndarray: ARRAY,
    np.generic: Way(np.asarray, lambda _, config: config[()], "scalar"),
    np.dtype: _value("numpy_dtype", np.lib.format.dtype_to_descr, np.dtype),
    tf.DType: _value("dtype", lambda dtype: dtype.name, tf.as_dtype),
    tf.TensorShape: _value(
        "shape", lambda sizes: None if sizes.rank is None else sizes.as_list(), tf.TensorShape
    ),
    tf.Tensor: Way(_tensor_config, lambda _, config: tf.constant(config), "tensor"),
    tf.Variable: Way(
        _variable_config,
        lambda _, config: tf.Variable(config.pop("value"), **config),
        "variable",
    ),
    Parameter: Way(_parameter_config, _build_parameter),
    Bijector: _BY_ARGUMENTS,
    Distribution: _BY_ARGUMENTS,
    NetworkFunction: Way(_network_config, lambda cls, config: restored(cls, **config)),
    HeteroskedasticTFPConditional: Way(_heteroskedastic_config, lambda cls, config: cls(**config)),
    AbstractPosterior: Way(_refuse_posterior, _build_object),
}

BY_NAME = {way.name: way for way in _WAYS.values() if way.name}
"""The ways whose things have no class of their own in files."""
