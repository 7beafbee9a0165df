"""A Keras model around a model of ours: its steps, its metrics, and what callbacks ask of it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.utilities import parameter_dict

from .._core import images
from .._core.graphs import forget_tensors
from .._core.memo import memoised
from .._core.mode import training as training_mode
from .._core.network_graph import normalizations
from .._core.notices import collected
from .._core.state import state as state_of
from ..errors import NonFiniteLossError, NumericsWarning
from .backup import Backup
from .batches import ArrayBatches, Batches
from .fit_constants import Constants
from .guard import OFTEN_HELPS, LossTerms, NoticeLog, put, require_finite
from .loop import Loop, Outcome
from .numbers import NAMES as NUMBERS
from .numbers import Numbers, numbers_of

NAMES = ("loss", "expected_loss", "divergence")
"""In a history: the training loss, the average of E_Q[ℓ(f(x), y)] and D[Q, P], not weighted."""

UNTOUCHED = "The parameters are those before the step that was not finite."


class Trainer(keras.Model):
    """A model as Keras sees it: `self.model` in a callback, with metrics that Keras updates.

    What Keras's own models do not have is answered by the model. Epochs, callbacks and validation
    are those of Keras's `fit`, which calls a compiled `Loop` in place of Keras's own. The metrics
    are of the predictive mean, or of class probabilities.
    """

    _is_graph_network = False  # TensorBoard would draw it

    def __init__(self, model: Any, optimizer: Any, metrics: Any, **options: Any) -> None:
        super().__init__(name=type(model).__name__)
        self.built = True
        self.model = model
        # Callbacks save and restore the weights of the model itself.
        for name in ("get_weights", "set_weights", "save_weights", "load_weights"):
            setattr(self, name, getattr(model, name))
        self.compile(optimizer, metrics=metrics, **options)
        self._loss_tracker = None  # the loss is averaged with its terms
        self._parts: tuple[Any, ...] = ()
        self._variables: tuple[tf.Variable, ...] | None = None
        self.has_metrics, self._metrics_built = bool(metrics), False
        self._batches: dict[str, Batches] = {}
        self._epoch = _Averages()

    def __getattr__(self, name: str) -> Any:
        if name == "model" or name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name}.")
        return getattr(self.model, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in NUMBERS:  # a callback that anneals λ means the model's own
            setattr(self.model, name, value)
        else:
            super().__setattr__(name, value)

    # What Keras's trainer and callbacks ask of a model.

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """The variables that the optimiser changes."""
        return list(self.model.trainable_variables)

    trainable_weights = trainable_variables

    @property
    def weights(self) -> list[tf.Variable]:
        """All variables of the model."""
        return list(self.model.weights)

    def save(self, *_: Any, **__: Any) -> None:
        """Raise: there is no file format of Keras for a Gaussian process."""
        raise TypeError(
            f"A {type(self.model).__name__} cannot be saved as a Keras model. Save its weights: "
            "ModelCheckpoint('name.weights.h5', save_weights_only=True), and model.load_weights."
        )

    def make_train_function(self, force: bool = False) -> None:
        """Let Keras do as many steps as one execution has by a compiled loop."""
        self.train_function = functools.partial(self._execute, "train")

    def make_test_function(self, force: bool = False) -> None:
        """Let Keras evaluate as many batches as one execution has by a compiled loop."""
        self.test_function = functools.partial(self._execute, "test")

    def reset_metrics(self) -> None:
        """Start the averages of an epoch anew."""
        super().reset_metrics()
        self._epoch.start()

    def logs(self) -> dict[str, float]:
        """Return the averages over the rows of an epoch so far, and the metrics, by their names."""
        metrics = self.get_metrics_result() if self.has_metrics else {}
        return self._epoch.averages() | {name: float(value) for name, value in metrics.items()}

    # Training and evaluation by Keras.

    def train(
        self,
        training: Batches,
        validation: Batches | None,
        callbacks: list[keras.callbacks.Callback],
        *,
        epochs: range,
        validation_freq: int,
        verbose: int | str,
    ) -> Any:
        """Train in these epochs, or from where a backup was made, and return Keras's history."""
        self._prepare(train=training, test=validation)
        restore = keras.callbacks.BackupAndRestore
        backups = [each for each in callbacks if isinstance(each, restore)]
        others = [each for each in callbacks if not isinstance(each, restore)]
        options = {"epochs": epochs.stop, "verbose": verbose}
        listed = self._callback_list(others, steps=training.steps, **options)
        bar = keras.callbacks.ProgbarLogger
        followed = [each for each in listed.callbacks if not isinstance(each, bar)]
        state = (*self.weights, *self.optimizer.variables)
        first = epochs.start
        for each in backups:
            backup = Backup(each.backup_dir, state, followed, keep=not each.delete_checkpoint)
            first = backup.next_epoch(epochs)
            backup.set_model(self)
            listed.callbacks.append(backup)  # after all others, whose progress it contains
        self._begin("train", training, epochs=len(epochs))
        if validation is not None:
            self._begin("test", validation, epochs=len(epochs) // validation_freq)
            options["validation_data"] = validation.from_epoch(first // validation_freq)
            options["validation_steps"] = validation.steps
            options["validation_freq"] = validation_freq
        history = self.fit(
            training.from_epoch(first),
            callbacks=listed,
            initial_epoch=first,
            steps_per_epoch=training.steps,
            shuffle=False,  # the batches are
            **options,
        )
        self._end()
        return history

    def test(self, batches: Batches, *, verbose: int | str) -> dict[str, float]:
        """Evaluate the objective and the metrics."""
        self._prepare(test=batches)
        self._begin("test", batches, epochs=1)
        listed = self._callback_list([], verbose=verbose, epochs=1, steps=batches.steps)
        dataset = batches.from_epoch(0)
        logs = self.evaluate(dataset, steps=batches.steps, callbacks=listed, verbose=verbose)
        self._end()
        return logs

    def _begin(self, mode: str, batches: Batches, *, epochs: int) -> None:
        """Take the data, and compute what no step changes."""
        self._batches[mode] = batches
        constants = self.constants[mode]
        if not isinstance(batches, ArrayBatches):
            constants.begin()
        elif constants.are_at_rows or epochs * batches.steps * batches.size >= batches.num_data:
            constants.begin(images.as_rows(batches.data.X, self.model), batches.data.Y)
        else:  # to compute it at all rows is more than to do so at those that a step meets
            constants.begin()

    def _end(self) -> None:
        """Forget the data, which may be large."""
        self._batches.clear()
        for each in self.constants.values():
            each.end()

    def evaluate(self, *args: Any, **options: Any) -> dict[str, float]:
        """Evaluate as Keras does, and warn of what is not finite."""
        super().evaluate(*args, **options)
        logs = self.logs()  # in their order; Keras sorts them
        bad = [name for name, value in logs.items() if not np.isfinite(value)]
        if bad:
            warnings.warn(
                f"On validation_data, {' and '.join(bad)} is not finite.",
                NumericsWarning,
                stacklevel=2,
            )
        return logs

    def _callback_list(self, callbacks: list[Any], *, verbose: int | str, **options: Any) -> Any:
        shown = {"add_history": True, "add_progbar": bool(verbose), "verbose": verbose}
        return _Callbacks(callbacks, model=self, **shown, **options)

    # The loops, each of which is traced anew only if a part of the model is another one now.

    def _prepare(self, **batches: Batches | None) -> None:
        """Build the optimiser, and the loops if they are not those of the model and the data."""
        self.notice_log = NoticeLog()
        variables = tuple(self.model.trainable_variables)
        if self._variables is None:
            self.optimizer.build(list(variables))
            self._variables = variables
        if not _same(variables, self._variables):
            raise ValueError(
                "fit: other variables are trainable now than when the optimiser was first used. "
                "Call compile with a new optimiser."
            )
        parts = _parts_of(self.model)
        if not _same(parts, self._parts) or not self._have_room(batches):
            self._parts = parts
            self.numbers = Numbers(self.model)
            self.state = state_of(self.model)
            self.messages: dict[str, list[str]] = {}
            changing = (*variables, *self.state)
            self.constants = {name: Constants(changing) for name in ("train", "test")}
            forget = functools.partial(forget_tensors, self.model)
            self.loops = {
                name: Loop(step, jit_compile=self.jit_compile, after_tracing=forget)
                for name, step in (("train", self.train_step), ("test", self.test_step))
            }

    def _have_room(self, batches: Mapping[str, Batches | None]) -> bool:
        """Return True unless graphs expect values at rows that are too many now."""
        return all(
            self.constants[mode].have_room(each.num_data)
            for mode, each in batches.items()
            if isinstance(each, ArrayBatches)
        )

    def train_step(self, X: tf.Tensor, Y: tf.Tensor, numbers: Any) -> Outcome:
        """Do a step of the optimiser. One whose loss or gradient is not finite changes nothing.

        :param numbers: the numbers of the rows, as in `Constants.at`.
        """
        before = [tf.identity(variable) for variable in self.state]
        self._update_metrics(X, Y)
        variables = self._variables or ()
        X = images.as_rows(X, self.model)
        constants = self.constants["train"].at(X, numbers)
        lent = self.numbers.lent()
        with memoised(), training_mode(), collected() as notices, constants, lent:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(variables)
                total, terms = self.model._objective(X, Y)
                scaled = self.optimizer.scale_loss(total)
            gradients = tape.gradient(scaled, variables, unconnected_gradients="zero")
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]  # sparse ones
            outcome = self._outcome("train", X, total, terms, notices)
        each = [tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients]
        finite = tf.concat([outcome.finite, each], 0)

        def apply() -> tf.Tensor:
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return tf.identity(finite)

        def undo() -> tf.Tensor:
            put(self.state, before)
            return tf.identity(finite)

        return outcome._replace(finite=tf.cond(tf.reduce_all(finite), apply, undo))

    def test_step(self, X: tf.Tensor, Y: tf.Tensor, numbers: Any) -> Outcome:
        """Evaluate the objective, and change nothing.

        :param numbers: the numbers of the rows, as in `Constants.at`.
        """
        before = [tf.identity(variable) for variable in self.state]
        self._update_metrics(X, Y)
        X = images.as_rows(X, self.model)
        constants = self.constants["test"].at(X, numbers)
        lent = self.numbers.lent()
        with memoised(), training_mode(False), collected() as notices, constants, lent:
            total, terms = self.model._objective(X, Y)
            outcome = self._outcome("test", X, total, terms, notices)
        put(self.state, before)
        # What is not finite is reported, and all rows are visited.
        return outcome._replace(finite=tf.constant([True]))

    def _outcome(
        self, mode: str, X: tf.Tensor, total: tf.Tensor, terms: LossTerms, notices: list[Any]
    ) -> Outcome:
        values = tf.stack([total, *terms])
        self.messages[mode] = [note.message for note in notices]
        amounts = [tf.cast(note.amount, values.dtype) for note in notices]
        return Outcome(
            rows=tf.shape(X, out_type=tf.int64)[0],
            finite=tf.math.is_finite(total)[None],
            values=values,
            amounts=tf.stack(amounts) if amounts else tf.zeros([0], values.dtype),
        )

    def _update_metrics(self, X: tf.Tensor, Y: tf.Tensor) -> None:
        if not self.has_metrics:
            return
        predicted = self.model._predictive_mean(X)
        if not self._metrics_built:
            # Metrics make their variables at their first update, which cannot be within a graph.
            self._metrics_built = True
            with tf.init_scope():
                rows = (tf.zeros([1, *part.shape[1:]], part.dtype) for part in (Y, predicted))
                self.compute_metrics(None, *rows)
                super().reset_metrics()
        self.compute_metrics(X, Y, predicted)

    def _execute(self, mode: str, iterator: Any) -> dict[str, float]:
        """Do the steps of an execution, log their notices, and raise if one is not finite."""
        batches = self._batches[mode]
        most = min(self.steps_per_execution, batches.steps)
        count = min(most, batches.steps - self._epoch.steps)
        constants = self.constants[mode]
        constants.refresh()
        self.numbers.refresh()
        done = self.loops[mode].run(batches.next(iterator, count, most), count)
        constants.watch()
        for message, amounts in zip(self.messages[mode], done.amounts.T, strict=True):
            self.notice_log.add(message, float(np.max(amounts)))
        self._require_finite(done.finite[-1], done.values[-1])
        self._epoch.add(done)
        return self.logs()

    def _require_finite(self, finite: AnyNDArray, values: AnyNDArray) -> None:
        if np.all(finite):
            return
        total, *terms = values
        require_finite(total, LossTerms(*terms), self.model._term_names, consequence=UNTOUCHED)
        names = {
            id(getattr(part, "unconstrained_variable", part)): name.lstrip(".")
            for name, part in parameter_dict(self.model).items()
        }
        variables = zip(self.trainable_variables, finite[1:], strict=True)
        bad = [names.get(id(variable), variable.name) for variable, good in variables if not good]
        raise NonFiniteLossError(
            f"The gradient of the training loss is not finite with respect to {', '.join(bad)}, "
            f"though the loss is {total:.6g}. {UNTOUCHED} {OFTEN_HELPS}"
        )


class _Averages:
    """Averages over the rows of an epoch; Keras would track each number, were it the model's."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin an epoch."""
        self.steps, self.rows, self.sums = 0, 0, np.zeros(len(NAMES))

    def add(self, done: Outcome) -> None:
        """Take in the outcomes of steps."""
        self.steps += len(done.rows)
        self.rows += int(np.sum(done.rows))
        self.sums = self.sums + done.rows @ done.values.astype(float)

    def averages(self) -> dict[str, float]:
        """Return the averages by their names."""
        return dict(zip(NAMES, map(float, self.sums / max(self.rows, 1)), strict=True))


class _Callbacks(keras.callbacks.CallbackList):
    """Callbacks that are told exact numbers of batches: Keras counts executions as full ones."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_end(self.model._epoch.steps - 1, logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_test_batch_end(self.model._epoch.steps - 1, logs)


def _same(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    """Return True if all are the same objects, or equal numbers."""
    return len(first) == len(second) and all(
        a is b or (isinstance(a, int | float) and a == b)
        for a, b in zip(first, second, strict=True)
    )


def _parts_of(model: Any) -> tuple[Any, ...]:
    """Return the parts that a graph of the model is traced with."""
    owners = (model, *(getattr(model, name, None) for name in ("loss", "divergence")))
    named = [item for owner in owners for item in getattr(owner, "__dict__", {}).items()]
    numbers = numbers_of(model)
    parts = [part for name, part in named if not name.startswith("_") and name not in numbers]
    kept = (layer.mean for layer in normalizations(model))  # graphs have it as a constant
    return (*parts, *numbers, *kept)
