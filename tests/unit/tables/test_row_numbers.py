"""Columns that number or identify the rows: left out or warned of, as nothing new has them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import gpflow_gvi as gvi
from gpflow_gvi.__main__ import main
from gpflow_gvi._core import row_numbers
from gpflow_gvi.tables.columns import Columns
from gpflow_gvi.tables.prepare import prepare

N = 30


def _table(rng):
    return pd.DataFrame({"size": rng.random(N), "y": rng.random(N)})


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("header", ["", "Unnamed: 0", "rownames", "row.names", "...1"])
def test_a_column_without_a_name_is_left_out_unless_it_is_kept(header, rng, tmp_path):
    table = _table(rng)
    table.insert(0, header, range(1, N + 1))
    table.to_csv(tmp_path / "data.csv", index=False)
    name = header or "Unnamed: 0"
    columns = prepare(tmp_path / "data.csv", "y").columns
    assert columns.numbers == ["size"]
    assert "without a header" in columns.left_out[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is as the user wants it
        kept = prepare(tmp_path / "data.csv", "y", keep=[name]).columns
    assert kept.numbers == [name, "size"]


def test_the_index_that_pandas_writes_by_default_is_left_out(rng, tmp_path):
    shuffled = _table(rng).sample(frac=1.0, random_state=0)
    shuffled.to_csv(tmp_path / "data.csv")
    assert prepare(tmp_path / "data.csv", "y").columns.numbers == ["size"]


NUMBERS = {
    "order": range(N),
    "backwards": range(5 * N, 0, -5),
    "PassengerId": np.arange(N) % 7,
    "customer_id": np.arange(N)[::-1] * 3 % 11,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_rows_are_warned_of_and_can_be_dropped(name, rng, tmp_path):
    table = _table(rng).assign(**{name: NUMBERS[name]})
    table.to_csv(tmp_path / "data.csv", index=False)
    with pytest.warns(UserWarning, match=f"column '{name}' may number the rows"):
        columns = prepare(tmp_path / "data.csv", "y").columns
    assert columns.numbers == ["size", name]
    columns = prepare(tmp_path / "data.csv", "y", drop=[name]).columns
    assert columns.left_out == {name: "named in drop"}
    assert prepare(tmp_path / "data.csv", "y", drop=name).columns == columns
    with pytest.raises(ValueError, match=f"keep names '{name}', which is named in drop"):
        prepare(tmp_path / "data.csv", "y", drop=name, keep=name)


QUANTITIES = {
    "paid": np.arange(N) % 5,  # ends like an identifier
    "ascending": np.arange(N) + 0.5,
    "repeated": np.arange(N) // 2,
    "years": np.arange(N)[::-1] * 7 % 31,  # all different, in no order
}


@pytest.mark.parametrize("name", QUANTITIES)
def test_other_numbers_are_not_warned_of(name, rng):
    table = _table(rng).assign(**{name: QUANTITIES[name]})
    assert Columns.of(table).suspects == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        row_numbers.warn(table)


def test_few_numbers_may_ascend_by_chance():
    assert Columns.of(pd.DataFrame({"a": [1, 2, 5]})).suspects == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fit"),
    [
        ("Unnamed: 0", lambda X, y: gvi.learn((X, y), effort="fast", predictor=None)),
        ("id", gvi.GVIRegressor(effort="fast", predictor=None).fit),
        (
            "place",
            lambda X, y: gvi.GVIClassifier(effort="fast", predictor=None).fit(X, y > 0.5),
        ),
    ],
)
def test_a_data_frame_with_them_is_warned_of(fit, name, rng):
    table = _table(rng).assign(**{name: range(N)})
    with pytest.warns(UserWarning, match=f"the column '{name}'") as said:
        fit(table[[name, "size"]], table["y"])
    assert said[0].filename == __file__


def test_several_columns_are_said_at_once(rng, tmp_path):
    names = ["a", "b", "c", "d", "e"]
    table = _table(rng).assign(**{name: range(N) for name in names}, row_id=rng.integers(0, 5, N))
    table.to_csv(tmp_path / "data.csv", index=False)
    with pytest.warns(UserWarning, match="may number the rows") as said:
        prepare(tmp_path / "data.csv", "y")
    assert [str(each.message).partition(" may")[0] for each in said] == [
        "columns 'a', 'b', 'c' and 2 more",
        "column 'row_id'",
    ]


@pytest.mark.parametrize("what", ["drop", "keep"])
def test_the_target_is_no_column_to_drop_or_keep(what, rng, tmp_path):
    _table(rng).to_csv(tmp_path / "data.csv", index=False)
    with pytest.raises(ValueError, match=f"{what} names 'y', which is the target"):
        prepare(tmp_path / "data.csv", "y", **{what: ["size", "y"]})


def test_names_of_columns_that_are_not_there_are_refused(rng):
    with pytest.raises(ValueError, match=r"drop 'sise' is no column .*did you mean 'size'"):
        Columns.of(_table(rng), drop=["sise"])
    with pytest.raises(ValueError, match="keep names 'note', which is text that differs"):
        Columns.of(_table(rng).assign(note=[f"n{i}" for i in range(N)]), keep=["note"])


def test_the_command_line_warns_in_a_line(rng, tmp_path, capsys):
    _table(rng).assign(id=range(N)).to_csv(tmp_path / "data.csv", index=False)
    command = ["learn", str(tmp_path / "data.csv"), "--target", "y", "--held-out", "0.001"]
    assert main([*command, "--output", str(tmp_path / "model")]) == 2  # which ends it early
    said = capsys.readouterr().err
    assert said.count("\nwarning: column 'id' may number the rows or identify them (") == 1
    assert "UserWarning" not in said
