"""A mutation run of the core mathematics: which changes of the code do no tests notice?

    python -m benchmarks.mutants --number 100

Cosmic Ray changes one operator, number or condition of a module at a time; the unit tests of its
package run on each change, in copies of the repository. The sample depends on the seed alone.
What survives is printed as a difference: it needs a test, unless the change makes none.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cosmic_ray.commands.init import init
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.testing import run_tests
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome

ROOT = Path(__file__).parents[1]
CORE = (
    "_core/linalg.py",
    "calibration",
    "covariances",
    "divergences",
    "gaussian_process.py",
    "losses.py",
    "mean_functions",
    "models",
    "regulariser",
)
"""Parts of the package that are changed."""

ALSO = {"covariances/conditional.py": "tests/unit/test_gaussian_process.py"}
"""Tests that are not in the folder of a module, but of it."""

OTHERS = ("Bit", "Shift", "Invert", "Decorator", "ExceptionReplacer")
"""Operators that change annotations (`X | None`), that every test notices (floats have no bits), or
that change what is no mathematics."""

TIMEOUT = 400.0
"""Of the tests of one mutant, in seconds; what takes longer counts as noticed."""


def modules(part: str) -> list[str]:
    """Return the files of a part, relative to the repository."""
    path = ROOT / "gpflow_gvi" / part
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return [str(file.relative_to(ROOT)) for file in files if file.name != "__init__.py"]


def tests_of(module: str) -> str:
    """Return the tests that must notice a change of a module, those that name it most first."""
    path = Path(module).relative_to("gpflow_gvi")
    folder = ROOT / "tests" / "unit" / path.parent
    if folder.name in ("_core", "unit"):  # these are of many modules that do not know each other
        return str((folder / f"test_{path.name}").relative_to(ROOT))
    while not folder.is_dir():  # a package whose tests are in the folder above
        folder = folder.parent
    files = sorted(folder.rglob("test_*.py"), key=lambda f: -f.read_text().lower().count(path.stem))
    found = [str(file.relative_to(ROOT)) for file in files]
    return " ".join([*found, *([ALSO[str(path)]] if str(path) in ALSO else [])])


def sample(number: int, seed: int, parts: list[str]) -> list[tuple[Any, str]]:
    """Return mutations with the tests for each, drawn at random from all parts."""
    found = []
    for part in parts:
        with use_db(":memory:", WorkDB.Mode.create) as database:
            init(modules(part), database, {})
            mutations = [item.mutations[0] for item in database.work_items]
        # In the order of the code: the database has none.
        mutations.sort(key=lambda m: (str(m.module_path), m.operator_name, m.occurrence))
        found += [
            (m, tests_of(str(m.module_path)))
            for m in mutations
            if not any(o in m.operator_name for o in OTHERS)
        ]
    random.Random(seed).shuffle(found)
    return found[:number]


def prepare(folder: str) -> None:
    """Let this process work in a copy of the repository of its own."""
    copy = Path(tempfile.mkdtemp(dir=folder))
    for name in ("gpflow_gvi", "tests", "pyproject.toml"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    os.chdir(copy)


def command(tests: str) -> str:
    """Return what runs tests in the copy."""
    return f"{sys.executable} -m pytest -q -x -p no:cacheprovider {tests}"


def passes(tests: str) -> bool:
    """Return whether tests pass on the code as it is, without which they notice nothing."""
    return run_tests(command(tests), TIMEOUT)[0] is TestOutcome.SURVIVED


def survives(mutation: Any, tests: str) -> str | None:
    """Return the difference that a mutation makes if the tests pass with it."""
    result = mutate_and_test([mutation], command(tests), TIMEOUT)
    return result.diff if result.test_outcome is TestOutcome.SURVIVED else None


def main() -> None:
    """Run a sample of mutants, and print what survives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=100, help="of mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--workers", type=int, default=2, help="of processes")
    parser.add_argument("--only", nargs="+", choices=CORE, default=CORE, help="parts")
    options = parser.parse_args()
    # Each mutant is another process of TensorFlow; one thread each, and no bytecode of old code.
    os.environ.update(PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1", TF_CPP_MIN_LOG_LEVEL="3")
    os.environ.update(TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="1", PYTHONPATH="")
    os.chdir(ROOT)
    chosen = sample(options.number, options.seed, options.only)
    print("mutants:", dict(collections.Counter(str(m.module_path) for m, _ in chosen)))
    start, survivors = time.monotonic(), 0
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ProcessPoolExecutor(
            options.workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=prepare,
            initargs=(folder,),
        ) as pool,
    ):
        used = sorted({" ".join(sorted(tests.split())) for _, tests in chosen})
        failing = [
            tests for tests, good in zip(used, pool.map(passes, used), strict=True) if not good
        ]
        if failing:
            parser.exit(1, f"these tests fail without a mutation: {', '.join(failing)}\n")
        for difference in pool.map(survives, *zip(*chosen, strict=True)):
            if difference is not None:
                survivors += 1
                print(difference, flush=True)
    minutes = (time.monotonic() - start) / 60.0
    print(f"{survivors} of {len(chosen)} mutants survived, in {minutes:.0f} minutes")


if __name__ == "__main__":
    main()
