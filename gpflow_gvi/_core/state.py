"""Variables that training changes without training them, such as moving statistics."""

from __future__ import annotations

import abc
from collections.abc import Sequence

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
