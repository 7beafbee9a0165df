"""Copies of models of Keras 3, also laid out flat: no models inside, one input and one output."""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
import types
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from ..errors import short_repr

FUNCTIONS = "function", "mask", "_output_shape", "activation", "recurrent_activation"
"""The attributes of layers that may be functions."""

TRAINING = "compile", "fit", "train_step", "compute_loss"
"""What a class of models may do in another way than Keras."""


class Part(NamedTuple):
    """One of several inputs of a network."""

    name: str
    """The key of a dictionary of inputs."""
    shape: tuple[int, ...]
    """The shape of one input."""

    @property
    def size(self) -> int:
        """The number of columns that it takes in a row."""
        return math.prod(self.shape)


def parts_of(network: Any) -> tuple[Part, ...]:
    """Return the inputs of a functional model with several, in its order; empty for one."""
    named = _inputs(network)
    if len(named) < 2 or not isinstance(network, keras.layers.Layer):
        return ()
    for name, tensor in named.items():
        if None in tensor.shape[1:]:
            raise ValueError(
                f"network has an input {name!r} of shape {tuple(tensor.shape)}, which is not "
                "known. Give keras.Input a shape without None, and pad what is shorter."
            )
    return tuple(Part(name, tuple(tensor.shape[1:])) for name, tensor in named.items())


def head(network: Any, output: str | int | None) -> Any:
    """Return a model of one of the outputs of a network, or the network if it returns a tensor.

    A network that is compiled gives it an optimiser of the same kind, and the loss of that output.

    :param network: a functional model, or anything else that returns one tensor.
    :param output: which: its name, its key or its place.
    """
    outputs = list(getattr(network, "outputs", None) or ())
    structure = getattr(network, "output", None) if outputs else None
    if len(outputs) < 2 and not isinstance(structure, dict | list | tuple):
        if output is None:
            return network
        raise ValueError(
            f"output is {output!r}, but network {short_repr(network)} has not several outputs. "
            "Leave it out."
        )
    keys = list(structure) if isinstance(structure, dict) else list(network.output_names)
    by_key = structure if isinstance(structure, dict) else dict(zip(keys, outputs, strict=True))
    if output is None and len(keys) == 1:
        output = keys[0]
    if isinstance(output, int) and 0 <= output < len(outputs):
        output = keys[output]
    if output not in by_key:
        raise ValueError(
            f"output is {output!r}, but network {network.name!r} has the outputs {keys}: pass "
            f"output={keys[0]!r}, or another of them."
        )
    model = keras.Model(network.input, by_key[output])
    if getattr(network, "compiled", False):
        place = keys.index(output)
        loss = network.loss
        if isinstance(loss, dict):
            loss = loss.get(output, loss.get(network.output_names[place]))
        elif isinstance(loss, list | tuple):
            loss = loss[place]
        optimizer = network.optimizer
        model.compile(type(optimizer).from_config(optimizer.get_config()), loss)
    return model


def as_graph(network: Any, example: Any) -> Any:
    """Return a model, `is_written`, as the graph of its layers; another, or one without, as it is.

    There is a graph if `call` uses layers and `keras.ops` alone, which take symbolic tensors. A
    model with another way of training, or losses of its own, stays as it is.

    :param example: inputs, [N, D...].
    """
    is_model = is_written(network) and isinstance(network, keras.Model)
    if not is_model or any(
        getattr(type(network), name) is not getattr(keras.Model, name) for name in TRAINING
    ):
        return network
    expected = network(example)
    if not tf.is_tensor(expected):
        return network
    inputs = keras.Input(example.shape[1:], dtype=example.dtype)
    is_told = "training" in inspect.signature(network.call).parameters
    try:
        graph, other = (
            keras.Model(inputs, network.call(inputs, **{"training": of} if is_told else {}))
            for of in (None, True)
        )
        graph.name = network.name
        is_same = np.allclose(graph(example), expected, rtol=1e-3, atol=1e-5)
        with own_objects(graph):
            keras.Model.from_config(graph.get_config())  # as copies of it are made
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return network
    has_all = {*map(id, graph.variables)} == {*map(id, network.variables)}
    # `if training:` has no place in a graph.
    parts = [({*map(id, each.layers)}, len(each.operations)) for each in (graph, other)]
    if not (is_same and has_all and parts[0] == parts[1]):
        return network
    if len(graph.losses) != len(network.losses):
        return network
    if network.compiled:
        graph.compile_from_config(network.get_compile_config())
    return graph


