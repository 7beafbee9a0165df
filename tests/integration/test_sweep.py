"""Sweeps that are run: fits that serve many runs, processes, clusters."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time

import distributed
import numpy as np
import pytest
import yaml

from gpflow_gvi.__main__ import main
from gpflow_gvi.experiments.clients import local_client
from gpflow_gvi.experiments.config import Experiment
from gpflow_gvi.experiments.run import run
from gpflow_gvi.experiments.run_all import execute, run_all
from gpflow_gvi.experiments.run_folder import Results
from gpflow_gvi.experiments.sweep import read_sweep
from tests.tolerances import ITERATIVE, assert_close

BASE = {
    "data": {"kind": "curve", "number": 1},
    "regulariser": {
        "kernel": {"kind": "matern52", "lengthscale": 0.3},
        "inducing": 6,
        "evidence": "inducing",
        "max_rounds": 1,
        "minimise": {"kind": "lbfgs", "max_iterations": 3},
    },
    "mean": {"kind": "network", "layers": [{"kind": "dense", "units": 3}]},
    "covariance": "diagonal",
    "optimiser": {"kind": "adam", "schedule": "constant"},
    "training": {"epochs": 2, "steps_per_epoch": 4, "early_stopping": "none"},
}


def _metrics(folder):
    metrics = json.loads((folder / "metrics.json").read_text())
    return [metrics[part][name] for part in ("validation", "test") for name in ("nll", "crps")]


@pytest.mark.slow
def test_runs_that_share_the_fit_of_their_regulariser_come_out_the_same(tmp_path):
    mean = {**BASE["mean"], "readout": "random", "fitted_to": "posterior"}
    experiments = [
        Experiment.model_validate({**BASE, "mean": mean, "loss": loss})
        for loss in ("log_loss", "gamma_loss")
    ]
    shared = [run(each, tmp_path / "a", pictures=False, share=True) for each in experiments]
    for kept in (".regularisers", ".means"):
        assert len([each for each in (tmp_path / "a" / kept).iterdir()]) == 1
    alone = run(experiments[1], tmp_path / "b", pictures=False)
    assert_close(_metrics(shared[1]), _metrics(alone), ITERATIVE)


SHARED = {
    # Where Q follows P there may be more inducing points than the 200 by default.
    "how far Q follows P": [
        {"training": BASE["training"], **level}
        for level in ({"mean": BASE["mean"]}, {"mean": "recipe"}, {"loss": "gamma_loss"})
    ],
    "how P is tempered": [{"train_q": False, "tempering": kind} for kind in ("none", "held_out")],
}


@pytest.mark.slow
@pytest.mark.parametrize("levels", SHARED.values(), ids=SHARED)
def test_each_run_of_a_sweep_has_the_numbers_of_that_run_alone(levels, tmp_path, rng):
    x = rng.uniform(-2.0, 2.0, size=270)
    np.savez(tmp_path / "own.npz", x=x, y=np.sin(20.0 * x) + 0.1 * rng.normal(size=270))
    data = {"kind": "table", "path": str(tmp_path / "own.npz"), "inputs": ["x"], "outputs": ["y"]}
    kernel = {"kind": "matern52", "lengthscale": 0.1}
    base = {"data": data, "refit": False, "regulariser": {"kernel": kernel}}
    variants = {"level": {str(i): level for i, level in enumerate(levels)}}
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump({"base": base, "variants": variants}))
    for planned in read_sweep(path):
        record = execute(planned, folder=tmp_path / "sweep", pictures=False)
        alone = run(planned.experiment, tmp_path / "alone", pictures=False)
        assert record["test"] == json.loads((alone / "metrics.json").read_text())["test"]


SWEEP = {
    "base": BASE,
    "axes": {"data.number": [1, 2], "covariance": ["diagonal", "cholesky"]},
}


@pytest.fixture
def sweep(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SWEEP))
    return path


def _require_all(folder):
    records, wrong = Results(folder).read()
    assert not wrong
    assert len(records) == 4
    for name, record in records.items():
        assert record["status"] == "done", record.get("error")
        metrics = json.loads((folder / name / "metrics.json").read_text())
        assert record["test"] == metrics["test"]
    assert not list(folder.glob("*.partial"))
    return records


@pytest.mark.slow
def test_a_sweep_by_the_command_line_and_one_that_fails(sweep, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("GPFLOW_GVI_DATA", raising=False)
    folder = tmp_path / "runs"
    command = ["sweep", str(sweep), "--folder", str(folder), "--workers", "2"]
    assert main(command) == 0
    before = _require_all(folder)
    assert f"4 runs done, 0 failed: {folder}" in capsys.readouterr().out
    failing = {**SWEEP, "axes": {"data": [{"kind": "curve", "number": 1}, "yacht"]}}
    sweep.write_text(yaml.safe_dump(failing))
    assert main(command) == 1
    records, _ = Results(folder).read()
    [failure] = [record for record in records.values() if record["status"] == "failed"]
    assert "Traceback" in failure["error"]
    assert "no folder with data was named" in failure["error"]
    relabelled = {"axes": {"data": '{"kind": "curve", "number": 1}'}}
    changed = {name for name, record in before.items() if records[name] != record}
    assert all(records[name] == before[name] | relabelled for name in changed)
    assert len(changed) == 1


@pytest.mark.slow
def test_a_sweep_that_is_killed_goes_on(sweep, tmp_path):
    folder = tmp_path / "runs"
    command = [sys.executable, "-m", "gpflow_gvi", "sweep", str(sweep), "--folder", str(folder)]
    process = subprocess.Popen([*command, "--workers", "1"], start_new_session=True)
    results = Results(folder)
    while process.poll() is None and not results.read()[0]:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)  # with its workers
    process.wait()
    before = results.path.read_text()
    run_all(read_sweep(sweep), folder, functools.partial(local_client, 1))
    _require_all(folder)
    assert results.path.read_text().startswith(before)


@pytest.mark.slow
def test_a_sweep_on_the_address_of_a_scheduler(sweep, tmp_path):
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        connect = functools.partial(distributed.Client, cluster.scheduler_address)
        assert run_all(read_sweep(sweep), tmp_path / "runs", connect) == (4, 0)
    _require_all(tmp_path / "runs")
