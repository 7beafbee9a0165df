"""The command line: fast help, absent extras named in a line, and the wheel by itself."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import gpflow_gvi as gvi

ROOT = Path(__file__).parents[2]

CALL = """
import sys
sys.modules.update(dict.fromkeys({absent!r}))
from gpflow_gvi.__main__ import main
try:
    status = main({arguments!r})
finally:
    assert "tensorflow" not in sys.modules
sys.exit(status)
"""


def _call(arguments, absent=()):
    script = CALL.format(arguments=arguments, absent=list(absent))
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_names_every_command_without_tensorflow():
    done = _call(["--help"], absent=["numpy"])
    assert done.returncode == 0, done.stderr
    for command in ("demo", "learn", "predict", "run", "sweep", "report", "benchmark"):
        assert f"\n    {command} " in done.stdout


def test_figures_that_cannot_be_drawn_are_refused_before_a_sweep_begins():
    done = _call(["sweep", "none.yaml", "--figures"], absent=["matplotlib"])
    assert done.returncode == 2
    assert "--figures needs matplotlib: pip install 'gpflow-gvi[plots]'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["run", "none.yaml"], "pydantic"),
        (["report", "."], "jinja2"),
    ],
)
def test_an_absent_extra_is_named_in_a_line(arguments, absent):
    done = _call(arguments, absent=[absent])
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{absent} is not installed, which {arguments[0]} needs: ")
    assert line.endswith("pip install 'gpflow-gvi[experiments]'")


def test_the_version_is_that_of_the_package():
    done = _call(["--version"], absent=["numpy"])
    assert done.stdout == f"gpflow-gvi {gvi.__version__}\n"


MISTAKES = {
    "no such file": (["learn", "none.csv", "--target", "y"], "none.csv does not exist"),
    "target": (["learn", "data.csv", "--target", "prise"], "did you mean 'price'?"),
    "drop": (["learn", "data.csv", "--target", "price", "--drop", "sise"], "mean 'size'?"),
    "predictor": (["learn", "data.csv", "--target", "price", "--predictor", "x"], "ridge"),
    "held out": (["learn", "data.csv", "--target", "price", "--held-out", "2"], "held-out is"),
    "folder": (["learn", "data.csv", "--target", "price", "--output", "used"], "used is in use"),
    "place": (["learn", "data.csv", "--target", "price", "--output", "data.csv/m"], "m cannot be"),
    "header": (["learn", "empty.csv", "--target", "price"], "empty.csv is empty"),
    "seed": (["learn", "data.csv", "--target", "price", "--seed", "-1"], "seed is -1; it must be"),
    "kind": (["learn", "data.npz", "--target", "price"], "data.npz is no table by its name"),
    "kind to predict": (["predict", "m", "data.npz"], "data.npz is no table by its name"),
    "kind to write": (["predict", "m", "data.csv", "--output", "a.xlsx"], "xlsx is no table by"),
    "no folder": (["predict", "m", "data.csv", "--output", "no/x.csv"], "no is no folder. Make it"),
    "no file to predict": (["predict", "used", "none.csv"], "none.csv does not exist"),
}


CALLS = """
import contextlib, io, json, sys
from gpflow_gvi.__main__ import main
found = {}
for case, (arguments, _) in json.loads(sys.argv[1]).items():
    with contextlib.redirect_stderr(io.StringIO()) as said:
        status = main(arguments)
    found[case] = status, said.getvalue()
assert "tensorflow" not in sys.modules
print(json.dumps(found))
"""


def test_mistakes_with_tables_are_told_before_tensorflow_is_imported(tmp_path):
    rows = "".join(f"{i % 7},{i % 5}.5\n" for i in range(9))
    (tmp_path / "data.csv").write_text(f"size,price\n{rows}")
    (tmp_path / "empty.csv").touch()
    np.savez(tmp_path / "data.npz", price=np.arange(9))
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes").touch()
    command = [sys.executable, "-c", CALLS, json.dumps(MISTAKES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.keys() == MISTAKES.keys()
    for case, (status, said) in found.items():
        assert status == 2
        assert MISTAKES[case][1] in said.splitlines()[-1]


def test_an_absent_extra_of_tables_is_named_before_tensorflow_is_imported():
    done = _call(["learn", "none.csv", "--target", "y"], absent=["matplotlib"])
    assert done.returncode == 2
    assert "pip install 'gpflow-gvi[tables]'" in done.stderr


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An interpreter with the wheel of this repository, and the dependencies of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(
        ROOT / "gpflow_gvi", source / "gpflow_gvi", ignore=shutil.ignore_patterns("__pycache__")
    )
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", *options, str(source)]
    subprocess.run(build, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    shutil.rmtree(source)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(packages)
    # Files of paths in these folders, such as that of an editable installation, are not read.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "venv" / "bin" / "python"


@pytest.mark.slow
def test_a_wheel_runs_without_the_repository(python, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def run(*arguments):
        command = [str(python), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
        ).stdout

    where = run("-c", "import gpflow_gvi; print(gpflow_gvi.__file__)")
    assert Path(where.strip()).is_relative_to(python.parents[1])
    assert "-6." in run(str(ROOT / "examples" / "quick_start.py"))
    shutil.copy(Path(where.strip()).parent / "demo" / "yacht.csv", tmp_path)
    options = ("--target", "resistance", "--effort", "fast")
    assert "rmse" in run("-m", "gpflow_gvi", "learn", "yacht.csv", *options)
    run("-m", "gpflow_gvi", "predict", "model", "yacht.csv")
    predicted = np.genfromtxt(tmp_path / "yacht_predicted.csv", delimiter=",", names=True)
    error = predicted["resistance_mean"] - predicted["resistance"]
    assert np.sqrt(np.mean(np.square(error))) < 0.2 * np.std(predicted["resistance"])
    for name in ("experiment.yaml", "small_sweep.yaml"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    assert "properties" in json.loads(run("-m", "gpflow_gvi", "schema"))
    assert '"nll"' in run("-m", "gpflow_gvi", "run", "experiment.yaml", "--folder", "one")
    sweep = ("sweep", "small_sweep.yaml", "--sample", "2", "--workers", "1", "--folder", "sweep")
    assert "2 runs done, 0 failed" in run("-m", "gpflow_gvi", *sweep)
    assert run("-m", "gpflow_gvi", "report", "sweep").strip() == str(Path("sweep", "report.html"))
