"""Regression curves with gaps: the arrays of the thesis, and others made from a seed.

1,000 equally spaced points on [-2, 2] with noise of standard deviation 0.5, the same for all ten
curves. The range is cut into 20 segments: some, drawn at random, are the test set, gaps in the
data; of the rest 80 % are for training and 20 % for validation. Wu (2023), "Generalised variational
inference for Gaussian processes", section 8.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy import cos, pi, sin

Array = np.ndarray[Any, np.dtype[np.float64]]

NOISE = 0.5
NUM_POINTS = 1000
NUM_SEGMENTS = 20

FUNCTIONS: tuple[Callable[[Array], Array], ...] = (
    lambda x: 2 * sin(0.35 * pi * (x - 3) ** 2) + x**2,
    lambda x: 2 * sin(2 * pi * x),
    lambda x: 1.2 * cos(2 * pi * x) + x**2,
    lambda x: 2 * sin(1.5 * pi * x) + 0.6 * cos(4.5 * pi * x) + sin(3.5 * pi * x),
    lambda x: 2 * sin(2 * pi * x) + x,
    lambda x: 2 * sin(pi * x) + 0.5 * x**3,
    lambda x: 4 * sin(pi * x) + 2 * sin(3 * pi * x) - 2 * x,
    lambda x: 2 * cos(pi * x) + sin(3 * pi * x) - x**2,
    lambda x: sin(0.5 * pi * (x - 2) ** 2),
    lambda x: 3 * np.sqrt(4 - x**2) + sin(pi * x),
)
"""The ten functions, by their numbers."""

DRAWN_WITH_TEN_GAPS = (5, 6, 8)
"""The numbers of the curves that the thesis shows with ten gaps, too."""

_ARRAYS = Path(__file__).with_name("thesis_curves.npz")


def thesis_curve(number: int, *, gaps: Literal[5, 10] = 5) -> dict[str, tuple[Array, Array]]:
    """Return (x, y), [N, 1] each, of the parts "train", "validation" and "test", as in the thesis.

    :param number: which curve, from 0 to 9; with ten gaps one of `DRAWN_WITH_TEN_GAPS`.
    :param gaps: how many of the 20 segments are the test set.
    """
    name = f"curve{number}" if gaps == 5 else f"curve{number}_{gaps}intervals"
    with np.load(_ARRAYS, allow_pickle=False) as file:
        return {
            part: (file[f"{name}/x_{part}"], file[f"{name}/y_{part}"])
            for part in ("train", "validation", "test")
        }


def make_curve(
    number: int, *, gaps: Literal[5, 10] = 5, seed: int = 0
) -> dict[str, tuple[Array, Array]]:
    """Return (x, y), [N, 1] each, of the parts "train", "validation" and "test".

    :param number: which curve, from 0 to 9.
    :param gaps: how many of the 20 segments are the test set.
    :param seed: the seed of the noise, which all curves share, and with the number of the segments.
    """
    x = np.linspace(-2.0, 2.0, NUM_POINTS)
    y = FUNCTIONS[number](x) + np.random.default_rng(seed).normal(scale=NOISE, size=NUM_POINTS)
    random = np.random.default_rng([seed, number])
    in_gap = np.isin(
        np.arange(NUM_POINTS) * NUM_SEGMENTS // NUM_POINTS,
        random.choice(NUM_SEGMENTS, gaps, replace=False),
    )
    rest = random.permutation(np.flatnonzero(~in_gap))
    count = len(rest) // 5
    rows = {"train": rest[count:], "validation": rest[:count], "test": np.flatnonzero(in_gap)}
    return {name: (x[part, None], y[part, None]) for name, part in rows.items()}
