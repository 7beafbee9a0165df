"""Names and labels that Matplotlib, a spreadsheet or HTML would take for more than text."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpflow_gvi.__main__ import main
from gpflow_gvi.tables import predict

NAMES = [r"cost $\frac{$", "US$ / AU$", "<b>&amp;"]
LABELS = ["=cmd|' /C calc'!A0", r"$\frac$", "-2.5"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.random((60, 3)), columns=NAMES)
    kinds = np.digitize(table[NAMES[0]], [0.35, 0.7])
    table.assign(**{"@kind $_$": np.array(LABELS)[kinds]}).to_csv(folder / "data.csv", index=False)
    table.assign(**{"@kind": table[NAMES[1]]}).to_csv(folder / "numbers.csv", index=False)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("file", "target"), [("data", "@kind $_$"), ("numbers", "@kind")])
def test_a_page_is_drawn_with_any_names(file, target, folder):
    output = folder / f"model of {file}"
    arguments = ["--target", target, "--effort", "fast", "--output", str(output)]
    assert main(["learn", str(folder / f"{file}.csv"), *arguments]) == 0
    page = (output / "report.html").read_text("utf-8")
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;amp;" in page


@pytest.mark.slow  # of the model that the test before has written
def test_labels_are_no_formulas_in_a_spreadsheet(folder, capsys):
    command = ["predict", str(folder / "model of data"), str(folder / "data.csv")]
    assert main(command) == 0
    written = (folder / "data_predicted.csv").read_bytes()
    found = pd.read_csv(folder / "data_predicted.csv")
    assert set(found["'@kind $_$_label"].astype(str)) == {f"'{LABELS[0]}", *LABELS[1:]}
    assert main(command) == 2
    assert "data_predicted.csv is there already; pass --overwrite" in capsys.readouterr().err
    assert (folder / "data_predicted.csv").read_bytes() == written
    assert main([*command, "--overwrite"]) == 0


@pytest.mark.parametrize("text", ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "-2+3", "\r=1"])
def test_what_a_spreadsheet_would_compute_is_escaped(text):
    table = predict.without_formulas(pd.DataFrame({text: [text, "a"], "n": [-1.0, 2.0]}))
    assert list(table) == [f"'{text}", "n"]
    assert table.iloc[0, 0] == f"'{text}"
    assert list(table["n"]) == [-1.0, 2.0]


@pytest.mark.parametrize("text", ["-2.5", "+3", "-1,000", "a=b", "x-1", ""])
def test_numbers_and_other_text_are_not(text):
    table = pd.DataFrame({"a": [text]})
    assert predict.without_formulas(table).equals(table)
