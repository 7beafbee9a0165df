"""One run: from an experiment to a folder with its model, its metrics and its pictures."""

from __future__ import annotations

import csv
import functools
import math
import platform
import shutil
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
import yaml
from gpflow.base import RegressionData
from gpflow.utilities import deepcopy, set_trainable

import gpflow_gvi as gvi

from .. import labels, projection
from ..learning import Learned
from ..regulariser import Regulariser
from ..scaling import Scaling
from . import figures
from .config import Experiment
from .data import Rooms, load
from .folder import COMPLETE, RunFolder, digest, held, name_of, write_json
from .kernels import Site
from .peers import GVI, Fitted
from .reuse import Traced, Workshop
from .training import Conformal, HeldOutStopping
from .variational import Start

OF_FIT = ("data", "split", "standardise", "likelihood", "regulariser", "calibration", "seed")
"""The parts of an experiment that the fit of its regulariser depends on."""


def run(
    experiment: Experiment,
    folder: str | Path = "runs",
    *,
    force: bool = False,
    data_dir: Path | None = None,
    pictures: bool = True,
    tensorboard: bool = False,
    workshop: Workshop | None = None,
) -> Path:
    """Run an experiment, unless that was done before, and return its folder.

    A run that was killed goes on where it was: after the fit of the regulariser, or after the last
    epoch. The folder appears when everything is in it.

    :param experiment: the settings.
    :param folder: where the folders of runs are; the name of this one follows from the settings.
    :param force: run it again, from the beginning.
    :param data_dir: the folder with data sets.
    :param pictures: whether to draw, if matplotlib is there.
    :param tensorboard: whether to write events for TensorBoard.
    :param workshop: what is kept from one run to the next; fitted regularisers are then kept in the
        folder, too.
    """
    place = RunFolder(Path(folder) / name_of(experiment))
    with place.locked():
        if place.is_complete and not force:
            return place.path
        work = place.begin(anew=force)
        _write_config(experiment, work / "config.yaml")
        rooms = load(
            experiment.data,
            experiment.split,
            calibration=getattr(experiment.calibration, "fraction", 0.0),
            seed=experiment.seed,
            data_dir=data_dir,
        )
        watch = Stopwatch()
        standard = _standardised(experiment, rooms)
        fitted: Learned | Fitted
        if isinstance(experiment.model, GVI):
            fitted = _learned(
                experiment, standard, work, watch, workshop=workshop, tensorboard=tensorboard
            )
            fitted.save(work / "model", overwrite=True)
            _write_history(fitted.history, work / "history.csv")
            if pictures:
                figures.draw(fitted, rooms, work)
        else:
            moments = experiment.model.fit(standard.rooms, experiment.seed)
            fitted = Fitted(moments, standard.inputs, standard.outputs)
        watch.take("training")
        metrics = _metrics(experiment, fitted, rooms)
        watch.take("evaluation")
        shutil.rmtree(work / "backup", ignore_errors=True)
        shutil.rmtree(work / "regulariser", ignore_errors=True)  # the model has it
        write_json(work / "metrics.json", metrics)
        write_json(work / COMPLETE, _facts(experiment, rooms, watch.seconds))
        place.publish()
    return place.path


