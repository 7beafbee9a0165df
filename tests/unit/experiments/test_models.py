"""The models that this package's are compared with: their units, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy import stats

from gpflow_gvi.experiments.config import Experiment
from gpflow_gvi.experiments.parts.models import Fitted, Model, PeerRun
from gpflow_gvi.experiments.reading import ConfigError, Document
from gpflow_gvi.experiments.run import prepare
from gpflow_gvi.experiments.sweep import read_sweep
from gpflow_gvi.learning.rows.scaling import Scaling
from tests.tolerances import assert_close


def peer(kind, **keys):
    """Return the fit of a model, a function of rows and a seed."""
    part = TypeAdapter(Model).validate_python({"kind": kind, **keys})
    return lambda rows, seed: part.build(PeerRun(rows, seed))


QUICK = [
    pytest.param(peer("svgp", inducing=10, iterations=20), marks=pytest.mark.slow),
    pytest.param(
        peer("svgp", inducing=10, full_batch=1, steps=30, batch_size=20), marks=pytest.mark.slow
    ),
    peer("exact_gp", iterations=20),
    pytest.param(peer("network", epochs=3, members=2), marks=pytest.mark.slow),
]


@pytest.fixture
def rows(rng):
    X = rng.uniform(-2.0, 2.0, size=(60, 2))
    Y = np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(60, 1))
    return {"train": (X[:50], Y[:50]), "validation": (X[50:], Y[50:])}


@pytest.mark.parametrize("fit", QUICK, ids=["svgp", "svgp in batches", "exact gp", "networks"])
def test_density_is_that_of_the_moments_in_the_units_of_the_data(fit, rows, rng):
    inputs = Scaling(np.zeros(2), np.ones(2))
    moments = fit(rows, 0)
    X, Y = rows["validation"]
    mean, variance = (np.asarray(value) for value in moments(X))
    assert mean.shape == variance.shape == (10, 1)
    assert np.all(variance > 0.0)
    fitted = Fitted(moments, inputs, Scaling(np.array([5.0]), np.array([10.0])))
    found = fitted.predict_log_density((X, 10.0 * Y + 5.0))
    expected = stats.norm.logpdf(Y, mean, np.sqrt(variance))[:, 0] - np.log(10.0)
    assert_close(found, expected)


@pytest.mark.slow
def test_with_all_rows_as_inducing_points_the_sparse_gp_is_nearly_exact(rows):
    X, _ = rows["validation"]
    sparse, exact = (fit(rows, 0)(X) for fit in (peer("svgp", inducing=50), peer("exact_gp")))
    (mean, variance), (expected, of_exact) = sparse, exact
    assert np.all(np.abs(mean - expected) < 0.5 * np.sqrt(of_exact))
    assert np.all(np.abs(np.log(variance / of_exact)) < np.log(2.0))


@pytest.mark.slow
def test_an_ensemble_is_less_sure_by_the_variance_of_its_members(rows):
    ensemble = peer("network", epochs=3, members=3)
    X = rows["validation"][0]
    alone = [peer("network", epochs=3)(rows, seed)(X)[0] for seed in (0, 1000, 2000)]
    mean, variance = ensemble(rows, 0)(X)
    assert_close(mean, np.mean(alone, axis=0))
    # What is left is the noise, which is the same everywhere.
    noise = variance - np.var(alone, axis=0)
    assert_close(noise, np.full_like(noise, noise[0]))


def test_a_network_has_rows_to_stop_by_unless_none_are_wanted(tmp_path, rng):
    path = tmp_path / "rows.npz"
    np.savez(path, x=rng.normal(size=200), y=rng.normal(size=200))
    data = {"kind": "table", "path": str(path), "inputs": ["x"], "outputs": ["y"]}
    for validation, count in ((None, 18), (0.2, 36), (0.0, None)):  # of 180, as 20 are to test
        split = {"kind": "random", "validation": validation}
        experiment = Experiment.model_validate({"data": data, "split": split, "model": "network"})
        found = prepare(experiment).rows.get("validation")
        assert (None if found is None else len(found.X)) == count


def test_the_example_has_the_same_rows_for_all_methods():
    for run in read_sweep(Path(__file__).parents[3] / "examples" / "uci_sweep.yaml"):
        assert run.experiment.split.validation == 0.1


def test_what_they_refuse(rows):
    with pytest.raises(ValueError, match="max_rows is 49, but there are 50 rows"):
        peer("exact_gp", max_rows=49)(rows, 0)
    with pytest.raises(ValueError, match="needs rows to stop by"):
        peer("network")({"train": rows["train"]}, 0)
    with pytest.raises(ConfigError, match="model is 'svgp'; it is for real numbers"):
        Document("{data: mnist, model: svgp}", "here").validated(Experiment)
