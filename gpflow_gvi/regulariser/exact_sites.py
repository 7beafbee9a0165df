"""The bound of the evidence for given sites where each row is an inducing point, by NumPy.

It is that of `sites` (Adam et al. 2021) for Z = X. Given sites ỹ with noise S = diag s², and with
P = (K + S)⁻¹, α = P (ỹ - m_P(X)),

    E f = ỹ - S α,    V[f] = S - S P S,

    bound = Σ_n E log p(y_n | f) - ½ (αᵀKα - Σ_n v_n / s_n² + log |K + S| - log |S|),

as tr K⁻¹V[f] = N - Σ_n v_n / s_n². With g and h the derivatives of the expectations in means and
variances v, and c = ½ α + P S (g - α), those of the bound are

    in K         c αᵀ - ½ P + P (S² diag h + ½ S) P,
    in m_P(X)    c + ½ α.

Up to some two hundred rows a factor of K + S for each output takes less time than a hundred points
do, and K itself needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from gpflow.base import AnyNDArray, MeanAndVariance
from scipy.linalg import lapack

from .expectations import Expectation
from .sites import MIN_PRECISION, MIN_VARIANCE, Sites, Step

Expect = Callable[[AnyNDArray, AnyNDArray], Expectation]
"""From mean and variance of f at rows, [N, J] each."""


class Given(NamedTuple):
    """P given the sites of one output; NaN where K + S has no factor."""

    root: AnyNDArray
    """H, an upper triangle with H Hᵀ = (K + S)⁻¹: [N, N]."""
    alpha: AnyNDArray
    """[N]."""
    log_determinant: float
    """log |K + S|."""

    @classmethod
    def of(cls, K: AnyNDArray, variance: AnyNDArray, residual: AnyNDArray) -> Given:
        """Return P given residuals ỹ - m_P and s², [N] each, by the lower triangle of K."""
        S = K.copy()
        np.einsum("nn->n", S)[:] += variance
        # LAPACK's matrices have the other order: its upper triangle is the lower one here.
        factor, info = lapack.dpotrf(S.T, lower=0, clean=1, overwrite_a=1)
        if info:
            nothing = np.full_like(K, np.nan)
            return cls(nothing, nothing[0], np.nan)
        log_determinant = 2.0 * float(np.sum(np.log(np.diagonal(factor))))
        root, _ = lapack.dtrtri(factor, lower=0, overwrite_c=1)
        return cls(root, root @ (residual @ root), log_determinant)

    @property
    def inverse(self) -> AnyNDArray:
        """(K + S)⁻¹: [N, N]."""
        half, _ = lapack.dlauum(self.root, lower=0)
        inverse = half + half.T
        np.einsum("nn->n", inverse)[:] *= 0.5
        return inverse


def given_sites(K: AnyNDArray, m: AnyNDArray, sites: Sites) -> Iterator[Given]:
    """Yield P given the sites of each output: they share K, of which the lower triangle counts."""
    variance, residual = np.asarray(sites.variance), np.asarray(sites.Y) - m
    for j in range(m.shape[1]):
        yield Given.of(K, variance[:, j], residual[:, j])


def predictions(
    given: Iterable[Given], Kx: AnyNDArray, k: AnyNDArray, m: AnyNDArray
) -> MeanAndVariance:
    """Return mean and variance of f at new rows: [B, J] each.

    :param Kx: the covariance of rows and new rows, [N, B]; `k` is the variance, [B], and `m` the
        mean, [B, J], of P at these.
    """
    mean, variance = m.copy(), np.empty_like(m)
    for j, each in enumerate(given):
        mean[:, j] += Kx.T @ each.alpha
        variance[:, j] = k - np.sum(np.square(each.root.T @ Kx), axis=0)
    return mean, np.maximum(variance, MIN_VARIANCE)


class ExactBound:
    """The bound for given sites, and its derivatives.

    :param K: the covariance of the rows, of which the lower triangle counts: [N, N].
    :param m: m_P(X), [N, J].
    :param keeps: whether inverses are kept for the derivatives, one for each output.
    """

    def __init__(
        self, K: AnyNDArray, m: AnyNDArray, sites: Sites, expect: Expect, *, keeps: bool = True
    ) -> None:
        Y, self._variance = map(np.asarray, sites)
        s2, self._given, log_determinants = self._variance, list[Given](), 0.0
        alpha, v = np.empty_like(m), np.empty_like(m)
        for j, given in enumerate(given_sites(K, m, sites)):
            alpha[:, j] = given.alpha
            of_inverse = np.einsum("nm,nm->n", given.root, given.root)
            v[:, j] = s2[:, j] - np.square(s2[:, j]) * of_inverse
            log_determinants += given.log_determinant
            self._given += [given] * keeps
        v = np.maximum(v, MIN_VARIANCE)
        self._mean = Y - s2 * alpha
        self._expected = expect(self._mean, v)
        quadratic = np.sum(alpha * (Y - m - s2 * alpha))  # Kα = ỹ - m - Sα
        logs = log_determinants - np.sum(np.log(s2))
        self.value = self._expected.value - 0.5 * float(quadratic - np.sum(v / s2) + logs)

    def step(self) -> Step:
        """Return the bound, and what an update makes of the sites."""
        _, by_mean, by_variance, _ = self._expected
        precision = np.maximum(-2.0 * by_variance, MIN_PRECISION)
        return Step(self.value, Sites(self._mean + by_mean / precision, 1.0 / precision))

    def gradients(self) -> tuple[AnyNDArray, AnyNDArray, Sequence[AnyNDArray]]:
        """Return the derivatives in K, in m_P(X), and in the likelihood's variables.

        That in K is what each pair below the diagonal has for both of its orders.
        """
        _, g, h, by_parameters = self._expected
        by_K: AnyNDArray = np.zeros([len(g), len(g)])
        by_m = np.empty_like(g)
        for j, given in enumerate(self._given):
            P, alpha, s2 = given.inverse, given.alpha, self._variance[:, j]
            c = 0.5 * alpha + P @ (s2 * (g[:, j] - alpha))
            by_m[:, j] = c + 0.5 * alpha
            outer = np.outer(c, alpha)
            by_K += (P * (2.0 * np.square(s2) * h[:, j] + s2)) @ P - P + outer + outer.T
        np.einsum("nn->n", by_K)[:] *= 0.5
        return np.tril(by_K), by_m, by_parameters
