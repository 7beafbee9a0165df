"""A pool of learned models: predictions are a mixture, as which of them holds is not known.

p(y | x) = Σ_c w_c p_c(y | x)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData, TensorType
from scipy.special import xlogy

from .._core import checks
from .._core.row_blocks import by_blocks
from ..calibration.conformal_prediction import require_real_outputs
from ..prediction.class_probabilities import Entropies
from .learned import Array, Learned


@dataclasses.dataclass(frozen=True, repr=False)
class Pooled(Learned):
    """A mixture of models, with exact moments, densities, probabilities, quantiles and samples.

    What a single process has, as `model` and `regulariser`, is that of the part of the largest
    weight.
    """

    parts: tuple[Learned, ...] = ()
    """The models, that of the largest weight first."""
    shares: tuple[float, ...] = ()
    """Their weights, which add up to one."""

    def predict_log_density(self, data: RegressionData) -> tf.Tensor:
        """Return the log density of each observed y: [N]."""
        logs = [part.predict_log_density(data) for part in self.parts]
        return tf.reduce_logsumexp(tf.stack(logs) + np.log(self.shares)[:, None], axis=0)

    def predict_f_samples(self, X: TensorType, num_samples: int) -> tf.Tensor:
        """Return joint samples of f at X: [num_samples, N, J]."""
        samples, order = _drawn(
            self, num_samples, None, lambda part, n, _: part.predict_f_samples(X, n)
        )
        return tf.gather(tf.concat(samples, axis=0), order)

    def predict_y_samples(
        self, X: TensorType, num_samples: int, *, seed: int | None = None
    ) -> Array:
        """Return samples of observations y at X: [num_samples, N, J], each of one part."""
        samples, order = _drawn(
            self, num_samples, seed, lambda part, n, own: part.predict_y_samples(X, n, seed=own)
        )
        return np.concatenate(samples)[order]

    def entropies(self, X: TensorType) -> Entropies:
        """Return the total, aleatoric and epistemic entropy of the class at X: [N] each.

        What the parts disagree about is not known either.
        """
        p = self.predict_proba(X)
        total = -np.sum(xlogy(p, p), axis=1)
        aleatoric = self.weights @ [np.asarray(part.entropies(X).aleatoric) for part in self.parts]
        return Entropies(total, aleatoric, np.maximum(total - aleatoric, 0.0))

    def score_ood(self, X: TensorType) -> Array:
        """Return the uncertainty of f at X: [N].

        It is the variance of f in standard units, those of each part, and the disagreement of the
        parts in standard deviations of y; with classes, the epistemic entropy.
        """
        if self.classes_ is not None:
            return self.entropies(X).epistemic
        means = np.array([by_blocks(part.predict_f, X)[0] for part in self.parts])  # [C, N, J]
        within = np.array([part.score_ood(X) for part in self.parts])
        mean = np.average(means, axis=0, weights=self.weights)
        between = np.mean(np.square(means - mean) / self.outputs.scale**2, axis=-1)
        return np.asarray(self.weights @ (within + between))

    def predict_interval(
        self, X: TensorType, coverage: float = 0.95
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the quantiles of the mixture between which y is with the given probability."""
        require_real_outputs(self.model)
        checks.coverage(coverage)
        law, dtype = self.predict_law(X), self.outputs.scale.dtype
        levels = 0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage
        lower, upper = (tf.convert_to_tensor(law.quantile(level), dtype) for level in levels)
        return lower, upper

    def update(self, X: TensorType, Y: TensorType, *, num_inducing: int = 20) -> Pooled:
        """Return the mixture of the parts, each conditioned on new rows as well."""
        parts = tuple(part.update(X, Y, num_inducing=num_inducing) for part in self.parts)
        return mixture(parts, self.shares)


def mixture(parts: tuple[Learned, ...], shares: tuple[float, ...]) -> Pooled:
    """Return the mixture of parts, the first one with the largest share."""
    fields = {each.name: getattr(parts[0], each.name) for each in dataclasses.fields(Learned)}
    return Pooled(**fields, parts=parts, shares=shares)


def _drawn(
    pool: Pooled,
    num_samples: int,
    seed: int | None,
    draw: Callable[[Learned, int, int | None], Any],
) -> tuple[list[Any], Array]:
    """Return samples of the parts, from each as many as its weight says, and a random order.

    :param draw: a part, the number of samples and the seed of its own.
    """
    checks.count("num_samples", num_samples)
    checks.seed(seed)
    random = np.random.default_rng(seed)
    counts, order = random.multinomial(num_samples, pool.weights), random.permutation(num_samples)
    seeds: list[int | None] = [None] * len(counts)
    if seed is not None:  # with the same one the parts would have the same noise
        seeds = random.integers(2**31, size=len(counts)).tolist()
    parts = zip(pool.parts, counts.tolist(), seeds, strict=True)
    return [draw(part, count, own) for part, count, own in parts if count], order
