"""Kernels that GPflow does not have.

Infinitely wide networks (`NNGP`), kernels on a network's features (`FeatureMap`), and functions of
single features that are smooth or quasi-periodic (`AdditiveSpectralMixture`).
"""

from . import nngp
from .feature_map import FeatureInducingPoints, FeatureMap
from .nngp import NNGP
from .spectral_mixture import AdditiveSpectralMixture

__all__ = [
    "NNGP",
    "AdditiveSpectralMixture",
    "FeatureInducingPoints",
    "FeatureMap",
    "nngp",
]
