"""The reader: JSON, arrays and files of networks turned into objects."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.likelihoods import HeteroskedasticTFPConditional

from . import names, networks
from .encoder import Node


class Decoder:
    """Reads what an `Encoder` wrote: a node of kind `x` is read by `_read_x`.

    :param folder: where `networks/` is.
    :param values: the arrays, by name.
    :param custom_objects: classes and functions that are not of `names.PACKAGES`, by name.
    """

    def __init__(
        self,
        folder: Path,
        values: Mapping[str, np.ndarray[Any, Any]],
        custom_objects: Mapping[str, Any],
    ) -> None:
        self.folder = folder
        self.values = values
        self.custom_objects = custom_objects
        self._things: dict[int, Any] = {}

    def decode(self, node: Any) -> Any:
        """Return the thing of a piece of JSON."""
        if not isinstance(node, dict):
            return node
        return self._known(node, getattr(self, f"_read_{node['kind']}")(node))

    def _known(self, node: Node, thing: Any) -> Any:
        """Return the thing, having noted it for those that refer to it."""
        if "id" in node:
            self._things[node["id"]] = thing
        return thing

    def _read_reference(self, node: Node) -> Any:
        return self._things[node["to"]]

    # Objects.

    def _read_object(self, node: Node) -> Any:
        cls = self._class(node["class"], object)
        thing = self._known(node, cls.__new__(cls))  # its own attributes may refer to it
        if isinstance(thing, tf.Module):
            tf.Module.__init__(thing, name=node.get("attributes", {}).get("_name"))
        if "state" in node:
            thing.__setstate__(self.decode(node["state"]))
        else:
            self._set_attributes(thing, node)
        return thing

    def _read_heteroskedastic(self, node: Node) -> Any:
        cls = self._class(node["class"], HeteroskedasticTFPConditional)
        distribution = self._class(node["distribution_class"], tfp.distributions.Distribution)
        thing = self._known(node, cls(distribution))
        self._set_attributes(thing, node)
        return thing

    def _set_attributes(self, thing: Any, node: Node) -> None:
        # A tf.Module tracks what is set; a frozen dataclass lets nothing be set but in this way.
        put = setattr if isinstance(thing, tf.Module) else object.__setattr__
        for name, value in node["attributes"].items():
            if name.startswith("__"):
                raise ValueError(f"{self.folder} sets {name}, which may not be set.")
            put(thing, name, self.decode(value))

    def _read_constructed(self, node: Node) -> Any:
        cls = self._class(node["class"], tfp.bijectors.Bijector, tfp.distributions.Distribution)
        return cls(**{name: self.decode(value) for name, value in node["arguments"].items()})

    def _read_restored(self, node: Node) -> Any:
        function = names.find(node["by"], self.custom_objects)
        if not names.may_be_called(function):
            raise ValueError(f"{node['by']} may not be called in loading.")
        return function(**{name: self.decode(value) for name, value in node["arguments"].items()})

    def _read_nothing(self, node: Node) -> Any:
        return None

    def _read_network(self, node: Node) -> Any:
        if not re.fullmatch(r"\d+\.keras", node["file"]):
            raise ValueError(f"file is {node['file']!r}; it must be one of those in networks/.")
        file = self.folder / "networks" / node["file"]
        return networks.read(file, self.custom_objects, **node["arguments"])

    # Numbers.

    def _read_parameter(self, node: Node) -> Any:
        variable = self.decode(node["variable"])
        transform = self.decode(node["transform"])
        parameter = self._class(node["class"], Parameter)(
            transform.forward(tf.zeros_like(variable)),
            transform=transform,
            prior=self.decode(node["prior"]),
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

    # Containers.

    def _read_list(self, node: Node) -> Any:
        things: list[Any] = self._known(node, [])
        things.extend(self.decode(item) for item in node["items"])
        return things

    def _read_dict(self, node: Node) -> Any:
        things: dict[Any, Any] = self._known(node, {})
        things.update((self.decode(key), self.decode(value)) for key, value in node["items"])
        return things

    def _read_tuple(self, node: Node) -> Any:
        return tuple(self.decode(item) for item in node["items"])

    def _read_set(self, node: Node) -> Any:
        return {self.decode(item) for item in node["items"]}

    def _read_frozenset(self, node: Node) -> Any:
        return frozenset(self.decode(item) for item in node["items"])

    def _read_record(self, node: Node) -> Any:
        fields = {name: self.decode(value) for name, value in node["fields"].items()}
        return self._class(node["class"], tuple)(**fields)

    def _read_slice(self, node: Node) -> Any:
        return slice(*(self.decode(item) for item in node["items"]))

    # Names.

    def _read_named(self, node: Node) -> Any:
        return names.find(node["name"], self.custom_objects)

    def _read_enum(self, node: Node) -> Any:
        return self._class(node["class"], enum.Enum)[node["name"]]

    def _read_shape(self, node: Node) -> Any:
        return tf.TensorShape(node["sizes"])

    def _read_dtype(self, node: Node) -> Any:
        return tf.as_dtype(node["name"])

    def _read_numpy_dtype(self, node: Node) -> Any:
        return np.dtype(node["name"])

    def _read_numpy_type(self, node: Node) -> Any:
        return np.dtype(node["name"]).type

    def _class(self, name: str, *bases: type) -> Any:
        """Return the class of a name, if it is one of the kind that is wanted."""
        found = names.find(name, self.custom_objects)
        if not (isinstance(found, type) and issubclass(found, bases)):
            wanted = " or ".join(base.__name__ for base in bases)
            raise ValueError(f"{name} may not be used: it is not a class of {wanted}.")
        return found