def flat(network: Any, parts: Sequence[Part] = ()) -> Any:
    """Return a copy of a model with the layers of models inside among its own layers.

    A model that cannot be copied is returned unchanged, with a warning: the layers of models inside
    are out of reach.

    :param network: a Sequential or functional model.
    :param parts: its inputs, if there are several: the copy has them side by side in one row.
    """
    has_inside = any(getattr(layer, "layers", None) for layer in getattr(network, "layers", ()))
    if not isinstance(network, keras.layers.Layer) or not (has_inside or parts):
        return network
    copies = _Copies()
    if parts:
        columns = sum(part.size for part in parts)  # float64 has all keys that are looked up
        inputs = keras.Input((columns,), name="side_by_side", dtype="float64")
        given = _unpacked(network, parts, inputs)
    else:
        (tensor,) = network.inputs
        inputs = given = keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype)
    try:
        with own_objects(network):
            model = keras.Model(inputs, copies(network, given), name=network.name)
        copies.take_weights()
    except (NotImplementedError, TypeError, ValueError) as error:
        why = (
            f"network {network.name!r} has a layer that cannot be copied: {error!s:.300} Keras "
            "makes the copy from get_config(): let __init__ of the layer's class take **kwargs and "
            "hand them on, or write its get_config and from_config."
        )
        if parts:
            raise TypeError(why) from error
        warnings.warn(f"{why} Layers of models inside it are no features.", stacklevel=2)
        return network
    if getattr(network, "compiled", False):
        model.compile_from_config(network.get_compile_config())
    return model


class _Copies:
    """Copies of layers, called where the layers themselves are called in a model."""

    def __init__(self) -> None:
        self.copies: dict[int, tuple[Any, Any]] = {}
        self.names: set[str] = set()

    def __call__(self, layer: Any, *args: Any, **options: Any) -> Any:
        """Return a layer's outputs; a model's are those of its layers, one after the other."""
        if isinstance(layer, keras.Sequential):
            (x,) = args
            for each in layer.layers:
                x = self(each, x)
            return x
        if isinstance(layer, keras.Model) and getattr(layer, "inputs", None):
            return layer._run_through_graph(args[0], call_fn=self)
        if isinstance(layer, keras.layers.Layer):
            layer = self._copy(layer)
        return layer(*args, **options)

    def _copy(self, layer: Any) -> Any:
        if id(layer) not in self.copies:
            name = layer.name
            while name in self.names:  # two models may have layers of one name
                name += "_"
            self.names.add(name)
            new = type(layer).from_config({**layer.get_config(), "name": name})
            self.copies[id(layer)] = layer, new
        return self.copies[id(layer)][1]

    def take_weights(self) -> None:
        """Give the copies the weights of the layers."""
        for layer, new in self.copies.values():
            new.set_weights(layer.get_weights())
            finalize(new)


def is_written(layer: Any) -> bool:
    """Return True for a layer or a model of a class that is not Keras's, with its own `call`."""
    is_graph = isinstance(layer, keras.Sequential) or getattr(layer, "inputs", None)
    return isinstance(layer, keras.layers.Layer) and _is_of_another(type(layer)) and not is_graph


def _is_of_another(kind: type) -> bool:
    return kind.__module__.split(".")[0] != "keras"


