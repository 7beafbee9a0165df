"""The time and the test density of `learn` and of GPflow's SGPR on real data.

    GPFLOW_GVI_DATA=... python -m benchmarks.end_to_end

`learn` has its default recipe, and all its steps from raw data to a tempered posterior are timed;
SGPR has as many inducing points, those of k-means (`regression.py`). They alternate on
each split; the NLL is that of the test part, on standardised targets.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

if __package__:
    from . import regression, timing
    from .data import Split, add_argument, add_quick, load_split, standardised
    from .timing import Row
    from .trees import measured
else:
    import regression
    import timing
    from data import Split, add_argument, add_quick, load_split, standardised
    from timing import Row
    from trees import measured

MODELS = {
    "learn": regression.default,
    "learn, fast": regression.fast,
    "GPflow SGPR": regression.sgpr,
}


def end_to_end(
    folder: Path, data: list[str], splits: int, max_rows: int | None = None
) -> list[Row]:
    """Return the medians over splits for each model and data set.

    :param max_rows: the number of rows that are taken of each part.
    """
    rows = []
    for name in data:
        found: dict[str, list[tuple[float, float]]] = {model: [] for model in MODELS}
        for split in range(splits):
            part = standardised(load_split(folder, name, split))
            part = Split(*(value[:max_rows] for value in part))
            for model, fit in MODELS.items():
                row = measured(name, split, model, part, fit)
                found[model].append((row.seconds, row.nll))
        middle = {model: np.median(figures, axis=0) for model, figures in found.items()}
        rows += [
            {
                "data": name,
                "model": model,
                "processor s": float(seconds),
                "ratio": float(seconds / middle["GPflow SGPR"][0]),
                "NLL": float(nll),
            }
            for model, (seconds, nll) in middle.items()
        ]
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_argument(parser)
    parser.add_argument("--data", nargs="+", default=["yacht", "energy"], help="or protein")
    parser.add_argument("--splits", type=int, default=3, help="number of splits of each data set")


def run(options: argparse.Namespace) -> dict[str, list[Row]]:
    """Measure, and return the table."""
    if options.data_dir is None:
        print("end_to_end: GPFLOW_GVI_DATA names no folder with data sets, left out")
        return {}
    small = (options.data[:1], 1, 60) if options.quick else (options.data, options.splits)
    return {"End to end": end_to_end(Path(options.data_dir), *small)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    add_quick(parser)
    timing.one_core()
    for title, rows in run(parser.parse_args()).items():
        print(timing.titled(title, rows), flush=True)


if __name__ == "__main__":
    main()
