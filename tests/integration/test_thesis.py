"""The curves of the thesis: what the package makes of them, beside the thesis's own figures."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.thesis import KNOWN, Setting
from gpflow_gvi.experiments.run import run

STANDARD_ERROR = np.sqrt(0.5 / 150)
"""Of a negative log density by 150 rows for validation, whose squared residuals are χ²: few
iterations end within it, a little differently with each number of threads."""


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 4, 8])
def test_one_start_of_few_iterations_is_near_the_thesis(number, tmp_path):
    path = run(Setting(1.0, 0).experiment(number, 200), tmp_path, pictures=False)
    metrics = json.loads((path / "metrics.json").read_text())
    assert metrics["validation"]["nll"] < KNOWN[number].validation + STANDARD_ERROR
    assert metrics["test"]["nll"] < KNOWN[number].gaps
    assert metrics["test"]["nll"] < KNOWN[number].gpr_gaps
