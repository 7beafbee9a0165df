"""The registry: the classes and functions that `load` finds by itself.

A saved structure names classes and functions. A name is looked up in one table, of what the package
lists itself, or among the caller's `custom_objects`; no name is imported, and nothing that is found
by other means is built or called. So a folder can hold no more than the parts of models:

* GPflow's kernels, mean functions, likelihoods, inducing variables, models and quadratures, and the
  parts of this package;
* bijectors and distributions of TensorFlow Probability, by a list;
* link functions, by a list, and the types of NumPy's numbers.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Module, Parameter, PriorOn
from gpflow.quadrature.base import GaussianQuadrature

from .._core import plugins
from .._core.network_function import NetworkFunction

_BIJECTORS = """
    AffineScalar Chain CorrelationCholesky Cumsum Exp FillScaleTriL FillTriangular Identity Invert
    Log NormalCDF Ordered Permute Power Reciprocal Reshape Scale ScaleMatvecDiag ScaleMatvecTriL
    Shift Sigmoid SoftClip Softfloor Softplus Softsign Square Tanh TransformDiagonal Transpose
"""

_DISTRIBUTIONS = """
    Bernoulli Beta Binomial Categorical Cauchy Chi Chi2 Dirichlet Exponential Gamma GammaGamma
    GeneralizedNormal Gumbel HalfCauchy HalfNormal HalfStudentT Independent InverseGamma
    InverseGaussian Kumaraswamy Laplace Logistic LogLogistic LogNormal LogitNormal MixtureSameFamily
    MultivariateNormalDiag MultivariateNormalTriL NegativeBinomial Normal Pareto Poisson StudentT
    TransformedDistribution Triangular TruncatedCauchy TruncatedNormal Uniform VonMises Weibull
"""

_MATH = """
    abs acosh asinh atan atanh cos cosh cumsum erf erfc exp expm1 l2_normalize log log1p log_sigmoid
    log_softmax negative reciprocal rsqrt sigmoid sign sin sinh softmax softplus softsign sqrt
    square tan tanh
"""

_NN = "elu gelu leaky_relu relu relu6 selu silu"

_FUNCTIONS = {
    "gpflow.likelihoods.utils:inv_probit": gpflow.likelihoods.utils.inv_probit,
    **{f"tensorflow.math:{name}": getattr(tf.math, name) for name in _MATH.split()},
    **{f"tensorflow.nn:{name}": getattr(tf.nn, name) for name in _NN.split()},
}

_MORE_THAN_ATTRIBUTES = ("builtins", "keras", "tensorflow", "tf_keras")
"""Packages whose objects are more than their attributes."""


def find(name: str, custom_objects: Mapping[str, Any]) -> Any:
    """Return the class or function that a name stands for.

    :param name: `module:name`.
    :param custom_objects: the caller's own, by name or by `module:name`.
    """
    if name in table():
        return table()[name]
    last = name.rpartition(":")[2].rpartition(".")[2]
    for key in (name, last):
        if key in custom_objects:
            return custom_objects[key]
    last = last[:100]
    raise ValueError(
        f"{name:.200} may not be used here: it is not among the parts of models that load "
        f"builds by itself. If you know it, pass it, load(folder, custom_objects={{{last!r}: "
        f"{last}}}); if the package that has it is older than the one that saved, update that."
    )


def name_of(thing: Any) -> str:
    """Return the name `module:name` of a class or function, by which it can be found again."""
    for name, known in _FUNCTIONS.items():  # their own names are those of private modules
        if known is thing:
            return name
    name = qualified_name(thing)
    if name in table():
        return name
    if not isinstance(thing, type) and not _is_reached(thing):
        raise ValueError(
            "no name leads to it. Put what it does into a Keras model or a class, or define it at "
            "the top of a module and pass it to load, custom_objects={...}."
        )
    if name.partition(".")[0].partition(":")[0] in _MORE_THAN_ATTRIBUTES:
        raise ValueError("it is more than its attributes. Remove it before saving.")
    return name


def _is_reached(function: Any) -> bool:
    """Return True if the name of a function leads to it."""
    try:
        home = sys.modules[function.__module__]
        return functools.reduce(getattr, function.__qualname__.split("."), home) is function
    except (AttributeError, KeyError):
        return False


def qualified_name(thing: Any) -> str:
    """Return `module:name` of a class or function."""
    return f"{thing.__module__}:{thing.__qualname__}"


@functools.cache
def table() -> dict[str, Any]:
    """Return all classes and functions that need no caller, by name."""
    tfb, tfd = tfp.bijectors, tfp.distributions
    bijectors = [getattr(tfb, name) for name in _BIJECTORS.split() if hasattr(tfb, name)]
    distributions = [getattr(tfd, name) for name in _DISTRIBUTIONS.split()]
    classes = [*_parts(), *bijectors, *distributions, NetworkFunction, Parameter, PriorOn]
    classes += set(np.sctypeDict.values())
    return {qualified_name(cls): cls for cls in classes} | _FUNCTIONS


def _parts() -> list[type]:
    """Return the classes of the parts of models."""
    from .. import (
        calibration,
        covariances,
        divergences,
        gaussian_process,
        kernels,
        learning,
        likelihoods,
        losses,
        mean_functions,
        models,
    )

    # First: what they import defines more subclasses.
    upper = [*learning.SAVED, *plugins.registered("saved tables").SAVED]
    homes = (
        *(calibration, covariances, divergences, gaussian_process, kernels, likelihoods, losses),
        *(mean_functions, models),
    )
    packages = tuple(f"{name}." for name in ("gpflow", *(home.__name__ for home in homes)))
    bases = (Module, GaussianQuadrature, losses.Loss, divergences.wasserstein.CovarianceDistance)
    classes = itertools.chain(*map(_subclasses, bases))
    parts = [cls for cls in classes if f"{cls.__module__}.".startswith(packages)]
    results = [calibration.Conformal, calibration.ConformalQuantiles, calibration.ConformalSets]
    return [*parts, *results, *upper]


def _subclasses(base: type) -> Iterator[type]:
    """Yield a class and all that derive from it."""
    yield base
    cls: type
    for cls in base.__subclasses__():
        yield from _subclasses(cls)
