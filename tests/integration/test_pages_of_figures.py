"""The pages of figures follow from their commands.

Each table below `benchmarks/results` has a line with its command, and the commit and the date of
its figures. The commands are read off the pages and run with `--quick`, on made-up data of the
shapes of the real ones: what they print has the columns of the page. What other libraries would add
is left out where they are not installed, from what is printed and from what is compared.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import ranks
from benchmarks.data import OF_USERS, SPLITS, UCI
from benchmarks.nngp_against_neural_tangents import ARCHITECTURES, TIMED

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = {page.stem: page for page in sorted(RESULTS.glob("*.md")) if page.stem != "README"}
LINE = re.compile(r"Command: (?P<commands>`[^`]+`(?:, `[^`]+`)*)\. Figures: (?P<figures>.+)\.")
COMMIT = re.compile(r"commit ([0-9a-f]{7}), (\d{4}-\d{2}-\d{2})")
MODULE = re.compile(r"python -m (benchmarks(?:\.\w+)?) ?")
ELSEWHERE = {
    f"{name} SVGP{how}" for name in ("gpytorch", "gpjax") for how in ("", ", kernel and Z fixed")
}
"""Columns of libraries in an environment of their own, for which PYTHON stands in commands."""

EXACT = "benchmarks.ranks"
"""The one that reads a page, and whose tables are compared as a whole."""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a page, and the line above it."""

    caption: str
    lines: tuple[str, ...]

    @property
    def commands(self) -> tuple[str, ...]:
        return tuple(re.findall(r"`([^`]+)`", LINE.fullmatch(self.caption)["commands"]))

    @property
    def commits(self) -> list[tuple[str, str]]:
        return COMMIT.findall(LINE.fullmatch(self.caption)["figures"])

    @property
    def columns(self) -> list[str]:
        return columns(self.lines[0])


