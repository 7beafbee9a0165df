"""The epochs: batches, callbacks, validation and backups, one after the other."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .._core.errors import NumericsWarning
from .backup import Backup
from .batches import Batches
from .loop import NAMES
from .replicas import require_same_epoch


def train(
    trainer: Any,
    training: Batches,
    validation: Batches | None,
    callbacks: Any,
    backups: list[Backup],
    *,
    epochs: range,
    validation_freq: int = 1,
) -> Any:
    """Train in these epochs, or from where a backup was made, and return Keras's history."""
    trainer.stop_training = False
    first, logs = epochs.start, {}
    callbacks.on_train_begin()
    for backup in backups:
        progress = backup.restore()
        first = progress.get("epochs", first)
        trainer.stop_training = progress.get("stopped", False)
        require_same_epoch(first)
    for epoch in range(first, epochs.stop):
        if trainer.stop_training:
            break
        callbacks.on_epoch_begin(epoch)
        logs = process(trainer, "train", training, callbacks, epoch)
        if validation is not None and (epoch + 1) % validation_freq == 0:
            validated = evaluate(trainer, validation, callbacks, epoch)
            logs |= {f"val_{name}": value for name, value in validated.items()}
        callbacks.on_epoch_end(epoch, logs)
        for backup in backups:  # after all other callbacks, whose progress they contain
            backup.save(epochs=epoch + 1, stopped=trainer.stop_training)
    optimizer = trainer.optimizer
    if int(optimizer.iterations.numpy()) > 0:  # there may be a moving average of the weights
        optimizer.finalize_variable_values(trainer.trainable_variables)
    callbacks.on_train_end(logs)
    for backup in backups:
        backup.conclude()
    return trainer.history


def evaluate(trainer: Any, batches: Batches, callbacks: Any, epoch: int = 0) -> dict[str, float]:
    """Evaluate the objective and the metrics, and warn if they are not finite."""
    callbacks.on_test_begin()
    logs = process(trainer, "test", batches, callbacks, epoch)
    callbacks.on_test_end(logs)
    bad = [name for name, value in logs.items() if not np.isfinite(value)]
    if bad:
        warnings.warn(
            f"On validation_data, {' and '.join(bad)} is not finite.",
            NumericsWarning,
            stacklevel=4,
        )
    return logs


def process(
    trainer: Any, mode: str, batches: Batches, callbacks: Any, epoch: int
) -> dict[str, float]:
    """Do the steps of an epoch, and return the averages of their values and the metrics.

    :param mode: "train" or "test", as in the names of Keras's methods.
    """
    begin = getattr(callbacks, f"on_{mode}_batch_begin")
    end = getattr(callbacks, f"on_{mode}_batch_end")
    steps, rows, sums = 0, 0, np.zeros(len(NAMES))
    logs: dict[str, float] = {}
    trainer.reset_metrics()
    for chunk in batches.epoch(epoch, trainer.steps_per_execution):
        begin(steps)
        tally = trainer.run(mode, chunk)
        if tally.steps > 0:
            steps += int(tally.steps)
            rows += int(tally.rows)
            sums += tally.sums
            averages = dict(zip(NAMES, map(float, sums / rows), strict=True))
            logs = averages | trainer.metric_logs()
            end(steps - 1, dict(logs))
        ended = tally.steps < chunk.steps
        if ended or (trainer.stop_training and mode == "train"):
            break
    if rows == 0:
        raise ValueError(
            f"There was no batch in epoch {epoch + 1} of {mode}; the Dataset is empty."
        )
    return logs
