"""A Keras model around a model of ours: its steps, its metrics, and what callbacks ask of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gpflow.utilities import parameter_dict

from .._core.errors import NonFiniteLossError
from .._core.graphs import forget_tensors
from .._core.memo import memoised
from .._core.mode import training as training_mode
from .._core.notices import collected
from .._core.state import state as state_of
from .batches import Chunk
from .guard import OFTEN_HELPS, LossTerms, NoticeLog, put, require_finite
from .loop import Loop, Outcome, Tally
from .replicas import Share, handed_over_once, local, share, summed

UNTOUCHED = "The parameters are those before the step that was not finite."


class Trainer(keras.Model):
    """A model as Keras sees it: `self.model` in a callback, with metrics that Keras updates.

    What Keras's own models do not have is answered by the model.

    :param model: the model.
    :param optimizer: an optimiser of Keras 3 or tf_keras.
    :param metrics: Keras's metrics of the predictive mean, or of class probabilities.
    :param options: `steps_per_execution` and `jit_compile`.
    """

    _is_graph_network = False  # TensorBoard would draw it

    def __init__(self, model: Any, optimizer: Any, metrics: Any, **options: Any) -> None:
        super().__init__(name=type(model).__name__)
        self.built = True
        self.model = model
        # Callbacks save and restore the weights of the model itself.
        for name in ("get_weights", "set_weights", "save_weights", "load_weights"):
            setattr(self, name, getattr(model, name))
        of_keras_3 = isinstance(optimizer, keras.optimizers.Optimizer)
        self.compile(optimizer if of_keras_3 else None, metrics=metrics, **options)
        self.optimizer = optimizer
        self._loss_tracker = None  # the loss is averaged with its terms
        # The counters of tf_keras's TensorBoard.
        self._train_counter = optimizer.iterations
        self._test_counter = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._parts: tuple[Any, ...] = ()
        self._variables: tuple[tf.Variable, ...] | None = None
        self.has_metrics, self._metrics_built = bool(metrics), False

    def __getattr__(self, name: str) -> Any:
        if name == "model" or name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name}.")
        return getattr(self.model, name)

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

    @property
    def optimizer_state(self) -> list[Any]:
        """The variables of the optimiser, with the learning rate, which tf_keras leaves out."""
        own = (*self.optimizer.variables, getattr(self.optimizer, "learning_rate", None))
        return list({id(part): part for part in own if hasattr(part, "assign")}.values())

    @property
    def distribute_strategy(self) -> tf.distribute.Strategy:
        """The strategy in whose scope the training runs."""
        return tf.distribute.get_strategy()

    def save(self, *_: Any, **__: Any) -> None:
        """Raise: there is no file format of Keras for a Gaussian process."""
        raise TypeError(
            f"A {type(self.model).__name__} cannot be saved as a Keras model. Save its weights: "
            "ModelCheckpoint('name.weights.h5', save_weights_only=True), and model.load_weights."
        )

    # The loops, each of which is traced anew only if a part of the model is another one now.

    def prepare(self) -> None:
        """Build the optimiser, and the loops if they are not those of the model as it is."""
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
        parts = tuple(part for name, part in vars(self.model).items() if not name.startswith("_"))
        if not _same(parts, self._parts):
            self._parts = parts
            self.state = state_of(self.model)
            self.messages: dict[str, list[str]] = {}
            forget = functools.partial(forget_tensors, self.model)
            self.loops = {
                name: Loop(step, jit_compile=self.jit_compile, after_tracing=forget)
                for name, step in (("train", self.train_step), ("test", self.test_step))
            }

    def train_step(self, X: tf.Tensor, Y: tf.Tensor) -> Outcome:
        """Do a step of the optimiser. One whose loss or gradient is not finite changes nothing."""
        before = [tf.identity(variable) for variable in self.state]
        self._update_metrics(X, Y)
        values, gradients, amounts = self._on_replicas("train", self._gradients, X, Y)
        parts = (values[0], *(local(gradient) for gradient in gradients))
        finite = tf.stack([tf.reduce_all(tf.math.is_finite(part)) for part in parts])

        def apply() -> tf.Tensor:
            tf.distribute.get_strategy().run(self._apply, args=(gradients,))
            return tf.identity(finite)

        def undo() -> tf.Tensor:
            put(self.state, before)
            return tf.identity(finite)

        finite = tf.cond(tf.reduce_all(finite), apply, undo)
        return Outcome(tf.shape(X, out_type=tf.int64)[0], finite, values, amounts)

    def test_step(self, X: tf.Tensor, Y: tf.Tensor) -> Outcome:
        """Evaluate the objective, and change nothing."""
        before = [tf.identity(variable) for variable in self.state]
        self._update_metrics(X, Y)
        values, _, amounts = self._on_replicas("test", self._values, X, Y)
        put(self.state, before)
        # What is not finite is reported, and all rows are visited.
        return Outcome(tf.shape(X, out_type=tf.int64)[0], tf.constant([True]), values, amounts)

    def _gradients(self, rows: Share) -> tuple[tf.Tensor, list[tf.Tensor]]:
        variables = self._variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            total, terms = self.model._objective(rows.X, rows.Y)
            scaled = getattr(self.optimizer, "scale_loss", tf.identity)(rows.of(total))
        gradients = tape.gradient(scaled, variables, unconnected_gradients="zero")
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]  # from sparse ones
        return rows.of(tf.stack([total, *terms])), dense

    def _apply(self, gradients: Sequence[tf.Tensor]) -> None:
        pairs = zip(handed_over_once(gradients), self._variables or (), strict=True)
        self.optimizer.apply_gradients(pairs)

    def _values(self, rows: Share) -> tuple[tf.Tensor, list[tf.Tensor]]:
        total, terms = self.model._objective(rows.X, rows.Y)
        return rows.of(tf.stack([total, *terms])), []

    def _on_replicas(
        self, mode: str, function: Callable[[Share], Any], X: tf.Tensor, Y: tf.Tensor
    ) -> tuple[tf.Tensor, Any, tf.Tensor]:
        """Evaluate a function of the rows of each replica.

        Return the values, and what else it returns as it is at each replica, both summed over
        replicas; and the largest amounts of notices at the replicas of this process.
        """

        def on_replica() -> tuple[tf.Tensor, Any, tf.Tensor]:
            # Replicas may be threads, to each of which belongs an evaluation of its own.
            with memoised(), training_mode(mode == "train"), collected() as notices:
                values, others = function(share(X, Y))
            self.messages[mode] = [note.message for note in notices]
            amounts = [tf.cast(note.amount, values.dtype) for note in notices]
            noted = tf.stack(amounts) if amounts else tf.zeros([0], values.dtype)
            return *summed((values, others)), noted

        strategy = tf.distribute.get_strategy()
        values, others, amounts = strategy.run(on_replica)
        of_each = strategy.experimental_local_results(amounts)
        return local(values), others, functools.reduce(tf.maximum, of_each)

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
                self.reset_metrics()
        self.compute_metrics(X, Y, predicted)

    def run(self, mode: str, chunk: Chunk) -> Tally:
        """Do the steps of a chunk, log their notices, and raise if the last one is not finite."""
        tally = self.loops[mode].run(chunk)
        notices = zip(self.messages[mode], tally.amounts, tally.times, strict=True)
        for message, amount, times in notices:
            self.notice_log.add(message, float(amount), times=int(times))
        if tally.last.rows > 0:
            self._require_finite(tally.last)
        return tally

    def metric_logs(self) -> dict[str, float]:
        """Return the metrics since they were reset, by their names."""
        if not self.has_metrics:
            return {}
        return {name: float(value) for name, value in self.get_metrics_result().items()}

    def _require_finite(self, outcome: Outcome) -> None:
        if np.all(outcome.finite):
            return
        total, *terms = outcome.values
        require_finite(total, LossTerms(*terms), self.model._term_names, consequence=UNTOUCHED)
        names = {
            id(getattr(part, "unconstrained_variable", part)): name.lstrip(".")
            for name, part in parameter_dict(self.model).items()
        }
        variables = zip(self.trainable_variables, outcome.finite[1:], strict=True)
        bad = [names.get(id(variable), variable.name) for variable, good in variables if not good]
        raise NonFiniteLossError(
            f"The gradient of the training loss is not finite with respect to {', '.join(bad)}, "
            f"though the loss is {total:.6g}. {UNTOUCHED} {OFTEN_HELPS}"
        )


def _same(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    return len(first) == len(second) and all(a is b for a, b in zip(first, second, strict=True))
