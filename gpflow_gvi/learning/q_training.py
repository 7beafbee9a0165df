"""Training of Q on batches, by an optimiser of Keras."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .._core import progress

if TYPE_CHECKING:
    from gpflow.base import RegressionData

    from ..models import GVI
    from .hooks import Hooks
    from .schedules import EarlyStopping, Schedule
    from .start import TrainingData


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
        :param hooks: what the caller adds.
        """
        from ..mean_functions import Network
        from .early_stopping import KeepBest, score_of

        is_alone = isinstance(model.variational.mean_function, Network)
        schedule = self.schedule(len(data.X), is_alone)
        epochs = math.ceil(round(share * schedule.epochs, 6))
        if epochs == 0:
            return TrainingResult()
        optimizer = self.optimizer(epochs * schedule.steps_per_epoch)
        model.compile(optimizer, steps_per_execution=schedule.steps_per_epoch)
        best = None
        if validation is not None and self.early_stopping is not None:
            patience = self.early_stopping.patience_of(epochs)
            best = KeepBest(score_of(model, validation), patience)
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