def copy_attributes(layer: Any, memo: dict[int, Any]) -> None:
    """Note a copy of a layer or a model, `is_written`, with copies of its attributes.

    Keras makes a copy from a configuration. It notes no arguments of classes of models, and adds
    some that `__init__` need not take.

    :param memo: that of `copy.deepcopy`.
    """
    kind: Any = type(layer)
    base = keras.Model if issubclass(kind, keras.Model) else keras.layers.Layer
    new, usual = kind.__new__(kind), base()
    base.__init__(new, trainable=layer.trainable, dtype=layer.dtype_policy, name=layer.name)
    memo |= {id(layer): new, id(layer._tracker): new._tracker}  # lists of layers have the latter
    for inner in layer._flatten_layers(include_self=False, recursive=False):
        if is_written(inner):
            copy_attributes(inner, memo)
    compiled = getattr(layer, "compiled", False)
    if compiled:
        usual.compile()
    for name in [*vars(layer)]:
        if not (name in vars(usual) or name.startswith("_self_")):  # which TensorFlow adds
            setattr(new, name, copy.deepcopy(getattr(layer, name), memo))
    new.built = layer.built
    if compiled:
        new.compile_from_config(layer.get_compile_config())


def _unpacked(network: Any, parts: Sequence[Part], rows: Any) -> Any:
    """Return the inputs of a network, of which the rows consist, in its structure."""
    named, start = dict[str, Any](), 0
    for part, tensor in zip(parts, _inputs(network).values(), strict=True):
        columns = rows[:, start : start + part.size]
        columns = keras.layers.Reshape(part.shape, dtype="float64")(columns)
        named[part.name] = keras.ops.cast(columns, tensor.dtype)
        start += part.size
    return named if isinstance(network.input, dict) else list(named.values())


def _inputs(network: Any) -> dict[str, Any]:
    """Return the tensors that a functional model takes, by key or by name; else none."""
    tensors = getattr(network, "inputs", None) or ()
    structure = getattr(network, "input", None) if len(tensors) > 1 else None
    return structure if isinstance(structure, dict) else {each.name: each for each in tensors}


@contextlib.contextmanager
def own_objects(network: Any) -> Iterator[None]:
    """Within a block, let Keras copy layers and models with what it does not know.

    Functions have a name for as long: Keras copies nothing but the code of a lambda, which does not
    find the names that it uses.
    """
    is_keras = isinstance(network, keras.layers.Layer)
    parts = tf.train.TrackableView(network).descendants() if is_keras else []
    layers = [part for part in parts if isinstance(part, keras.layers.Layer)]
    layers += network._flatten_layers() if is_keras else []  # those in lists and dictionaries, too
    kinds = {type(layer) for layer in layers}
    own: dict[str, Any] = {kind.__name__: kind for kind in kinds if _is_of_another(kind)}
    found = {id(each): each for each in (vars(layer).get(n) for layer in layers for n in FUNCTIONS)}
    functions = [each for each in found.values() if _is_own(each)]
    names = [each.__name__ for each in functions]
    try:
        for i, each in enumerate(functions):
            own[f"function_{i}"] = each
            each.__name__ = f"function_{i}"
        with keras.saving.custom_object_scope(own):
            yield
    finally:
        for each, name in zip(functions, names, strict=True):
            each.__name__ = name


def _is_own(value: Any) -> bool:
    known = "keras.src.activations"
    return isinstance(value, types.FunctionType) and not value.__module__.startswith(known)


def finalize(owner: Any) -> None:
    """Let each `Normalization` within a network or a module use the values of its variables."""
    for layer in normalizations(owner):
        layer.finalize_state()


def normalizations(owner: Any) -> list[keras.layers.Normalization]:
    """Return the layers within a network or a module that keep tensors made of their variables."""
    parts = tf.train.TrackableView(owner).descendants()
    return [part for part in parts if isinstance(part, keras.layers.Normalization)]
