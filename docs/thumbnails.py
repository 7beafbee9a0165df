"""Draw the thumbnails of the notebooks, `pictures/notebooks/NAME.png`: a picture of each, small.

    python docs/thumbnails.py [NAME ...]

runs these notebooks, or all of them.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent
WIDTH = 320
"""Pixels."""

SHOWN = {"divergences": 2, "robust": 2, "regression": 1, "sampling": 2}
"""Which picture of a notebook is shown, where it is not the first."""


def main(names: list[str]) -> None:
    """Run notebooks, and write a picture of each."""
    plt.switch_backend("agg")
    for name in names or sorted(path.stem for path in (FOLDER / "notebooks").glob("*.py")):
        plt.close("all")
        runpy.run_path(str(FOLDER / "notebooks" / f"{name}.py"))
        figure = plt.figure(plt.get_fignums()[SHOWN.get(name, 1) - 1])
        path = FOLDER / "pictures" / "notebooks" / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        figure.savefig(path, dpi=WIDTH / figure.get_figwidth())


if __name__ == "__main__":
    main(sys.argv[1:])