def columns(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(text: str) -> list[Table]:
    """Return the tables of a text in Markdown, or of what a command prints."""
    found, above = [], ""
    for is_table, group in itertools.groupby(text.splitlines(), lambda line: line[:1] == "|"):
        lines = tuple(group)
        if is_table:
            found.append(Table(above, lines))
        else:
            above = next((line for line in reversed(lines) if line.strip()), above)
    return found


def test_tables_are_found_with_the_line_above_them():
    text = "a\n\nCommand: `x`, `y`. Figures: commit 0123abc, 2026-11-25.\n\n| a | b |\n|--|--|\n\nc"
    (table,) = tables(text)
    assert table.commands == ("x", "y")
    assert table.commits == [("0123abc", "2026-11-25")]
    assert table.columns == ["a", "b"]


@pytest.mark.parametrize("page", PAGES)
def test_every_table_has_its_command_and_the_commit_of_its_figures(page):
    found = tables(PAGES[page].read_text("utf-8"))
    assert found
    for table in found:
        assert LINE.fullmatch(table.caption), table.caption
        assert table.commits, table.caption
        for command in table.commands:
            module = MODULE.match(command)[1].replace(".", "/")
            assert (ROOT / f"{module}.py").exists() or (ROOT / module / "__main__.py").exists()


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def test_commits_of_figures_are_those_of_this_repository():
    if _git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("needs all commits of the repository")
    dates = dict(
        line.split()
        for line in _git("log", "--date=short", "--format=%h %cd", "--abbrev=7").split("\n")
    )
    named = {
        commit
        for page in PAGES.values()
        for table in tables(page.read_text("utf-8"))
        for commit in table.commits
    }
    assert {commit for commit in named if dates.get(commit[0][:7], "9") > commit[1]} == set()


def test_ranks_are_those_of_the_page():
    """Of the command that reads the page itself, every figure follows from the page."""
    text = PAGES["regression"].read_text("utf-8")
    printed = tables(ranks.summary(*ranks.read(text)))
    on_page = [table for table in tables(text) if EXACT in table.commands[0]]
    assert [table.lines for table in on_page] == [table.lines for table in printed]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of data sets of the shapes of the real ones, of few rows."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    (folder / "tables").mkdir()
    for name in (*SPLITS, *OF_USERS):
        x = rng.normal(size=(80, 4))
        y = x[:, :1] + 0.1 * rng.normal(size=(80, 1))
        test = np.arange(80) % 10 == np.arange(10)[:, None]
        if name in (*UCI, *OF_USERS):
            parts = {"train_idx": [np.flatnonzero(~one) for one in test]}
            parts["test_idx"] = [np.flatnonzero(one) for one in test]
            np.savez(folder / f"uci_{name}.npz", x=x, y=y, **parts)
        else:
            np.savez(folder / "tables" / f"{name}.npz", x=x, y=y, test_mask=test)
    x = rng.normal(size=(120, 2))
    np.savez(folder / "clf_banana.npz", x=x, y=np.float64(x[:, :1] > 0.0))
    for name in ("mnist", "fashion_mnist"):
        parts = {}
        for part, rows in (("train", 500), ("test", 60)):
            y = parts[f"y_{part}"] = np.uint8(np.arange(rows) % 10)
            level = rng.integers(0, 20, (rows, 28, 28)) + 20 * y[:, None, None]
            parts[f"x_{part}"] = np.uint8(level)
        np.savez(folder / f"img_{name}.npz", **parts)
    return folder


def _write_what_neural_tangents_would(file: Path) -> None:
    """Gram matrices of ones: the differences from them are figures like any other."""
    parts = {f"{name}/{part}": 1.0 for name in ARCHITECTURES for part in ("cross", "gram")}
    parts |= {f"{name}/{part}": 1.0 for name in TIMED for part in ("gram", "seconds")}
    np.savez(file, versions="none", **parts)


def _run(command: str, folder: Path, data: Path) -> str:
    _, *arguments = shlex.split(command)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "GPFLOW_GVI_DATA": str(data),
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, *arguments, "--quick"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_page_print_its_columns(page, data, tmp_path):
    _write_what_neural_tangents_would(tmp_path / "nt.npz")
    missing = ELSEWHERE if importlib.util.find_spec("catboost") else {*ELSEWHERE, "CatBoost"}
    of_page = [
        table for table in tables(PAGES[page].read_text("utf-8")) if EXACT not in table.commands[0]
    ]
    printed: dict[str, str] = {}
    for command in dict.fromkeys(command for table in of_page for command in table.commands):
        printed[command] = _run(command, tmp_path, data)
    for table in of_page:
        expected = [name for name in table.columns if name not in missing]
        text = printed[table.commands[-1]]
        of_command = [found.columns for found in tables(text)]
        if not of_command and "left out" in text:
            continue  # all that it compares with is not installed
        assert expected in of_command, table.commands[-1]


def figures(table: Table) -> dict[str, dict[str, str]]:
    """Return the cells of a table by the first column and the names of the others."""
    rows = (columns(line) for line in table.lines[2:])
    return {first: dict(zip(table.columns[1:], rest, strict=True)) for first, *rest in rows}


def number(cell: str) -> float:
    return float(cell.replace("*", "").split(" ± ")[0])


def _readme(first_row: str) -> Table:
    """Return the table of the README with a row of this name."""
    (table,) = (
        table
        for table in tables((ROOT / "README.md").read_text("utf-8"))
        if any(line.startswith(f"| {first_row} |") for line in table.lines)
    )
    return table


def test_regression_of_the_readme_is_that_of_the_page():
    nll, _ = ranks.read(PAGES["regression"].read_text("utf-8"))
    names = {
        "`learn`": "learn",
        "GPflow SGPR, M = 200": "SGPR",
        "ensemble of five networks": "ensemble",
        "HistGradientBoosting, 5 folds": "HistGB, 5 folds",
    }
    shown = figures(_readme("yacht"))
    assert set(shown) == set(UCI)
    for data, row in shown.items():
        for model, cell in row.items():
            on_page = nll.loc[data, names.get(model, model)]
            assert abs(number(cell) - on_page) <= 0.0051, (data, model)
