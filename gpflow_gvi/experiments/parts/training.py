"""How Q is trained, and what is done with it afterwards: tempering and calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from ...learning import (
    LBFGS,
    BatchTraining,
    CosineAdam,
    EarlyStopping,
    FullBatchTraining,
    Passes,
    Schedule,
    Train,
)
from .base import ByKind, Count, Omitted, OneOf, Part, Positive, keras, tf

MAX_MERGED_STEPS = 50
"""Where an epoch is one pass over the data, several passes are merged to epochs of at most these
steps, as each epoch has a cost of its own."""

RateSchedule = Literal["cosine", "constant"]


def _adaptive(name: str) -> Callable[..., Any]:
    def optimiser(
        steps: int,
        learning_rate: Positive = CosineAdam.learning_rate,
        schedule: RateSchedule = "cosine",
    ) -> Any:
        """An optimiser of Keras with a step length of its own for each variable.

        :param schedule: Whether the rate falls along a cosine, to zero at the last step.
        """
        return getattr(keras.optimizers, name)(_rate(learning_rate, schedule, steps))

    return optimiser


def sgd(
    steps: int,
    learning_rate: Positive = CosineAdam.learning_rate,
    schedule: RateSchedule = "cosine",
    momentum: Annotated[float, Field(strict=True, ge=0.0, le=1.0)] = 0.9,
) -> Any:
    """Stochastic gradient descent.

    :param schedule: Whether the rate falls along a cosine, to zero at the last step.
    """
    return keras.optimizers.SGD(_rate(learning_rate, schedule, steps), momentum=momentum)


def _rate(learning_rate: float, schedule: RateSchedule, steps: int) -> Any:
    if schedule == "constant":
        return learning_rate
    return keras.optimizers.schedules.CosineDecay(learning_rate, steps)


OPTIMISERS = {
    "adam": _adaptive("Adam"),
    "adamax": _adaptive("Adamax"),
    "adamw": _adaptive("AdamW"),
    "nadam": _adaptive("Nadam"),
    "rmsprop": _adaptive("RMSprop"),
    "sgd": sgd,
}
Optimiser = Annotated[Any, OneOf("Optimiser", OPTIMISERS)]


def descend(loss: Callable[[], Any], variables: Iterable[Any], optimizer: Any, steps: int) -> Any:
    """Take steps of an optimiser of Keras in one compiled call, and return the loss after them."""
    variables = list(variables)
    optimizer.build(variables)

    def step(number: Any) -> Any:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = loss()
        gradients = tape.gradient(value, variables, unconnected_gradients="zero")
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return number + 1

    @tf.function(autograph=False)
    def run() -> Any:
        tf.while_loop(lambda number: number < steps, step, [tf.constant(0)])
        return loss()

    # Calls of `run` itself would give a warning, as each is of a function that is traced anew.
    return run.get_concrete_function()()


class HeldOutStopping(Part):
    """Stop when validation data gain no more, and keep the weights of their best epoch."""

    kind: Literal["held_out"] = "held_out"
    patience: Count = EarlyStopping.patience
    """The number of epochs without a gain after which training stops."""


class PassesPerEpoch(Part):
    """Epochs of several passes over the data each, and of more where these take few steps."""

    passes: Count = Passes.passes
    min_steps: Count = Passes.min_steps


class BatchesTraining(Part):
    """Epochs of batches, by an optimiser of Keras."""

    kind: Literal["batches"] = "batches"
    epochs: Annotated[int, Field(strict=True, ge=0)] | None = None
    """null for 20."""
    batch_size: Count | None = Passes.batch_size
    """null for all rows."""
    steps_per_epoch: Count | PassesPerEpoch | None = PassesPerEpoch()
    """null for one pass over the data."""
    early_stopping: Annotated[Omitted | HeldOutStopping, ByKind()] = HeldOutStopping()

    def schedule(self, num_rows: int) -> Schedule:
        """Return the epochs for this number of rows; short passes are merged."""
        batch_size = min(self.batch_size or num_rows, num_rows)
        epochs = Passes.epochs if self.epochs is None else self.epochs
        if isinstance(self.steps_per_epoch, PassesPerEpoch):
            part = self.steps_per_epoch
            return Passes(epochs, batch_size, part.passes, part.min_steps)(num_rows)
        if self.steps_per_epoch is not None:
            return Schedule(epochs, batch_size, self.steps_per_epoch)
        steps = -(-num_rows // batch_size)
        max_passes = max(1, MAX_MERGED_STEPS // steps)
        passes = next(n for n in range(max_passes, 0, -1) if epochs % n == 0)
        return Schedule(epochs // passes, batch_size, passes * steps)

    def build(self, optimiser: Optimiser) -> Train:
        """Return the training by an optimiser."""
        part = self.early_stopping
        stopping = EarlyStopping(part.patience) if isinstance(part, HeldOutStopping) else None
        return BatchTraining(self.schedule, optimiser.build, stopping)


class LBFGSTraining(Part):
    """L-BFGS on all rows at once. It is for a few thousand rows; validation data do not stop it."""

    kind: Literal["lbfgs"] = "lbfgs"
    iterations: Count = 500
    """The maximal number of iterations."""
    tolerance: Positive = LBFGS.tolerance
    """Stop when an iteration lowers the loss by less than this part of it."""

    def build(self, optimiser: Optimiser) -> Train:
        """Return the training, which has no optimiser of Keras."""
        return FullBatchTraining(LBFGS(self.iterations, self.tolerance))


Training = Annotated[BatchesTraining | LBFGSTraining, ByKind()]


class HeldOutTempering(Part):
    """The factor of best predictive density of the held-out data; of each row given all the others
    where Q is not trained and nothing is held out."""

    kind: Literal["held_out"] = "held_out"


Tempering = Annotated[Omitted | HeldOutTempering, ByKind()]


class Conformal(Part):
    """Intervals, or sets of classes, with a guarantee."""

    kind: Literal["conformal"] = "conformal"
    fraction: Annotated[float, Field(strict=True, gt=0.0, lt=1.0)] = 0.2
    """The fraction of the rows for training that is set aside."""
    coverage: Annotated[float, Field(strict=True, gt=0.0, lt=1.0)] = 0.95


Calibration = Annotated[Omitted | Conformal, ByKind()]
