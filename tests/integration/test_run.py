"""Runs of experiments: what is in their folders, and what is left when something goes wrong."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml

import gpflow_gvi as gvi
from gpflow_gvi.__main__ import main
from gpflow_gvi._core import progress
from gpflow_gvi.experiments import Experiment, read
from gpflow_gvi.experiments import run as runs
from gpflow_gvi.experiments.run import run
from gpflow_gvi.learning import procedure
from tests.tolerances import assert_close

few_steps = pytest.mark.filterwarnings("ignore:rows that were left out are predicted worse")
"""Enough for what is tested, and not for predictions."""

SMALL = {
    "data": {"kind": "curve", "number": 1},
    "regulariser": {
        "kernel": {"kind": "matern52", "lengthscale": 0.3},
        "inducing": 12,
        "select": "uniform",
        "evidence": "inducing",
        "minimise": {"kind": "lbfgs", "max_iterations": 3},
    },
    "mean": {"kind": "network", "layers": [{"kind": "dense", "units": 3}]},
    "covariance": "cholesky",
    "training": {"epochs": 6, "steps_per_epoch": 3, "early_stopping": {"kind": "held_out"}},
}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    return path


@few_steps
def test_folder_of_a_run_and_what_becomes_of_it(config, tmp_path, monkeypatch, capsys):
    experiment = read(config)
    folder = run(experiment, tmp_path / "runs")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [folder.name]
    assert sorted(path.name for path in folder.iterdir()) == [
        *("config.yaml", "history.csv", "losses.png", "metrics.json", "model", "prediction.png"),
        "run.json",
    ]
    assert read(folder / "config.yaml") == experiment
    with (folder / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    assert {"loss", "expected_loss", "divergence", "val_nll"} < set(rows[0])
    facts = json.loads((folder / "run.json").read_text())
    assert facts["rows"] == {"train": 600, "validation": 150, "test": 250}
    assert facts["versions"]["gpflow_gvi"] == gvi.__version__

    # What was saved predicts, in the units of the data, what was measured.
    learned = gvi.load(folder / "model")
    data = experiment.data.load()["test"]
    metrics = json.loads((folder / "metrics.json").read_text())
    mean, variance = learned.predict_y(data.X)
    residual = data.Y - mean
    nll = 0.5 * (np.log(2.0 * np.pi * variance) + residual**2 / variance)
    assert_close(metrics["test"]["nll"], np.mean(nll))
    assert_close(metrics["test"]["rmse"], np.sqrt(np.mean(residual**2)))

    # It is not repeated, by the command neither.
    before = (folder / "run.json").stat().st_mtime_ns
    assert run(experiment, tmp_path / "runs") == folder
    command = ["run", str(config), "--folder", str(tmp_path / "runs")]
    assert main(command) == 0
    told = capsys.readouterr()
    assert str(folder) in told.out
    assert f"{folder} is finished and keeps what it has; --force runs it again." in told.err
    assert main([*command, "--tensorboard"]) == 2
    assert "is finished. Pass --force" in capsys.readouterr().err
    assert (folder / "run.json").stat().st_mtime_ns == before

    # A disk that is full when it is repeated leaves it alone.
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(runs, "write_json", full)
    assert main([*command, "--force"]) == 2
    assert "No space left" in capsys.readouterr().err
    assert (folder / "run.json").stat().st_mtime_ns == before


def test_other_data_under_the_same_name_are_not_taken_for_those_of_a_finished_run(
    tmp_path, rng, capsys
):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        X, Y = rng.normal(size=(2, 40, 1))
        np.savez(tmp_path / name / "toy_snelson1d.npz", x=X, y=Y)
    config, runs_ = tmp_path / "experiment.yaml", str(tmp_path / "runs")
    model = {"kind": "exact_gp", "iterations": 1}
    config.write_text(yaml.safe_dump({"data": "snelson1d", "model": model}))

    def told(name, *options):
        status = main(
            ["run", str(config), "--folder", runs_, "--data-dir", str(tmp_path / name), *options]
        )
        return status, "".join(capsys.readouterr())

    assert told("a")[0] == 0
    [folder] = (tmp_path / "runs").iterdir()
    facts = (folder / "run.json").read_bytes()
    content = (tmp_path / "a" / "toy_snelson1d.npz").read_bytes()
    assert json.loads(facts)["data"] == hashlib.sha256(content).hexdigest()
    status, text = told("b")
    assert status == 2
    assert "with other data" in text
    for name in ("a", "nowhere"):
        assert told(name)[0] == 0
        assert (folder / "run.json").read_bytes() == facts
    assert told("b", "--force")[0] == told("b")[0] == 0
    assert told("a")[0] == 2


def test_events_of_a_training_that_does_not_take_place_are_refused(tmp_path):
    path = tmp_path / "experiment.yaml"
    for given in ({}, {"model": "svgp"}):
        path.write_text(yaml.safe_dump({"data": SMALL["data"], **given}))
        with pytest.raises(ValueError, match="tensorboard is True, which has no effect"):
            run(read(path), tmp_path, tensorboard=True)


def test_events_that_nothing_can_write_are_refused_before_anything_is_fitted(tmp_path, monkeypatch):
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump({"data": SMALL["data"], "train_q": True}))
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        run(read(path), tmp_path / "runs", tensorboard=True)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_loss_that_is_not_finite_is_told_with_the_settings_of_its_terms(config, tmp_path, capsys):
    config.write_text(yaml.safe_dump({**SMALL, "loss": {"kind": "beta_loss", "beta": 1e6}}))
    assert main(["run", str(config), "--folder", str(tmp_path / "runs")]) == 2
    told = capsys.readouterr().err
    assert "the loss (BetaLoss) is nan" in told
    assert '"loss":{"kind":"beta_loss","beta":1000000.0}' in told


class Killed(BaseException):
    """Stands for kill -9."""


@pytest.mark.slow
@few_steps
@pytest.mark.parametrize(
    ("stage", "split", "last"), [("training", "given", 3), ("refit", "random", 0)]
)
def test_run_goes_on_where_it_was_killed_and_ends_where_it_would_have(
    stage, split, last, config, tmp_path, monkeypatch
):
    config.write_text(yaml.safe_dump({**SMALL, "split": split}))
    experiment = read(config)
    whole = run(experiment, tmp_path / "whole", pictures=False)

    stages, callbacks = [], runs.RunHooks.callbacks

    def noted(hooks, epochs):
        stages.append(hooks.stage)
        return callbacks(hooks, epochs)

    def killed(done, total, **facts):
        if (stages[-1], done) == (stage, last + 1):
            raise Killed

    monkeypatch.setattr(runs.RunHooks, "callbacks", noted)
    monkeypatch.setattr(progress, "done_of", killed)  # at the end of each epoch
    with pytest.raises(Killed):
        run(experiment, tmp_path / "resumed")
    monkeypatch.undo()
    [partial] = (tmp_path / "resumed").iterdir()
    assert partial.name == f"{whole.name}.partial"

    # The fit of the regulariser is not repeated.
    monkeypatch.setattr(procedure, "fit_regulariser", None)
    resumed = run(experiment, tmp_path / "resumed", pictures=False)
    for name in ("metrics.json", "history.csv", "config.yaml"):
        assert (resumed / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.slow
def test_labels_of_a_table_with_conformal_sets(tmp_path, rng, monkeypatch):
    X = rng.normal(size=(120, 2))
    labels = (X[:, 0] > 0.0).astype(int) + (X[:, 1] > 0.5)
    np.savetxt(
        tmp_path / "own.csv",
        np.column_stack([X, labels]),
        delimiter=",",
        header="a,b,label",
        comments="",
    )
    config = tmp_path / "experiment.yaml"
    values = {
        **SMALL,
        "data": {"kind": "table", "path": "own.csv", "inputs": ["a", "b"], "outputs": ["label"]},
        "likelihood": "multi_class",
        "mean": "inducing",
        "training": {"epochs": 0},
        "tempering": "none",
        "calibration": {"kind": "conformal", "coverage": 0.8},
    }
    config.write_text(yaml.safe_dump(values))
    monkeypatch.chdir(tmp_path)
    folder = run(read(config), pictures=False)
    assert folder.parent == tmp_path / "runs"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert set(metrics) == {"validation", "test"}
    assert metrics["test"]["accuracy"] > 0.5
    # A set that holds the label is not empty.
    assert metrics["test"]["conformal_coverage"] <= metrics["test"]["conformal_size"] <= 3.0
    # After the command has seen the file change it is another experiment.
    before = folder.name
    with (tmp_path / "own.csv").open("a") as file:
        file.write("0.0,0.0,0\n")
    assert runs.name_of(read(config)) != before


@pytest.mark.parametrize("likelihood", ["gaussian", "softmax"])
def test_rows_too_few_for_a_guarantee_have_metrics_without_it(likelihood, tmp_path, rng):
    rows = np.column_stack([rng.normal(size=(24, 1)), np.repeat([0, 1, 2], 8)])
    path = tmp_path / "own.csv"
    np.savetxt(path, rows, delimiter=",", header="a,y", comments="")
    experiment = Experiment.model_validate(
        {
            "data": {"kind": "table", "path": str(path), "inputs": ["a"], "outputs": ["y"]},
            "split": {"kind": "random", "test": 0.3, "validation": 0.0},
            "likelihood": likelihood,
            "regulariser": {"kernel": "matern32"},
            "calibration": "conformal",
        }
    )
    with pytest.warns(gvi.errors.NumericsWarning, match="too few to hold out"):
        folder = run(experiment, tmp_path / "runs", pictures=False)
    metrics = json.loads((folder / "metrics.json").read_text())["test"]
    assert np.isfinite(metrics["nll"])
    assert not any(name.startswith("conformal") for name in metrics)


def test_errors_are_one_line_for_the_user(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("GPFLOW_GVI_DATA", raising=False)
    path = tmp_path / "experiment.yaml"
    path.write_text("data: yacht\n")
    assert main(["run", str(path), "--folder", str(tmp_path / "runs")]) == 2
    told = capsys.readouterr().err
    assert "no folder with data was named" in told
    assert "Traceback" not in told


@pytest.mark.slow
def test_killed_for_real_at_any_moment(config, tmp_path):
    values = {**SMALL, "training": {**SMALL["training"], "epochs": 40}}
    values["training"]["early_stopping"] = "none"
    config.write_text(yaml.safe_dump(values))
    experiment = read(config)
    whole = run(experiment, tmp_path / "whole", pictures=False)
    command = [sys.executable, "-m", "gpflow_gvi", "run", str(config), "--no-figures"]
    folder = tmp_path / "killed"
    for seconds in (6.0, 9.0, 11.0):
        process = subprocess.Popen([*command, "--folder", str(folder)], stdout=subprocess.DEVNULL)
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        for path in folder.glob("*"):
            assert path.suffix in (".partial", ".lock") or (path / "run.json").exists()
    resumed = run(experiment, folder, pictures=False)
    assert (resumed / "metrics.json").read_bytes() == (whole / "metrics.json").read_bytes()
    assert [path.name for path in folder.iterdir()] == [whole.name]
