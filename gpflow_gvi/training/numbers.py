"""The numbers of an objective, N and λ, which may change while its graph stays the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from numbers import Real
from typing import Any

import tensorflow as tf
from gpflow.config import default_float

NAMES = ("num_data", "divergence_weight")
_ATTRIBUTES = (*NAMES, "_weight")  # that of a GWI


def numbers_of(model: Any) -> dict[str, Real]:
    """Return those attributes that are numbers, and not variables, by their names."""
    given = {name: vars(model).get(name) for name in _ATTRIBUTES}
    return {name: value for name, value in given.items() if isinstance(value, Real)}


class Numbers:
    """Variables that a graph reads in place of the numbers of a model.

    :param model: the model.
    """

    def __init__(self, model: Any) -> None:
        self._model, self._given = model, numbers_of(model)
        with tf.init_scope():
            self._variables = {
                name: tf.Variable(value, trainable=False, dtype=default_float())
                for name, value in self._given.items()
            }

    def refresh(self) -> None:
        """Give the variables the numbers that the model has now."""
        given = numbers_of(self._model)
        if given == self._given:
            return
        self._given = given
        with tf.init_scope():
            for name in given.keys() & self._variables.keys():
                self._variables[name].assign(given[name])

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Let the model have the variables within a block that is a part of a graph."""
        given = numbers_of(self._model)
        vars(self._model).update(self._variables)
        try:
            yield
        finally:
            vars(self._model).update(given)
