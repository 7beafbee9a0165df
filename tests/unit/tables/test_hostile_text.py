"""Names and labels that Matplotlib or HTML would take for more than text."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpflow_gvi.__main__ import main

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


TARGETS = {"data": "@kind $_$", "numbers": "@kind"}


def _model(folder, file):
    """Return the folder of the model of a file, which is learned once."""
    output = folder / f"model of {file}"
    if not output.exists():
        arguments = ["--target", TARGETS[file], "--effort", "fast", "--output", str(output)]
        assert main(["learn", str(folder / f"{file}.csv"), *arguments]) == 0
    return output


@pytest.mark.slow
@pytest.mark.parametrize("file", TARGETS)
def test_a_page_is_drawn_with_any_names(file, folder):
    page = (_model(folder, file) / "report.html").read_text("utf-8")
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;amp;" in page


@pytest.mark.slow
def test_labels_are_written_as_they_are(folder, capsys):
    command = ["predict", str(_model(folder, "data")), str(folder / "data.csv")]
    assert main(command) == 0
    written = (folder / "data_predicted.csv").read_bytes()
    found = pd.read_csv(folder / "data_predicted.csv")
    assert set(found["@kind $_$_label"].astype(str)) == set(LABELS)
    assert main(command) == 2
    assert "data_predicted.csv is there already; pass --overwrite" in capsys.readouterr().err
    assert (folder / "data_predicted.csv").read_bytes() == written
    assert main([*command, "--overwrite"]) == 0
