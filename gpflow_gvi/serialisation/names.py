"""The gate: classes and functions by their names, in the packages that may be named."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

PACKAGES = ("gpflow_gvi", "gpflow", "gpflux", "tensorflow_probability")
"""The packages whose classes and functions may be named."""

_MATHEMATICS = {"tensorflow.math": vars(tf.math), "tensorflow.nn": vars(tf.nn)}
"""The functions of TensorFlow that may be named: they compute and do nothing else."""

_NOT_ATTRIBUTES_ALONE = ("builtins", "keras", "tensorflow", "tf_keras")
"""Packages whose objects are more than their attributes."""

_CALLABLE = ("gpflow_gvi.networks:_restored",)
"""The functions that loading calls: those with which classes say that copies are to be made."""


def name_of(thing: Any) -> str:
    """Return the name `module:name` of a class or function, by which it can be found again."""
    for module, members in _MATHEMATICS.items():
        if members.get(thing.__name__) is thing:
            return f"{module}:{thing.__name__}"
    name = f"{thing.__module__}:{thing.__qualname__}"
    is_local = "<locals>" in name and not isinstance(thing, type)
    if is_local or "<lambda>" in name or (is_of_packages(name) and _walk(name) is not thing):
        raise ValueError(
            "no name leads to it. Put what it does into a Keras model or a class, or define it at "
            "the top of a module and pass it to load, custom_objects={...}."
        )
    if name.partition(":")[0].split(".")[0] in _NOT_ATTRIBUTES_ALONE:
        raise ValueError("it is more than its attributes. Remove it before saving.")
    return name


def is_of_packages(name: str) -> bool:
    """Return whether a name is looked up in the packages, and not among custom objects."""
    module = name.partition(":")[0]
    return module in _MATHEMATICS or module.split(".")[0] in PACKAGES


def may_be_called(function: Any) -> bool:
    """Return whether loading may call a function."""
    return any(_walk(name) is function for name in _CALLABLE)


def find(name: str, custom_objects: Mapping[str, Any]) -> Any:
    """Return the class or function of a name. Nothing else is found, and none is called."""
    if name in custom_objects:
        return custom_objects[name]
    if is_of_packages(name):
        found = _walk(name)
        if found is None:
            raise ValueError(
                f"{name} may not be used: no class or function of that module has this name. If "
                "one had in another version of the package, install that version."
            )
        return found
    last = name.rpartition(":")[2].rpartition(".")[2]
    if last in custom_objects:
        return custom_objects[last]
    raise ValueError(
        f"{name} may not be used: it is not of {', '.join(PACKAGES)}. If it is your own, pass it, "
        f"load(folder, custom_objects={{{last!r}: {last}}})."
    )


def _walk(name: str) -> Any:
    """Return the class or function that says itself that this is its name, or None.

    What a module has imported from elsewhere says another name.
    """
    module, _, path = name.partition(":")
    if module in _MATHEMATICS:
        return _MATHEMATICS[module].get(path)
    try:
        found = functools.reduce(getattr, path.split("."), importlib.import_module(module))
    except (AttributeError, ImportError):
        return None
    own = (getattr(found, "__module__", None), getattr(found, "__qualname__", None))
    return found if own == (module, path) else None
