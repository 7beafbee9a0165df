"""What a run adds to the procedure: it keeps fits that others share, and can be resumed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection
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


def key_of_fit(experiment: Experiment, data: str = "", of: Collection[str] = ()) -> str:
    """Return a text that experiments share if their regulariser is fitted in the same way.

    :param data: the digest of the file of data.
    :param of: further parts that what is kept depends on.
    """
    built = experiment.build_regulariser()
    chosen = {
        "mode": "prior",  # P is one or the other process of the same fit
        "noise": built.noise,  # by default these depend on Q
        "predictors": built.predictors or "none",
    }
    P = experiment.regulariser.model_copy(update=chosen)
    judged = experiment.tempering if not experiment.train_q else None
    experiment = experiment.model_copy(update={"regulariser": P})
    return digest(experiment, data, built.max_inducing, judged, of=SETTINGS_OF_FIT.union(of))


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
    data: str
    """The digest of the file of data: fits to another one are not taken."""
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
        fitted: Regulariser = _kept(self._place("regulariser"), fit)
        self.timer.record("regulariser")
        return fitted

    def mean(self, build: Callable[[], MeanFunction]) -> MeanFunction:
        """Return Q's mean at its start: that of another run, if it was fitted for that."""
        is_fitted = getattr(self.experiment.mean, "fitted_to", "nothing") != "nothing"
        if not (self.share and is_fitted and self.stage == "training"):
            return build()
        fitted: MeanFunction = _kept(self._place("mean", "mean"), build)
        return fitted

    def _place(self, name: str, *of: str) -> Path:
        """Return where a fit is kept; `of` are parts that it depends on beside those of P's fit."""
        if not self.share:
            return self._backup / name
        key = key_of_fit(self.experiment, self.data, of)
        return self.work.parent / f".{name}s" / key

    @property
    def _backup(self) -> Path:
        return self.work / "backup" / self.data[:10]

    def callbacks(self, epochs: int) -> list[Any]:
        """Return the backup, and TensorBoard if asked for."""
        folder = self._backup / self.stage
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
    folder.parent.mkdir(parents=True, exist_ok=True)
    with held(folder.with_suffix(".lock"), wait=True):
        if folder.exists():
            return gvi.load(folder)
        gvi.save(fitted := fit(), folder)
        return fitted
