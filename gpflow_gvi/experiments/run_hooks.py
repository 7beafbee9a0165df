"""What a run adds to the procedure: it keeps the fitted regulariser, and can be resumed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

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
    """Whether the fitted regulariser is kept beside the folder of the run, for other runs."""
    tensorboard: bool
    """Whether to write events for TensorBoard."""
    stage: str = "training"
    validated: Learned | None = None
    """The model that has not seen the rows for validation, if there was a refit."""

    def regulariser(self, fit: Callable[[], Regulariser]) -> Regulariser:
        """Return the fitted regulariser: that of an earlier attempt, or of another run, if any."""
        folder = self.work / "regulariser"
        if self.share:
            P = self.experiment.regulariser.model_copy(update={"mode": "prior"})  # the same fit
            key = digest(self.experiment.model_copy(update={"regulariser": P}), of=SETTINGS_OF_FIT)
            folder = self.work.parent / ".regularisers" / key
            folder.parent.mkdir(exist_ok=True)
        with held(folder.with_suffix(".lock"), wait=True):
            if folder.exists():
                fitted: Regulariser = gvi.load(folder)
            else:
                gvi.save(fitted := fit(), folder)
        self.timer.record("regulariser")
        return fitted

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
