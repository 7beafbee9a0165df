"""What a process keeps from one run to the next: one traced graph serves many runs.

To trace a small model takes longer than to train it, and leaves memory behind. Runs
whose settings differ by numbers alone (the data, the seed, the learning rate) have the same graph.
So the model of the first run is traced, with everything that its graph reads in variables; the
values of the others are copied to it, and back when it is trained.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData

from .._core.graphs import deepcopy
from .._core.lru_cache import LRUCache
from ..learning import CompiledModel, Schedule
from ..models import GVI
from .config import Experiment

logger = logging.getLogger("gpflow_gvi")

Value = TypeVar("Value")

TOLERANCE = 1e-8
"""The maximal relative difference between the loss of a model and of the one it was copied to."""


class TracedModel(CompiledModel):
    """A model whose graphs are kept, and serve other models.

    :param model: the model; it is changed, so it must not be used elsewhere.
    :param optimizer: an optimiser of Keras.
    :param steps: the number of steps in one compiled call.
    """

    def __init__(self, model: GVI, optimizer: Any, steps: int) -> None:
        super().__init__(model, optimizer, steps)
        self.optimizer = optimizer
        optimizer.build(list(model.trainable_variables))
        self._start = [np.copy(variable.numpy()) for variable in optimizer.variables]
        # Partial functions have no code, by which TensorFlow would count traces to warn of many.
        self._loss = tf.function(functools.partial(_loss, model), autograph=False)

    def copy_from(self, model: GVI, learning_rate: float | None, data: RegressionData) -> bool:
        """Take the values of a model at its start; return whether it is the same model then.

        :param model: another model, built in the same way.
        :param learning_rate: for its training, where that is no schedule.
        :param data: where the losses of the two are compared.
        """
        values = [tf.identity(weight) for weight in model.weights]
        own = self.model.weights
        _assign(own, values)
        for variable, start in zip(self.optimizer.variables, self._start, strict=True):
            variable.assign(start)
        if learning_rate is not None:
            self.optimizer.learning_rate = learning_rate
        X, Y = map(tf.convert_to_tensor, data)
        same = bool(np.isclose(self._loss(X, Y), model.training_loss((X, Y)), rtol=TOLERANCE))
        _assign(own, values)  # an evaluation of the loss may have moved a counter
        return same


def _assign(variables: Iterable[tf.Variable], values: Iterable[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _loss(model: GVI, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    return model.training_loss((X, Y))


def structure(experiment: Experiment, model: GVI, num_rows: int) -> str:
    """Return a key that is the same for experiments whose models have the same graph.

    :param experiment: the settings.
    :param model: what they describe.
    :param num_rows: N, of the rows to train with.
    """
    shapes = [(value.shape.as_list(), value.dtype.name) for value in model.weights]
    return json.dumps([experiment.graph_settings(), num_rows, shapes])


class RunCache:
    """What a process keeps from one run to the next: fitted regularisers and traced models."""

    def __init__(self) -> None:
        self.regularisers = LRUCache(16)
        """By their settings."""
        self._traced = LRUCache(8)

    def traced(
        self,
        model: GVI,
        data: RegressionData,
        experiment: Experiment,
        schedule: Schedule,
    ) -> TracedModel:
        """Return a model that is traced, or will be when it is trained, with the same values."""
        optimiser = experiment.optimiser
        key = structure(experiment, model, len(data[0]))
        rate = optimiser.learning_rate if optimiser.schedule == "constant" else None
        if key in self._traced and not self._traced[key].copy_from(model, rate, data):
            logger.info("A model that seemed to have a graph already is traced anew.")
            del self._traced[key]
        return self._traced.get_or_make(
            key,
            lambda: TracedModel(
                deepcopy(model), optimiser.build(schedule.steps), schedule.steps_per_epoch
            ),
        )
