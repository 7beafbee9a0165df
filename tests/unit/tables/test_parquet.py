"""Tables in files of Parquet, with an index of pandas, names twice, or types that CSV lacks."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pandas as pd
import pytest

from gpflow_gvi.tables import table_files
from gpflow_gvi.tables.prepare import prepare
from tests.tolerances import assert_close

pa = pytest.importorskip("pyarrow")
pyarrow_parquet = pytest.importorskip("pyarrow.parquet")
N = 40
SIZE, COST = np.arange(N) * 7 % 41 + 0.25, np.arange(N) * 11 % 43 + 0.5


@pytest.fixture
def file(tmp_path):
    return tmp_path / "data.parquet"


def _predicted(file, prepared):
    """The columns that are used as `predict` has them, from parts of the file."""
    parts = [canonical for _, canonical, _ in table_files.chunks(file, 15, prepared.written)]
    return pd.concat([prepared.columns.typed(part) for part in parts])


@pytest.mark.parametrize("index", ["size", "cost", ["size", "cost"]])
def test_what_pandas_takes_for_an_index_is_a_column(index, file):
    pd.DataFrame({"size": SIZE, "cost": COST, "kind": ["a", "b"] * 20}).set_index(index).to_parquet(
        file
    )
    assert set(table_files.read(file)[0]) == {"size", "cost", "kind"}
    prepared = prepare(file, "cost")
    np.testing.assert_array_equal(prepared.y, COST)
    assert prepared.columns.numbers == ["size"]
    found = _predicted(file, prepared)
    np.testing.assert_array_equal(found["size"], SIZE)
    np.testing.assert_array_equal(found.index, np.arange(N))


def test_an_index_without_a_name_and_numbers_for_names_say_nothing(file):
    table = pd.DataFrame({3: SIZE, 4: COST}, index=np.arange(N)[::-1])
    table.to_parquet(file)
    prepared = prepare(file, "4")
    assert prepared.columns.numbers == ["3"]
    assert "without a header" in prepared.columns.left_out["__index_level_0__"]
    np.testing.assert_array_equal(_predicted(file, prepared)["3"], SIZE)


def test_two_columns_of_one_name_are_refused(file):
    table = pa.Table.from_arrays([pa.array(SIZE), pa.array(COST)] * 2, ["a", "b", "c", "a"])
    pyarrow_parquet.write_table(table, file)
    for read in (table_files.read, lambda path: prepare(path, "b")):
        with pytest.raises(ValueError, match=r"two columns with one name, 'a', at \[1, 4\]"):
            read(file)
    with pytest.raises(ValueError, match="two columns with one name"):
        next(table_files.chunks(file, 10))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_are_seconds_in_any_unit(unit, file):
    seconds = pd.Series(SIZE).where(np.arange(N) != 5)
    durations = pd.to_timedelta(seconds.round(), unit="s").astype(f"timedelta64[{unit}]")
    table = pd.DataFrame({"lasts": durations, "took": durations + durations})
    table.to_parquet(file)
    prepared = prepare(file, "took")
    assert (prepared.task, prepared.columns.numbers) == ("regression", ["lasts"])
    np.testing.assert_array_equal(prepared.y, 2.0 * seconds.round().dropna())
    for found in (_predicted(file, prepared), prepared.columns.typed(table)):
        np.testing.assert_array_equal(found["lasts"], seconds.round())


def test_months_are_dates(file):
    months = np.datetime64("2019-03") + np.arange(N)
    table = pd.DataFrame({"month": pd.PeriodIndex(months, freq="M"), "cost": COST})
    table.to_parquet(file)
    days = months.astype("datetime64[D]").astype(float)
    found = _predicted(file, prepare(file, "cost"))["month (trend)"]
    assert_close(found, 1970.0 + days / 365.2425)


def test_text_is_compared_with_times_as_iso_writes_it(file):
    days = pd.date_range("2021-01-01", periods=N, freq="5D")
    pd.DataFrame({"day": days, "cost": COST}).to_parquet(file)
    dates = prepare(file, "cost").columns.dates["day"]
    text = pd.Series(["2021-02-01", "2021-02-01 06:00", "2021-02-01T08:00:00.5+02:00"], name="day")
    start = (pd.Timestamp("2021-02-01") - pd.Timestamp(0)).days
    assert_close(dates.days(text), start + np.array([0.0, 0.25, (6.0 + 0.5 / 3600.0) / 24.0]))
    with pytest.raises(ValueError, match=r"day is of dates, but it has '01\.02\.2021' in row 0"):
        dates.days(pd.Series(["01.02.2021"], name="day"))


def test_categories_of_pandas_are_the_text_that_they_stand_for(file):
    sizes = 1000 + np.arange(N) * 7 % 41
    text = pd.DataFrame({"size": [f"{size:,}" for size in sizes]})
    text["kind"], text["colour"] = ["a", "b", "NA", "a"] * 10, ["red", "NA", "red", "blue"] * 10
    categories = text.astype("category")
    categories["kind"] = categories["kind"].cat.add_categories(["no row has it"])
    for table in (text, categories):
        table.to_parquet(file)
        prepared = prepare(file, "kind")
        assert sorted(np.unique(prepared.y)) == ["a", "b"]
        found = _predicted(file, prepared)
        np.testing.assert_array_equal(found["size"], sizes)
        assert set(found["colour"]) == {"red", "blue", "missing"}


def test_categories_of_polars_are_text(file):
    """Their numbers have no sign, which pandas does not take."""
    numbers = pa.array([0, 1, None, 0] * 10, pa.uint32())
    kinds = pa.DictionaryArray.from_arrays(numbers, pa.array(["a", "b", "c"], pa.large_string()))
    pyarrow_parquet.write_table(pa.table({"kind": kinds, "cost": COST}), file)
    prepared = prepare(file, "cost")
    assert list(_predicted(file, prepared)["kind"]) == ["a", "b", "missing", "a"] * 10


def test_lists_are_text(file):
    lists = pa.array([[float(n), 1.0] if n else None for n in range(N)])
    pyarrow_parquet.write_table(pa.table({"lists": lists, "size": SIZE, "cost": COST}), file)
    prepared = prepare(file, "cost")
    assert prepared.columns.left_out == {"lists": "text that differs from row to row"}
    assert list(_predicted(file, prepared)["size"]) == list(SIZE)
    with pytest.raises(ValueError, match="target 'lists'"):
        prepare(file, "lists")


def test_columns_stay_as_they_are_beside_predictions(file, tmp_path):
    """Whatever the first part of the file has of a column, such as nothing."""
    late, prices = [None] * 20, [decimal.Decimal("1.5"), decimal.Decimal("1234.25")]
    own = pa.table(
        {
            "late": pa.array(late + [True] * 20),
            "day": pa.array(late + [datetime.date(2020, 1, 1)] * 20),
            "price": pa.array(late[:19] + prices * 10 + [prices[1]]),
            "number": pa.array([None, 2**60 + 1] * 20),
            "kind": pa.array(["a", None] * 20, pa.dictionary(pa.uint8(), pa.string())),
            "words": pa.array([[], ["a", "b"]] * 20),
        }
    )
    pyarrow_parquet.write_table(own, file)
    with table_files.writer(tmp_path / "out.parquet") as write:
        for part, canonical, written in table_files.chunks(file, 15):
            write(part, pd.DataFrame({"mean": np.arange(0.5, len(canonical))}), written)
    found = pyarrow_parquet.read_table(tmp_path / "out.parquet")
    assert found.drop_columns("mean").equals(own)
    assert_close(found["mean"].to_numpy(), np.r_[np.arange(15), np.arange(15), np.arange(10)] + 0.5)


def test_damaged_and_empty_files_are_named(file):
    pd.DataFrame({"size": SIZE}).to_parquet(file)
    content = file.read_bytes()
    for damaged in (b"size,cost\n1,2\n", content[:-9], content[:9] + bytes(40) + content[49:]):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"data.parquet cannot be read as a table \("):
            list(table_files.chunks(file, 10))
        with pytest.raises(ValueError, match=r"data.parquet cannot be read as a table \("):
            table_files.read(file)
    pd.DataFrame({"size": SIZE[:0]}).to_parquet(file)
    with pytest.raises(ValueError, match=r"data\.parquet has no rows"):
        list(table_files.chunks(file, 10))
    with pytest.raises(ValueError, match=r"data\.parquet has no rows"):
        table_files.read(file)
