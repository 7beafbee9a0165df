"""Fits that are kept for kernels and likelihoods of the same structure, whose graphs they have."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from gpflow.config import default_float
from gpflow.functions import Function, Zero
from gpflow.kernels import Kernel
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Gaussian,
    Likelihood,
    MultiClass,
    Poisson,
    Softmax,
    StudentT,
)
from gpflow.utilities import parameter_dict

from ..._core.graphs import deepcopy
from ..._core.lru_cache import LRUCache
from ...gaussian_process import GaussianProcess
from ...kernels.structure import structure_of, structure_of_parameter
from ...regulariser.evidence import DataEvidence, Evidence, InducingEvidence
from ...regulariser.evidence_fit import EvidenceFit
from ...regulariser.site_fit import SiteFit
from ..rows.targets import prior_mean

MAX_STRUCTURES = 8
"""The number of structures whose fits are kept."""

fits = LRUCache(MAX_STRUCTURES)
"""The fits of structures."""

CONSTANTS: dict[type[Likelihood], tuple[str, ...]] = {
    Bernoulli: ("invlink",),
    MultiClass: ("num_classes",),
    Softmax: ("num_classes",),
    Poisson: ("invlink", "binsize"),
    Exponential: ("invlink",),
    Gamma: ("invlink",),
    Beta: ("invlink",),
    StudentT: ("df",),
}
"""Likelihoods that are known to be their parameters and these attributes."""


def evidence_fit(
    kernel: Kernel, likelihood: Gaussian, shape: tuple[int, int, int], evidence: Evidence
) -> EvidenceFit:
    """Return an `EvidenceFit` of a zero mean, one that has its graph already if there is one.

    :param kernel: k.
    :param likelihood: the noise, with one variance.
    :param shape: C, the number of means, D and J.
    :param evidence: what is maximised.
    """
    C, D, J = shape

    def make() -> EvidenceFit:
        prior = GaussianProcess(Zero(J), deepcopy(kernel))
        return EvidenceFit(
            prior, deepcopy(likelihood), evidence, features=[D], num_outputs=J, num_means=C
        )

    of_kernel = structure_of(kernel)
    if of_kernel is None or type(evidence) not in (DataEvidence, InducingEvidence):
        return make()
    of_noise = tuple(map(structure_of_parameter, likelihood.parameters))
    return fits.get_or_make((of_kernel, of_noise, shape, type(evidence), default_float()), make)


def site_fit(kernel: Kernel, likelihood: Likelihood, shape: tuple[int, int, int]) -> SiteFit:
    """Return a `SiteFit` for a kernel, one that has its graph already if there is one.

    :param kernel: k.
    :param likelihood: p(y | f).
    :param shape: C, the number of means, D and J.
    """

    J = shape[-1]

    def make() -> SiteFit:
        mean = prior_mean(likelihood, np.zeros([1, J], default_float()))
        return SiteFit(GaussianProcess(mean, deepcopy(kernel)), deepcopy(likelihood), shape[0])

    of_kernel, of_likelihood = structure_of(kernel), structure_of_likelihood(likelihood)
    if of_kernel is None or of_likelihood is None:
        return make()
    return fits.get_or_make((of_kernel, of_likelihood, shape, default_float()), make)


def structure_of_likelihood(likelihood: Likelihood) -> Hashable | None:
    """Return what is equal for likelihoods that differ in the values of parameters, if known."""
    kind = type(likelihood)
    if kind not in CONSTANTS or any(isinstance(part, Function) for part in likelihood.submodules):
        return None
    parameters = tuple(
        (path, structure_of_parameter(parameter))
        for path, parameter in sorted(parameter_dict(likelihood).items())
    )
    values = (getattr(likelihood, name) for name in CONSTANTS[kind])
    constants = tuple(each if callable(each) else np.asarray(each).tobytes() for each in values)
    return kind, constants, parameters
