"""Rows of Parquet files: the same as of arrays, and columns that are refused by their names."""

from __future__ import annotations

import decimal

import numpy as np
import pandas as pd
import pytest

import gpflow_gvi as gvi
from gpflow_gvi.learning import ParquetRows, Settings
from gpflow_gvi.learning.rows.split import Split

pytest.importorskip("pyarrow", reason="an extra")
N = 120


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    columns = {
        "x": rng.uniform(10.0, 16.0, N),
        "count": rng.integers(0, 9, N),
        "flag": rng.random(N) < 0.5,
        "price": [decimal.Decimal(int(n)) / 4 for n in rng.integers(0, 9, N)],
    }
    y = np.sin(columns["x"]) + 0.1 * columns["count"] + 0.1 * rng.normal(size=N)
    return pd.DataFrame({"y": y, **columns})


@pytest.fixture
def path(table, tmp_path):
    table.to_parquet(tmp_path / "rows.parquet", row_group_size=50)
    return tmp_path / "rows.parquet"


def _joined(rows, size=32):
    blocks = list(rows.blocks(size))
    assert max(len(X) for X, _ in blocks) <= size
    return tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True))


def test_columns_are_by_name(path, table):
    X, Y = _joined(ParquetRows(path, "y"))
    np.testing.assert_array_equal(X, table[["x", "count", "flag", "price"]].astype(float))
    np.testing.assert_array_equal(Y, table[["y"]])
    X, Y = _joined(ParquetRows(str(path), ["x", "y"], columns=["flag", "count"]))
    np.testing.assert_array_equal(X, table[["flag", "count"]].astype(float))
    np.testing.assert_array_equal(Y, table[["x", "y"]])


def test_files_of_a_folder_follow_each_other(table, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(3):
        table[40 * i : 40 * i + 40].to_parquet(folder / f"part-{i}.parquet")
    X, Y = _joined(ParquetRows(folder, "y"))
    np.testing.assert_array_equal(X[:, 0], table["x"])
    np.testing.assert_array_equal(Y[:, 0], table["y"])


def test_files_of_other_columns_are_refused(table, tmp_path):
    (tmp_path / "none").mkdir()
    for i, other in enumerate([table, table.drop(columns="count")]):
        other.to_parquet(tmp_path / f"part-{i}.parquet")
    with pytest.raises(ValueError, match=r"columns has 'count', of which .*part-1\.parquet has 0"):
        ParquetRows(tmp_path, "y")
    with pytest.raises(FileNotFoundError, match=r"nor a folder of files \*\.parquet"):
        ParquetRows(tmp_path / "none", "y")


def test_an_index_of_pandas_is_no_column(table, tmp_path):
    for name in (None, "row"):
        shuffled = table.sample(frac=1.0, random_state=0).rename_axis(name)
        shuffled.to_parquet(tmp_path / "rows.parquet")
        assert ParquetRows(tmp_path / "rows.parquet", "y").columns == list(table.columns[1:])


def test_the_rows_are_split_as_arrays_are(path, table):
    X, Y = table.drop(columns="y").astype(float), table["y"]
    split = Split.of(ParquetRows(path, "y"), Settings())
    expected = Split.of((X, Y), Settings())
    for found, of_arrays in zip(split.train, expected.train, strict=True):
        np.testing.assert_array_equal(found, of_arrays)


def test_a_target_of_booleans_is_of_labels(table, tmp_path):
    table.assign(high=table["y"] > 0.5).to_parquet(tmp_path / "labels.parquet")
    rows = ParquetRows(tmp_path / "labels.parquet", "high", columns=["x", "count"])
    learned = gvi.learn(rows, effort="fast")
    assert [known is True for known in learned.classes_.tolist()] == [False, True]
    assert np.mean(learned.predict(table[["x", "count"]]) == (table["y"] > 0.5)) > 0.9


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"target": "z"}, ValueError, "target has 'z', of which .* 0 columns.*y, x, count"),
        ({"target": "y", "columns": ["x", "u"]}, ValueError, "columns has 'u'"),
        ({"target": "y", "columns": ["x", "y"]}, ValueError, r"\['y'\] are in columns and in"),
        ({"target": "y", "columns": []}, ValueError, "columns names no column"),
        ({"target": []}, ValueError, "target names no column"),
    ],
)
def test_columns_that_are_not_there_are_refused(path, options, kind, message):
    with pytest.raises(kind, match=message):
        ParquetRows(path, **options)


@pytest.mark.parametrize(
    ("values", "kind"),
    [(["a", "b"] * 60, "string"), (pd.date_range("2020", periods=N), "timestamp")],
)
def test_columns_that_are_no_numbers_are_refused_by_name(table, tmp_path, values, kind):
    table.assign(other=values).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(TypeError, match=f"column 'other' .*type .*{kind}.*columns"):
        ParquetRows(tmp_path / "rows.parquet", "y")
    assert ParquetRows(tmp_path / "rows.parquet", "y", columns=["x"]).columns == ["x"]


@pytest.mark.parametrize("column", ["x", "flag"])
def test_missing_values_are_refused_by_column_and_row(table, tmp_path, column):
    table = table.convert_dtypes()
    table.loc[70, column] = None
    table.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=f"column '{column}' .*missing values, .*row 70"):
        gvi.learn(ParquetRows(tmp_path / "rows.parquet", "y"))


def test_integers_that_no_float_holds_are_refused(table, tmp_path):
    table.assign(key=2**60 + np.arange(N)).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(TypeError, match=r"column 'key' .*no float holds"):
        gvi.learn(ParquetRows(tmp_path / "rows.parquet", "y"))


def test_what_is_no_parquet_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"rows\.parquet, which is neither a file"):
        ParquetRows(tmp_path / "rows.parquet", "y")
    (tmp_path / "rows.parquet").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match="no readable Parquet file"):
        ParquetRows(tmp_path / "rows.parquet", "y")