class Stopwatch:
    """The seconds that each part of a run took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def take(self, name: str) -> None:
        """Note the time since the last part ended, or since the start."""
        now = time.perf_counter()
        self.seconds[name] = round(now - self._last, 3)
        self._last = now


class Standard(NamedTuple):
    """Data in the units of the model, and the way there."""

    inputs: Scaling
    outputs: Scaling
    rooms: dict[str, RegressionData]
    site: Site
    likelihood: Any
    """That of labels, or None."""


def _standardised(experiment: Experiment, rooms: Rooms) -> Standard:
    dtype = gpflow.default_float()
    X: np.ndarray[Any, Any] = rooms["train"].X.astype(dtype)
    Y: np.ndarray[Any, Any] = rooms["train"].Y.astype(dtype)
    likelihood = experiment.likelihood.build(np.concatenate([rows.Y for rows in rooms.values()]))
    inputs = Scaling.of(X) if experiment.standardise else Scaling.none(X)
    real = experiment.standardise and likelihood is None
    outputs = Scaling.of(Y) if real else Scaling.none(Y)
    units = {
        name: (inputs.standard(rows.X).numpy(), outputs.standard(rows.Y).numpy())
        for name, rows in rooms.items()
    }
    X, Y = units["train"]
    responses = np.asarray(labels.responses(likelihood, labels.data(likelihood, X, Y)[1]))
    shape = experiment.data.input_shape or (X.shape[-1],)
    site = Site(X, Y, responses, experiment.seed, shape)
    return Standard(inputs, outputs, units, site, likelihood)


def _learned(
    experiment: Experiment,
    standard: Standard,
    work: Path,
    watch: Stopwatch,
    *,
    workshop: Workshop | None,
    tensorboard: bool,
) -> Learned:
    """Return the model of this package: fitted, tempered and calibrated."""
    regulariser = _regulariser(experiment, standard, work, workshop)
    watch.take("regulariser")
    model = build_model(experiment, regulariser, standard)
    history = _train(
        experiment, model, standard, work, workshop or Workshop(), tensorboard=tensorboard
    )
    return _finished(experiment, model, regulariser, standard, history)


def _regulariser(
    experiment: Experiment, standard: Standard, work: Path, workshop: Workshop | None
) -> Regulariser:
    """Return the fitted regulariser: that of an earlier attempt, or of another run, if there is."""

    def fitted(folder: Path) -> Regulariser:
        if folder.exists():
            return gvi.load(folder)
        held_out = standard.rooms.get("validation")
        found = experiment.regulariser.build(standard.site, standard.likelihood, held_out)
        gvi.save(found, folder)
        return found

    if workshop is None:
        return fitted(work / "regulariser")
    either = experiment.regulariser.model_copy(update={"mode": "prior"})  # it is the same fit
    key = digest(experiment.model_copy(update={"regulariser": either}), of=OF_FIT)
    shared = work.parent / ".regularisers" / key
    shared.parent.mkdir(exist_ok=True)

    def fitted_once() -> Regulariser:
        with held(shared.with_suffix(".lock"), wait=True):
            return fitted(shared)

    return workshop.regularisers.recall(key, fitted_once)


def build_model(
    experiment: Experiment, regulariser: Regulariser, standard: Standard
) -> gvi.models.GVI:
    """Return the model at the start of its training."""
    P = experiment.regulariser.process(regulariser)
    site = standard.site
    start = Start(
        **vars(site),
        P=P,
        prior=regulariser.prior,
        Z=projection.as_inducing_variable(regulariser.inducing_points),
        noise_variance=regulariser.noise.variance,
    )
    Q = gvi.GaussianProcess(experiment.mean.build(start), experiment.covariance.build(start))
    likelihood = deepcopy(regulariser.likelihood)
    set_trainable(likelihood, getattr(experiment.likelihood, "trainable", True))
    return gvi.models.GVI(
        P,
        Q,
        likelihood,
        experiment.divergence.build(site.X, experiment.seed),
        num_data=len(site.X),
        loss=experiment.loss.build(),
        divergence_weight=experiment.divergence.weight,
    )


def _train(
    experiment: Experiment,
    model: gvi.models.GVI,
    standard: Standard,
    work: Path,
    workshop: Workshop,
    *,
    tensorboard: bool,
) -> dict[str, list[float]]:
    """Train the model, from where an earlier attempt was, and return the history of it."""
    course = experiment.training.course(len(standard.site.X))
    if course.steps == 0:
        return {}
    data = (standard.site.X, standard.site.Y)
    num_data = {name: len(rows[0]) for name, rows in standard.rooms.items()}
    traced = workshop.traced(model, data, experiment, course, num_data)
    stopping = experiment.training.early_stopping
    callbacks: list[Any] = [
        keras.callbacks.BackupAndRestore(str(work / "backup"), delete_checkpoint=False),
        _Progress(course.epochs),
    ]
    if isinstance(stopping, HeldOutStopping):
        callbacks.insert(0, _KeepBest(traced, standard.rooms["validation"], stopping.patience))
    if tensorboard:
        callbacks.append(_tensorboard(work / "tensorboard"))
    found: dict[str, list[float]] = traced.model.fit(
        data,
        epochs=course.epochs,
        batch_size=course.batch_size,
        steps_per_epoch=course.steps_per_epoch,
        callbacks=callbacks,
        seed=experiment.seed,
        verbose=0,
    ).history
    traced.give(model)
    return found


class _KeepBest(keras.callbacks.EarlyStopping):
    """Early stopping by the held-out density that tempering would reach, from the start on."""

    def __init__(self, traced: Traced, held_out: RegressionData, patience: int) -> None:
        super().__init__("val_nll", mode="min", patience=patience, restore_best_weights=True)
        self._score = functools.partial(traced.score, held_out)

    def on_train_begin(self, logs: Any = None) -> None:
        """Take the start for the best so far."""
        super().on_train_begin(logs)
        self.best, self.best_weights = self._score(), self.model.get_weights()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Look at the held-out data."""
        logs = {} if logs is None else logs
        logs["val_nll"] = self._score()
        super().on_epoch_end(epoch, logs)


