"""The benchmarks run: their smallest cases, and no figure of theirs is asserted."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest

# `__main__` and what it calls.
from benchmarks import (
    beyond,
    end_to_end,
    growth,
    peers,
    steps,
    target_data,
    targets,
    timing,
)
from benchmarks.against_peers import comparisons
from benchmarks.data import Split
from gpflow_gvi.__main__ import main
from tests.tolerances import assert_close, assert_estimates


def test_medians_are_of_calls():
    found = timing.medians({"a": lambda calls: 0.3 * calls, "b": lambda calls: 0.1 * calls}, 3)
    assert found.keys() == {"a", "b"}
    assert_close([found["a"], found["b"]], [0.3, 0.1])


def require_processor_time():
    """However busy other threads are: what was measured passed in the process meanwhile."""
    start = time.process_time()
    measured = timing.timed(lambda: time.sleep(0.2))(1)
    assert 0.0 <= measured <= time.process_time() - start


def test_time_is_of_the_processor():
    require_processor_time()


def test_time_is_of_the_wall_where_a_device_waits():
    with timing.by_the_wall():
        assert timing.timed(lambda: time.sleep(0.2))(1) > 0.1
    require_processor_time()


def test_what_was_measured_is_compared_with_the_best_of_others():
    at = {"B": 20, "M": 5}
    fixed = {"GPflow SVGP, kernel and Z fixed": 4.0, "GPJax SVGP, kernel and Z fixed": 2.0}
    names = {"CholeskySVGP": 3.0, "GPJax SVGP": 1.0, "DiagonalSVGP": 1.0, **fixed}
    tables = {
        "Steps": [{**at, "model": name, "ms": ms} for name, ms in names.items()],
        "Distance and gradient": [
            {"B": 9, "estimator": name, "ms": ms}
            for name, ms in {"exact": 30.0, "newton_schulz": 1.0, "eigh of NumPy": 20.0}.items()
        ],
        "Growth": [{"of": "B"}],
    }
    step, exact = comparisons(tables)
    assert (step["ours"], step["best peer"], step["which"]) == (
        3.0,
        2.0,
        "GPJax SVGP, kernel and Z fixed",
    )
    assert (step["ratio"], step["not more"]) == (1.5, "no")
    assert (exact["ratio"], exact["not more"]) == (0.5, "yes")


def test_slopes_are_the_exponents():
    sizes = (1, 10, 20, 40)
    rows = [{"of": "B", "size": n, "ms": 2.0 * n**1.5, "MiB": 7.0 * n} for n in sizes]
    (found,) = growth.slopes(rows)
    assert_close(found["slope of time"], 1.5)
    assert_close(found["slope of memory"], 1.0)


def test_a_step_gives_the_training_loss():
    X, Y, _ = peers.inputs(20, 5)
    model = steps.pgvi("CholeskySVGP", 20, 5)
    loss = model.training_loss((X, Y)).numpy()
    assert_close(steps.step(model, X, Y)(), loss)


def test_rows_on_disk_are_read_back(tmp_path):
    growth.write_rows(tmp_path / "rows", 1500)
    batches = list(growth.read_rows(tmp_path / "rows"))
    assert [len(X) for X, _ in batches] == [1000, 500]
    X, Y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    file = np.fromfile(tmp_path / "rows").reshape(1500, -1)
    # Shuffled, and in the order of the first column the same.
    assert not np.array_equal(X[:, 0], file[:, 0])
    together = np.hstack([X, Y])
    np.testing.assert_array_equal(together[together[:, 0].argsort()], file[file[:, 0].argsort()])


@pytest.mark.parametrize("name", target_data.KINDS)
def test_targets_are_drawn_from_the_law_that_is_known(name):
    """The average of y minus its mean is zero, and that of -log p(y) is no larger elsewhere."""
    kind = target_data.KINDS[name]
    part = target_data.sample(kind, 100)
    error = part.Y_test - part.mean
    assert_estimates(error.mean(), 0.0, error.std() / np.sqrt(len(error)))
    assert_close(np.mean(~part.is_clean), kind.outliers)
    moved = kind.law(kind.f(part.X_test) + 0.3, part.X_test)
    log_density = getattr(moved, "logpdf", None) or moved.logpmf
    assert part.log_density.mean() > np.mean(log_density(part.Y_test))


def test_rows_beyond_the_others_are_those_at_both_ends_of_a_feature(rng):
    X = rng.normal(size=(100, 3))
    X[:, 1] = rng.integers(0, 9, 100)  # of few values
    Y = X[:, :1] ** 3 + X[:, 1:2]
    part = beyond.beyond(Split(X[:70], Y[:70], X[70:], Y[70:]))
    assert (part.X.shape, part.X_test.shape) == ((90, 3), (10, 3))
    least, most = np.min(part.X[:, 0]), np.max(part.X[:, 0])
    assert np.sum(part.X_test[:, 0] < least) == np.sum(part.X_test[:, 0] > most) == 5
    rows = np.r_[part.Y, part.Y_test]  # the same, in other units
    assert_close(np.corrcoef(np.sort(rows, axis=0).T, np.sort(Y, axis=0).T)[0, 1], 1.0)


@pytest.mark.slow
def test_targets_of_models(tmp_path, monkeypatch, capsys):
    small = dataclasses.replace(target_data.KINDS["counts"], num_rows=40)
    monkeypatch.setitem(target_data.KINDS, "counts", small)
    output = tmp_path / "rows.json"
    for only in ("truth", "Poisson", "boosting"):
        targets.run(["counts"], [100, 101], output, only)
    rows = [targets.Row("counts", seed, "learn", 1.0 + seed, *[0.0] * 4) for seed in (0, 1)]
    rows += [targets.Row("counts", seed, "GPR", 1.5, *[0.0] * 4) for seed in (0, 1)]
    assert targets.difference(rows, "counts", "learn", "nll") == ("GPR", 0.0, 0.5)
    assert targets.comparison(rows)[2].endswith(
        "| counts | nll | learn | GPR | +0.0000 ± 0.5000 | ✓ |"
    )
    assert "boosting" in capsys.readouterr().out
    written = [targets.Row(**row) for row in json.loads(output.read_text())]
    assert [row.seed for row in written] == [100, 101]
    assert len(targets.table(written)) == 3


def test_what_cannot_be_imported_is_left_out():
    assert peers.can_import("json", sys.executable)
    assert not peers.can_import("no_such_library", sys.executable)
    assert not peers.can_import("json", "/no/such/python")


@pytest.mark.slow
def test_learn_is_measured_beside_sgpr(monkeypatch):
    def gaussian(part, seed):
        mean = np.zeros(len(part.Y_test))
        return mean, np.ones_like(mean)

    def learned(part, seed):
        mean, variance = gaussian(part, seed)
        return mean, variance, np.full(len(mean), -1.5)  # its law is not Gaussian

    monkeypatch.setitem(end_to_end.MODELS, "learn", learned)
    monkeypatch.setitem(end_to_end.MODELS, "learn, fast", gaussian)
    rows = end_to_end.end_to_end(Path(), ["line"], 1)
    assert [row["model"] for row in rows] == ["learn", "learn, fast", "GPflow SGPR"]
    assert rows[0]["NLL"] == 1.5
    assert all(np.isfinite(row["NLL"]) for row in rows)
    assert rows[-1]["ratio"] == 1.0


def test_the_command_needs_a_copy_of_the_repository(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark", "steps"]) == 2
    assert "has no folder benchmarks" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_passes_its_arguments_on(monkeypatch, capfd):
    monkeypatch.chdir(Path(__file__).parents[2])
    assert main(["benchmark", "--help"]) == 0
    assert "--neural-tangents" in capfd.readouterr().out
