"""Dates such as 01/02/2016, which begin with the day or with the month."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpflow_gvi.__main__ import main
from gpflow_gvi.tables.dates import Dates

DAY, MONTH = "%d/%m/%Y", "%m/%d/%Y"
SHUFFLE = np.random.default_rng(0).permutation

COLUMNS = {
    "month starts": (pd.date_range("2016-01-01", periods=48, freq="MS"), (DAY, MONTH)),
    "the last first": (pd.date_range("2016-01-01", periods=48, freq="MS")[::-1], (DAY, MONTH)),
    "in any order": (
        pd.DatetimeIndex(SHUFFLE(pd.date_range("2016-01-01", periods=48, freq="MS"))),
        (DAY, MONTH),
    ),
    "only in order": (
        pd.to_datetime(["2016-01-05", "2016-02-03", "2016-02-11", "2016-07-02"]),
        (DAY, MONTH),
    ),
    "a late day": (pd.to_datetime(["2016-03-05", "2016-02-13", "2016-04-01"]), (DAY, MONTH)),
    "times of day": (
        pd.date_range("2016-01-01", periods=48, freq="MS"),
        (f"{DAY} %H:%M", f"{MONTH} %H:%M"),
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


def test_where_the_rows_do_not_tell_the_file_does():
    column = pd.Series(["01/02/2016", "01/03/2016", "01/04/2016"])
    assert Dates.of(column).format == MONTH
    assert Dates.of(column, is_day_first=True).format == DAY
    assert Dates.of(column, is_day_first=True).is_guessed(column)
    other = pd.Series(["01.02.2016", "01.03.2016"])
    assert not Dates.of(other).is_guessed(other)


@pytest.mark.parametrize(
    ("separator", "decimal", "order"),
    [(";", ",", "day/month/year"), (",", ".", "month/day/year")],
)
def test_a_guess_is_warned_of_and_printed(separator, decimal, order, tmp_path, capsys):
    table = pd.DataFrame(
        {"on": [f"01/{1 + i % 12:02d}/2016" for i in range(24)], "y": np.arange(24) / 2}
    )
    table.to_csv(tmp_path / "data.csv", index=False, sep=separator, decimal=decimal)
    command = ["learn", str(tmp_path / "data.csv"), "--target", "y", "--held-out", "0.001"]
    assert main([*command, "--output", str(tmp_path / "model")]) == 2  # which ends it early
    said = capsys.readouterr().err
    assert f"such as '01/01/2016', which are read as {order}: nothing in them tells which" in said
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
