"""Kernels of infinitely wide networks (neural network Gaussian processes), without JAX."""

from .kernel import NNGP
from .layers import (
    AveragePooling2D,
    Conv2D,
    Dense,
    Erf,
    Flatten,
    GlobalAveragePooling2D,
    Layer,
    ReLU,
)

__all__ = [
    "NNGP",
    "AveragePooling2D",
    "Conv2D",
    "Dense",
    "Erf",
    "Flatten",
    "GlobalAveragePooling2D",
    "Layer",
    "ReLU",
]
