"""Many steps in one compiled call: the loop, and what a step of training and of validation is."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..evaluation import Evaluation
from .batches import Chunk, Stream
from .guard import LossTerms
from .replicas import Share, handed_over_once, local, share, summed

Objective = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, LossTerms]]


class Outcome(NamedTuple):
    """What one step found out."""

    rows: tf.Tensor
    """The number of rows of its batch; zero where there was none left."""

    finite: tf.Tensor
    """Whether the loss is finite, and each gradient, if there are any: [1 + V]."""

    values: tf.Tensor
    """The training loss, and its two terms: [3]."""

    amounts: tf.Tensor
    """The amounts of the notices."""


class Tally(NamedTuple):
    """What the steps of one call found out together."""

    steps: tf.Tensor
    rows: tf.Tensor

    sums: tf.Tensor
    """The values, summed over the rows: [3]."""

    times: tf.Tensor
    """In how many steps each notice was due."""

    amounts: tf.Tensor
    """The largest amount of each notice."""

    last: Outcome

    def add(self, outcome: Outcome) -> Tally:
        """Return the tally with one more step, if there was one."""
        rows = tf.cast(outcome.rows, tf.float64)
        return Tally(
            steps=self.steps + tf.cast(outcome.rows > 0, tf.int64),
            rows=self.rows + outcome.rows,
            sums=self.sums + rows * tf.cast(outcome.values, tf.float64),
            times=self.times + tf.cast(outcome.amounts > 0.0, tf.int64),
            amounts=tf.maximum(self.amounts, outcome.amounts),
            last=outcome,
        )


class Steps(abc.ABC):
    """A step, and the compiled loop over many of them. Both are traced once.

    :param jit_compile: whether XLA compiles the step.
    """

    def __init__(self, *, jit_compile: bool) -> None:
        self.messages: list[str] = []
        # A step is the same for arrays and Datasets of any length, and so is its trace.
        self._traced_step = tf.function(
            self._noted_step, jit_compile=jit_compile or None, autograph=False
        )
        # TensorFlow counts traces by code, to warn of too many. A partial function has no code, so
        # that the traces of other models are not counted in.
        self._loop = tf.function(functools.partial(self._run), autograph=False)

    def run(self, chunk: Chunk) -> Tally:
        """Do the steps of a chunk: fewer if its source ends, or with one that is not finite."""
        if isinstance(chunk.source, Stream) and tf.distribute.has_strategy():
            found = self._run_one_by_one(chunk.source, chunk.steps)
        else:
            first, count = (tf.constant(number, tf.int64) for number in chunk[1:])
            found = self._loop(chunk.source, first, count)
        tally: Tally = tf.nest.map_structure(lambda tensor: tensor.numpy(), found)
        return tally

    @abc.abstractmethod
    def _step(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Do one step; return `finite`, `values` and `amounts` of its outcome."""

    @abc.abstractmethod
    def _evaluation(self) -> Evaluation:
        """Return an evaluation that collects the notices of a step."""

    def _noted_step(self, X: tf.Tensor, Y: tf.Tensor) -> Outcome:
        finite, values, amounts = self._step(X, Y)
        return Outcome(tf.shape(X, out_type=tf.int64)[0], finite, values, amounts)

    def _on_replicas(
        self, function: Callable[[Share], tuple[tf.Tensor, Any]], X: tf.Tensor, Y: tf.Tensor
    ) -> tuple[tf.Tensor, Any, tf.Tensor]:
        """Evaluate a function of the rows of each replica.

        Return the values, and what else it returns as it is at each replica, both summed over
        replicas; and the largest amounts of notices at the replicas of this process.
        """

        def on_replica() -> tuple[tf.Tensor, Any, tf.Tensor]:
            # Replicas may be threads, to each of which belongs an evaluation of its own.
            with self._evaluation() as evaluation:
                values, others = function(share(X, Y))
            self.messages = [note.message for note in evaluation.notices]
            amounts = [tf.cast(note.amount, values.dtype) for note in evaluation.notices]
            noted = tf.stack(amounts) if amounts else tf.zeros([0], values.dtype)
            return *summed((values, others)), noted

        strategy = tf.distribute.get_strategy()
        values, others, amounts = strategy.run(on_replica)
        of_each = strategy.experimental_local_results(amounts)
        return local(values), others, functools.reduce(tf.maximum, of_each)

    def _traced(self, source: Any) -> tuple[Callable[..., Outcome], Outcome, Tally]:
        """Return the step for a source, the outcome of none, and the tally before the first."""
        step = self._traced_step.get_concrete_function(*source.spec)
        nothing: Outcome = tf.nest.map_structure(
            lambda tensor: tf.zeros(tensor.shape, tensor.dtype), step.structured_outputs
        )
        start = Tally(
            steps=tf.constant(0, tf.int64),
            rows=nothing.rows,
            sums=tf.cast(nothing.values, tf.float64),
            times=tf.zeros_like(nothing.amounts, tf.int64),
            amounts=nothing.amounts,
            last=nothing,
        )
        return step, nothing, start

    def _run_one_by_one(self, source: Stream, count: int) -> Tally:
        """Do the steps from Python: TensorFlow's all-reduce fails in the branch of a condition."""
        step, nothing, tally = self._traced(source)
        for _ in range(count):
            batch = next(source.iterator, None)
            outcome = nothing if batch is None else step(*batch)
            tally = tally.add(outcome)
            if not tf.reduce_all(outcome.finite):  # and nothing is not
                break
        return tally

    def _run(self, source: Any, first: tf.Tensor, count: tf.Tensor) -> Tally:
        step, nothing, start = self._traced(source)

        def body(_: tf.Tensor, tally: Tally) -> tuple[tf.Tensor, Tally]:
            outcome = source.visit(first + tally.steps, step, nothing)
            go = tf.reduce_all(outcome.finite)  # and nothing is not
            return go, tally.add(outcome)

        def more(go: tf.Tensor, tally: Tally) -> tf.Tensor:
            return tf.logical_and(go, tally.steps < count)

        _, tally = tf.while_loop(more, body, (tf.constant(True), start))
        return tally


