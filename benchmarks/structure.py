"""How the package is built: lines by package, and how far one call travels between its files.

    python -m benchmarks.structure            # lines of each entry, and the longest files
    python -m benchmarks.structure learn      # files that one call visits: learn, fit or run

A move is a call, or a return, from one file of the package to another (`sys.setprofile`).
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gpflow_gvi as gvi

ROOT = Path(gvi.__file__).parent


def lines() -> dict[str, int]:
    """Return the number of lines of each entry of the package."""
    found: dict[str, int] = {}
    for path in sorted(ROOT.rglob("*.py")):
        entry = path.relative_to(ROOT).parts[0]
        found[entry] = found.get(entry, 0) + len(path.read_text("utf-8").splitlines())
    return found


def longest(count: int = 5) -> list[tuple[int, str]]:
    """Return the longest files."""
    sizes = [
        (len(path.read_text("utf-8").splitlines()), str(path.relative_to(ROOT)))
        for path in ROOT.rglob("*.py")
    ]
    return sorted(sizes, reverse=True)[:count]


def travel(function: Callable[[], Any]) -> tuple[int, int]:
    """Return how many files a call visits, and how often it moves between them."""
    for module in pkgutil.walk_packages([str(ROOT)], "gpflow_gvi."):  # importing is no travel
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    visited: set[str] = set()
    stack: list[str] = []
    moves = 0

    def profile(frame: types.FrameType, event: str, argument: Any) -> None:
        nonlocal moves
        if event not in ("call", "return"):
            return
        name = frame.f_code.co_filename
        if not name.startswith(str(ROOT)):
            return
        visited.add(name)
        if not stack or stack[-1] != name:
            moves += bool(stack)
            stack[:] = [name]

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return len(visited), moves


def toy() -> tuple[Any, Any]:
    """Return a curve."""
    rng = np.random.default_rng(0)
    X = np.linspace(0.0, 1.0, 200)[:, None]
    return X, np.sin(6.0 * X) + 0.1 * rng.normal(size=X.shape)


def learn() -> Callable[[], Any]:
    """Return a call of `learn` on a curve."""
    return lambda: gvi.learn(toy(), epochs=2)


def fit() -> Callable[[], Any]:
    """Return a call of `PGVI.fit`."""
    import gpflow

    X, Y = toy()
    P = gvi.GaussianProcess(gpflow.functions.Zero(), gpflow.kernels.SquaredExponential())
    Z = gpflow.inducing_variables.InducingPoints(X[::10])
    Q = gvi.GaussianProcess(
        gvi.mean_functions.Inducing(P.kernel, Z), gvi.covariances.CholeskySVGP(P.kernel, Z)
    )
    model = gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(0.1), num_data=len(X))
    model.compile("adam")
    return lambda: model.fit((X, Y), epochs=2, verbose=0)


def run() -> Callable[[], Any]:
    """Return one run of a sweep."""
    from gpflow_gvi.experiments import Experiment
    from gpflow_gvi.experiments.run import run as run_experiment

    rows = np.hstack(toy())
    folder = Path(tempfile.mkdtemp())
    np.savetxt(folder / "rows.csv", rows, delimiter=",", header="x,y", comments="")
    data = {"kind": "table", "path": str(folder / "rows.csv"), "inputs": ["x"], "outputs": ["y"]}
    experiment = Experiment.model_validate({"data": data, "training": {"epochs": 2}})
    return lambda: run_experiment(experiment, folder / "runs", pictures=False)


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("call", nargs="?", choices=["learn", "fit", "run"])
    call = parser.parse_args().call
    if call is not None:
        files, moves = travel({"learn": learn, "fit": fit, "run": run}[call]())
        print(f"{call}: {files} files, {moves} moves")
        return
    found = lines()
    for entry, count in found.items():
        print(f"{count:6} {entry}")
    print(f"{sum(found.values()):6} in all, {len(found)} entries")
    print("longest:", ", ".join(f"{name} ({count})" for count, name in longest()))


if __name__ == "__main__":
    main()
