"""What was learned, in words."""

from __future__ import annotations

import dataclasses

import gpflow
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import gpflow_gvi as gvi
from tests.tolerances import assert_estimates

KERNELS = [gpflow.kernels.SquaredExponential, gpflow.kernels.Linear]


def _line(N=60):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(N, 2))
    return X, 50.0 * np.sin(X[:, :1]) + 5.0 * rng.normal(size=(N, 1))


@pytest.fixture(scope="module")
def learned():
    kernels = [kind() for kind in KERNELS]
    return gvi.learn(_line(), kernel=kernels, predictor=LinearRegression(), num_inducing=20)


def test_says_what_won_and_what_it_was_compared_with(learned):
    summary = learned.summary()
    text = str(summary)
    assert summary.facts["kernel of P"] == type(learned.regulariser.prior.kernel).__name__
    assert "LinearRegression (5 folds)" in summary.facts["mean of P"]
    assert summary.facts["inducing points"] == "20"
    for kind in KERNELS:
        assert f"{kind.__name__}, fitted to 60 rows" in text
    scores = [stage.facts["nll"] for stage in summary.candidates]
    assert scores == sorted(scores)
    (taken,) = summary.taken
    assert taken.what.startswith("P: SquaredExponential around predictors")


def test_scores_are_densities_in_original_units():
    """Of rows that were left out: near those of new rows."""
    learned = gvi.learn(_line(N=300), kernel=gpflow.kernels.SquaredExponential())
    (stage,) = [s for s in learned.record.stages if "nll_before" in s.facts]
    X, Y = (part[300:] for part in _line(N=2300))
    densities = np.asarray(learned.predict_log_density((X, Y)))
    error = np.std(densities) * np.sqrt(1.0 / 300 + 1.0 / 2000)
    assert_estimates(stage.facts["nll_after"], -np.mean(densities), error)
    assert stage.facts["nll_after"] <= stage.facts["nll_before"]


def test_a_line_represents_it(learned):
    line = repr(learned)
    assert line.startswith("<Learned PGVI")
    assert "\n" not in line
    assert len(line) < 250


def test_the_record_is_saved(learned, tmp_path):
    learned.save(tmp_path / "model")
    loaded = gvi.load(tmp_path / "model")
    assert loaded.record == learned.record
    assert str(loaded.summary()) == str(learned.summary())


def test_a_model_without_a_record_has_a_summary_too(learned):
    summary = dataclasses.replace(learned, record=None).summary()
    assert summary.candidates == []
    assert "fitted in" not in summary.facts


@pytest.mark.slow
def test_verbose_prints_the_stages_and_nothing_else_does(capsys):
    kernel = gpflow.kernels.SquaredExponential()
    gvi.learn(_line(30), kernel=kernel, num_inducing=5)
    assert capsys.readouterr().out == ""
    learned = gvi.learn(_line(30), kernel=kernel, num_inducing=5, epochs=1, verbose=1)
    said = capsys.readouterr().out.splitlines()
    assert [line.split(" ... ")[0] for line in said] == [
        stage.what for stage in learned.record.stages
    ]
    assert "training Q on 20 rows, up to epoch 1" in [s.what for s in learned.record.stages]


def test_fit_regulariser_says_its_rounds(capsys):
    gvi.fit_regulariser(_line(30), gpflow.kernels.SquaredExponential(), 5, verbose=1)
    said = capsys.readouterr().out
    assert said.startswith("P: SquaredExponential, fitted to 30 rows, round 1 ... log evidence ")
