"""The page: first a verdict in words, then pictures of columns as they are in the table."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics

from gpflow_gvi.__main__ import main
from gpflow_gvi.tables import learn_table, model_page
from gpflow_gvi.tables.model_page import dependence, write_page
from tests.tolerances import assert_close

N = 120
DAYS = pd.date_range("2015-01-01", periods=N, freq="15D")


def _outcome(folder, table, **options):
    table.to_csv(folder / "data.csv", index=False)
    return learn_table(folder / "data.csv", "y", effort="fast", predictor="none", **options)


def _page(outcome, folder):
    write_page(outcome, folder / "data.csv", folder / "page.html")
    return (folder / "page.html").read_text("utf-8")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    kind = rng.choice(["red", "green", "blue"], N)
    size = rng.random(N)
    season = np.sin(2.0 * np.pi * np.arange(N) * 15.0 / 365.2425)
    y = 4.0 * size + 3.0 * (kind == "red") + 3.0 * season + 0.1 * rng.normal(size=N)
    return pd.DataFrame({"day": DAYS, "size": size, "kind": kind, "y": y})


@pytest.fixture(scope="module")
def learned(table, tmp_path_factory):
    return _outcome(tmp_path_factory.mktemp("page"), table, split="random")


def test_the_verdict_is_that_of_the_predictions(learned, tmp_path):
    rows, y = learned.held_out
    predicted = learned.model.predict(rows, 0.9)
    explained = sklearn.metrics.r2_score(y, predicted["y_mean"])
    held = np.mean((predicted["y_lower"] <= y) & (y <= predicted["y_upper"]))
    said = learned.scores.verdict
    assert f"explains {100 * explained:.0f} % of the variance of y in {len(y)} rows" in said
    assert f"90 % intervals held {100 * held:.0f} % of them" in said
    assert_close(learned.scores.table["R²"][0], explained)
    error = sklearn.metrics.mean_absolute_error(y, predicted["y_mean"])
    assert_close(learned.scores.table["mae"][0], error)
    page = _page(learned, tmp_path)
    assert page.index(said) < page.index("<img")
    assert re.search(r'class="(verdict )?useless', page) is None
    assert page.index("<details>") < page.index("untrained (P is already optimal)")


@pytest.mark.slow
def test_a_model_that_is_worse_than_no_inputs_is_said_to_be(tmp_path):
    x = np.random.default_rng(0).uniform(-1.0, 1.0, N)
    turned = np.where(np.arange(N) < 0.8 * N, x, -x)  # what was learned turns in the last rows
    outcome = _outcome(tmp_path, pd.DataFrame({"day": DAYS, "x": x, "y": 5.0 * turned}))
    assert outcome.by_time == "day"
    assert outcome.scores.verdict.startswith("It explains nothing")
    assert outcome.scores.verdict.endswith("Worse than no inputs: do not use it.")
    assert "too narrow" in outcome.scores.calibration
    page = _page(outcome, tmp_path)
    assert '<p class="verdict useless">' in page
    assert "the last ones by day" in page


@pytest.mark.slow
def test_a_model_that_may_be_no_better_than_chance_is_said_to_be(tmp_path):
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"x": rng.random(60), "y": rng.normal(size=60)})
    assert re.search("chance: no inputs|Worse than no inputs", str(_outcome(tmp_path, table)))


@pytest.mark.slow
@pytest.mark.parametrize("count", [23, 24])
def test_held_out_rows_of_a_class_that_was_not_learned_count(count, tmp_path):
    """They are wrong, whatever is predicted: the last rows in time have a class of their own."""
    x = np.random.default_rng(0).normal(size=N)
    kinds = np.where(x > 0.0, "many", "few").astype(object)
    kinds[-count:] = "rare"
    outcome = _outcome(tmp_path, pd.DataFrame({"day": DAYS, "x": x, "y": kinds}))
    rows, y = outcome.held_out
    predicted = outcome.model.predict(rows)
    right = np.mean(predicted["y_label"] == kinds[-24:])
    assert len(y) == 24
    assert outcome.scores.table["accuracy"][0] == right
    misses = [
        sum((predicted[f"p({kind})"][i] - (kinds[i] == kind)) ** 2 for kind in ("few", "many"))
        + (kinds[i] == "rare")
        for i in range(N - 24, N)
    ]
    assert_close(outcome.scores.table["brier"][0], np.mean(misses))
    said = f"rightly in {100 * right:.0f} % of 24 rows"
    assert said in outcome.scores.verdict
    assert f"No row that it learned from is rare, as {count} are." in outcome.scores.verdict
    assert said in _page(outcome, tmp_path)


def test_a_category_and_a_date_are_one_column_each(learned):
    model = learned.model
    assert set(model.feature_groups_) == {"day", "size", "kind"}
    assert len(model.feature_groups_["kind"]) == 3
    places = np.concatenate(list(model.feature_groups_.values()))
    assert sorted(places) == list(range(len(model.feature_names_in_)))


def test_a_category_is_drawn_by_its_levels(learned, table):
    drawn = dependence(model := learned.model, table, ["kind", "size", "day"])
    assert sorted(drawn.panels[0].levels) == ["blue", "green", "red"]
    few = table.sample(50, random_state=0)  # the rows that are averaged over
    for level, mean in zip(drawn.panels[0].levels, drawn.means[0], strict=True):
        X = model.inputs(few.assign(kind=level))
        assert_close(mean[0], np.mean(model.learned_.predict_f(X)[0]))
    mean = dict(zip(drawn.panels[0].levels, drawn.means[0][:, 0], strict=True))
    for other in ("green", "blue"):
        assert abs(mean["red"] - mean[other] - 3.0) < 0.5
    years = drawn.panels[2].grid
    assert 2015.0 <= years[0] < years[-1] < 2020.0
    assert np.ptp(drawn.means[2]) > 4.0  # the season goes from -3 to 3


@pytest.mark.slow
def test_a_column_with_no_value_in_the_rows_learned_from_and_names_that_clash(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"day": DAYS, "kind_a": rng.random(N), "kind": rng.choice(list("abc"), N)})
    late = np.where(np.arange(N) >= 0.9 * N, rng.random(N), np.nan)
    outcome = _outcome(tmp_path, table.assign(late=late, y=table["kind_a"]))
    assert outcome.model.feature_names_in_.count("kind_a") == 2
    assert "late" in outcome.model.feature_groups_
    assert _page(outcome, tmp_path).count("<img") == 4


@pytest.mark.slow
def test_columns_with_no_value_in_the_last_rows_are_drawn_after_the_outcome_is_said(
    tmp_path, monkeypatch, capsys
):
    rng = np.random.default_rng(0)
    is_late = np.arange(N) >= 0.7 * N
    table = pd.DataFrame({"day": DAYS, "old": np.where(is_late, np.nan, rng.random(N))})
    table["since"] = table["day"].mask(is_late)
    table["x"] = rng.random(N)
    table.assign(y=table["x"]).to_csv(tmp_path / "data.csv", index=False)

    def write(outcome, *places):
        assert str(outcome) in capsys.readouterr().out
        write_page(outcome, *places)

    monkeypatch.setattr(model_page, "write_page", write)
    command = ["learn", str(tmp_path / "data.csv"), "--target", "y", "--effort", "fast"]
    model = tmp_path / "model"
    assert main([*command, "--predictor", "none", "--output", str(model)]) == 0
    assert (model / "report.html").read_text("utf-8").count("<img") == 4
