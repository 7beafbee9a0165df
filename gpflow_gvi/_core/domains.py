"""What observations a likelihood takes, other than labels: validated where they enter.

GPflow validates none of them: a negative count has the density NaN, and half a one some number.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import (
    Beta,
    Exponential,
    Gamma,
    Gaussian,
    Likelihood,
    Ordinal,
    Poisson,
    StudentT,
    SwitchedLikelihood,
)
from gpflow.likelihoods.multilatent import HeteroskedasticTFPConditional, MultiLatentLikelihood
from tensorflow_probability import distributions as tfd


class Domain(NamedTuple):
    """The values that an observation may have."""

    values: str
    """In words."""
    least: float = -np.inf
    most: float = np.inf
    ends: bool = True
    """Whether the least and the largest value are among them."""
    whole: bool = False
    """Whether they are whole numbers."""
    remedy: str = ""
    """The remedy for other values."""

    def holds(self, Y: AnyNDArray) -> AnyNDArray:
        """Return True where values are in the domain."""
        inside = (self.least <= Y) & (self.most >= Y)
        if not self.ends:
            inside &= (self.least < Y) & (self.most > Y)
        return inside & (np.round(Y) == Y) if self.whole else inside


@functools.singledispatch
def domain(likelihood: Likelihood | None) -> Domain:
    """Return the values that observations under a likelihood may have."""
    return Domain("real numbers")


@domain.register
def _(likelihood: Poisson) -> Domain:
    remedy = (
        "For rates give the counts, and Poisson(binsize=...); for other positive numbers take "
        "gpflow.likelihoods.Gamma()."
    )
    return Domain("counts, whole numbers from 0 on", least=0.0, whole=True, remedy=remedy)


@domain.register(Exponential)
@domain.register(Gamma)
def _(likelihood: Likelihood) -> Domain:
    remedy = (
        "Leave out rows with 0, or take a likelihood for them, as gpflow.likelihoods.Poisson() is "
        "for counts."
    )
    return Domain("positive numbers", least=0.0, ends=False, remedy=remedy)


@domain.register
def _(likelihood: Beta) -> Domain:
    remedy = "Divide percentages by 100, and move 0 and 1 inwards: ({0} * (N - 1) + 0.5) / N."
    return Domain("numbers between 0 and 1", least=0.0, most=1.0, ends=False, remedy=remedy)


@domain.register
def _(likelihood: Ordinal) -> Domain:
    largest = likelihood.num_bins - 1
    remedy = (
        f"{largest} bin_edges make {likelihood.num_bins} levels. numpy.unique({{0}}, "
        "return_inverse=True) numbers sorted values from 0."
    )
    return Domain(f"levels 0, ..., {largest}", 0.0, float(largest), whole=True, remedy=remedy)


@functools.singledispatch
def require(likelihood: Likelihood | None, name: str, Y: AnyNDArray, rows: AnyNDArray) -> None:
    """Raise unless observations [N, P] are of the kind, and of the columns, that one takes.

    :param rows: the numbers of their rows in a message: [N].
    """
    allowed = domain(likelihood)
    bad = ~allowed.holds(Y)
    if np.any(bad):
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"{name} is {Y[row, column]:.6g} in row {rows[row]}, column {column} (and there are "
            f"{np.sum(bad) - 1} others), but observations of {type(likelihood).__name__} must be "
            f"{allowed.values}. {allowed.remedy.format(name)}"
        )


@require.register
def _(likelihood: MultiLatentLikelihood, name: str, Y: AnyNDArray, rows: AnyNDArray) -> None:
    if Y.shape[1] != 1:
        raise ValueError(
            f"{name} has {Y.shape[1]} columns, but {type(likelihood).__name__} is of one "
            f"observation, [N, 1], with {likelihood.latent_dim} latent functions. Learn from one "
            "column at a time."
        )
    require.dispatch(object)(likelihood, name, Y, rows)


@require.register
def _(likelihood: SwitchedLikelihood, name: str, Y: AnyNDArray, rows: AnyNDArray) -> None:
    """Raise unless the last column numbers the likelihoods, and the others are of these."""
    if Y.shape[1] < 2:
        raise ValueError(
            f"{name} has 1 column, but SwitchedLikelihood takes two or more: the last one says "
            "which likelihood each row has, 0, 1, ...."
        )
    count = len(likelihood.likelihoods)
    which = Y[:, -1]
    bad = ~np.isin(which, np.arange(count))
    if np.any(bad):
        raise ValueError(
            f"{name} has {which[bad][0]:.6g} in row {np.argmax(bad)} of its last column, which "
            f"says which likelihood a row has: a whole number from 0 to {count - 1}."
        )
    for number, part in enumerate(likelihood.likelihoods):
        own = np.flatnonzero(which == number)
        require(part, name, Y[own, :-1], rows[own])


_LOCATION_SCALE = (tfd.Cauchy, tfd.Gumbel, tfd.Laplace, tfd.Logistic, tfd.Normal, tfd.StudentT)


@functools.singledispatch
def has_scale(likelihood: Likelihood | None) -> bool:
    """Return True if a likelihood fits observations in any units: real numbers with a scale.

    Counts, fractions and levels have no units; and times or amounts, with the exponential of f for
    their scale, have their unit in the mean of f.
    """
    return False


@has_scale.register(type(None))
@has_scale.register(Gaussian)
@has_scale.register(StudentT)
def _(likelihood: Likelihood | None) -> bool:
    return True


@has_scale.register
def _(likelihood: HeteroskedasticTFPConditional) -> bool:
    law = likelihood.conditional_distribution(tf.zeros([1, 2], tf.float64))
    return isinstance(law, _LOCATION_SCALE)
