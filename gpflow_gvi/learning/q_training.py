"""Training of Q, on batches or on all rows at once: its length, optimiser, stopping and hooks."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._core import progress

if TYPE_CHECKING:
    from gpflow.base import RegressionData
    from gpflow.functions import MeanFunction

    from ..kernels.numpy_parameters import ValuesById
    from ..models import GVI
    from ..regulariser.fit import Regulariser
    from ..regulariser.lbfgs import Minimise
    from .learned import Learned
    from .start import TrainingData

Array = np.ndarray[Any, Any]

EPOCHS = 20
"""The epochs by default: a mean that starts at P's has little to learn."""

STEPS_ALONE = 5000
"""The steps, at least, that a network which alone is m_Q may take by default, as it learns all."""


class Schedule(NamedTuple):
    """The epochs of a training in batches; validation data are evaluated after each epoch."""

    epochs: int
    batch_size: int
    steps_per_epoch: int

    @property
    def steps(self) -> int:
        """The number of steps in all."""
        return self.epochs * self.steps_per_epoch


@dataclasses.dataclass(frozen=True)
class Passes:
    """Epochs of several passes over the data each, and of more where these take few steps."""

    epochs: int | None = None
    """The maximal number of epochs; by default `EPOCHS`, or what takes `STEPS_ALONE` if that is
    more and a network alone is m_Q."""
    batch_size: int = 200
    passes: int = 2
    """The number of passes over the data in an epoch."""
    min_steps: int = 50
    """The minimal number of steps in an epoch, as a validation has its cost."""

    def __call__(self, num_rows: int, network_alone: bool = False) -> Schedule:
        """Return the schedule for this number of rows.

        :param network_alone: whether the mean of Q is a network to which nothing is added.
        """
        steps = max(self.min_steps, self.passes * num_rows // self.batch_size)
        epochs = self.epochs
        if epochs is None:
            epochs = max(EPOCHS, -(-STEPS_ALONE // steps)) if network_alone else EPOCHS
        return Schedule(epochs, min(self.batch_size, num_rows), steps)


@dataclasses.dataclass(frozen=True)
class CosineAdam:
    """Adam with a learning rate that falls along a cosine, to zero at the last step."""

    learning_rate: float = 3e-3

    def __call__(self, steps: int) -> Any:
        """Return the optimiser for this number of steps."""
        import keras

        rate = keras.optimizers.schedules.CosineDecay(self.learning_rate, steps)
        return keras.optimizers.Adam(rate)


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """Stop when validation data gain no more, and keep the weights of their best epoch."""

    patience: int | None = None
    """The number of epochs without a gain after which training stops.

    By default it is a quarter of all, and five at least: few validation data gain or lose by
    chance, and a learning rate that falls gains at its end.
    """
    standard_errors: float = 1.0
    """Where Q starts at P it leaves that start for a gain of more standard errors of the gain; a
    network that alone is m_Q does not start there."""

    def patience_of(self, epochs: int) -> int:
        """Return the patience in a training of this number of epochs."""
        return max(5, epochs // 4) if self.patience is None else self.patience


class Hooks:
    """What a caller may do between the steps of the procedure: nothing, unless overridden."""

    def regulariser(self, fit: Callable[[], Regulariser]) -> Regulariser:
        """Return the fitted regulariser, by calling `fit` or from where it was kept."""
        return fit()

    def mean(self, build: Callable[[], MeanFunction]) -> MeanFunction:
        """Return the mean that Q starts with, by calling `build` or from where it was kept."""
        return build()

    def callbacks(self, epochs: int) -> list[Any]:
        """Return callbacks of Keras for a training of this number of epochs."""
        return []

    def before_refit(self, learned: Learned) -> None:
        """Receive the model that has not seen the rows for validation."""


class TrainingResult(NamedTuple):
    """The best length of a training, and its history."""

    share: float = 1.0
    """The epochs after which validation data were predicted best, as a fraction of all epochs."""
    history: dict[str, list[float]] = {}  # noqa: RUF012  (a default of a tuple, never changed)
    """For each epoch: the training loss, its terms, and `val_nll`."""


Train = Callable[..., TrainingResult]
"""Anything that trains a model in place, called as `BatchTraining` is."""


@dataclasses.dataclass(frozen=True)
class BatchTraining:
    """Training by an optimiser of Keras, on batches in an order that follows from the seed."""

    schedule: Callable[[int, bool], Schedule]
    """The epochs for a number of rows, and whether a network alone is the mean of Q."""
    optimizer: Callable[[int], Any]
    """The optimiser of Keras for a number of steps."""
    early_stopping: EarlyStopping | None

    def __call__(
        self,
        model: GVI,
        data: TrainingData,
        validation: RegressionData | None,
        *,
        share: float,
        hooks: Hooks,
    ) -> TrainingResult:
        """Train a model, and leave it as it was when validation data were predicted best.

        :param validation: (X, Y) to stop by, if any.
        :param share: stop after this fraction of the epochs.
        """
        from ..mean_functions import Network
        from .early_stopping import KeepBest, losses_of

        is_alone = isinstance(model.variational.mean_function, Network)
        schedule = self.schedule(len(data.X), is_alone)
        epochs = math.ceil(round(share * schedule.epochs, 6))
        if epochs == 0:
            return TrainingResult()
        optimizer = self.optimizer(epochs * schedule.steps_per_epoch)
        model.compile(optimizer, steps_per_execution=schedule.steps_per_epoch)
        best = None
        if validation is not None and self.early_stopping is not None:
            best = KeepBest(
                losses_of(model, validation),
                self.early_stopping.patience_of(epochs),
                standard_errors=0.0 if is_alone else self.early_stopping.standard_errors,
            )
        rows: Any = (data.X, data.Y)
        if data.stream is not None:  # as many rows an epoch as of arrays of the size of the sample
            size = schedule.batch_size
            rows = data.stream.batches(schedule.steps_per_epoch * size, size, data.seed)
        progress.now(f"training Q on {len(data.X)} rows, up to epoch {epochs}")
        history = model.fit(
            rows,
            epochs=epochs,
            batch_size=schedule.batch_size,
            steps_per_epoch=schedule.steps_per_epoch,
            callbacks=[
                *([] if best is None else [best]),
                _telling(epochs),
                *hooks.callbacks(epochs),
            ],
            seed=data.seed,
            verbose=0,
        ).history
        progress.found(
            epochs=len(history["loss"]), **({} if best is None else {"best": best.epochs})
        )
        return TrainingResult(1.0 if best is None else best.epochs / schedule.epochs, history)


def _telling(epochs: int) -> Any:
    """Return a callback that says how many epochs are done."""
    import keras

    def tell(epoch: int, logs: Any) -> None:
        kept = {name: float(logs[name]) for name in ("loss", "val_nll") if name in logs}
        progress.done_of(epoch + 1, epochs, **kept)

    return keras.callbacks.LambdaCallback(on_epoch_end=tell)


def minimised(
    minimise: Minimise, evaluate: Callable[[], Any], variables: Sequence[Any]
) -> list[float]:
    """Minimise a loss of all rows, and return its finite values in their order.

    It is one graph with its gradient: a tape around a compiled loss takes several times as long for
    models of the size of curves.
    """
    import tensorflow as tf

    from .._core.graphs import without_gradients
    from ..regulariser.lbfgs import LossWithGradients, assign_by_id, by_tape

    graph, values = without_gradients(lambda: by_tape(evaluate, variables)), list[float]()

    def value_and_gradients(at: ValuesById) -> tuple[float, list[Array]]:
        assign_by_id(variables, at)
        try:
            loss, gradients = graph()
        except tf.errors.InvalidArgumentError:  # the loss is not finite, or a matrix has no root
            return np.nan, [np.zeros(each.shape) for each in variables]
        values.append(float(loss))
        return values[-1], gradients

    minimise(LossWithGradients(evaluate, value_and_gradients, variables), variables)
    return values


@dataclasses.dataclass(frozen=True)
class FullBatchTraining:
    """Training on all rows at once, as by L-BFGS; validation data are not used."""

    minimise: Minimise

    def __call__(self, model: GVI, data: TrainingData, *_: Any, **__: Any) -> TrainingResult:
        """Train a model."""
        import tensorflow as tf

        progress.now(f"training Q on {len(data.X)} rows at once")
        rows = tuple(map(tf.convert_to_tensor, (data.X, data.Y)))
        variables = model.trainable_variables
        losses = minimised(self.minimise, lambda: model.training_loss(rows), variables)
        return TrainingResult(1.0, {"loss": losses})


def fit_by_squares(function: Any, X: Array, Y: Any, max_iterations: int = 1000) -> None:
    """Fit a function with trainable variables to values Y at X, by least squares and L-BFGS."""
    import tensorflow as tf

    from ..regulariser.lbfgs import lbfgs

    X, Y = map(tf.convert_to_tensor, (X, Y))
    minimise = functools.partial(lbfgs, max_iterations=max_iterations)
    variables = function.trainable_variables
    minimised(minimise, lambda: tf.reduce_mean(tf.square(function(X) - Y)), variables)
