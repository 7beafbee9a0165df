"""Objects of a user's own that are beside a model, and what to save them with."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_gvi.saving import load, save
from tests import networks


def there_and_back(thing, folder, **options):
    save(thing, folder / "saved")
    return load(folder / "saved", **options)


class Point(NamedTuple):
    x: float
    y: np.ndarray


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: np.ndarray
    kernel: gpflow.kernels.Kernel


class Slotted:
    __slots__ = ("one",)

    def __init__(self):
        self.one = 1


class Stateful:
    def __init__(self, value):
        self.value = value

    def __setstate__(self, state):
        self.__init__(state["value"])


class Fresh:
    """Has a state that is made when it is asked for, and gone when it was seen."""

    def __init__(self, value):
        self.value = value

    def __getstate__(self):
        return {"value": slice(self.value)}


class Knot(tf.Module):
    """A module that knows its parent."""

    def __init__(self, parent=None):
        super().__init__(name="knot_of_mine")
        self.parent = parent
        self.children = [] if parent else [Knot(self), Knot(self)]
        self.by_name = {"first": self.children[0]} if self.children else {}
        self.compiled = tf.function(lambda: 1)

    @tf.Module.with_name_scope
    def make(self):
        return tf.Variable(1.0, name="made")


def plain_function(X):
    return X[:, :1] + 1.0


OWN = {kind.__name__: kind for kind in (Point, Frozen, Fresh, Knot, networks.Perceptron)} | {
    "plain_function": plain_function
}
