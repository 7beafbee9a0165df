"""What a classifier predicts, and what it does not know: probabilities and their entropies."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, InputData
from gpflow.likelihoods import Bernoulli, Likelihood, Softmax
from scipy.special import entr
from scipy.stats import qmc

from . import labels
from .calibration import by_blocks

BLOCK = 1000
"""So many rows are predicted at a time; the samples of f at them are held together."""


class Entropies(NamedTuple):
    """How uncertain the class of each row is, and why, in nats: [N] each.

    Depeweg, Hernández-Lobato, Doshi-Velez and Udluft (2018), "Decomposition of uncertainty in
    Bayesian deep learning", section 3.
    """

    total: AnyNDArray
    """H[E p(y|f)], the entropy of the predicted probabilities."""

    aleatoric: AnyNDArray
    """E H[p(y|f)], what would remain if f were known. Under `RobustMax` it is the same anywhere."""

    epistemic: AnyNDArray
    """The difference, the mutual information of y and f: what knowing f would tell."""

    @classmethod
    def of_members(cls, probabilities: Any) -> Entropies:
        """Return the entropies of an ensemble, or of samples of f.

        :param probabilities: the class probabilities of each member, [S, N, J].
        """
        members = np.asarray(probabilities)
        if members.ndim != 3:
            raise ValueError(f"probabilities has shape {members.shape}; it must be [S, N, J].")
        return _entropies(members.mean(axis=0), entr(members).sum(axis=-1).mean(axis=0))


def class_probabilities(model: Any, X: InputData, *, num_samples: int = 512) -> AnyNDArray:
    """Return the probability of each class at each row: [N, J].

    :param model: a model of GPflow's or of this package whose likelihood is one of classes.
    :param X: the inputs.
    :param num_samples: of f, under `Softmax`. They come from a Sobol sequence that is the same for
        all rows, so that what is predicted for a row depends on that row alone.
    """
    return _predicted(model, X, num_samples)[0]


def entropies(model: Any, X: InputData, *, num_samples: int = 512) -> Entropies:
    """Return the total, aleatoric and epistemic uncertainty of the class of each row: [N] each.

    :param model: a model of GPflow's or of this package whose likelihood is one of classes.
    :param X: the inputs.
    :param num_samples: of f, by which expectations are taken that have no closed form.
    """
    return _entropies(*_predicted(model, X, num_samples))


def _entropies(probabilities: AnyNDArray, aleatoric: AnyNDArray) -> Entropies:
    total = entr(probabilities).sum(axis=-1)
    # The two may come from different rules of integration.
    return Entropies(total, aleatoric, np.maximum(total - aleatoric, 0.0))


def _predicted(model: Any, X: InputData, num_samples: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Return the class probabilities, [N, J], and the expected entropy given f: [N]."""
    likelihood = model.likelihood
    J = labels.num_classes(likelihood)
    if J is None or likelihood.latent_dim not in (None, J) or _many_labels(model):
        raise TypeError(
            f"the model's likelihood is {type(likelihood).__name__}; probabilities of classes need "
            "a Bernoulli with one latent function, a MultiClass or a Softmax."
        )

    def predict(X: Any) -> tuple[AnyNDArray, AnyNDArray]:
        mean, variance = model.predict_f(X)
        epsilon = normal_points(num_samples, mean.shape[-1], mean.dtype.as_numpy_dtype)
        f = mean + tf.sqrt(variance) * epsilon[:, None, :]  # [S, N, J]
        members = _given(likelihood, f)
        if isinstance(likelihood, Softmax):
            probabilities = members.mean(axis=0)
        else:
            probabilities = _both(model.predict_y(X)[0].numpy())
            probabilities /= probabilities.sum(axis=-1, keepdims=True)  # quadrature is not exact
        return probabilities, entr(members).sum(axis=-1).mean(axis=0)

    probabilities, expected = by_blocks(predict, X, size=BLOCK)
    return probabilities, expected


def _many_labels(model: Any) -> bool:
    return isinstance(model.likelihood, Bernoulli) and getattr(model, "num_latent_gps", 1) != 1


def normal_points(num_samples: int, J: int, dtype: Any) -> AnyNDArray:
    """Return points that fill a standard normal distribution evenly: [S, J]."""
    sampler = qmc.MultivariateNormalQMC(np.zeros(J), seed=np.random.default_rng(0))
    return np.asarray(sampler.random(num_samples), dtype=dtype)


def _given(likelihood: Likelihood, f: tf.Tensor) -> AnyNDArray:
    """Return p(y|f) of each class: [S, N, J]."""
    rows = tf.reshape(f, [-1, f.shape[-1]])
    p = likelihood.conditional_mean(rows, rows)  # no likelihood of classes looks at X
    return _both(tf.reshape(p, tf.shape(f)).numpy())


def _both(p: AnyNDArray) -> AnyNDArray:
    """Return the probabilities of both classes where that of the second was given: [..., J]."""
    return np.concatenate([1.0 - p, p], axis=-1) if p.shape[-1] == 1 else p
