"""Variables that nobody trains: what training changes all the same, constants, and snapshots."""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf
from gpflow.base import Module

from .tensorflow_private import is_differentiated

MAX_SMALL = 2_000
"""The number of elements up to which values are copied to be compared with others."""


class Stateful(Module, abc.ABC):
    """A module with such variables: where a failed step is undone, theirs are undone as well."""

    @property
    @abc.abstractmethod
    def state(self) -> Sequence[tf.Variable]:
        """Values that training changes without gradients."""


def state(module: tf.Module) -> tuple[tf.Variable, ...]:
    """Return the variables of a module that training changes without training them.

    They are those of its networks, such as moving statistics, and of its contexts.
    """
    parts = (module, *module.submodules)
    found = (variable for part in parts if isinstance(part, Stateful) for variable in part.state)
    return tuple({id(variable): variable for variable in found}.values())


def in_dtype(value: Any, dtype: tf.DType) -> tf.Tensor:
    """Return a value in a precision; `tf.cast` would take a number of Python through float32."""
    is_number = isinstance(value, int | float)
    return tf.constant(value, dtype) if is_number else tf.cast(value, dtype)


def constant(value: tf.Tensor) -> tf.Variable | tf.Tensor:
    """Return a value as a variable that is not trained.

    So it is among the weights of its model: it is saved with them, and another model of the same
    structure becomes equal to this one by assigning them, which needs no new graph. A value in a
    graph, where no variable can be made, or one that a gradient may be taken of, stays the tensor
    that it is.
    """
    if not tf.executing_eagerly() or is_differentiated():
        return value
    return tf.Variable(value, trainable=False)


class Snapshot:
    """Values that variables had, and whether they have them still.

    Small ones of one type are kept together, as to compare them one by one takes longer.

    :param variables: the variables.
    """

    def __init__(self, variables: Iterable[tf.Variable]) -> None:
        together: dict[object, list[tf.Variable]] = {}
        for variable in variables:
            is_small = variable.shape.num_elements() <= MAX_SMALL
            key = variable.dtype if is_small else id(variable)
            together.setdefault(key, []).append(variable)
        self._kept = [
            (each, tf.Variable(_joined(each), trainable=False)) for each in together.values()
        ]

    def is_current(self) -> tf.Tensor:
        """Return True if all variables still have the values that are kept: []."""
        same = (tf.reduce_all(tf.equal(_joined(each), kept)) for each, kept in self._kept)
        return functools.reduce(tf.logical_and, same, tf.constant(True))

    def renew(self) -> None:
        """Keep the current values."""
        for each, kept in self._kept:
            kept.assign(_joined(each))


def _joined(variables: list[tf.Variable]) -> tf.Tensor:
    if len(variables) == 1:
        return tf.convert_to_tensor(variables[0])
    return tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
