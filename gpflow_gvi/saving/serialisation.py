"""Writes parts as JSON, arrays and files, and reads them again."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gpflow import Parameter

from . import estimator_files, keras_files, registry
from .parts import ARRAY, BY_NAME, LIST, NAMED, OBJECT, Way, set_attributes, way_of

Node = dict[str, Any]

_LIBRARIES: dict[str, tuple[str, Any]] = {
    "network": ("networks/{}.keras", keras_files),
    "estimator": ("estimators/{}.skops", estimator_files),
}
"""What other libraries write to files, and the modules that let them."""


class Writer:
    """Writes a part where it is first met, and refers to it where it is met again."""

    def __init__(self, folder: Path) -> None:
        self.values: dict[str, np.ndarray[Any, Any]] = {}
        self._folder = folder
        self._nodes: dict[int, Node] = {}
        self._alive: list[Any] = []  # an id is an object's own only while the object lives
        self._ids = itertools.count(1)
        self._num_files: Counter[str] = Counter()
        self._path_of_weight: dict[int, str] = {}

    def write(self, thing: Any, path: str) -> Any:
        """Return the JSON of a thing.

        :param path: where it was found, for messages and for the names of arrays.
        """
        is_finite = type(thing) is float and math.isfinite(thing)
        if thing is None or is_finite or type(thing) in (bool, int, str):
            return thing
        way = way_of(thing.__class__)
        if way is LIST:
            return [self.write(item, f"{path}[{i}]") for i, item in enumerate(thing)]
        if way.is_value:
            return self._node(thing, way, path)
        node = self._nodes.get(id(thing))
        if node is not None:
            return node if "array" in node else {"same": node.setdefault("id", next(self._ids))}
        self._alive.append(thing)
        node = self._nodes[id(thing)] = {}  # before its parts, which may refer to it
        made = self._node(thing, way, path)
        if made is None:
            del self._nodes[id(thing)]
            return None
        node.update(made)
        return node

    def _node(self, thing: Any, way: Way, path: str) -> Node | None:
        """Return a node; None for what a class leaves out of copies."""
        try:
            for name, (_, library) in _LIBRARIES.items():
                if library.is_theirs(thing):
                    return {"class": name, "config": self._file(thing, name, path)}
            config = way.config(thing)
            if way is ARRAY:
                return {"array": self._array(config, path)}
            if way is OBJECT and config is None:
                return None
            name = way.name or registry.name_of(thing.__class__)
        except ValueError as error:
            raise _refusal(thing, path, str(error)) from error
        if name == "dict":
            items = [
                [self.write(key, f"{path}.keys()"), self.write(value, f"{path}[{key!r}]")]
                for key, value in config
            ]
            return {"class": name, "value": items}
        if isinstance(config, dict):
            written = {key: self.write(value, f"{path}.{key}") for key, value in config.items()}
            return {"class": name, "config": written}
        return {"class": name, "value": self.write(config, path)}

    def _array(self, array: np.ndarray[Any, Any], path: str) -> str:
        """Put an array among the values, and return under which name."""
        # The value of the variable of a parameter has the name of the parameter.
        path = path.removesuffix(".value").removesuffix(".variable")
        name = path if path not in self.values else f"{path} ({len(self.values)})"
        self.values[name] = array
        return name

    def _file(self, thing: Any, name: str, path: str) -> Node:
        """Let a library write a thing to a file with the next number."""
        pattern, library = _LIBRARIES[name]
        if library is keras_files:
            self._require_own_weights(thing, path)
        content, options = library.write(thing)
        self._num_files[name] += 1
        file = pattern.format(self._num_files[name])
        (self._folder / file).parent.mkdir(exist_ok=True)
        (self._folder / file).write_bytes(content)
        return {"file": file, **options}

    def _require_own_weights(self, network: Any, path: str) -> None:
        """Raise if a network has weights of another one, as each file has its own."""
        weights = [id(weight) for weight in keras_files.weights(network)]
        paths = [self._path_of_weight[key] for key in weights if key in self._path_of_weight]
        if paths:
            raise ValueError(
                f"it shares layers with {paths[0]}. Use one network, or layers of its own."
            )
        self._path_of_weight |= dict.fromkeys(weights, path)


class Reader:
    """Reads what a `Writer` wrote.

    :param values: the arrays, by name.
    :param contents: the files of other libraries, by their paths in the folder.
    :param custom_objects: classes and functions that the registry does not have, by name.
    """

    def __init__(
        self,
        values: Mapping[str, np.ndarray[Any, Any]],
        contents: Mapping[str, bytes],
        custom_objects: Mapping[str, Any],
    ) -> None:
        self._values = values
        self._contents = contents
        self._custom_objects = custom_objects
        self._shared: dict[int, Any] = {}

    def read(self, node: Any) -> Any:
        """Return the thing of a piece of JSON."""
        if isinstance(node, list):
            return [self.read(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "array" in node:
            return self._values[node["array"]]
        if "same" in node:
            return self._shared[node["same"]]
        name = node["class"]
        if name == NAMED.name:
            return registry.find(node["value"], self._custom_objects)
        if name in _LIBRARIES:
            return self._noted(node, self._of_file(name, **node["config"]))
        cls: Any = None
        if (way := BY_NAME.get(name)) is None:
            cls = registry.find(name, self._custom_objects)
            way = way_of(cls)
        if way is OBJECT:  # noted before its attributes, which may refer to it
            thing = self._noted(node, way.build(cls, node["config"]))
            set_attributes(thing, self._config(node))
            return thing
        thing = way.build(cls, self._config(node))
        if isinstance(thing, Parameter):
            self._noted(node["config"]["variable"], thing.unconstrained_variable)
        return thing if way.is_value else self._noted(node, thing)

    def _config(self, node: Node) -> Any:
        if "value" in node:
            return self.read(node["value"])
        return {name: self.read(part) for name, part in node["config"].items()}

    def _noted(self, node: Node, thing: Any) -> Any:
        """Return the thing, noted for others that refer to it."""
        if "id" in node:
            self._shared[node["id"]] = thing
        return thing

    def _of_file(self, name: str, file: str, **options: Any) -> Any:
        if file not in self._contents:
            raise ValueError(f"a file is {file!r}; it must be one of those in the folder.")
        _, library = _LIBRARIES[name]
        return library.read(self._contents[file], self._custom_objects, **options)


def _refusal(thing: Any, path: str, remedy: str) -> TypeError:
    cls = thing.__class__
    name = f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")
    own = f" {thing.__qualname__!r}" if hasattr(thing, "__qualname__") else ""
    return TypeError(f"{path} is a {name}{own}, which cannot be saved: {remedy}")
