"""The epochs: steps, callbacks, validation and backups, one after the other."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from gpflow.utilities import parameter_dict

from ..errors import NonFiniteLossError, NumericsWarning
from .backup import Backup
from .batches import Batches
from .callbacks import KerasView
from .guard import OFTEN_HELPS, LossTerms, Teller, require_finite
from .replicas import require_same_epoch
from .steps import Outcome, Steps, Tally

NAMES = ("loss", "expected_loss", "divergence")
"""In a history: the training loss, the average of E_Q[ℓ(f(x), y)] and D[Q, P], not weighted."""

UNTOUCHED = "The parameters are those before the step that was not finite."


class Means:
    """Averages of the values of steps over the rows of their batches."""

    def __init__(self) -> None:
        self.steps, self.rows, self.sums = 0, 0, np.zeros(len(NAMES))

    def add(self, tally: Tally) -> None:
        """Take in what one compiled call found out."""
        self.steps += int(tally.steps)
        self.rows += int(tally.rows)
        self.sums += tally.sums

    def logs(self) -> dict[str, float]:
        """Return the averages by their names."""
        means = self.sums / self.rows
        return {name: float(mean) for name, mean in zip(NAMES, means, strict=True)}


class Work(NamedTuple):
    """What to do in an epoch, and with which batches."""

    mode: str
    """Keras's name for it: `on_train_batch_end`, `on_test_batch_end`."""

    steps: Steps
    batches: Batches


class Epochs:
    """The epochs of one call of `fit`.

    :param view: the model, as callbacks see it.
    :param training: the steps of training, and their batches.
    :param validation: those of validation, if any.
    :param callbacks: Keras's `CallbackList`.
    :param backups: what saves the state after each epoch.
    :param most: so many steps, at most, in one compiled call.
    """

    def __init__(
        self,
        view: KerasView,
        training: Work,
        validation: Work | None,
        callbacks: Any,
        backups: list[Backup],
        most: int,
    ) -> None:
        self.view = view
        self.training = training
        self.validation = validation
        self.callbacks = callbacks
        self.backups = backups
        self.most = most
        self.teller = Teller()

    def run(self, first: int, end: int) -> None:
        """Train from the first epoch on, or from where a backup was made, to before `end`."""
        self.callbacks.on_train_begin()
        for backup in self.backups:
            progress = backup.restore()
            first = progress.get("epochs", first)
            self.view.stop_training = progress.get("stopped", False)
            require_same_epoch(first)
        logs: dict[str, float] = {}
        for epoch in range(first, end):
            if self.view.stop_training:
                break
            logs = self._epoch(epoch)
            for backup in self.backups:
                backup.save(epochs=epoch + 1, stopped=self.view.stop_training)
        optimizer = self.view.optimizer
        # There is a moving average of the weights, if asked for.
        if int(optimizer.iterations.numpy()) > 0:
            optimizer.finalize_variable_values(self.view.trainable_variables)
        self.callbacks.on_train_end(logs)
        for backup in self.backups:
            backup.conclude()

    def _epoch(self, number: int) -> dict[str, float]:
        self.callbacks.on_epoch_begin(number)
        logs = self._do(self.training, number)
        if self.validation is not None:
            self.callbacks.on_test_begin()
            found = self._do(self.validation, number)
            self.callbacks.on_test_end(found)
            self._warn_unless_finite(found)
            logs |= {f"val_{name}": value for name, value in found.items()}
        self.callbacks.on_epoch_end(number, logs)
        return logs

    def _do(self, work: Work, epoch: int) -> dict[str, float]:
        begin = getattr(self.callbacks, f"on_{work.mode}_batch_begin")
        end = getattr(self.callbacks, f"on_{work.mode}_batch_end")
        means = Means()
        for chunk in work.batches.epoch(epoch, self.most):
            begin(means.steps)
            tally = work.steps.run(chunk)
            self._tell(work.steps.messages, tally)
            if tally.last.rows > 0:
                self._require_finite(tally.last)
            means.add(tally)
            if tally.steps > 0:
                end(means.steps - 1, means.logs())
            ended = tally.steps < chunk.steps
            if ended or (self.view.stop_training and work is self.training):
                break
        if means.rows == 0:
            raise ValueError(
                f"There was no batch in epoch {epoch + 1} of {work.mode}; the Dataset is empty."
            )
        return means.logs()

    def _tell(self, messages: list[str], tally: Tally) -> None:
        for message, amount, times in zip(messages, tally.amounts, tally.times, strict=True):
            self.teller.tell(message, float(amount), times=int(times))

    def _require_finite(self, outcome: Outcome) -> None:
        if np.all(outcome.finite):
            return
        total, *terms = outcome.values
        require_finite(total, LossTerms(*terms), self.view._term_names, consequence=UNTOUCHED)
        names = _names(self.view.model)
        variables = zip(self.view.trainable_variables, outcome.finite[1:], strict=True)
        bad = [names.get(id(variable), variable.name) for variable, good in variables if not good]
        raise NonFiniteLossError(
            f"The gradient of the training loss is not finite with respect to {', '.join(bad)}, "
            f"though the loss is {total:.6g}. {UNTOUCHED} {OFTEN_HELPS}"
        )

    def _warn_unless_finite(self, found: dict[str, float]) -> None:
        bad = [name for name, value in found.items() if not np.isfinite(value)]
        if bad:
            warnings.warn(
                f"On validation_data, {' and '.join(bad)} is not finite.",
                NumericsWarning,
                stacklevel=4,
            )


def _names(model: Any) -> dict[int, str]:
    """Return the names of the variables of a model, by their ids."""
    return {
        id(getattr(part, "unconstrained_variable", part)): name.lstrip(".")
        for name, part in parameter_dict(model).items()
    }
