"""One run: from an experiment to a folder with its model, its metrics and its pictures.

It is the procedure of `learn`, but it keeps fits that others share, and can be resumed.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import math
import platform
import shutil
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import keras
import numpy as np
import pandas as pd
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.functions import MeanFunction
from gpflow.likelihoods import Likelihood

import gpflow_gvi as gvi

from ..errors import NonFiniteLossError
from ..learning import (
    Hooks,
    Learned,
    ModelSettings,
    Procedure,
    Settings,
    Split,
    VariationalSettings,
)
from ..likelihoods import are_labels
from ..plots import CurveDisplay, HistoryDisplay
from ..plots.display import GREEN, ORANGE, VERMILLION, legend_above
from ..regulariser.fit import Regulariser
from .config import Experiment
from .data_sets import Rows, RowsByRole, load
from .parts.models import Fitted, PeerRun
from .parts.training import Conformal
from .run_folder import COMPLETE, RunFolder, digest, held, name_of, write_json

logger = logging.getLogger("gpflow_gvi")

COLOURS = {"validation": GREEN, "calibration": ORANGE, "test": VERMILLION}
"""The colours of the rows that the model was not fitted to; the others are black."""

SETTINGS_OF_FIT = {
    *("data", "split", "standardise", "likelihood", "regulariser"),
    *("train_q", "calibration", "seed"),
}
"""The parts of an experiment that the fit of its regulariser depends on."""


def run(
    experiment: Experiment,
    folder: str | Path = "runs",
    *,
    force: bool = False,
    data_dir: Path | None = None,
    pictures: bool = True,
    tensorboard: bool = False,
    share: bool = False,
) -> Path:
    """Run an experiment, unless that was done before, and return its folder.

    A run that was killed goes on where it was: after the fit of the regulariser, or after the last
    epoch. The folder appears when everything is in it.

    :param folder: where the folders of runs are; the name of this one follows from the settings.
    :param force: run it again, from the beginning.
    :param pictures: whether to draw, if matplotlib is there.
    :param tensorboard: whether to write events for TensorBoard.
    :param share: whether fits of P, and of the mean that Q starts with, are kept in the folder,
        for other runs.
    """
    place = RunFolder(Path(folder) / name_of(experiment))
    if tensorboard:
        _require_events(experiment)
    with place.locked():
        data = experiment.data.digest(data_dir)
        if not force and place.is_of(data):
            return place.path
        work = place.begin(anew=force)
        (work / "config.yaml").write_text(experiment.as_yaml(), encoding="utf-8")
        timer = Timer()
        settings, split, rows = prepare(experiment, data_dir)
        fitted: Learned | Fitted
        if experiment.model.kind == "gvi":
            hooks = RunHooks(experiment, data, work, timer, share, tensorboard)
            try:
                fitted = Procedure(split, settings, hooks).run()
            except NonFiniteLossError as error:
                parts = experiment.model_dump_json(include={"loss", "divergence"})
                raise NonFiniteLossError(f"{error} The experiment has {parts}.") from error
            validated: Learned | Fitted = hooks.validated or fitted
            fitted.save(work / "model", overwrite=True)
            history = pd.DataFrame(fitted.history)
            history.index += 1  # the first epoch is number one
            history.to_csv(work / "history.csv", index_label="epoch", na_rep="nan")
            if pictures:
                _draw(fitted, rows, work)
        else:
            standard = {name: split.standard(each) for name, each in rows.items() if name != "test"}
            moments = experiment.model.build(PeerRun(standard, experiment.seed))
            validated = fitted = Fitted(moments, split.inputs, split.outputs)
        timer.record("training")
        metrics = {
            name: _metrics(experiment, model, rows[name])
            for name, model in (("validation", validated), ("test", fitted))
            if name in rows
        }
        timer.record("evaluation")
        shutil.rmtree(work / "backup", ignore_errors=True)
        write_json(work / "metrics.json", metrics)
        facts = _facts(experiment, rows)
        write_json(work / COMPLETE, {**facts, "data": data, "seconds": timer.seconds})
        place.publish()
    return place.path


def _require_events(experiment: Experiment) -> None:
    """Raise if there are no epochs to write events of, or nothing that writes them."""
    if not (experiment.train_q and experiment.training.kind == "batches"):
        raise ValueError(
            "tensorboard is True, which has no effect, as the experiment trains nothing by epochs. "
            "Leave it out, or say how Q is trained: train_q: true, or a divergence, a mean, ..., "
            "and training: batches."
        )
    if importlib.util.find_spec("tensorboard") is None:
        raise ImportError(
            "--tensorboard needs TensorBoard to write its events: pip install tensorboard."
        )


class Prepared(NamedTuple):
    """What a run starts from."""

    settings: Settings
    split: Split
    rows: RowsByRole
    """Those of the split and those for testing, in original units."""


def prepare(experiment: Experiment, data_dir: Path | None = None) -> Prepared:
    """Return the settings of the procedure and the rows of an experiment."""
    loaded = load(experiment.data, experiment.split, seed=experiment.seed, data_dir=data_dir)
    all_Y = np.concatenate([rows.Y for rows in loaded.values()])
    settings = settings_of(experiment, experiment.likelihood.build(all_Y))
    split = Split.of(loaded["train"], settings, loaded.get("validation"))
    parts = {
        "train": split.train,
        "validation": split.validation,
        "calibration": split.calibration,
        "test": loaded.get("test"),
    }
    rows = {name: Rows(*part) for name, part in parts.items() if part is not None}
    return Prepared(settings, split, rows)


def settings_of(experiment: Experiment, likelihood: Likelihood | None) -> Settings:
    """Return the settings of the procedure; the likelihood is that of labels, or None."""
    settings = Settings(
        regulariser=experiment.build_regulariser(),
        training=experiment.training.build(experiment.optimiser),
        # A network stops by rows that are held out, as Q does.
        trains=experiment.train_q or experiment.model.kind == "network",
        temper=None if experiment.tempering == "none" else gvi.temper,
        refit=experiment.refit,
        validation_fraction=experiment.split.validation,
        calibration_fraction=getattr(
            experiment.calibration, "fraction", Settings.calibration_fraction
        ),
        likelihood=likelihood,
        standardise=experiment.standardise,
        input_shape=experiment.data.input_shape,
        seed=experiment.seed,
        pool=not experiment.train_q and experiment.regulariser.is_free,
    )
    if not experiment.train_q:
        return settings
    return dataclasses.replace(
        settings,
        variational=VariationalSettings(experiment.mean.build, experiment.covariance.build),
        model=ModelSettings(
            kind=gvi.models.GVI,
            divergence=experiment.divergence.build,
            divergence_weight=experiment.divergence.weight,
            loss=experiment.loss.build,
            train_likelihood=getattr(experiment.likelihood, "trainable", True),
        ),
    )


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


class Timer:
    """The seconds that each part of a run took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def record(self, name: str) -> None:
        """Record the time since the last part ended, or since the start."""
        before, self._last = self._last, time.perf_counter()
        self.seconds[name] = round(self._last - before, 3)


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

    def callbacks(self, epochs: int) -> list[Any]:
        """Return the backup, and TensorBoard if asked for."""
        folder = str(self._backup / self.stage)
        found = [keras.callbacks.BackupAndRestore(folder, delete_checkpoint=False)]
        if self.tensorboard:
            events = str(self.work / "tensorboard" / self.stage)
            found.append(keras.callbacks.TensorBoard(events, write_graph=False))
        return found

    def before_refit(self, learned: Learned) -> None:
        """Keep the model, for the metrics of validation."""
        self.validated = learned
        self.stage = "refit"

    def _place(self, name: str, *of: str) -> Path:
        """Return where a fit is kept; `of` are parts that it depends on beside those of P's fit."""
        if not self.share:
            return self._backup / name
        return self.work.parent / f".{name}s" / key_of_fit(self.experiment, self.data, of)

    @property
    def _backup(self) -> Path:
        return self.work / "backup" / self.data[:10]


