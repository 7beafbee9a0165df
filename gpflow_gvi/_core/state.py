"""Variables: what training changes without training it, and whether anything has changed."""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable, Sequence

import tensorflow as tf
from gpflow.base import Module

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
