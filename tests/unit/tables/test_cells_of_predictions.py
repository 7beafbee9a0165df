"""Cells of a file, written as they are, and numbers beside them that keep their digits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpflow_gvi as gvi
from gpflow_gvi.__main__ import main
from gpflow_gvi.tables.model import DIGITS, rounded
from gpflow_gvi.tables.prepare import prepare

N = 60


def test_digits_that_are_errors_of_rounding_are_left_out():
    table = pd.DataFrame({"a": [0.1 + 0.2, np.nan, 1_700_000.123], "b": ["x", "y", "z"]})
    assert rounded(table).to_csv(index=False).split() == ["a,b", "0.3,x", ",y", "1700000.123,z"]
    assert np.finfo(float).precision >= DIGITS


@pytest.mark.slow
def test_a_column_of_decimal_commas_is_predicted_as_it_was_learned(tmp_path):
    x = np.random.default_rng(0).uniform(1.0, 5.0, N).round(3)
    table = pd.DataFrame({"x": x, "y": (10.0 * x).round(3)})
    table.to_csv(tmp_path / "data.csv", index=False, sep=";", decimal=",")
    command = ["learn", str(tmp_path / "data.csv"), "--target", "y", "--effort", "fast"]
    assert main([*command, "--predictor", "none", "--output", str(tmp_path / "model")]) == 0
    (tmp_path / "new.csv").write_text("x\n2\n1,500\n4,250\n")
    assert main(["predict", str(tmp_path / "model"), str(tmp_path / "new.csv")]) == 0
    found = pd.read_csv(tmp_path / "new_predicted.csv", sep=";", decimal=",")
    assert np.all(np.abs(found["y_mean"] - [20.0, 15.0, 42.5]) < 1.0)


WORDS = ["None", "N/A", "n/a", "null", "ok", "NA"]


@pytest.mark.slow
def test_words_for_nothing_are_names_in_text_and_missing_among_numbers(tmp_path, capsys):
    rng = np.random.default_rng(0)
    size, days = rng.uniform(size=N), pd.date_range("2019-01-01", periods=N).strftime("%Y-%m-%d")
    table = pd.DataFrame({"size": size.round(6).astype(str), "on": days, "how": WORDS * 10})
    table.loc[[3, 30], "size"] = ["NA", "n/a"]
    table.loc[[4, 40], "on"] = ["None", "null"]
    table["risk"] = np.array(["None", "Mild", "Severe"])[np.digitize(size, [0.3, 0.7])]
    table.to_csv(tmp_path / "data.csv", index=False)
    command = ["learn", str(tmp_path / "data.csv"), "--target", "risk", "--effort", "fast"]
    assert main([*command, "--predictor", "none", "--output", str(tmp_path / "model")]) == 0
    said = capsys.readouterr().err
    assert "target 3 classes (Mild None Severe)" in said
    assert "rows without target" not in said
    model = gvi.load(tmp_path / "model")
    assert (model.columns.numbers, list(model.columns.dates)) == (["size"], ["on"])
    assert model.columns.no_numbers == {}
    assert set(model.encoder.levels["how"].known) == {"missing", *WORDS[:-1]}
    assert main(["predict", str(tmp_path / "model"), str(tmp_path / "data.csv")]) == 0
    found = pd.read_csv(tmp_path / "data_predicted.csv", keep_default_na=False, dtype=str)
    assert set(found["risk_label"]) == {"None", "Mild", "Severe"}
    pd.testing.assert_frame_equal(found[list(table)], table, check_dtype=False)


@pytest.mark.parametrize("word", ["NA", "None", "nan", "#N/A", ""])
@pytest.mark.parametrize("numbers", [list(range(40)), [True, False] * 20, [0.5, 1.5] * 20])
def test_words_for_nothing_are_no_targets_among_numbers(word, numbers, tmp_path):
    table = pd.DataFrame({"a": list("abcd") * 10 + ["a"], "y": [*map(str, numbers), word]})
    table.to_csv(tmp_path / "data.csv", index=False)
    prepared = prepare(tmp_path / "data.csv", "y")
    assert len(prepared.y) == 40
    assert prepared.task == ("classification" if isinstance(numbers[0], bool) else "regression")
