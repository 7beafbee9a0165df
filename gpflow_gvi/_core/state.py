"""Variables: what training changes without training it, and whether anything has changed."""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable, Sequence

import tensorflow as tf
from gpflow.base import Module


class Stateful(Module, abc.ABC):
    """A module with such variables: where a failed step is undone, theirs are undone as well."""

    @property
    @abc.abstractmethod
    def state(self) -> Sequence[tf.Variable]:
        """What training changes without training it."""


def state(module: tf.Module) -> tuple[tf.Variable, ...]:
    """Return the variables of a module that training changes without training them.

    They are those of its networks, such as moving statistics, and of its contexts.
    """
    parts = (module, *module.submodules)
    found = (variable for part in parts if isinstance(part, Stateful) for variable in part.state)
    return tuple({id(variable): variable for variable in found}.values())


class Snapshot:
    """Values that variables had, and whether they have them still.

    Those of one type are kept together, as to compare them one by one takes longer.

    :param variables: the variables.
    """

    def __init__(self, variables: Iterable[tf.Variable]) -> None:
        by_type: dict[tf.DType, list[tf.Variable]] = {}
        for variable in variables:
            by_type.setdefault(variable.dtype, []).append(variable)
        self._kept = [
            (each, tf.Variable(_flat(each), trainable=False)) for each in by_type.values()
        ]

    def is_current(self) -> tf.Tensor:
        """Return whether all variables have the values that are kept: []."""
        same = (tf.reduce_all(tf.equal(_flat(each), kept)) for each, kept in self._kept)
        return functools.reduce(tf.logical_and, same, tf.constant(True))

    def renew(self) -> None:
        """Keep the values of now."""
        for each, kept in self._kept:
            kept.assign(_flat(each))


def _flat(variables: list[tf.Variable]) -> tf.Tensor:
    return tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
