"""What a run adds to the procedure: it keeps fits that others share, and can be resumed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
from gpflow.functions import MeanFunction

import gpflow_gvi as gvi

from ..learning import Hooks, Learned
from ..regulariser.fit import Regulariser
from .config import Experiment
from .run_folder import digest, held

SETTINGS_OF_FIT = {
    *("data", "split", "standardise", "likelihood", "regulariser"),
    *("train_q", "calibration", "seed"),
}
"""The parts of an experiment that the fit of its regulariser depends on."""


@dataclasses.dataclass
class Timer:
    """The seconds that each part of a run took."""

    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    start: float = dataclasses.field(default_factory=time.perf_counter)

    def record(self, name: str) -> None:
        """Record the time since the last part ended, or since the start."""
        before = self.start + sum(self.seconds.values())
        self.seconds[name] = round(time.perf_counter() - before, 3)


@dataclasses.dataclass
class RunHooks(Hooks):
    """The hooks of a run."""

    experiment: Experiment
    work: Path
    """The folder to work in."""
    timer: Timer
    share: bool
    """Whether fits are kept beside the folder of the run, for other runs."""
    tensorboard: bool
    """Whether to write events for TensorBoard."""
    stage: str = "training"
    validated: Learned | None = None
    """The model that has not seen the rows for validation, if there was a refit."""

    def regulariser(self, fit: Callable[[], Regulariser]) -> Regulariser:
        """Return the fitted regulariser: that of an earlier attempt, or of another run, if any."""
        fitted: Regulariser = _kept(self._place("regulariser", SETTINGS_OF_FIT), fit)
        self.timer.record("regulariser")
        return fitted

    def mean(self, build: Callable[[], MeanFunction]) -> MeanFunction:
        """Return Q's mean at its start: that of another run, if it was fitted for that."""
        is_fitted = getattr(self.experiment.mean, "fitted_to", "nothing") != "nothing"
        if not (self.share and is_fitted and self.stage == "training"):
            return build()
        fitted: MeanFunction = _kept(self._place("mean", {*SETTINGS_OF_FIT, "mean"}), build)
        return fitted

    def _place(self, name: str, settings: set[str]) -> Path:
        """Return where a fit is kept that depends on some of the settings."""
        if not self.share:
            return self.work / name
        P = self.experiment.regulariser.model_copy(update={"mode": "prior"})  # the same fits
        key = digest(self.experiment.model_copy(update={"regulariser": P}), of=settings)
        return self.work.parent / f".{name}s" / key

    def callbacks(self, epochs: int) -> list[Any]:
        """Return the backup, and TensorBoard if asked for."""
        folder = self.work / "backup" / self.stage
        backup = keras.callbacks.BackupAndRestore(str(folder), delete_checkpoint=False)
        if not self.tensorboard:
            return [backup]
        folder = self.work / "tensorboard" / self.stage
        return [backup, keras.callbacks.TensorBoard(str(folder), write_graph=False)]

    def before_refit(self, learned: Learned) -> None:
        """Keep the model, for the metrics of validation."""
        self.validated = learned
        self.stage = "refit"


def _kept(folder: Path, fit: Callable[[], Any]) -> Any:
    """Return the fit that is kept in a folder, or make it and keep it there."""
    folder.parent.mkdir(exist_ok=True)
    with held(folder.with_suffix(".lock"), wait=True):
        if folder.exists():
            return gvi.load(folder)
        gvi.save(fitted := fit(), folder)
        return fitted
