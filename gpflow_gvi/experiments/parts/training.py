"""How Q is trained, and what is done with it afterwards: tempering and calibration."""

from __future__ import annotations

from collections.abc import Callable
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
from .part import ByKind, Count, Omitted, Part, Positive, keras, one_of


def _optimiser(name: str, **options: float) -> Callable[..., Any]:
    def optimiser(
        steps: int,
        learning_rate: Positive = CosineAdam.learning_rate,
        schedule: Literal["cosine", "constant"] = "cosine",
    ) -> Any:
        """An optimiser of Keras.

        :param schedule: Whether the rate falls along a cosine, to zero at the last step.
        """
        decay = keras.optimizers.schedules.CosineDecay
        rate = decay(learning_rate, steps) if schedule == "cosine" else learning_rate
        return getattr(keras.optimizers, name)(rate, **options)

    return optimiser


OPTIMISERS = {
    "adam": _optimiser("Adam"),
    "adamax": _optimiser("Adamax"),
    "adamw": _optimiser("AdamW"),
    "nadam": _optimiser("Nadam"),
    "rmsprop": _optimiser("RMSprop"),
    "sgd": _optimiser("SGD", momentum=0.9),
}
Optimiser = Annotated[Any, one_of("Optimiser", OPTIMISERS)]


class HeldOutStopping(Part):
    """Stop when validation data gain no more, and keep the weights of their best epoch."""

    kind: Literal["held_out"] = "held_out"
    patience: Count | None = EarlyStopping.patience
    """The number of epochs without a gain after which training stops; null for a quarter of all,
    and five at least."""


class BatchesTraining(Part):
    """Epochs of batches, by an optimiser of Keras."""

    kind: Literal["batches"] = "batches"
    epochs: Annotated[int, Field(strict=True, ge=0)] | None = None
    """null for 20, and for at least 5,000 steps of a network that alone is the mean of Q."""
    batch_size: Count | None = Passes.batch_size
    """null for all rows."""
    steps_per_epoch: Count | None = None
    """null for two passes over the data, and 50 at least."""
    early_stopping: Annotated[Omitted | HeldOutStopping, ByKind()] = HeldOutStopping()

    def schedule(self, num_rows: int, network_alone: bool = False) -> Schedule:
        """Return the epochs for this number of rows."""
        passes, least = Passes.passes, Passes.min_steps
        if self.steps_per_epoch is not None:
            passes, least = 0, self.steps_per_epoch
        batch_size = min(self.batch_size or num_rows, num_rows)
        return Passes(self.epochs, batch_size, passes, least)(num_rows, network_alone)

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


Tempering = Literal["none", "held_out"]
"""By the factor of best predictive density of the held-out data; of each row given all the others
where Q is not trained and nothing is held out."""


class Conformal(Part):
    """Intervals, or sets of classes, with a guarantee."""

    kind: Literal["conformal"] = "conformal"
    fraction: Annotated[float, Field(strict=True, gt=0.0, lt=1.0)] = 0.2
    """The fraction of the rows for training that is set aside."""
    coverage: Annotated[float, Field(strict=True, gt=0.0, lt=1.0)] = 0.95


Calibration = Annotated[Omitted | Conformal, ByKind()]
