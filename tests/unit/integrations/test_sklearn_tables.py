"""Tables of pandas: types with missing values of their own, and columns that are no numbers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import cross_validate

import gpflow_gvi as gvi
from tests.tolerances import assert_close

pd = pytest.importorskip("pandas")
N = 24
FAST = {"effort": "fast", "predictor": None, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    """Whole numbers, so that every type can have them; y follows them."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"count": rng.integers(0, 9, N), "flag": rng.integers(0, 2, N)})
    return X, X["count"] + 4 * X["flag"]


TYPES = {
    "nullable": ("Int64", "boolean", "Float64"),
    "categories": ("category", "category", "int64"),
    "arrow": ("int64[pyarrow]", "bool[pyarrow]", "double[pyarrow]"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES)
def test_types_of_pandas_are_cross_validated_as_numbers_are(kind, data):
    X, y = data
    count, flag, target = TYPES[kind]
    table = X.assign(flag=X["flag"] > 0).astype({"count": count, "flag": flag})
    model = gvi.GVIRegressor(**FAST)
    expected = cross_validate(model, X.astype(float), y.astype(float), cv=2)["test_score"]
    found = cross_validate(model, table, y.astype(target), cv=2, error_score="raise")
    assert_close(found["test_score"], expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["string", "category", "boolean"])
def test_labels_of_any_type_are_cross_validated(kind, data):
    X, y = data
    labels = (
        (y > 6).astype("boolean") if kind == "boolean" else (y > 6).map({True: "a", False: "b"})
    )
    model = gvi.GVIClassifier(effort="fast", random_state=0)
    found = cross_validate(model, X.astype("Float64"), labels.astype(kind), cv=2)
    assert np.all(found["test_score"] > 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["boolean", "object"])
def test_values_that_are_missing_to_pandas_are_left_out(kind, data):
    X, y = data
    y = (y > 6).astype("boolean") if kind == "boolean" else y.astype("Int64").astype(kind)
    rows = np.delete(np.arange(N), 3)
    numbers = y.iloc[rows].astype(float)
    expected = gvi.GVIRegressor(**FAST).fit(X.iloc[rows], numbers).predict(X)
    y[3] = pd.NA
    model = gvi.GVIRegressor(**FAST, missing="ignore").fit(X, y)
    assert_close(model.predict(X), expected)
    assert_close(model.score(X, y), model.score(X.iloc[rows], numbers))


MISSING = {
    "string": ["a", "b"] * (N // 2),
    "category": ["a", "b"] * (N // 2),
    "boolean": [True, False] * (N // 2),
    "object": ["a", "b"] * (N // 2),
}


@pytest.mark.parametrize("kind", MISSING)
def test_a_label_that_is_missing_is_told_by_its_row(kind, data):
    y = pd.Series([*MISSING[kind][:-1], pd.NA], dtype=kind)
    message = f"has missing values in 1 of {N} rows .the first is row {N - 1}.. Leave these rows"
    for learn in (gvi.GVIClassifier().fit, lambda X, y: gvi.learn((X, y))):
        with pytest.raises(ValueError, match=f"[yY] {message}"):
            learn(data[0], y)


COLUMNS = {
    "dates": (
        pd.date_range("2020", periods=N),
        r"X\['c'\] has dtype datetime64.*timedelta64\(1, 'D'",
    ),
    "zones": (pd.date_range("2020", periods=N, tz="UTC"), r"X\['c'\] has dtype datetime64.*UTC"),
    "durations": (pd.to_timedelta(np.arange(N), unit="s"), r"X\['c'\] has dtype timedelta64.*Pass"),
    "complex": (np.arange(N) * 1j, r"X\['c'\] has dtype complex128.*numpy.real\(X\['c'\]\)\.$"),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_of_no_real_numbers_is_named(kind, data):
    X, y = data
    values, message = COLUMNS[kind]
    table = X.assign(c=values)
    for learn in (gvi.GVIRegressor().fit, gvi.GVIClassifier().fit, lambda X, y: gvi.learn((X, y))):
        with pytest.raises(TypeError, match=message):
            learn(table, y)


@pytest.mark.parametrize("kind", ["zones", "times"])
def test_a_column_of_dates_of_polars_is_named(kind, data):
    polars = pytest.importorskip("polars")
    dates = polars.Series(pd.date_range("2020", periods=N).to_numpy())
    column = {
        "zones": dates.dt.replace_time_zone("UTC"),
        "times": dates.dt.time(),
    }[kind]
    X, y = data
    table = polars.DataFrame({"a": X["count"].to_numpy(), "c": column})
    for learn in (gvi.GVIRegressor().fit, gvi.GVIClassifier().fit, lambda X, y: gvi.learn((X, y))):
        with pytest.raises(TypeError, match=r"X\['c'\] has dtype .*X\['c'\].to_physical\(\)"):
            learn(table, y.to_numpy())


@pytest.mark.parametrize("absent", [pd.NA, None, np.nan, pd.NaT])
def test_inputs_that_are_missing_among_objects_are_no_text(absent, data):
    X, y = data
    table = X.astype(object)
    table.loc[5, "count"] = absent
    message = f"X has missing values in 1 of {N} rows .the first is row 5"
    with pytest.raises(ValueError, match=message):
        gvi.GVIRegressor().fit(table, y)
    with pytest.raises(ValueError, match=r"X or y .* 0 sample"):
        gvi.GVIRegressor().fit(table[:0], y[:0])