class TrainingSteps(Steps):
    """Steps of an optimiser. One whose loss or gradient is not finite changes nothing.

    :param objective: from a batch to the training loss and its terms.
    :param variables: what the optimiser changes.
    :param state: what the objective itself may change.
    :param optimizer: of Keras 3 or tf_keras, built for the variables.
    :param jit_compile: whether XLA compiles the step.
    """

    def __init__(
        self,
        objective: Objective,
        variables: Sequence[tf.Variable],
        state: Sequence[tf.Variable],
        optimizer: Any,
        *,
        jit_compile: bool,
    ) -> None:
        super().__init__(jit_compile=jit_compile)
        self.objective = objective
        self.variables = tuple(variables)
        self.state = tuple(state)
        self.optimizer = optimizer

    def _evaluation(self) -> Evaluation:
        return Evaluation(collect=True, training=True)

    def _step(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        before = [tf.identity(variable) for variable in self.state]
        values, gradients, amounts = self._on_replicas(self._gradients, X, Y)
        finite = tf.stack(
            [
                tf.reduce_all(tf.math.is_finite(value))
                for value in (values[0], *(local(gradient) for gradient in gradients))
            ]
        )

        def apply() -> tf.Tensor:
            tf.distribute.get_strategy().run(self._apply, args=(gradients,))
            return tf.identity(finite)

        def undo() -> tf.Tensor:
            _put_back(self.state, before)
            return tf.identity(finite)

        return tf.cond(tf.reduce_all(finite), apply, undo), values, amounts

    def _gradients(self, rows: Share) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for variable in self.variables:
                tape.watch(variable)
            total, terms = self.objective(rows.X, rows.Y)
            scaled = getattr(self.optimizer, "scale_loss", tf.identity)(rows.of(total))
        gradients = [
            tf.convert_to_tensor(gradient)  # from sparse ones
            for gradient in tape.gradient(scaled, self.variables, unconnected_gradients="zero")
        ]
        return rows.of(tf.stack([total, *terms])), gradients

    def _apply(self, gradients: Sequence[tf.Tensor]) -> None:
        gradients = handed_over_once(gradients)
        self.optimizer.apply_gradients(zip(gradients, self.variables, strict=True))


class ValidationSteps(Steps):
    """Evaluations of the objective that change nothing.

    :param objective: from a batch to the training loss and its terms.
    :param state: what the objective itself may change, which is put back.
    :param jit_compile: whether XLA compiles the evaluation.
    """

    def __init__(
        self, objective: Objective, state: Sequence[tf.Variable], *, jit_compile: bool
    ) -> None:
        super().__init__(jit_compile=jit_compile)
        self.objective = objective
        self.state = tuple(state)

    def _evaluation(self) -> Evaluation:
        return Evaluation(collect=True)

    def _step(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        before = [tf.identity(variable) for variable in self.state]
        values, _, amounts = self._on_replicas(self._values, X, Y)
        _put_back(self.state, before)
        finite = tf.constant([True])  # what is not finite is reported, and all rows are visited
        return finite, values, amounts

    def _values(self, rows: Share) -> tuple[tf.Tensor, list[tf.Tensor]]:
        total, terms = self.objective(rows.X, rows.Y)
        return rows.of(tf.stack([total, *terms])), []


def _put_back(variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
