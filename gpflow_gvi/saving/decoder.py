"""Turns JSON, arrays and files of networks into objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.likelihoods import HeteroskedasticTFPConditional

from .._core.network_function import restored
from . import estimator_files, keras_files
from .encoder import Node
from .registry import find, is_known

_ARGUMENTS = (
    *(bool, int, float, str, type(None), np.ndarray, np.generic, np.dtype, tf.DType),
    *(tf.Tensor, tf.Variable, tf.TensorShape, Parameter),
    *(tfp.bijectors.Bijector, tfp.distributions.Distribution),
)
"""What constructors of bijectors and distributions take."""

MAX_REPEATED = 10**6
"""The maximal number of parts that are referred to, each with all that is in it."""


class Decoder:
    """Reads what an `Encoder` wrote: a node of kind `x` is read by `_read_x`.

    :param values: the arrays, by name.
    :param contents: the files of networks, by their paths in the folder.
    :param custom_objects: classes and functions that the registry does not have, by name.
    """

    def __init__(
        self,
        values: Mapping[str, np.ndarray[Any, Any]],
        contents: Mapping[str, bytes],
        custom_objects: Mapping[str, Any],
    ) -> None:
        self.values = values
        self.contents = contents
        self.custom_objects = custom_objects
        self._things: dict[int, Any] = {}
        self._sizes: dict[int, int] = {}
        self._size = self._repeated = 0

    def decode(self, node: Any) -> Any:
        """Return the thing of a piece of JSON."""
        before, self._size = self._size, self._size + 1
        if isinstance(node, list):
            raise ValueError("it has a list in the place of a part.")
        if not isinstance(node, dict):
            return node
        kind = node["kind"]
        if kind not in KINDS:
            raise ValueError(f"the kind {kind!r:.100} may not be read: it is unknown.")
        thing = self._known(node, getattr(self, f"_read_{kind}")(node))
        if "id" in node:
            self._sizes[node["id"]] = self._size - before
        return thing

    def _known(self, node: Node, thing: Any) -> Any:
        """Return the thing, noted for others that refer to it."""
        if "id" in node:
            self._things[node["id"]] = thing
        return thing

    def _find(self, place: str, name: str) -> Any:
        return find(place, name, self.custom_objects)

    def _named(self, nodes: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.decode(node) for name, node in nodes.items()}

    def _read_reference(self, node: Node) -> Any:
        self._repeated += self._sizes.get(node["to"], 0)
        self._size += self._sizes.get(node["to"], 0)
        if self._repeated > MAX_REPEATED:  # to visit all of them would take too long
            raise ValueError(f"it refers to more than {MAX_REPEATED} parts a second time.")
        return self._things[node["to"]]

    # Objects.

    def _read_object(self, node: Node) -> Any:
        cls = self._find("object", node["class"])
        thing = self._known(node, cls.__new__(cls))  # its own attributes may refer to it
        if isinstance(thing, tf.Module):
            tf.Module.__init__(thing, name=node.get("attributes", {}).get("_name"))
        if "state" in node:
            thing.__setstate__(self.decode(node["state"]))
        else:
            self._set_attributes(thing, node)
        return thing

    def _read_heteroskedastic(self, node: Node) -> Any:
        cls = self._find("object", node["class"])
        if not issubclass(cls, HeteroskedasticTFPConditional):
            raise ValueError(f"{node['class']} may not be used: it takes no distribution_class.")
        distribution = self._find("distribution", node["distribution_class"])
        thing = self._known(node, cls(distribution))
        self._set_attributes(thing, node)
        return thing

    def _set_attributes(self, thing: Any, node: Node) -> None:
        # A tf.Module tracks what is set; a frozen dataclass lets nothing be set but in this way.
        put = setattr if isinstance(thing, tf.Module) else object.__setattr__
        for name, value in node["attributes"].items():
            if name.startswith("__"):
                raise ValueError(f"{node['class']} has {name}, which may not be set.")
            put(thing, name, self.decode(value))

    def _read_constructed(self, node: Node) -> Any:
        cls = self._find("constructed", node["class"])
        arguments = self._named(node["arguments"])
        if is_known(node["class"]):  # a class of the caller's may take anything
            for name, value in arguments.items():
                _require_numbers(f"{name} of {node['class']}", value)
        return cls(**arguments)

    def _read_network_function(self, node: Node) -> Any:
        kind = self._find("network_function", node["class"])
        arguments = self._named(node["arguments"])
        return restored(kind, **arguments)

    def _read_nothing(self, node: Node) -> Any:
        return None

    def _read_network(self, node: Node) -> Any:
        content = self._content("networks", node["file"])
        return keras_files.read(content, self.custom_objects, **node["arguments"])

    def _read_estimator(self, node: Node) -> Any:
        content = self._content("estimators", node["file"])
        return estimator_files.read(content, self.custom_objects)

    def _content(self, folder: str, file: str) -> bytes:
        if f"{folder}/{file}" not in self.contents:
            raise ValueError(f"file is {file!r}; it must be one of those in {folder}/.")
        return self.contents[f"{folder}/{file}"]

    # Numbers.

    def _read_parameter(self, node: Node) -> Any:
        variable = self.decode(node["variable"])
        if not isinstance(variable, tf.Variable):
            raise ValueError(f"the variable of {node['name']} may not be a {type(variable)}.")
        transform = self._part_of_parameter(node, "transform", tfp.bijectors.Bijector)
        prior = self._part_of_parameter(node, "prior", tfp.distributions.Distribution)
        parameter = self._find("parameter", node["class"])(
            transform.forward(tf.zeros_like(variable)),
            transform=transform,
            prior=prior,
            prior_on=self.decode(node["prior_on"]),
            trainable=variable.trainable,
            dtype=variable.dtype,
            name=node["name"],
            unconstrained_shape=variable.shape,
            constrained_shape=self.decode(node["shape"]),
        )
        # There and back through the transform the value would be another one in its last digits.
        parameter.unconstrained_variable.assign(variable)
        self._known(node["variable"], parameter.unconstrained_variable)
        return parameter

    def _part_of_parameter(self, node: Node, name: str, base: type) -> Any:
        part = self.decode(node[name])
        if part is not None and not isinstance(part, base):
            raise ValueError(f"{name} of {node['name']} may not be a {type(part).__name__}.")
        return part

    def _read_variable(self, node: Node) -> Any:
        return tf.Variable(
            self.values[node["value"]],
            trainable=node["trainable"],
            name=node["name"],
            shape=self.decode(node["shape"]),
        )

    def _read_tensor(self, node: Node) -> Any:
        return tf.constant(self.values[node["value"]])

    def _read_array(self, node: Node) -> Any:
        return self.values[node["value"]]

    def _read_scalar(self, node: Node) -> Any:
        return self.values[node["value"]][()]

    def _read_float(self, node: Node) -> Any:
        return float(node["value"])

    # Containers. Lists and dicts can refer to themselves, and the others cannot.

    def _items(self, node: Node) -> Iterator[Any]:
        return map(self.decode, node["items"])

    def _read_list(self, node: Node) -> Any:
        things: list[Any] = self._known(node, [])
        things.extend(self._items(node))
        return things

    def _read_tuple(self, node: Node) -> Any:
        return tuple(self._items(node))

    def _read_set(self, node: Node) -> Any:
        return set(self._items(node))

    def _read_frozenset(self, node: Node) -> Any:
        return frozenset(self._items(node))

    def _read_slice(self, node: Node) -> Any:
        return slice(*self._items(node))

    def _read_dict(self, node: Node) -> Any:
        things: dict[Any, Any] = self._known(node, {})
        things.update((self.decode(key), self.decode(value)) for key, value in node["items"])
        return things

    def _read_record(self, node: Node) -> Any:
        return self._find("record", node["class"])(**self._named(node["fields"]))

    # Names.

    def _read_named(self, node: Node) -> Any:
        return self._find("value", node["name"])

    def _read_enum(self, node: Node) -> Any:
        return self._find("enum", node["class"])[node["name"]]

    def _read_shape(self, node: Node) -> Any:
        return tf.TensorShape(node["sizes"])

    def _read_dtype(self, node: Node) -> Any:
        return tf.as_dtype(node["name"])

    def _read_numpy_dtype(self, node: Node) -> Any:
        return np.dtype(node["name"])

    def _read_numpy_type(self, node: Node) -> Any:
        return np.dtype(node["name"]).type


def _require_numbers(name: str, value: Any) -> None:
    """Raise unless a value is an argument of constructors, or a container of such."""
    values, seen = [value], set()
    while values:
        value = values.pop()
        if isinstance(value, dict | list | tuple | set | frozenset):
            if id(value) not in seen:  # a few containers can hold each other 2^n times
                seen.add(id(value))
                values += value.values() if isinstance(value, dict) else value
        elif not isinstance(value, _ARGUMENTS):
            raise ValueError(
                f"{name} may not be a {type(value).__name__}; it must be made of numbers, "
                "bijectors and distributions."
            )


KINDS = frozenset(
    name.removeprefix("_read_") for name in vars(Decoder) if name.startswith("_read_")
)
"""The kinds of nodes."""