def _kept(folder: Path, fit: Callable[[], Any]) -> Any:
    """Return the fit that is kept in a folder, or make it and keep it there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with held(folder.with_suffix(".lock"), wait=True):
        if folder.exists():
            return gvi.load(folder)
        gvi.save(fitted := fit(), folder)
        return fitted


def _draw(learned: Learned, rows_by_role: RowsByRole, folder: Path) -> None:
    """Write `losses.png`, and where inputs and outputs are numbers `prediction.png`."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        logger.info("No figures: matplotlib is not installed.")
        return
    if learned.history:
        figure = Figure(figsize=(4.0 * len(learned.history), 3.0), layout="constrained")
        HistoryDisplay.from_estimator(learned, ax=figure.subplots(1, len(learned.history)))
        figure.savefig(folder / "losses.png", dpi=100)
    X, Y = rows_by_role["train"]
    of_classes = are_labels(learned.likelihood)
    if X.shape[1] == Y.shape[1] == 1 and not of_classes:
        figure = Figure(figsize=(7.0, 3.6), layout="constrained")
        axes = figure.subplots()
        every = np.concatenate([rows.X for rows in rows_by_role.values()])
        CurveDisplay.from_estimator(learned, every, margin=0.05, ax=axes)
        for name, rows in rows_by_role.items():
            colour = COLOURS.get(name, "black")
            axes.plot(rows.X[:, 0], rows.Y[:, 0], ".", ms=3, color=colour, label=name)
        legend_above(axes, ncols=4, markerscale=2.0)
        figure.savefig(folder / "prediction.png", dpi=140)


def _metrics(experiment: Experiment, fitted: Learned | Fitted, rows: Rows) -> dict[str, Any]:
    """Return metrics of rows, in original units; null for those that are not finite."""
    values = gvi.metrics.evaluate(fitted, rows)
    calibration = experiment.calibration
    if isinstance(calibration, Conformal) and isinstance(fitted, Learned) and fitted.calibration:
        values |= _calibrated(fitted, *rows, calibration.coverage)
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _calibrated(learned: Learned, X: Any, Y: Any, coverage: float) -> dict[str, float]:
    """Return the coverage and the size of intervals, or of sets of classes, with a guarantee."""
    if are_labels(learned.likelihood):
        sets = learned.predict_set(X, coverage)
        covered = np.take_along_axis(sets, Y.astype(int), axis=1)
        return {"conformal_coverage": covered.mean(), "conformal_size": sets.sum(axis=1).mean()}
    lower, upper = learned.predict_interval(X, coverage)
    return {
        "conformal_coverage": gvi.metrics.coverage(Y, lower, upper),
        "conformal_width": gvi.metrics.width(lower, upper),
    }


def _facts(experiment: Experiment, rows_by_role: RowsByRole) -> dict[str, Any]:
    """Return the facts that a run depended on beyond its settings."""
    packages = (gvi, gpflow, keras, np, tf, tfp)
    versions = {package.__name__: package.__version__ for package in packages}
    return {
        "versions": {"python": platform.python_version(), **versions},
        "seed": experiment.seed,
        "float": np.dtype(gpflow.default_float()).name,
        "rows": {name: len(rows.X) for name, rows in rows_by_role.items()},
    }
