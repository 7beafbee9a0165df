"""Turns objects into JSON, arrays and files of networks."""

from __future__ import annotations

import enum
import inspect
import math
import types
from collections import Counter
from collections.abc import Callable, Mapping
from functools import singledispatchmethod
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.likelihoods import HeteroskedasticTFPConditional
from gpflow.posteriors import AbstractPosterior

from .._core.network_function import NetworkFunction
from .._core.network_variables import is_keras
from . import estimator_files, keras_files, registry

Node = dict[str, Any]
"""A thing as JSON: its `kind`, what that kind needs, and an `id` if it is referred to again."""

_INTERNAL = ("_self_", "_tf_", "_name_scope", "_scope_name", "_obj_reference_counts")
"""How the attributes begin in which TensorFlow keeps records of its own."""

_PLAIN = object().__reduce_ex__(2)[0]
"""How Python copies an object that is its class and its attributes."""


class Encoder:
    """Writes an object where it is first met, and refers to it where it is met again.

    An object is its class and its attributes, as for Python's `copy`, whose protocol
    (`__getstate__`, `__setstate__`) holds here too.

    :param folder: where to put `networks/`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.values: dict[str, np.ndarray[Any, Any]] = {}
        self.custom_objects: set[str] = set()
        self._nodes: dict[int, Node] = {}
        self._alive: list[Any] = []  # an id is an object's own only while the object lives
        self._num_shared = 0
        self._num_files: Counter[str] = Counter()
        self._path_of_weight: dict[int, str] = {}

    def encode(self, thing: Any, path: str) -> Any:
        """Return the JSON of a thing.

        :param path: where it was found, for messages and for the names of arrays.
        """
        if thing is None or type(thing) in (bool, int, str):
            return thing
        if type(thing) is float:
            return thing if math.isfinite(thing) else {"kind": "float", "value": repr(thing)}
        if isinstance(thing, enum.Enum):
            return self._node(thing, path)
        node = self._nodes.get(id(thing))
        if node is None:
            self._alive.append(thing)
            node = self._nodes[id(thing)] = {}
            node.update(self._node(thing, path))
            return node
        if "id" not in node:
            self._num_shared += 1
            content = dict(node)
            node.clear()
            node.update({"id": self._num_shared, **content})  # first, where readers look
        return {"kind": "reference", "to": node["id"]}

    @singledispatchmethod
    def _node(self, thing: Any, path: str) -> Node:
        """Return the node of an object by its attributes, unless its type is known better."""
        if is_keras(thing):
            return self._network(thing, path)
        if estimator_files.is_estimator(thing):
            written = self._written(estimator_files.write, thing, path, "estimators", ".skops")
            return {"kind": "estimator", **written}
        try:
            reduced = thing.__reduce_ex__(2)
        except TypeError as error:
            raise _refusal(thing, path, f"{error}. Remove it before saving.") from error
        if reduced[0] is type(None):  # what a class says that copies should leave out
            return {"kind": "nothing"}
        if reduced[0] is not _PLAIN or len(reduced[1]) > 1:
            remedy = "it is more than its attributes. Make it a list, dict or array before saving."
            raise _refusal(thing, path, remedy)
        node: Node = {"kind": "object", "class": self._name(type(thing), path)}
        state = reduced[2]
        if hasattr(thing, "__setstate__"):
            return node | {"state": self.encode(state, path)}
        parts = state if isinstance(state, tuple) else (state,)  # __dict__ and __slots__
        attributes = {name: value for part in parts for name, value in (part or {}).items()}
        return node | {"attributes": self._attributes(attributes, path)}

    def _named(self, things: Mapping[str, Any], path: str) -> Node:
        return {name: self.encode(thing, f"{path}.{name}") for name, thing in things.items()}

    def _attributes(self, attributes: Mapping[str, Any], path: str) -> Node:
        kept = {
            name: value
            for name, value in attributes.items()
            if not name.startswith(_INTERNAL)
            and not isinstance(value, tf.types.experimental.PolymorphicFunction)
        }
        return self._named(kept, path)

    @_node.register(NetworkFunction)
    def _(self, thing: Any, path: str) -> Node:
        restore, arguments = thing.__reduce__()
        names = list(inspect.signature(restore).parameters)[1:]
        values = dict(zip(names, arguments[1:], strict=True))
        name = self._name(type(thing), path)
        return {"kind": "network_function", "class": name, "arguments": self._named(values, path)}

    @_node.register(AbstractPosterior)
    def _(self, thing: Any, path: str) -> Node:
        remedy = "save the model, and call its posterior() again after loading."
        raise _refusal(thing, path, remedy)

    @_node.register(HeteroskedasticTFPConditional)
    def _(self, thing: Any, path: str) -> Node:
        # Only a function inside the constructor knows the class of the distribution.
        attributes = dict(vars(thing))
        function = inspect.unwrap(attributes.pop("conditional_distribution"))
        distribution = inspect.getclosurevars(function).nonlocals["distribution_class"]
        return {
            "kind": "heteroskedastic",
            "class": self._name(type(thing), path),
            "distribution_class": self._name(distribution, f"{path}.distribution_class"),
            "attributes": self._attributes(attributes, path),
        }

    @_node.register(tfp.bijectors.Bijector)
    @_node.register(tfp.distributions.Distribution)
    def _(self, thing: Any, path: str) -> Node:
        name = self._name(type(thing), path)
        defaults = inspect.signature(type(thing).__init__).parameters  # some of them are functions
        given = {
            key: value
            for key, value in thing.parameters.items()
            if key not in defaults or value is not defaults[key].default
        }
        return {"kind": "constructed", "class": name, "arguments": self._named(given, path)}

    @_node.register(Parameter)
    def _(self, thing: Any, path: str) -> Node:
        parts = ("transform", "prior", "prior_on", "shape", "name")
        return {
            "kind": "parameter",
            "class": self._name(type(thing), path),
            "variable": self.encode(thing.unconstrained_variable, path),
            **self._named({part: getattr(thing, part) for part in parts}, path),
        }

    @_node.register(tf.Variable)
    def _(self, thing: Any, path: str) -> Node:
        return {
            "kind": "variable",
            "name": thing.name.split(":")[0],
            "trainable": thing.trainable,
            "shape": self.encode(thing.shape, path),
            "value": self._store(thing.read_value(), path),
        }

    @_node.register(tf.Tensor)
    def _(self, thing: Any, path: str) -> Node:
        if tf.is_symbolic_tensor(thing):
            raise _refusal(thing, path, "it belongs to a graph. Save outside of tf.function.")
        return {"kind": "tensor", "value": self._store(thing, path)}

    @_node.register(np.ndarray)
    @_node.register(np.generic)
    def _(self, thing: Any, path: str) -> Node:
        kind = "scalar" if isinstance(thing, np.generic) else "array"
        return {"kind": kind, "value": self._store(thing, path)}

    def _store(self, thing: Any, path: str) -> str:
        """Put an array among the values, and return under which name."""
        array = np.asarray(thing)
        if isinstance(thing, np.ma.MaskedArray) or array.dtype.hasobject or array.dtype.kind == "V":
            remedy = f"its dtype is {array.dtype}. Make it an array of numbers before saving."
            raise _refusal(thing, path, remedy)
        name = path if path not in self.values else f"{path} ({len(self.values)})"
        self.values[name] = array
        return name

    @_node.register(list)
    @_node.register(tuple)
    @_node.register(set)
    @_node.register(frozenset)
    def _(self, thing: Any, path: str) -> Node:
        if hasattr(thing, "_fields"):
            fields = self._named(thing._asdict(), path)
            return {"kind": "record", "class": self._name(thing.__class__, path), "fields": fields}
        items = [self.encode(value, f"{path}[{i}]") for i, value in enumerate(thing)]
        return {"kind": _plain_kind(thing, path), "items": items}

    @_node.register(dict)
    def _(self, thing: Any, path: str) -> Node:
        items = [
            [self.encode(key, f"{path}.keys()"), self.encode(value, f"{path}[{key!r}]")]
            for key, value in thing.items()
        ]
        return {"kind": _plain_kind(thing, path), "items": items}

    @_node.register(slice)
    def _(self, thing: Any, path: str) -> Node:
        ends = (thing.start, thing.stop, thing.step)
        return {"kind": "slice", "items": [self.encode(end, path) for end in ends]}

    @_node.register(enum.Enum)
    def _(self, thing: Any, path: str) -> Node:
        return {"kind": "enum", "class": self._name(type(thing), path), "name": thing.name}

    @_node.register(tf.TensorShape)
    def _(self, thing: Any, path: str) -> Node:
        return {"kind": "shape", "sizes": None if thing.rank is None else thing.as_list()}

    @_node.register(tf.DType)
    @_node.register(np.dtype)
    def _(self, thing: Any, path: str) -> Node:
        kind = "numpy_dtype" if isinstance(thing, np.dtype) else "dtype"
        return {"kind": kind, "name": thing.name}

    @_node.register(type)
    @_node.register(types.FunctionType)
    @_node.register(types.BuiltinFunctionType)
    def _(self, thing: Any, path: str) -> Node:
        if isinstance(thing, type) and issubclass(thing, np.generic):
            return {"kind": "numpy_type", "name": np.dtype(thing).name}
        return {"kind": "named", "name": self._name(thing, path)}

    def _network(self, network: Any, path: str) -> Node:
        weights = [id(weight) for weight in keras_files.weights(network)]
        paths = [self._path_of_weight[key] for key in weights if key in self._path_of_weight]
        if paths:
            remedy = f"it shares layers with {paths[0]}. Use one network, or layers of its own."
            raise _refusal(network, path, remedy)
        self._path_of_weight |= dict.fromkeys(weights, path)
        written = self._written(keras_files.write, network, path, "networks", ".keras")
        return {"kind": "network", **written}

    def _written(
        self, write: Callable[..., Node], thing: Any, path: str, folder: str, suffix: str
    ) -> Node:
        """Let a library write a thing to a file with the next number, and return the file."""
        self._num_files[folder] += 1
        file = f"{self._num_files[folder]}{suffix}"
        try:
            return {"file": file, **write(thing, self.folder / folder / file)}
        except ValueError as error:
            raise _refusal(thing, path, str(error)) from error

    def _name(self, thing: Any, path: str) -> str:
        try:
            name = registry.name_of(thing)
        except ValueError as error:
            raise _refusal(thing, path, str(error)) from error
        if not registry.is_known(name):
            self.custom_objects.add(name)
        return name


def _plain_kind(thing: Any, path: str) -> str:
    """Return the Python container that this is; TensorFlow has wrappers of its own for them."""
    cls = thing.__class__
    if cls.__module__.split(".")[0] not in ("builtins", "tensorflow"):
        raise _refusal(thing, path, "convert it to one of Python's own containers before saving.")
    return next(
        kind.__name__ for kind in (list, tuple, set, frozenset, dict) if issubclass(cls, kind)
    )


def _refusal(thing: Any, path: str, remedy: str) -> TypeError:
    cls = thing.__class__
    name = f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")
    own = f" {thing.__qualname__!r}" if hasattr(thing, "__qualname__") else ""
    return TypeError(f"{path} is a {name}{own}, which cannot be saved: {remedy}")