class _Progress(keras.callbacks.Callback):
    """A bar on the terminal; nothing where there is none."""

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.epochs = epochs

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Draw the bar anew."""
        if not sys.stderr.isatty():
            return
        done = (epoch + 1) / self.epochs
        bar = "#" * round(30 * done)
        figures_of_epoch = "  ".join(f"{name} {value:.4g}" for name, value in (logs or {}).items())
        sys.stderr.write(f"\r[{bar:<30}] {done:4.0%}  {figures_of_epoch:.100}\033[K")
        sys.stderr.flush()

    def on_train_end(self, logs: Any = None) -> None:
        """Leave the line."""
        if sys.stderr.isatty():
            sys.stderr.write("\n")


def _tensorboard(folder: Path) -> Any:
    try:
        import tensorboard  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "--tensorboard needs TensorBoard to write its events: pip install tensorboard."
        ) from error
    return keras.callbacks.TensorBoard(str(folder), write_graph=False)


def _finished(
    experiment: Experiment,
    model: gvi.models.GVI,
    regulariser: Regulariser,
    standard: Standard,
    history: dict[str, list[float]],
) -> Learned:
    """Return the model tempered and calibrated, for data in original units."""
    if experiment.tempering.kind == "held_out":
        model = gvi.temper(model, standard.rooms["validation"])
    calibration = None
    if "calibration" in standard.rooms:
        calibration = gvi.conformal(model, standard.rooms["calibration"])
    return Learned(model, regulariser, standard.inputs, standard.outputs, history, calibration)


def _metrics(experiment: Experiment, fitted: Learned | Fitted, rooms: Rooms) -> dict[str, Any]:
    """Return metrics of held-out and test rows, in original units; null for what is not finite."""
    found: dict[str, Any] = {}
    for name in ("validation", "test"):
        if name in rooms:
            values = gvi.metrics.evaluate(fitted, rooms[name])
            calibration = experiment.calibration
            if isinstance(calibration, Conformal) and isinstance(fitted, Learned):
                values |= _calibrated(fitted, *rooms[name], calibration.coverage)
            found[name] = {key: v if math.isfinite(v) else None for key, v in values.items()}
    return found


def _calibrated(learned: Learned, X: Any, Y: Any, coverage: float) -> dict[str, float]:
    """Return the coverage and the size of intervals, or of sets of classes, with a guarantee."""
    if labels.num_classes(learned.likelihood) is not None:
        sets = learned.predict_set(X, coverage)
        covered = np.take_along_axis(sets, Y.astype(int), axis=1)
        return {"conformal_coverage": covered.mean(), "conformal_size": sets.sum(axis=1).mean()}
    lower, upper = learned.predict_interval(X, coverage)
    return {
        "conformal_coverage": gvi.metrics.coverage(Y, lower, upper),
        "conformal_width": gvi.metrics.width(lower, upper),
    }


def _facts(experiment: Experiment, rooms: Rooms, seconds: dict[str, float]) -> dict[str, Any]:
    """Return what a run depended on beyond its settings, and what it took."""
    packages = (gvi, gpflow, keras, np, tf, tfp)
    versions = {package.__name__: package.__version__ for package in packages}
    return {
        "versions": {"python": platform.python_version(), **versions},
        "seed": experiment.seed,
        "float": np.dtype(gpflow.default_float()).name,
        "rows": {name: len(rows.X) for name, rows in rooms.items()},
        "seconds": seconds,
    }


def _write_config(experiment: Experiment, path: Path) -> None:
    text = yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    path.write_text(text, encoding="utf-8")


def _write_history(history: dict[str, list[float]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", *history])
        for epoch, values in enumerate(zip(*history.values(), strict=True), 1):
            writer.writerow([epoch, *values])
