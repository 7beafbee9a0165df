"""Which features matter: by P's kernel and mean, or by what is lost when a column is shuffled."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from .._core import outputs
from ..prediction import by_blocks
from .display import BLUE, Display, plain
from .view import View

MAX_BARS = 25
"""At most this many features are shown, the most relevant ones."""

MAX_NATS = 10.0
"""Where the NLL grows by more, its axis is logarithmic above 1: one bar would hide the others."""


@dataclasses.dataclass
class RelevanceDisplay(Display):
    """A bar for each feature, the most relevant one on top."""

    relevance: AnyNDArray
    """[D]."""
    errors: AnyNDArray | None
    """Standard errors of averages over rows: [D]."""
    names: list[str]
    label: str

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        repeats: int = 5,
        seed: int = 0,
        ax: Any = None,
    ) -> RelevanceDisplay:
        """Draw the relevance of the features to an estimator.

        With rows and observations it is the permutation importance (Breiman 2001, "Random
        forests", section 10): by how much the mean negative log density of y grows when one column
        of X, or a group of them that an estimator has in `feature_groups_`, is shuffled. Without,
        it is how far f moves under P when one feature moves by a standard deviation,
        (E_P (f(x + e_d) - f(x))²)^½, averaged over the inducing points: under a stationary kernel
        with lengthscale ℓ_d, of the size of the deviation over ℓ_d.

        :param X: rows that it has not seen, [N, D], or None.
        :param y: the observations there, or None.
        :param repeats: how often a column is shuffled.
        :param seed: the seed of the shuffling.
        """
        view = View.of(estimator)
        if (X is None) != (y is None):
            raise ValueError("X and y belong together: give both, or neither.")
        if y is None:
            moved = f"change of {plain(view.target) if view.classes is None else 'f'} under P"
            label = f"{moved} by one sd of the feature"
            return cls(changes(view), None, view.names, label).plot(ax)
        rows = view.rows(X)
        found = _importances(view, rows, view.observed(y, rows), repeats, seed)
        label = "growth of the NLL when shuffled"
        errors = found.std(axis=1) / np.sqrt(found.shape[1])
        return cls(found.mean(axis=1), errors, list(view.groups), label).plot(ax)

    def _draw(self, axes: AnyNDArray) -> None:
        (ax,) = axes
        order = np.argsort(self.relevance)[-MAX_BARS:]
        errors = None if self.errors is None else self.errors[order]
        names = [plain(self.names[d]) for d in order]
        ax.barh(range(len(order)), self.relevance[order], xerr=errors, color=BLUE, height=0.7)
        ax.set_yticks(range(len(order)), names)
        if self.errors is not None and self.relevance.max() > MAX_NATS:
            ax.set_xscale("symlog", linthresh=1.0)
        ax.set(xlabel=self.label, ylim=(-0.6, len(order) - 0.4))


def changes(view: View) -> AnyNDArray:
    """Return (E_P (f(x + e_d) - f(x))²)^½ of each feature d, in units of y: [D].

    It is (m(x + e_d) - m(x))² + k(x + e_d, x + e_d) + k(x, x) - 2 k(x + e_d, x) for P = GP(m, k)
    before it is conditioned, averaged over inducing points x and over outputs.
    """
    learned = view.learned
    view.rows(None)  # refuses inputs of networks
    P, Z = learned.regulariser.prior, np.asarray(learned.regulariser.inducing_points)[:200]
    mean = np.asarray(P.mean_function(Z))
    variance = np.asarray(outputs.variance(P.kernel, Z))  # [M, J]
    found = []
    for d in range(Z.shape[1]):
        moved = Z + np.eye(Z.shape[1])[d]
        covariance = np.asarray(outputs.covariance(P.kernel, moved, Z))  # [J, M, M]
        between = np.diagonal(covariance, axis1=1, axis2=2).T
        of_kernel = np.asarray(outputs.variance(P.kernel, moved)) + variance - 2.0 * between
        square = np.square(np.asarray(P.mean_function(moved)) - mean) + of_kernel
        found.append(np.sqrt(np.mean(np.maximum(square, 0.0) * learned.outputs.scale**2)))
    return np.array(found)


def _importances(view: View, X: AnyNDArray, y: AnyNDArray, repeats: int, seed: int) -> AnyNDArray:
    """Return the growth of the negative log density of each row: [groups, N].

    It is the average over `repeats` shuffles of a group of features.
    """
    learned = dataclasses.replace(view.learned, classes_=None)  # y are numbers of classes
    rng = np.random.default_rng(seed)

    def nll(copies: AnyNDArray) -> AnyNDArray:
        """Return the average over copies of all rows: [N]."""
        data = copies.reshape(-1, X.shape[1]), np.tile(y, (len(copies), 1))
        (logs,) = by_blocks(lambda *part: (learned.predict_log_density(part),), *data)
        return -logs.reshape(len(copies), len(X)).mean(axis=0)

    def shuffled(group: list[int]) -> AnyNDArray:
        copies = np.stack([X] * repeats)
        for copy in copies:
            copy[:, group] = X[rng.permutation(len(X))][:, group]
        return copies

    return np.stack([nll(shuffled(group)) for group in view.groups.values()]) - nll(X[None])
