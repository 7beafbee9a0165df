"""What a run adds to the procedure: it keeps the fitted regulariser, and can be resumed."""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

import gpflow_gvi as gvi

from ..learning import CompiledModel, Hooks, Learned, Schedule, TrainingData
from ..models import GVI
from ..regulariser.fit import Regulariser
from .config import OF_REGULARISER, Experiment
from .reuse import RunCache
from .run_folder import digest, held

SETTINGS_OF_FIT = {*OF_REGULARISER, "train_q", "calibration", "seed"}
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
    cache: RunCache | None
    """What is kept from one run to the next; fitted regularisers are then kept on the disk as well,
    beside the folder of the run."""
    tensorboard: bool
    """Whether to write events for TensorBoard."""
    stage: str = "training"
    validated: Learned | None = None
    """The model that has not seen the rows for validation, if there was a refit."""

    def regulariser(self, fit: Callable[[], Regulariser]) -> Regulariser:
        """Return the fitted regulariser: that of an earlier attempt, or of another run, if any."""
        if self.cache is None:
            fitted = _kept(fit, self.work / "regulariser")
        else:
            fitted = self._shared(fit, self.cache)
        self.timer.record("regulariser")
        return fitted

    def _shared(self, fit: Callable[[], Regulariser], cache: RunCache) -> Regulariser:
        experiment = self.experiment
        either = experiment.regulariser.model_copy(update={"mode": "prior"})  # it is the same fit
        key = digest(experiment.model_copy(update={"regulariser": either}), of=SETTINGS_OF_FIT)
        folder = self.work.parent / ".regularisers" / key
        folder.parent.mkdir(exist_ok=True)

        def fit_once() -> Regulariser:
            with held(folder.with_suffix(".lock"), wait=True):
                return _kept(fit, folder)

        return cache.regularisers.get_or_make(key, fit_once)

    def compiled(
        self, model: GVI, data: TrainingData, schedule: Schedule, optimizer: Callable[[int], Any]
    ) -> CompiledModel:
        """Return a model that is traced already, if there is one of the same structure."""
        cache = self.cache or RunCache()
        return cache.traced(model, (data.X, data.Y), self.experiment, schedule)

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


def _kept(fit: Callable[[], Regulariser], folder: Path) -> Regulariser:
    """Return the regulariser that is saved in a folder, fitted and saved if there is none."""
    if folder.exists():
        loaded: Regulariser = gvi.load(folder)
        return loaded
    fitted = fit()
    gvi.save(fitted, folder)
    return fitted


def require_tensorboard() -> None:
    """Raise unless there is what writes events."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ImportError(
            "--tensorboard needs TensorBoard to write its events: pip install tensorboard."
        )
