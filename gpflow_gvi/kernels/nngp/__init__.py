"""Kernels of infinitely wide networks (neural network Gaussian processes), without JAX."""

from .image_layers import AveragePooling2D, Conv2D, Flatten, GlobalAveragePooling2D
from .kernel import NNGP
from .layers import Dense, Erf, Layer, ReLU

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
