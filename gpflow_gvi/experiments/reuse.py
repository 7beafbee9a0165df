"""One traced graph for many runs: what a process keeps from one run to the next.

To trace a model takes seconds, and leaves megabytes behind; to train a small one takes less. Runs
whose settings differ by numbers alone (the data, the seed, the learning rate) have the same graph.
So the first of them is traced, with all that its graph reads in variables, and the others lend it
their values and take them back when they are trained.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.utilities import deepcopy

from ..models import GVI
from ..stopping import tempered_nll
from .config import Experiment
from .training import Course

logger = logging.getLogger("gpflow_gvi")

Value = TypeVar("Value")

AGREE = 1e-8
"""The loss of a model and of the one that stands in for it differ by no more, in proportion."""


class Recent(dict[Hashable, Any]):
    """A few values, of which the one that was not asked for for longest makes room.

    :param most: so many are kept.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def recall(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key, made if it is not there."""
        value: Value = self.pop(key) if key in self else make()
        self[key] = value
        while len(self) > self.most:
            del self[next(iter(self))]
        return value


class Traced:
    """A model whose graphs are kept.

    :param model: the model; it is changed, so it should belong to nobody else.
    :param optimizer: an optimiser of Keras.
    :param steps: so many steps in one compiled call.
    """

    def __init__(self, model: GVI, optimizer: Any, steps: int) -> None:
        self.model = model
        self.optimizer = optimizer
        self._weights = model.weights
        self._constants = [
            _as_variable(module, name, value) for module, name, value in constants(model)
        ]
        model.compile(optimizer, steps_per_execution=steps)
        optimizer.build(list(model.trainable_variables))
        self._start = [np.array(variable) for variable in optimizer.variables]
        # Partial functions have no code, by which TensorFlow would count traces to warn of many.
        self._score = tf.function(functools.partial(_score, model), autograph=False)
        self._loss = tf.function(functools.partial(_loss, model), autograph=False)

    def score(self, data: RegressionData) -> float:
        """Return the density of held-out data that tempering would reach, `val_nll`."""
        return float(self._score(*map(tf.convert_to_tensor, data)))

    def take(self, model: GVI, learning_rate: float | None, data: RegressionData) -> bool:
        """Take over the values of a model at its start; return whether it is the same model then.

        :param model: another model, built in the same way.
        :param learning_rate: for its training, where that is no schedule.
        :param data: where the losses of the two are compared.
        """
        there = [*self._weights, *self._constants]
        here = [tf.identity(value) for value in _values(model)]
        _assign(there, here)
        for variable, start in zip(self.optimizer.variables, self._start, strict=True):
            variable.assign(start)
        if learning_rate is not None:
            self.optimizer.learning_rate = learning_rate
        X, Y = map(tf.convert_to_tensor, data)
        same = bool(np.isclose(self._loss(X, Y), model.training_loss((X, Y)), rtol=AGREE))
        _assign(there, here)  # a loss may count how often it was asked for
        return same

    def give(self, model: GVI) -> None:
        """Give a model the values of this one."""
        _assign(model.weights, self._weights)


def _assign(variables: Iterable[tf.Variable], values: Iterable[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _score(model: GVI, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    return tempered_nll(model.variational, model.likelihood, (X, Y))


def _loss(model: GVI, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    return model.training_loss((X, Y))


def constants(model: tf.Module) -> list[tuple[tf.Module, str, tf.Tensor]]:
    """Return the tensors among the attributes of a module and its parts: whose, called what."""
    return [
        (module, name, value)
        for module in (model, *model.submodules)
        for name, value in sorted(vars(module).items())
        if isinstance(value, tf.Tensor)
    ]


def _as_variable(module: tf.Module, name: str, value: tf.Tensor) -> tf.Variable:
    variable = tf.Variable(value, trainable=False)
    setattr(module, name, variable)
    return variable


def _values(model: GVI) -> list[tf.Variable | tf.Tensor]:
    return [*model.weights, *(value for _, _, value in constants(model))]


def structure(experiment: Experiment, model: GVI, num_data: Mapping[str, int]) -> str:
    """Return what two experiments have in common whose models have the same graph.

    :param experiment: the settings.
    :param model: what was built from them.
    :param num_data: how many rows there are, by what they are for.
    """
    shapes = [(value.shape.as_list(), value.dtype.name) for value in _values(model)]
    settings = experiment.model_dump(mode="json")
    for name in ("data", "split", "seed"):
        settings.pop(name)
    if settings["optimiser"]["schedule"] == "constant":  # else numbers of it are in the graph
        settings["optimiser"].pop("learning_rate")
    return json.dumps([settings, num_data, shapes], sort_keys=True)


class Workshop:
    """What a process keeps from one run to the next."""

    def __init__(self) -> None:
        self.regularisers = Recent(16)
        """Fitted regularisers, by their settings."""
        self._traced = Recent(8)

    def traced(
        self,
        model: GVI,
        data: RegressionData,
        experiment: Experiment,
        course: Course,
        num_data: Mapping[str, int],
    ) -> Traced:
        """Return a model that is traced, or will be when it is trained, with the values of another.

        :param model: the other one, at its start.
        :param data: what it is trained with.
        :param experiment: its settings.
        :param course: of its training.
        :param num_data: how many rows there are, by what they are for.
        """
        optimiser = experiment.optimiser
        key = structure(experiment, model, num_data)
        rate = optimiser.learning_rate if optimiser.schedule == "constant" else None
        if key in self._traced and not self._traced[key].take(model, rate, data):
            logger.info("A model that seemed to have a graph already is traced anew.")
            del self._traced[key]
        return self._traced.recall(
            key,
            lambda: Traced(deepcopy(model), optimiser.build(course.steps), course.steps_per_epoch),
        )
