"""Variational covariances, the r of Q = GP(m_Q, r). Each is a GPflow kernel."""

from .covariance import Covariance, SparseCovariance
from .sparse_posterior import FixedSparsePosterior, SparsePosterior
from .svgp import CholeskySVGP, DiagonalSVGP, KernelisedSVGP, SVGPCovariance
from .tempered import Tempered

__all__ = [
    "CholeskySVGP",
    "Covariance",
    "DiagonalSVGP",
    "FixedSparsePosterior",
    "KernelisedSVGP",
    "SVGPCovariance",
    "SparseCovariance",
    "SparsePosterior",
    "Tempered",
]
