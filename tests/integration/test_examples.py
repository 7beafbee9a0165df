"""The examples, the program in the README and the demonstration run."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from gpflow_gvi import demo
from tests.tolerances import assert_estimates

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


def test_the_readme_links_to_files_that_are_there():
    links = re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text())
    local = [link for link in links if not link.startswith("http")]
    assert len(local) >= 10
    assert [link for link in local if not (ROOT / link).exists()] == []


@pytest.mark.slow
def test_demo_prints_its_table_and_writes_its_picture(tmp_path):
    picture = tmp_path / "demo.png"
    command = [sys.executable, "-m", "gpflow_gvi", "demo", "--output", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for word in ("exact GP", "learn, robust", "boosted trees", "AUROC 8 and 9", str(picture)):
        assert word in done.stdout
    assert "gpflow-gvi learn" in done.stdout.split("What to type next")[1]
    assert picture.read_bytes().startswith(b"\x89PNG")


def _drawn(monkeypatch, tmp_path):
    """Run the demonstration with a task that takes no time; return its table and the picture."""

    def task(seed):
        scores = {"ours": {"NLL": 0.125}, "a rival": {"NLL": 2.0}}
        return demo.Task("a task", scores, lambda ax, name: None, "NLL")

    for each in ("curve_with_gap", "outliers", "table", "digits"):
        monkeypatch.setattr(demo, each, task)
    text = demo.run(tmp_path / "pictures" / "demo")
    return text, tmp_path / "pictures" / "demo.png"


def test_demo_prints_a_line_for_each_method_and_names_the_file_that_it_wrote(monkeypatch, tmp_path):
    text, picture = _drawn(monkeypatch, tmp_path)
    assert re.findall(r"^  (.*?)  +(\S+)$", text, re.MULTILINE)[:2] == [
        ("ours", "0.125"),
        ("a rival", "2.000"),
    ]
    assert str(picture) in text
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_demo_prints_its_table_without_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    text, picture = _drawn(monkeypatch, tmp_path)
    assert "0.125" in text
    assert "pip install 'gpflow-gvi[plots]'" in text
    assert not picture.exists()


def test_the_error_of_a_rival_of_the_demo_is_that_out_of_fold():
    rng = np.random.default_rng(0)
    X, x = rng.normal(size=(300, 1)), rng.normal(size=(50, 1))
    noisy = 3.0 * X[:, 0] + 0.5 * rng.normal(size=300)
    predicted, error = demo._with_error_out_of_fold(LinearRegression(), X, noisy, x)
    assert_estimates(predicted, 3.0 * x[:, 0], 0.5 * np.sqrt((1.0 + x[:, 0] ** 2) / 300))
    assert_estimates(error, 0.5, 0.5 / np.sqrt(2 * 300))
