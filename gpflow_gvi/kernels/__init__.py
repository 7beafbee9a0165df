"""Kernels that GPflow does not have.

Infinitely wide networks (`NNGP`), kernels on a network's features (`FeatureMap`), functions of
single features that are smooth or quasi-periodic (`AdditiveSpectralMixture`), trends whose slope
changes (`IntegratedBrownianMotion`), functions of the logarithms of inputs (`LogInputs`), and
correlated outputs as one function of the input and the number of the output (`OutputAsInput`).
"""

from . import nngp
from .feature_map import FeatureMap, LogInputs
from .integrated_brownian_motion import IntegratedBrownianMotion
from .nngp import NNGP
from .output_as_input import OutputAsInput
from .spectral_mixture import AdditiveSpectralMixture

__all__ = [
    "NNGP",
    "AdditiveSpectralMixture",
    "FeatureMap",
    "IntegratedBrownianMotion",
    "LogInputs",
    "OutputAsInput",
    "nngp",
]
