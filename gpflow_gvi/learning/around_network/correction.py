"""What the training rows say of a class, and the network does not: a correction of its logits.

    h'(x) = h(x) + Σ_l c_l m_l(x),    c_l ≥ 0

m_l is the mean of a sparse posterior given the training rows, by a kernel on one group of features:
those of a layer, or the principal components of the inputs. Under the bound of Böhning (1992) on
the likelihood, which P's covariance has as well, labels count as observations (Y - p) / W of the
noise variance 1/W, p being the frequencies of the classes. A network that was trained for too long
knows its training rows by heart, and m_l errs elsewhere, so that the two together are better than
each. How much each of them counts is learned from rows that neither has seen, as in stacking
(Wolpert 1992, "Stacked generalization"); these few numbers need no more than a hundred rows. Far
from the training rows m_l is zero.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood
from gpflow.utilities import set_trainable
from scipy.optimize import minimize
from scipy.special import log_softmax

from ..._core import progress
from ..._core.row_blocks import by_blocks
from ...mean_functions import Inducing
from ...regulariser.inducing_points import uniform
from ..rows.scaling import Scaling
from ..rows.split import Rows

NUM_COMPONENTS = 64
"""Principal components of the inputs."""

MAX_ROWS_OF_AXES = 1000
"""The axes are those of not more rows than these."""

NUM_FOLDS = 5


def inverse_curvature(likelihood: Likelihood) -> AnyNDArray:
    """Return 1/W, [1] for all classes: the smallest under a softmax (Böhning 1992).

    For numbers it is the noise variance of each column: [J].
    """
    if isinstance(likelihood, Gaussian):
        return np.asarray(likelihood.variance)
    return np.full(1, 4.0 if isinstance(likelihood, Bernoulli) else 2.0, default_float())


def unseen_rows(X: AnyNDArray, train: AnyNDArray) -> AnyNDArray:
    """Return True for each of X that is not among the training inputs: [N].

    m_l knows the labels of those that are, which would say that it is always right.
    """
    known = {row.tobytes() for row in train}
    return np.array([row.tobytes() not in known for row in X.astype(train.dtype)])


def principal_axes(
    X: AnyNDArray, floats: Callable[[AnyNDArray], AnyNDArray], units: Scaling
) -> AnyNDArray:
    """Return the directions in which training inputs, in random order, vary most: [D, Q].

    :param floats: what makes numbers of inputs [N, D...].
    :param units: in which they are taken.
    """
    rows = floats(X[:MAX_ROWS_OF_AXES])
    rows = np.asarray(units.scaled(rows.reshape(len(rows), -1)))
    _, _, axes = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    return np.asarray(axes[:NUM_COMPONENTS].T, rows.dtype)


def correction(
    train: Rows,
    unseen: Rows,
    kernels: Sequence[Kernel],
    likelihood: Likelihood,
    num_inducing: int,
    seed: int,
) -> MeanFunction | None:
    """Return Σ_l c_l m_l, or None where it does not predict unseen rows better.

    Whether it does is told by rows that the weights have not seen either, beside a temperature of
    the logits alone.

    :param train: rows [h(x), ...] and class indices, [N, 1].
    :param unseen: those of rows that the network has not been trained with.
    :param kernels: the kernel of each m_l.
    """
    if not len(unseen[0]):
        return None
    X, Y = train
    J = 1 if likelihood.latent_dim is None else int(likelihood.latent_dim)
    codes = np.eye(J)[Y[:, 0].astype(int)] if J > 1 else Y
    noise = inverse_curvature(likelihood)
    targets = (noise * (codes - codes.mean(axis=0))).astype(X.dtype)
    Z, _ = uniform(X, num_inducing, seed=seed)
    parts = [Inducing.from_data(kernel, Z, (X, targets), noise) for kernel in kernels]
    labels = unseen[1][:, 0].astype(int)
    h = _of_all_classes(unseen[0][:, :J])
    m = np.stack([_of_all_classes(*by_blocks(lambda X, m=m: (m(X),), unseen[0])) for m in parts])
    order = np.random.default_rng(seed).permutation(len(labels))
    folds = [fold for fold in np.array_split(order, NUM_FOLDS) if len(fold)]
    losses = [_left_out(h, of, labels, folds) for of in (m[:0], m)]
    progress.found(nll_by_temperature=losses[0], nll_corrected=losses[1])
    if not losses[1] < losses[0]:
        return None
    factor, weights = _weights(h, m, labels)
    used = [
        Inducing(part.kernel, part.inducing_variable, q_mu=part.q_mu * float(c / factor))
        for c, part in zip(weights, parts, strict=True)
        if c > 0.0
    ]
    for part in used:
        set_trainable(part, False)
    return functools.reduce(operator.add, used) if used else None


def _of_all_classes(f: AnyNDArray) -> AnyNDArray:
    """Return logits of each class, given those of the second of two: [N, K]."""
    f = np.asarray(f, float)
    return np.pad(f, [(0, 0), (1, 0)]) if f.shape[1] == 1 else f


def _left_out(
    h: AnyNDArray, m: AnyNDArray, labels: AnyNDArray, folds: Sequence[AnyNDArray]
) -> float:
    """Return the log loss of rows by weights of the others."""
    losses = []
    for fold in folds:
        seen = np.delete(np.arange(len(labels)), fold)
        factor, weights = _weights(h[seen], m[:, seen], labels[seen])
        f = factor * h[fold] + np.tensordot(weights, m[:, fold], axes=1)
        losses.append(-log_softmax(f, axis=1)[np.arange(len(fold)), labels[fold]])
    return float(np.mean(np.concatenate(losses)))


def _weights(h: AnyNDArray, m: AnyNDArray, labels: AnyNDArray) -> tuple[float, AnyNDArray]:
    """Return τ and weights c [L] ≥ 0 of the greatest posterior density of f = τ h + Σ_l c_l m_l.

    The priors are log τ, c_l ~ N(0, 1), so that a few rows leave the logits h [N, K] as they are.
    """
    codes = np.eye(h.shape[1])[labels]

    def loss(x: AnyNDArray) -> tuple[float, AnyNDArray]:
        scaled = np.exp(x[0]) * h
        log_p = log_softmax(scaled + np.tensordot(x[1:], m, axes=1), axis=1)
        error = np.exp(log_p) - codes
        slope = np.array([np.sum(error * scaled), *np.tensordot(m, error, axes=2)])
        return -np.sum(codes * log_p) + 0.5 * x @ x, slope + x

    bounds = [(None, None), *[(0.0, None)] * len(m)]
    x = minimize(loss, np.zeros(1 + len(m)), jac=True, method="L-BFGS-B", bounds=bounds).x
    return float(np.exp(x[0])), x[1:]
