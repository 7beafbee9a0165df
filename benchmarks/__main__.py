"""The benchmarks side by side: `make benchmark`, or `python -m benchmarks`.

They print tables in Markdown, the last of them of ratios to the best of others, and write the rows
and a description of the machine to one JSON file. A benchmark whose library or data are missing is
omitted with a message. The other files of this folder are studies, each a script.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import (
    device,
    end_to_end,
    growth,
    nngp_against_neural_tangents,
    predictions,
    selection,
    steps,
    timing,
    wasserstein,
)
from .against_peers import comparisons
from .peers import can_import
from .timing import Row

Tables = dict[str, list[Row]]


def nngp(options: argparse.Namespace) -> Tables:
    """Return seconds of NNGP Gram matrices, beside neural-tangents where that can be imported."""
    python = options.neural_tangents or sys.executable
    if not can_import("neural_tangents", python):
        print(f"nngp: {python} cannot import neural-tangents, left out")
        return {}
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "reference.npz")
        script = nngp_against_neural_tangents.__file__
        quick = ["--quick"] if options.quick else []
        subprocess.run([python, script, "reference", file, *quick], check=True)
        return {"NNGP": nngp_against_neural_tangents.times(file, quick=options.quick)}


def selected(options: argparse.Namespace) -> Tables:
    """Return seconds of selection beside NumPy."""
    return {"Selection": selection.rows(options)}


PARTS: dict[str, Callable[[argparse.Namespace], Tables]] = {
    "growth": growth.run,  # first, as it reports the peak of the process's memory
    "predictions": predictions.run,
    "steps": steps.run,
    "fit": steps.run_in_fit,
    "wasserstein": wasserstein.run,
    "device": device.run,
    "selection": selected,
    "nngp": nngp,
    "end_to_end": end_to_end.run,
}


def environment() -> dict[str, Any]:
    """Return the versions and the machine that the figures depend on."""
    packages = ("gpflow-gvi", "gpflow", "tensorflow", "keras", "numpy")
    return {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one used",
        **{name: importlib.metadata.version(name) for name in packages},
    }


def main() -> None:
    """Run the parts, print tables and write JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; all if none are named")
    parser.add_argument("--output", type=Path, default=Path("benchmark.json"))
    timing.add_arguments(parser)
    parser.add_argument(
        "--neural-tangents", metavar="PYTHON", help="an interpreter that has neural-tangents"
    )
    for part in (steps, growth, end_to_end, device):
        part.add_arguments(parser)
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: the parts are {', '.join(PARTS)}")
    timing.one_core()
    results: dict[str, Any] = {"environment": environment(), "tables": {}}
    for name, part in PARTS.items():
        if name in (options.parts or PARTS):
            for title, rows in part(options).items():
                print(timing.titled(title, rows), flush=True)
                results["tables"][title] = rows
            options.output.write_text(json.dumps(results, indent=1))
    if beside := comparisons(results["tables"]):
        print(timing.titled("Beside others", beside))
    print(f"written: {options.output}")


if __name__ == "__main__":
    main()
