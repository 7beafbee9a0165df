"""The curves of the thesis: what the package makes of them, beside the thesis's own figures."""

from __future__ import annotations

import json

import pytest

from benchmarks.thesis import KNOWN, Setting
from gpflow_gvi.experiments.run import run


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 5, 8])
def test_one_start_is_below_the_thesis(number, tmp_path):
    path = run(Setting(1.0, 0).experiment(number, 500), tmp_path, pictures=False)
    metrics = json.loads((path / "metrics.json").read_text())
    assert metrics["validation"]["nll"] < KNOWN[number].validation
    assert metrics["test"]["nll"] < KNOWN[number].gaps
    assert metrics["test"]["nll"] < KNOWN[number].gpr_gaps
