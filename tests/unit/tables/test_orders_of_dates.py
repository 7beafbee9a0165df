"""Dates such as 01/02/2016, which begin with the day or with the month."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpflow_gvi.__main__ import main
from gpflow_gvi.tables.dates import Dates

DAY, MONTH = "%d/%m/%Y", "%m/%d/%Y"
DAY_DASHED, MONTH_DASHED = "%d-%m-%Y", "%m-%d-%Y"
ORDERS = DAY, MONTH, DAY_DASHED, MONTH_DASHED
SHUFFLE = np.random.default_rng(0).permutation

COLUMNS = {
    "month starts": (pd.date_range("2016-01-01", periods=48, freq="MS"), ORDERS),
    "the last first": (pd.date_range("2016-01-01", periods=48, freq="MS")[::-1], ORDERS),
    "in any order": (
        pd.DatetimeIndex(SHUFFLE(pd.date_range("2016-01-01", periods=48, freq="MS"))),
        ORDERS,
    ),
    "only in order": (
        pd.to_datetime(["2016-01-05", "2016-02-03", "2016-02-11", "2016-07-02"]),
        ORDERS,
    ),
    "a late day": (pd.to_datetime(["2016-03-05", "2016-02-13", "2016-04-01"]), ORDERS),
    "times of day": (
        pd.date_range("2016-01-01", periods=48, freq="MS"),
        tuple(f"{order} %H:%M" for order in ORDERS),
    ),
}


@pytest.mark.parametrize("is_day_first", [False, True])
@pytest.mark.parametrize("case", COLUMNS)
def test_the_order_of_day_and_month_is_that_of_the_rows(case, is_day_first):
    days, formats = COLUMNS[case]
    for written in formats:
        column = pd.Series(days.strftime(written))
        dates = Dates.of(column, is_day_first=is_day_first)
        assert dates.format == written
        assert not dates.is_guessed(column)


@pytest.mark.parametrize(("day", "month"), [(DAY, MONTH), (DAY_DASHED, MONTH_DASHED)])
def test_where_the_rows_do_not_tell_the_file_does(day, month):
    column = pd.Series(pd.date_range("2016-02-01", periods=3, freq="MS").strftime(day))
    assert Dates.of(column).format == month
    assert Dates.of(column, is_day_first=True).format == day
    assert Dates.of(column, is_day_first=True).is_guessed(column)
    other = pd.Series(["01.02.2016", "01.03.2016"])
    assert not Dates.of(other).is_guessed(other)


@pytest.mark.parametrize("mark", ["/", "-"])
@pytest.mark.parametrize(
    ("separator", "decimal", "order"),
    [(";", ",", "day/month/year"), (",", ".", "month/day/year")],
)
def test_a_guess_is_warned_of_and_printed(separator, decimal, order, mark, tmp_path, capsys):
    first = f"01{mark}{{:02d}}{mark}2016"
    table = pd.DataFrame({"on": [first.format(1 + i % 12) for i in range(24)]})
    table["y"] = np.arange(24) / 2
    table.to_csv(tmp_path / "data.csv", index=False, sep=separator, decimal=decimal)
    command = ["learn", str(tmp_path / "data.csv"), "--target", "y", "--held-out", "0.001"]
    assert main([*command, "--output", str(tmp_path / "model")]) == 2  # which ends it early
    said = capsys.readouterr().err
    assert (
        f"such as '{first.format(1)}', which are read as {order}: nothing in them tells which"
        in said
    )
    assert f"of dates on (read as {order})" in said


@pytest.mark.slow
def test_months_that_begin_on_their_first_day_are_learned_and_predicted(tmp_path, capsys):
    days = pd.date_range("2016-01-01", periods=48, freq="MS")
    y = np.sin(2.0 * np.pi * days.month / 12) + 0.05 * np.arange(48) / 12
    table = pd.DataFrame({"on": days.strftime(DAY), "y": y})
    table.to_csv(tmp_path / "data.csv", index=False, sep=";", decimal=",")
    command = ["learn", str(tmp_path / "data.csv"), "--target", "y", "--effort", "fast"]
    assert main([*command, "--output", str(tmp_path / "model"), "--predictor", "none"]) == 0
    assert "of dates on (read as day/month/year)" in capsys.readouterr().err
    (tmp_path / "new.csv").write_text("on\n01/04/2019\n")
    assert main(["predict", str(tmp_path / "model"), str(tmp_path / "new.csv")]) == 0
    found = pd.read_csv(tmp_path / "new_predicted.csv", sep=";", decimal=",")
    assert abs(found["y_mean"][0] - y[39]) < abs(found["y_mean"][0] - y[36])
