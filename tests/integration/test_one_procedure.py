"""`learn`, the estimators and experiments are one procedure with one set of defaults."""

from __future__ import annotations

import inspect

import gpflow
import numpy as np
import pytest
import yaml

import gpflow_gvi as gvi
from gpflow_gvi.experiments import ConfigError, read
from gpflow_gvi.experiments.data_sets import load
from gpflow_gvi.experiments.run import prepare, run
from gpflow_gvi.learning import one_call
from tests.tolerances import ITERATIVE, assert_close

SEED = int(np.random.RandomState(0).randint(2**31 - 1))  # what an estimator makes of 0


PLAIN = [
    *("temper", "refit", "validation_fraction", "calibration_fraction"),
    *("standardise", "likelihood", "seed"),
]


@pytest.fixture
def write(tmp_path, rng, monkeypatch):
    """Write a table, and a YAML file that names it; return its experiment."""

    def write(**settings):
        X = rng.uniform(100.0, 106.0, size=(66, 1))
        Y = 1e4 * (3.0 + np.sin(X - 100.0) + 0.1 * rng.normal(size=X.shape))
        table = np.column_stack([X, Y])
        np.savetxt(tmp_path / "own.csv", table, delimiter=",", header="x,y", comments="")
        data = {"kind": "table", "path": "own.csv", "inputs": ["x"], "outputs": ["y"]}
        (tmp_path / "experiment.yaml").write_text(yaml.safe_dump({"data": data, **settings}))
        monkeypatch.chdir(tmp_path)
        return read(tmp_path / "experiment.yaml")

    return write


def _learned(experiment):
    learned = gvi.load(run(experiment, pictures=False) / "model")
    rows = load(experiment.data, experiment.split, seed=experiment.seed)
    return learned, rows["train"]


def test_the_settings_of_a_file_without_any_are_those_of_learn(write, monkeypatch):
    class GivenError(Exception):
        pass

    def stop(split, settings):
        raise GivenError(split, settings)

    monkeypatch.setattr(one_call, "Procedure", stop)
    experiment = write()
    prepared = prepare(experiment)
    rows = load(experiment.data, experiment.split, seed=experiment.seed)["train"]
    with pytest.raises(GivenError) as raised:
        gvi.learn(tuple(rows))
    split, expected = raised.value.args
    for ours, theirs in zip(prepared.split.train, split.train, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert _described(prepared.settings) == _described(expected)


def _described(settings):
    """What can be compared of settings: some are functions that each caller builds anew."""
    regulariser, model, training = settings.regulariser, settings.model, settings.training
    optimizer = training.optimizer(100).get_config()
    select = inspect.signature(regulariser.select).parameters.values()
    return {
        **{name: getattr(settings, name) for name in PLAIN},
        "inducing points": regulariser.count(1000),
        "rows, rounds": (regulariser.max_rows, regulariser.max_rounds),
        "evidence": (type(regulariser.evidence), vars(regulariser.evidence)),
        "select": {parameter.name: parameter.default for parameter in select},
        "minimise": regulariser.minimise,
        "model": (model.divergence_weight, model.train_likelihood),
        "training": (type(training), training.schedule(1000), training.early_stopping),
        "optimizer": {name: value for name, value in optimizer.items() if name != "name"},
    }


@pytest.mark.slow
def test_a_file_without_settings_is_learn_without_settings(write):
    learned, (X, Y) = _learned(write())
    expected = gvi.learn((X, Y))
    assert int(learned.model.num_data) == len(X) == 59  # those held out have joined in the end
    for ours, theirs in zip(learned.predict_y(X), expected.predict_y(X), strict=True):
        assert_close(ours, theirs, ITERATIVE)
    assert list(learned.history) == list(expected.history)
    for name, values in expected.history.items():
        assert_close(learned.history[name], values, ITERATIVE)


QUICK = {
    "regulariser": {"kernel": "squared_exponential", "inducing": 8},
    "optimiser": {"kind": "adam", "learning_rate": 0.01},
    "training": {"epochs": 2, "batch_size": 30},
    "divergence": {"kind": "projected_renyi", "weight": 0.3},
    "calibration": {"kind": "conformal", "fraction": 0.2, "coverage": 0.8},
    "seed": SEED,
}


@pytest.mark.slow
def test_an_estimator_with_the_settings_of_a_file_predicts_the_same(write):
    pytest.importorskip("sklearn")
    learned, (X, Y) = _learned(write(**QUICK))
    regressor = gvi.GVIRegressor(
        kernel=gpflow.kernels.SquaredExponential(lengthscales=[1.0]),
        num_inducing=8,
        learning_rate=0.01,
        epochs=2,
        batch_size=30,
        divergence_weight=0.3,
        calibration_fraction=0.2,
        random_state=0,
    ).fit(X, Y[:, 0])
    assert_close(regressor.predict(X), learned.predict_y(X)[0][:, 0], ITERATIVE)
    for ours, theirs in zip(
        regressor.predict_interval(X, 0.8), learned.predict_interval(X, 0.8), strict=True
    ):
        assert_close(ours, theirs[:, 0], ITERATIVE)


@pytest.mark.slow
def test_rows_for_validation_that_data_name_are_validation_data(tmp_path):
    settings = {name: part for name, part in QUICK.items() if name != "calibration"}
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump({"data": {"kind": "curve", "number": 1}, **settings}))
    experiment = read(path)
    learned = gvi.load(run(experiment, tmp_path, pictures=False) / "model")
    rows = experiment.data.load()
    expected = gvi.learn(
        rows["train"],
        kernel=gpflow.kernels.SquaredExponential(lengthscales=[1.0]),
        validation_data=rows["validation"],
        num_inducing=8,
        divergence_weight=0.3,
        learning_rate=0.01,
        epochs=2,
        batch_size=30,
        seed=SEED,
    )
    assert int(learned.model.num_data) == len(rows["train"].X)
    X = rows["test"].X
    for ours, theirs in zip(learned.predict_y(X), expected.predict_y(X), strict=True):
        assert_close(ours, theirs, ITERATIVE)


@pytest.mark.slow
@pytest.mark.parametrize("mean", ["constant", "linear"])
def test_the_mean_of_p_is_fitted_with_its_hyper_parameters(write, mean):
    """It is the generalised least squares of the observations (Rasmussen and Williams, 2.45)."""
    minimise = {"kind": "lbfgs", "max_iterations": 1000, "tolerance": 1e-15}
    regulariser = {"kernel": "matern12", "mean": mean, "minimise": minimise, "inducing": 100}
    learned, rows = _learned(write(regulariser=regulariser))
    X, Y = (np.asarray(part) for part in (learned.inputs.standard(rows.X), rows.Y))
    Y = np.asarray(learned.outputs.standard(Y))
    P = learned.regulariser
    H = np.ones_like(X) if mean == "constant" else np.c_[X, np.ones_like(X)]
    noise = np.ravel(P.likelihood.variance)[0] * np.eye(len(X))
    weighted = np.linalg.solve(P.prior.kernel(X).numpy() + noise, H)
    expected = np.linalg.solve(H.T @ weighted, weighted.T @ Y)
    new = np.array([[-3.0], [5.0]])
    H = np.ones_like(new) if mean == "constant" else np.c_[new, np.ones_like(new)]
    assert_close(P.prior.mean_function(new), H @ expected, ITERATIVE, scale=1.0)


def test_a_mean_of_p_leaves_nothing_to_be_around_of(write):
    with pytest.raises(ConfigError, match="with mean: linear there is none"):
        write(regulariser={"mean": "linear", "predictors": "recipe"})
