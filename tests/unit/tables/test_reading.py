"""Tables as people have them: with semicolons, decimal commas, percent signs, dates and slips."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma

import numpy as np
import pandas as pd
import pytest

from gpflow_gvi.tables import table_files
from gpflow_gvi.tables.columns import Columns
from gpflow_gvi.tables.dates import Dates
from gpflow_gvi.tables.learn import _split
from gpflow_gvi.tables.prepare import prepare, target_of
from tests.tolerances import assert_close

SIZES = [1234.5, -0.25, 3.0, 1000000.0]

WRITTEN = {
    "plain": ("size,kind\n1234.5,a\n-0.25,b\n3,a\n1000000,b\n", "utf-8"),
    "quoted thousands": ('size,kind\n"1,234.50",a\n-0.25,b\n3.0,a\n"1,000,000",b\n', "utf-8"),
    "semicolons": ("size;kind\n1234,5;a\n-0,25;b\n3;a\n1.000.000;b\n", "utf-8"),
    "tabs": ("size\tkind\n1.234,5\ta\n-0,25\tb\n3,00\ta\n1000000\tb\n", "utf-8"),
    "bars": ("size|kind\n1234.5|a\n-.25|b\n3.|a\n1e6|b\n", "utf-8"),
    "percent": ("size;kind\n1234,5 %;a\n-0,25 %;b\n3%;a\n1000000 %;b\n", "utf-8"),
    "losses": ('size,kind\n"1,234.50",a\n(0.25),b\n3,a\n"$1,000,000",b\n', "utf-8"),
    "currency": ('size,kind\n"$1,234.5",a\n-$0.25,b\n3 €,a\n£1000000,b\n', "utf-8"),
    "spaces": ("size;kind\n1 234,5;a\n−0,25;b\n3;a\n1\u202f000\u00a0000;b\n", "utf-8"),
    "byte order mark": ("size,kind\n1234.5,a\n-0.25,b\n3,a\n1000000,b\n", "utf-8-sig"),
    "UTF-16": ("size\tkind\n1234,5\ta\n-0,25\tb\n3\ta\n1000000\tb\n", "utf-16"),
    "Windows": ("size;kind\n1234,5;ä\n-0,25;b\n3;ä\n1000000;b\n", "cp1252"),
    "commas in the header": ('"size";"kind, or so"\n1234,5;a\n-0,25;b\n3;a\n1000000;b\n', "utf-8"),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_numbers_are_read_as_they_are_meant(case, tmp_path):
    text, encoding = WRITTEN[case]
    (tmp_path / "data.csv").write_bytes(text.encode(encoding))
    table, _ = table_files.read(tmp_path / "data.csv")
    assert_close(table["size"], SIZES)
    assert list(table.iloc[:, 1]) == (["ä", "b"] * 2 if encoding == "cp1252" else ["a", "b"] * 2)
    ((_, canonical, _),) = table_files.chunks(tmp_path / "data.csv", 10)
    assert_close(Columns.of(table).typed(canonical)["size"], SIZES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x;y\n1,234;a\n5,678;b\n", [1.234, 5.678]),  # the comma that semicolons make room for
        ('x,y\n"1,234",a\n"5,678",b\n', [1234.0, 5678.0]),
        ("x;y\n0.998;a\n7.125;b\n", [0.998, 7.125]),
        ("x;y;z\n1.234;1,5;a\n5.678;2,5;b\n", [1234.0, 5678.0]),
        ("x;y\n999;a\n1.234;b\n", [999.0, 1234.0]),  # a decimal 999 would be 999.000
        ("x;y\n1234;a\n1.234;b\n", [1234.0, 1.234]),
        ("x;y\n999;a\n1.234;b\n5.6;c\n", [999.0, 1.234, 5.6]),
        ("x;y\n1.234.567;a\n1.234;b\n", [1234567.0, 1234.0]),
        ("x;y\n1,234,567;a\n1,234;b\n", [1234567.0, 1234.0]),
        ("x\ty\n1.234.567\ta\n1.234\tb\n", [1234567.0, 1234.0]),
        ("x,y\n1.234,192.168.100.200\n999,a\n", [1.234, 999.0]),
    ],
)
def test_the_file_decides_what_a_comma_and_a_point_are(text, expected, tmp_path):
    (tmp_path / "data.csv").write_text(text)
    assert_close(table_files.read(tmp_path / "data.csv")[0]["x"], expected)


def test_the_whole_file_decides_not_its_first_part(tmp_path):
    (tmp_path / "data.csv").write_text("x;y\n1;a\n2;b\n1,234;a\n3;b\n2,5;a\n")
    parts = [part["x"] for _, part, _ in table_files.chunks(tmp_path / "data.csv", 2)]
    assert list(pd.concat(parts)) == ["1", "2", "1.234", "3", "2.5"]


@pytest.mark.parametrize(
    ("learned", "new", "expected"),
    [
        ("x;y\n1.234;1,5\n5;2,5\n", "x;z\n1.234;1\n7;2\n", ["1234", "7"]),
        ("x;y\n1,234;1.5\n5;2.5\n", "x;z\n1,234;1\n7;2\n", ["1234", "7"]),
        ("x;y\n2,5;1,5\n5;2,5\n", "x\n1,5\n7\n", ["1.5", "7"]),
        ("x;y\n2,5;1,5\n5;2,5\n", "x,z\n1.5,3\n7,3\n", ["1.5", "7"]),
        ('x,y\n"1,234",1.5\n5,2.5\n', "x;z\n1,234;1\n0,5;2\n", ["1.234", "0.5"]),
        ('x,y\n"2,5",1\n5,2\n', 'x,z\n"1,234",1\n7,2\n', ["1.234", "7"]),
    ],
)
def test_what_a_file_leaves_open_is_as_in_the_one_learned_from(learned, new, expected, tmp_path):
    (tmp_path / "data.csv").write_text(learned)
    (tmp_path / "new.csv").write_text(new)
    like = prepare(tmp_path / "data.csv", "y", task="regression").written
    assert table_files.TextFormat.of(tmp_path / "new.csv", like).names[0] == "x"
    ((_, part, _),) = table_files.chunks(tmp_path / "new.csv", 10, like)
    assert list(part["x"]) == expected


CLOCKS = "druck{0}uhrzeit{0}y\n0,610{0}00.00{0}1,219\n0,715{0}12.30{0}2,450\n"
LISTS = 'size,on,price\n{}"1,2",560\n{}"2,3","5,805"\n{}"1,3","1,200"\n'

AT_ODDS = {
    "clocks": (CLOCKS.format(";"), {"druck": [0.61, 0.715], "y": [1.219, 2.45]}, "'uhrzeit' has"),
    "tabs": (CLOCKS.format("\t"), {"druck": [0.61, 0.715], "uhrzeit": [0.0, 12.3]}, "'druck' has"),
    "places": ("a;lat\n2,5;8.5\n1,250;48.137\n", {"a": [2.5, 1.25], "lat": [8.5, 48.137]}, "'lat'"),
    "lists": (LISTS.format("1,", "2,", "3,"), {"price": [560.0, 5805.0, 1200.0]}, "'on' has '1,2'"),
    "lists beside points": (
        LISTS.format("1.5,", "2.5,", "3.5,"),
        {"size": [1.5, 2.5, 3.5], "price": [560.0, 5805.0, 1200.0]},
        r"'on' has '1,2' \(read as text\), column 'size' has '1\.5' \(read as 1\.5\)",
    ),
    "both in one": (
        "a;b\n0,5;x\n3.5;y\n1,250;z\n",
        {"a": [0.5, 3.5, 1.25]},
        "'a' has '0,5' .* and",
    ),
}


@pytest.mark.parametrize("case", AT_ODDS)
def test_columns_with_commas_and_points_are_each_read_by_what_is_in_them(case, tmp_path):
    text, expected, warning = AT_ODDS[case]
    (tmp_path / "data.csv").write_text(text)
    with pytest.warns(UserWarning, match=f"a decimal comma and some a decimal point: .*{warning}"):
        table, _ = table_files.read(tmp_path / "data.csv")
    for name, numbers in expected.items():
        assert_close(table[name], numbers)


@pytest.mark.parametrize("other", ["1.2 or so", "01.02.2016", "1.10.2", "3.5 of it"])
def test_text_says_nothing_about_numbers(other, tmp_path):
    (tmp_path / "data.csv").write_text(f"a;b\n0,610;{other}\n1,219;{other}\n2,000;3.5\n")
    assert_close(table_files.read(tmp_path / "data.csv")[0]["a"], [0.61, 1.219, 2.0])
    (tmp_path / "data.csv").write_text('a,b\n560,"1,2,3"\n"5,805","1,2"\n"1,200","2,3,4"\n')
    assert_close(table_files.read(tmp_path / "data.csv")[0]["a"], [560.0, 5805.0, 1200.0])


def test_a_group_of_thousands_does_not_begin_with_zero(tmp_path):
    (tmp_path / "data.csv").write_text('a,b\n1.5,x\n2.5,y\n"0,610",z\n')
    with pytest.warns(UserWarning, match=r"column 'a' has '0,610' \(read as text\)"):
        assert table_files.read(tmp_path / "data.csv")[0]["a"].tolist() == ["1.5", "2.5", "0,610"]


@pytest.mark.parametrize("more", ["n\n0,500;{}3.5\n7;{}4.25\n", "n\n2,500;{}3.5\n7;{}4.25\n"])
def test_only_columns_that_were_learned_from_tell_what_a_comma_is(more, tmp_path):
    (tmp_path / "data.csv").write_text("x;lat;y\n2,5;48.5;1,5\n5;8.25;2,5\n7,5;8.5;2,5\n")
    with pytest.warns(UserWarning, match="'lat' has '48.5' .read as 48.5., column 'x' has '2,5'"):
        like = prepare(tmp_path / "data.csv", "y", task="regression").written
    (tmp_path / "new.csv").write_text("x;lat;" + more.format("48.137;", "8.125;"))
    ((_, part, form),) = table_files.chunks(tmp_path / "new.csv", 10, like)
    assert part["x"].tolist() == [more[2:7].replace(",", "."), "7"]
    assert part["lat"].tolist() == ["48.137", "8.125"]
    assert form.decimal == ","


@pytest.mark.parametrize(("separator", "decimal"), [*itertools.product(";\t|", ".,"), (",", ".")])
@pytest.mark.parametrize("digits", [2, 3, 10])
def test_what_pandas_writes_is_read(separator, decimal, digits, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=50) * 10.0 ** rng.integers(-3, 6, 50)}).round(digits)
    table["b"], table["c"] = rng.integers(0, 9, 50), rng.choice(["x, y", "z;z", 'a "b"'], 50)
    table.loc[::7, "a"] = np.nan
    table.to_csv(tmp_path / "data.csv", index=False, sep=separator, decimal=decimal)
    found, _ = table_files.read(tmp_path / "data.csv")
    pd.testing.assert_frame_equal(found, table, check_dtype=False)


@pytest.mark.parametrize(
    ("encoding", "name", "expected"),
    [
        *((each, "mean", each) for each in ("utf-8", "utf-8-sig", "utf-16", "cp1252")),
        ("cp1252", "λ_mean", "utf-8-sig"),  # which it cannot write
    ],
)
def test_predictions_are_written_as_the_file_is(encoding, name, expected, tmp_path):
    (tmp_path / "data.csv").write_bytes("Größe;art\n1,5;ä\n2,5;b\n".encode(encoding))
    with table_files.writer(tmp_path / "out.csv") as write:
        for part, _, written in table_files.chunks(tmp_path / "data.csv", 1):
            write(part, pd.DataFrame({name: [2.5]}, index=part.index), written)
    text = f"Größe;art;{name}\n1,5;ä;2,5\n2,5;b;2,5\n"
    assert (tmp_path / "out.csv").read_bytes() == text.encode(expected)


def test_one_slip_in_a_column_of_numbers_is_said_and_taken_for_missing(tmp_path):
    rows = "".join(f"{i * 7 % 41},{i % 3}.5,{'ab'[i % 2]}\n" for i in range(40))
    (tmp_path / "data.csv").write_text("size,y,kind\noops,1.5,a\n" + rows)
    with pytest.warns(UserWarning, match="but 1 of its cells .* first 'oops' in row 0"):
        columns = prepare(tmp_path / "data.csv", "y", task="regression").columns
    assert columns.numbers == ["size"]
    table, _ = table_files.read(tmp_path / "data.csv")
    assert np.isnan(columns.typed(table)["size"]).sum() == 1
    one = table.assign(size=["3"] * 20 + ["ouch"] * 2 + ["oops"] * (len(table) - 22))
    with pytest.warns(UserWarning, match="but 2 of its cells .* first 'ouch' in row 20: they are"):
        assert np.isnan(columns.typed(one)["size"]).sum() == len(table) - 20
    columns.require_numbers(one)
    with pytest.raises(ValueError, match="column size is of numbers, but it has 'ouch' in row 0"):
        columns.require_numbers(table.assign(size=["ouch"] * len(table)))


@pytest.mark.parametrize("task", [None, "regression"])
@pytest.mark.parametrize("written", [None, "%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y %H:%M"])
def test_dates_are_no_target(written, task):
    days = pd.Series(pd.date_range("2020-01-01", periods=20).repeat(2))
    table = pd.DataFrame({"day": days.dt.strftime(written) if written else days})
    table.loc[2:3, "day"] = None
    with pytest.raises(ValueError, match="target 'day' is of dates"):
        target_of(table, "day", task)
    if written:
        assert target_of(table, "day", "classification")[2] == "classification"


def test_a_slip_in_the_target_is_named(tmp_path):
    rows = "".join(f"{i % 7},{i * 7 % 41}.5\n" for i in range(40))
    (tmp_path / "data.csv").write_text(f"size,y\n{rows}3,oops\n")
    with pytest.raises(ValueError, match="target 'y' has 'oops' in row 40, which is not a number"):
        prepare(tmp_path / "data.csv", "y")


@pytest.mark.parametrize("task", [None, "regression"])
@pytest.mark.parametrize("unit", [" kg", "EUR"])
def test_numbers_with_a_unit_are_to_be_written_without_it(unit, task, tmp_path):
    rows = "".join(f"{i % 7},{i * 7.25}{unit}\n" for i in range(60))
    (tmp_path / "data.csv").write_text(f"size,y\n{rows}")
    with pytest.raises(ValueError, match="without a unit") as caught:
        prepare(tmp_path / "data.csv", "y", task=task)
    assert "--task regression" not in str(caught.value)


@pytest.mark.parametrize("infinity", ["inf", "-Infinity", "1e999"])
def test_an_infinite_number_is_named_with_its_place(infinity, tmp_path):
    table = pd.DataFrame({"size": np.arange(40) % 7, "y": np.arange(40) / 8}).astype(str)
    for name, what in [("size", "column 'size'"), ("y", "target 'y'")]:
        wrong = table.copy()
        wrong.loc[5, name] = infinity
        wrong.to_csv(tmp_path / "data.csv", index=False)
        with pytest.raises(ValueError, match=f"{what} has -?inf in row 5,"):
            prepare(tmp_path / "data.csv", "y")
    with pytest.raises(ValueError, match="target 'y' has inf in row 1,"):
        target_of(pd.DataFrame({"y": [1.0, np.inf, 1.0, 2.0, 2.0]}), "y", None)
    columns = Columns.of(table.astype(float)[["size"]])
    with pytest.raises(ValueError, match=f"column 'size' has {infinity} in row 5,"):
        columns.typed(table.assign(size=["1"] * 5 + [infinity] + ["2"] * 34))


def test_codes_of_digits_and_letters_are_categories():
    table = pd.DataFrame({"code": ["1", "2", "3", "A"] * 10, "all": list("ABCD") * 10})
    assert Columns.of(table).categories == ["code", "all"]


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "data.csv").write_text("a,b,a\n1,2,3\n")
    with pytest.raises(ValueError, match=r"two columns with one name, 'a', at \[1, 3\]"):
        table_files.read(tmp_path / "data.csv")


@pytest.mark.parametrize("rows", ["1,2,a,\n3,4,b,\n", "1,2,a,,\n3,4,b\n", "1,2,a\n3,4,b,\n"])
def test_separators_at_ends_of_rows_shift_no_column(rows, tmp_path):
    (tmp_path / "data.csv").write_text("x,y,kind\n" + rows)
    expected = pd.DataFrame({"x": [1, 3], "y": [2, 4], "kind": ["a", "b"]})
    found, _ = table_files.read(tmp_path / "data.csv")
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    parts = [part for part, _, _ in table_files.chunks(tmp_path / "data.csv", 1)]
    pd.testing.assert_frame_equal(pd.concat(parts), expected.astype(str), check_dtype=False)


@pytest.mark.parametrize("before", [0, 1, 2, 3])
@pytest.mark.parametrize("row", ["1,2,a,4", "1,2,a,,5"])
def test_a_row_with_a_cell_too_many_is_told_by_its_line(row, before, tmp_path):
    (tmp_path / "data.csv").write_text("x,y,kind\n" + "1,2,b\n" * before + row + "\n1,2,b\n")
    message = f"line {before + 2} has {row.count(',') + 1} cells, but the header names 3"
    with pytest.raises(ValueError, match=message):
        table_files.read(tmp_path / "data.csv")
    with pytest.raises(ValueError, match=message):
        list(table_files.chunks(tmp_path / "data.csv", 2))


def test_names_of_rows_as_r_and_pandas_write_them_have_no_name(tmp_path):
    (tmp_path / "r.txt").write_text('"x" "y"\n"one" 1 2\n"two" 3 4\n'.replace(" ", "\t"))
    (tmp_path / "pandas.csv").write_text(",Unnamed: 0,x,y\n0,one,1,2\n1,two,3,4\n")
    for file, names in [("r.txt", 1), ("pandas.csv", 2)]:
        found, _ = table_files.read(tmp_path / file)
        assert list(found)[names:] == ["x", "y"]
        assert found["x"].tolist() == [1, 3]
        assert list(Columns.of(found).left_out) == list(found)[:names]


PACKED = {".gz": gzip, ".bz2": bz2, ".xz": lzma}


@pytest.mark.parametrize("ending", PACKED)
def test_a_compressed_file_is_read_and_written(ending, tmp_path):
    file, new = tmp_path / f"data.csv{ending}", tmp_path / f"NEW.CSV{ending.upper()}"
    file.write_bytes(PACKED[ending].compress(b"a;b\n1,5;2\n2,5;3\n"))
    assert table_files.read(file)[0]["a"][0] == 1.5
    with table_files.writer(new) as write:
        for part, _, written in table_files.chunks(file, 1):
            write(part, pd.DataFrame(index=part.index), written)
    assert PACKED[ending].decompress(new.read_bytes()) == b"a;b\n1,5;2\n2,5;3\n"
    assert table_files.read(new)[0]["a"].tolist() == [1.5, 2.5]
    for damaged in (b"a;b\n1,5;2\n", file.read_bytes()[:-12]):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="cannot be read as a table"):
            table_files.read(file)


NO_TABLES = ("data.json", "data.npz", "data.xlsx", "data.csv.zip", "data.parquet.gz", "data.v2")


@pytest.mark.parametrize("name", NO_TABLES)
def test_names_of_other_kinds_of_files_are_refused(name, tmp_path):
    (tmp_path / name).write_text("a,b\n1,2\n")
    message = rf"{name} is no table by its name. Tables are CSV \(.csv, .*\) or Parquet \(.parquet,"
    with pytest.raises(ValueError, match=message):
        table_files.read(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        next(table_files.chunks(tmp_path / name, 1))
    with pytest.raises(ValueError, match=message), table_files.writer(tmp_path / name):
        pass
    assert len(list(tmp_path.iterdir())) == 1


DAYS = pd.date_range("2019-01-01", periods=800, freq="D")


@pytest.mark.parametrize(
    "written",
    [
        *("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y-%m-%dT%H:%M:%SZ", "%d.%m.%Y %H:%M"),
        *("%d-%b-%Y", "%d %b %Y", "%b %d, %Y", "%B %d, %Y", "%d %B %Y", "%m/%d/%Y %I:%M %p"),
    ],
)
def test_dates_are_a_trend_and_the_times_of_year_and_week(written):
    column = pd.Series(DAYS.strftime(written))
    dates = Dates.of(column)
    assert dates.periods == ["year", "week"]
    made = dict(zip(dates.names("day"), dates.numbers(column), strict=True))
    trend = made["day (trend)"]
    assert_close(trend[-1] - trend[0], 799 / 365.2425)
    assert 2019.0 <= trend[0] < 2019.01
    sine = made["day (time of week, sine)"]
    assert_close(sine[7:], sine[:-7])
    assert len(np.unique(np.round(sine, 6))) == 7


def test_rows_resolve_the_periods_that_they_cover_and_sample():
    assert Dates.of(pd.Series(pd.date_range("2020-01-01", periods=48, freq="h"))).periods == ["day"]
    assert Dates.of(pd.Series(pd.date_range("2000", periods=30, freq="YS"))).periods == []
    assert Dates.of(pd.Series(pd.date_range("2000", periods=30, freq="MS"))).periods == ["year"]


def test_months_are_dates():
    months = pd.date_range("1990-01-01", periods=60, freq="MS")
    for written in ("%b %Y", "%B %Y", "%b-%Y"):
        column = pd.Series(months.strftime(written))
        assert Dates.of(column).periods == ["year"]
        assert_close(Dates.of(column).days(column), (months - pd.Timestamp(0)).days)


def test_a_cell_that_is_no_date_is_missing(tmp_path):
    days = [*DAYS[9:21].strftime("%d/%m/%Y"), "soon", "31/02/2019", None]
    pd.DataFrame({"day": days, "y": np.arange(15) / 2}).to_csv(tmp_path / "data.csv", index=False)
    with pytest.warns(UserWarning, match="'day' is of dates, but 2 of its cells are not, the.*'so"):
        columns = prepare(tmp_path / "data.csv", "y").columns
    found = columns.dates["day"].days(pd.Series(days, name="day"))
    assert_close(found[:12], (DAYS[9:21] - pd.Timestamp(0)).days)
    assert np.isnan(found[12:]).all()
    with pytest.raises(ValueError, match="day is of dates, but it has 'later' in row 0"):
        columns.dates["day"].days(pd.Series(["later"], name="day"))


@pytest.mark.parametrize(
    "texts",
    [["a", "b"], ["2020-01-01", "soon"], ["12-34", "1-2"], ["1/2"], ["Model 2000", "Model 2001"]],
)
def test_other_text_is_no_date(texts):
    assert Dates.of(pd.Series(texts)) is None


def test_the_last_rows_in_time_are_held_out(tmp_path):
    rng = np.random.default_rng(0)
    days = DAYS[rng.permutation(100)].strftime("%d.%m.%Y")
    table = pd.DataFrame({"day": days, "size": rng.random(100), "y": rng.random(100)})
    table.to_csv(tmp_path / "data.csv", index=False)
    prepared = prepare(tmp_path / "data.csv", "y")
    fitting, unseen = _split(prepared, prepared.columns.typed(prepared.table), 0)
    times = pd.to_datetime(prepared.table["day"], format="%d.%m.%Y").to_numpy()
    assert len(unseen) == 20
    assert times[fitting].max() < times[unseen].min()
    prepared = prepare(tmp_path / "data.csv", "y", split="random")
    at_random = _split(prepared, prepared.columns.typed(prepared.table), 0)[1]
    assert times[at_random].min() < times[fitting].max()
    with pytest.raises(ValueError, match="split is 'time', but no column is of dates"):
        prepare(tmp_path / "data.csv", "y", split="time", drop=["day"])
