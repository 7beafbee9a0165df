"""Networks of each kind for the tests of NNGP kernels, with inputs that suit them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from gpflow_gvi.kernels.nngp import (
    AveragePooling2D,
    Conv2D,
    Dense,
    Erf,
    Flatten,
    GlobalAveragePooling2D,
    Layer,
    ReLU,
    tiles,
)

IMAGE = (5, 4, 2)

DENSE: dict[str, Callable[[], list[Layer]]] = {
    "relu": lambda: [Dense(1.8, 0.3), ReLU(), Dense(1.6), ReLU(), Dense(0.7, 0.1)],
    "erf": lambda: [Dense(2.5, 0.2), Erf(), Dense(1.5, 0.4), Erf(), Dense(1.3)],
}

IMAGES: dict[str, Callable[[], list[Layer]]] = {
    "flatten first": lambda: [Flatten(), Dense(1.8, 0.3), ReLU(), Dense()],
    "same": lambda: [Conv2D(3, bias_variance=0.2), ReLU(), Conv2D((2, 3)), Erf(), Flatten()],
    "valid": lambda: [
        Conv2D((3, 2), padding="valid", weight_variance=1.7, bias_variance=0.1),
        ReLU(),
        Flatten(),
        Dense(1.4, 0.2),
        Erf(),
        Dense(),
    ],
    "strides": lambda: [
        Conv2D(2, bias_variance=0.1),
        ReLU(),
        Conv2D(3, strides=2, bias_variance=0.2),
        ReLU(),
        Flatten(),
    ],
    "valid strides": lambda: [
        Conv2D(2, strides=(2, 1), padding="valid", bias_variance=0.3),
        Erf(),
        Flatten(),
        Dense(),
    ],
    "pooling": lambda: [
        Conv2D(3, bias_variance=0.1),
        ReLU(),
        AveragePooling2D(2),
        Conv2D(2, bias_variance=0.2),
        Erf(),
        Flatten(),
        Dense(),
    ],
    "overlapping pooling": lambda: [
        Conv2D(2, bias_variance=0.1),
        AveragePooling2D((2, 3), strides=(1, 1)),
        ReLU(),
        Conv2D(3, strides=2, bias_variance=0.1),
        ReLU(),
        AveragePooling2D((2, 1), strides=1),
        Flatten(),
    ],
    "global": lambda: [
        Conv2D(3, bias_variance=0.1),
        ReLU(),
        Conv2D(2, strides=2, bias_variance=0.4),
        Erf(),
        GlobalAveragePooling2D(),
        Dense(1.2),
        ReLU(),
        Dense(),
    ],
    "pooling and global": lambda: [
        AveragePooling2D((2, 1)),
        Conv2D(2, padding="valid", bias_variance=0.3),
        GlobalAveragePooling2D(),
        Erf(),
    ],
}

NETWORKS = DENSE | IMAGES

SMALL_TILE = 100
"""So few covariances that a tile is one to five pairs of these images."""


def also_tiled(
    names: list[str], also: list[str], *, slow: Sequence[str] = ()
) -> pytest.MarkDecorator:
    """Parametrise by the names of networks, once more with tiles for some of them.

    Those of `slow` run with tiles if slow tests run.
    """
    return pytest.mark.parametrize(
        ("name", "tile"),
        [
            *((name, tiles.TILE) for name in names),
            *((name, SMALL_TILE) for name in also),
            *(pytest.param(name, SMALL_TILE, marks=pytest.mark.slow) for name in slow),
        ],
        indirect=["tile"],
    )


def inputs(name: str, number: int, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(number, *(IMAGE if name in IMAGES else (6,))))
