"""The examples, the program in the README and the demonstration run."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpflow_gvi import demo

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_prints_numbers(script, capsys):
    runpy.run_path(str(script), run_name="__main__")
    numbers = re.findall(r"-?\d+\.\d+", capsys.readouterr().out)
    assert len(numbers) >= 10


def test_readme_shows_the_quick_start_as_it_is():
    program = (ROOT / "examples" / "quick_start.py").read_text()
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    body = program.split("\n\n", maxsplit=1)[1]  # without the docstring
    assert body in blocks


@pytest.mark.slow
def test_demo_prints_its_table_and_writes_its_picture(tmp_path):
    picture = tmp_path / "demo.png"
    command = [sys.executable, "-m", "gpflow_gvi", "demo", "--iterations", "5"]
    done = subprocess.run(
        [*command, "--output", str(picture)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    for word in ("GPflow SVGP", "pGVI-GP", "GWI-GP", "95 % coverage", str(picture)):
        assert word in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_demo_figures_are_those_of_the_predictive_density():
    class TrueModel:
        """Predicts the true curve and noise; its residuals are the noise."""

        def predict_y(self, X):
            import tensorflow as tf

            truth = 2.0 * np.sin(np.pi * X) + 0.5 * X**3
            return tf.constant(truth), tf.constant(np.full_like(X, demo.NOISE**2))

    row = demo.evaluate("true model", TrueModel(), demo.make_curve(np.random.default_rng(1)))
    # Entropy of the noise; 401 points leave a standard error of 0.035.
    assert row.nll == pytest.approx(0.5 * np.log(2 * np.pi * np.e * demo.NOISE**2), abs=0.12)
    assert row.rmse == pytest.approx(demo.NOISE, abs=0.04)
    assert row.coverage == pytest.approx(0.95, abs=0.035)


def test_demo_leaves_a_gap_in_the_training_inputs():
    curve = demo.make_curve(np.random.default_rng(2))
    low, high = demo.GAP
    inside = (low < curve.X) & (high > curve.X)
    assert not inside.any()
    assert curve.held_out_in_gap.sum() > 50
