"""Estimators of scikit-learn: `learn` as a regressor and as a classifier.

What `learn` returns is kept as `learned_`.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, StudentT, SwitchedLikelihood
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_consistent_length
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from .. import likelihoods
from .._core import checks, labels, row_numbers
from .._core.data import observations
from ..errors import NumericsWarning, short_repr
from ..learning import Learned, Scaling
from ..learning.around_network.network_checks import is_put_around, require_as_many
from ..learning.joint_outputs import observed, with_nan
from ..learning.variational import softmax_of
from ..prediction import by_blocks
from .estimator_base import Estimator, naming, seed_of

NARROWEST = 1e-9
"""The coverage of the interval whose ends are the median, but for rounding."""


class GVIRegressor(MultiOutputMixin, RegressorMixin, Estimator):
    """Regression by `learn`, with the interface of scikit-learn.

    X and y are in any units. The parameters are those of `__init__`, and each can be searched over.
    A y that is constant, as that of a single row is, has no scale: it is predicted with a standard
    deviation of zero, and a warning.

    After `fit`: `learned_`, the `Learned`, of those columns of y that are not constant (None if all
    are); `n_features_in_`, and `feature_names_in_` if X had names.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GVIRegressor:
        """Learn from X [N, D] and y, [N] or [N, J].

        :param sample_weight: w of each row, numbers [N]: its noise has the variance σ²/w, as of
            `learn`; rows of weight zero are left out.
        """
        row_numbers.warn(X)
        X, Y = self._pair(X, y)
        weights = None if sample_weight is None else self._weights(X, sample_weight)
        if isinstance(self.likelihood, SwitchedLikelihood):
            raise TypeError(
                "likelihood is SwitchedLikelihood, with a column of y that is no output. Take "
                "gpflow_gvi.learn, which predicts under each likelihood."
            )
        self._target_shape = np.asarray(y).shape[1:]
        used = slice(None) if weights is None else weights > 0.0
        options = {} if weights is None else {"sample_weight": weights}
        _, values, _ = observed((X[used], Y[used]))
        self._level = np.nanmin(values, axis=0)
        self._varies = np.nanstd(Scaling.of(values).scaled(values), axis=0) > 0.5
        J = int(np.sum(self._varies))
        if Y.shape[1] > J:
            _warn(f"y is constant in {Y.shape[1] - J} of {Y.shape[1]} columns")
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "Y is .* in every row and is regressed"
            )  # a regressor regresses
            self.learned_ = self._learn(X, Y[:, self._varies], J, **options) if J else None
        return self

    def _pair(self, X: Any, y: Any) -> tuple[AnyNDArray, AnyNDArray]:
        """Return X and Y [N, J], which has NaN where a value is missing that may be."""
        options = {"multi_output": True, "y_numeric": True}
        if self.missing == "ignore":
            Y = with_nan("y", y)
            X, _ = self._validated(X, np.where(np.isnan(Y), 0.0, Y), **options)
            return X, Y
        X, y = self._validated(X, y, **options)
        return X, np.asarray(observations("y", y))  # objects may be NaN now

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        return_interval: float | None = None,
    ) -> AnyNDArray | tuple[AnyNDArray, ...]:
        """Return the mean of y at X, in the shape that y had in `fit`: [N] or [N, J].

        One of the options, which a `Pipeline` passes on, adds what is known of an observation y
        with its noise, not of f alone.

        :param return_std: whether to return the standard deviation as well, in the shape of y.
        :param return_cov: whether to return the covariance between rows as well: [N, N], or
            [N, N, J].
        :param return_interval: the probability with which y is to lie in an interval: the ends of
            `predict_interval` are returned as well.
        """
        if bool(return_std) + bool(return_cov) + (return_interval is not None) > 1:
            raise ValueError(
                f"return_std is {return_std}, return_cov is {return_cov} and return_interval is "
                f"{return_interval}; ask for one of them in a call."
            )
        if return_interval is not None:
            return self.predict(X), *self.predict_interval(X, return_interval)
        X = self._rows(X)
        mean, variance = self._moments(lambda learned: learned.predict_y, X)
        mean = self._shaped(mean, self._level)
        if return_cov:
            return mean, self._covariance(X, variance)
        return (mean, self._shaped(np.sqrt(variance), 0.0)) if return_std else mean

    def _covariance(self, X: AnyNDArray, variance: AnyNDArray) -> AnyNDArray:
        """Return that of y between rows, [N, N] or [N, N, J], given variances [N, J']."""
        if self.learned_ is None:
            return self._shaped(np.zeros((len(X), len(X), 0), default_float()), 0.0)
        likelihood = self.learned_.likelihood
        if not isinstance(likelihood, Gaussian | StudentT):
            raise ValueError(
                f"return_cov is True, but covariances of y under {type(likelihood).__name__} have "
                "no closed form, as f is not the mean of y. Take numpy.cov of sample_y."
            )
        covariance = np.array(self.learned_.predict_f(X, full_cov=True)[1])  # [J', N, N]
        rows = np.arange(len(X))
        covariance[:, rows, rows] = variance.T  # noise is independent from row to row
        return self._shaped(np.moveaxis(covariance, 0, -1), 0.0)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R² of `predict` at X [N, D] with respect to y, [N] or [N, J].

        It is averaged over columns, with `missing="ignore"` over those that have values.
        """
        Y = self._observed(y)
        weights = self._weights(Y, sample_weight)
        with naming("X or y"):
            check_consistent_length(X, Y)
            mean, known = np.reshape(self.predict(X), Y.shape), ~np.isnan(Y)
            columns = [(known[:, j], j) for j in np.flatnonzero(known.any(axis=0))]
            return float(
                np.mean([r2_score(Y[c], mean[c], sample_weight=weights[c[0]]) for c in columns])
            )

    def _observed(self, y: Any) -> AnyNDArray:
        """Return y as numbers [N, J], which are NaN where a value is missing that may be."""
        check_is_fitted(self)
        with naming("y"):
            Y = with_nan("y", y) if self.missing == "ignore" else np.asarray(observations("y", y))
        J = len(self._varies)
        if Y.shape[1] != J:
            raise ValueError(f"y has shape {Y.shape}, but in fit it had {J} columns; pass these.")
        return Y

    def predict_interval(self, X: Any, coverage: float = 0.95) -> tuple[AnyNDArray, AnyNDArray]:
        """Return the ends of an interval that holds y with the given probability, in y's shape.

        It is conformal with a `calibration_fraction`, and else central in the predictive density.
        """
        checks.coverage(coverage)
        ends = self._moments(
            lambda learned: lambda X: learned.predict_interval(X, coverage), self._rows(X)
        )
        lower, upper = (self._shaped(end, self._level) for end in ends)
        return lower, upper

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.1, 0.5, 0.9)) -> AnyNDArray:
        """Return quantiles of y at X: [N, Q], or [N, J, Q] if y has columns.

        They are the ends of central intervals, as of `predict_interval`.

        :param quantiles: their levels, between 0 and 1.
        """
        with naming("quantiles"):
            levels = np.asarray(quantiles, dtype=float)
        if levels.ndim != 1 or not levels.size or not np.all((levels > 0.0) & (levels < 1.0)):
            raise ValueError(
                f"quantiles is {short_repr(quantiles)}; it must be a list of levels between 0 and "
                "1, as [0.1, 0.5, 0.9]."
            )
        coverages = np.maximum(np.abs(2.0 * levels - 1.0), NARROWEST)
        ends = {coverage: self.predict_interval(X, coverage) for coverage in np.unique(coverages)}
        found = [ends[c][int(level > 0.5)] for c, level in zip(coverages, levels, strict=True)]
        return np.stack(found, axis=-1)

    def predict_log_density(self, X: Any, y: Any) -> AnyNDArray:
        """Return the log density of each observed y at X, [N] or [N, J]: [N].

        It is that of all columns of a row together, which are correlated if they were learned so. A
        column that was constant in `fit` has no density.
        """
        X, Y = self._rows(X), np.asarray(observations("y", y))
        if self.learned_ is None or not np.all(self._varies):
            raise ValueError(
                "y was constant in fit, in one column at least, so that it has no density. Leave "
                "such a column out."
            )
        learned = self.learned_
        (logs,) = by_blocks(lambda *part: (learned.predict_log_density(part),), X, Y)
        return logs

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> AnyNDArray:
        """Return joint samples of observations y at X: [N, n_samples] or [N, J, n_samples].

        As of scikit-learn's `GaussianProcessRegressor`, but with the noise of y, as in `predict`.
        It takes O(N³) time.
        """
        X, seed = self._rows(X), seed_of(random_state)
        checks.count("n_samples", n_samples)
        if self.learned_ is None:
            samples: AnyNDArray = np.empty((n_samples, len(X), 0), default_float())
        else:
            samples = self.learned_.predict_y_samples(X, n_samples, seed=seed)
        return np.moveaxis(self._shaped(samples, self._level), 0, -1)

    def _moments(
        self, predict: Callable[[Learned], Callable[..., Any]], X: AnyNDArray
    ) -> tuple[AnyNDArray, ...]:
        """Return two predictions for those columns of y that are not constant: [N, J'] each."""
        if self.learned_ is None:
            nothing: AnyNDArray = np.empty((len(X), 0), default_float())
            return nothing, nothing
        return by_blocks(predict(self.learned_), X)

    def _shaped(self, values: AnyNDArray, otherwise: Any) -> AnyNDArray:
        """Return values [..., N, J'] with the other columns among them, in the shape of y."""
        shape = (*values.shape[:-1], len(self._varies))
        every = np.full(shape, otherwise, dtype=values.dtype)
        every[..., self._varies] = values
        return every.reshape(*values.shape[:-1], *self._target_shape)


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class GVIClassifier(ClassifierMixin, Estimator):
    """Classification by `learn`, with the interface of scikit-learn.

    X is in any units, and labels are whatever can be sorted. The parameters are those of
    `__init__`, and each can be searched over. The likelihood is `Bernoulli` of two classes, and
    `Softmax` of more, with one latent function for each. Labels that are all the same are predicted
    with certainty, with a warning.

    Weights of classes act on the predictions, as those in the likelihood of many rows would: with
    w_c they are p(c | x) w_c / Σ_c' p(c' | x) w_c' (Elkan 2001, "The foundations of cost-sensitive
    learning", theorem 2). What is learned, `learned_`, and sets are without them.

    :param class_weight: w_c by classes, a dictionary; or "balanced", one over their frequencies.

    After `fit`: `classes_`, sorted; `learned_`, the `Learned` (None of one class);
    `n_features_in_`, and `feature_names_in_` if X had names.
    """

    class_weight: dict[Any, float] | Literal["balanced"] | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GVIClassifier:
        """Learn from X [N, D] and labels y [N].

        :param sample_weight: how often each row counts, whole numbers [N].
        """
        row_numbers.warn(X)
        X, y = self._validated(X, y)
        if sample_weight is not None:
            counts = self._weights(X, sample_weight)
            if not np.array_equal(counts, np.round(counts)):
                raise ValueError(
                    f"sample_weight is {short_repr(sample_weight)}; for labels it must be whole "
                    "numbers, as a row of weight 2 is learned from as two rows. Round it, or "
                    "take class_weight."
                )
            X, y = (np.repeat(part, counts.astype(int), axis=0) for part in (X, y))
        with naming("y"):
            check_classification_targets(y)
            self.classes_, codes = np.unique(y, return_inverse=True)
        self._class_weights = None
        if self.class_weight is not None:
            with naming("class_weight"):
                self._class_weights = compute_class_weight(
                    self.class_weight, classes=self.classes_, y=y
                )
            if not np.all(self._class_weights > 0.0):
                raise ValueError(f"class_weight is {self.class_weight}; it must be positive.")
        K = len(self.classes_)
        if K == 1:
            _warn(f"y has examples of class {short_repr(self.classes_[0])} alone")
            self.learned_ = None
            return self
        is_number = isinstance(self.network, int | np.integer)  # of units
        around = not is_number and is_put_around(self.network, self.features, self.train_network, X)
        if around and self.classes is not None:
            codes = self._with_absent(codes)
            K = len(self.classes_)
        likelihood = self._around(K) if around else self._of_classes(K)
        latents = K if around else likelihoods.num_latents(likelihood, codes[:, None])
        columns = self.classes
        if columns is not None:  # by their numbers, as labels are given to `learn`
            columns = likelihoods.encoded("classes", columns, self.classes_).tolist()
        learned = self._learn(X, codes, latents, likelihood=likelihood, classes=columns)
        names = np.asarray(self.classes_.tolist())  # text of pandas is an array of objects
        self.learned_ = dataclasses.replace(learned, classes_=names)
        return self

    def _with_absent(self, codes: AnyNDArray) -> AnyNDArray:
        """Take the classes of all columns of the network; return the labels as their indices."""
        seen, self.classes_ = self.classes_, labels.with_absent(self.classes_, self.classes)
        at: AnyNDArray = np.searchsorted(self.classes_, np.asarray(seen))
        if self._class_weights is not None:
            weights = np.ones(len(self.classes_))
            weights[at] = self._class_weights
            self._class_weights = weights
        return np.asarray(at[codes])

    def _around(self, K: int) -> Likelihood | None:
        """Return the likelihood around a network: one column says how probable the second is."""
        network = self.network[0] if isinstance(self.network, list | tuple) else self.network
        shape = getattr(network, "output_shape", None)
        is_single = isinstance(shape, tuple) and shape[-1] == 1
        if isinstance(shape, tuple) and shape[-1]:
            require_as_many(self.classes_, max(shape[-1], 2))
        if self.likelihood is None and K == 2 and is_single:
            return Bernoulli(invlink=tf.math.sigmoid)
        return self.likelihood

    def _of_classes(self, K: int) -> Likelihood:
        checks.likelihood(self.likelihood)
        if self.likelihood is None:
            return softmax_of(self.mean) or likelihoods.likelihood_of(self.classes_)
        found = likelihoods.num_classes(self.likelihood)
        if found != K:
            raise ValueError(
                f"likelihood is {type(self.likelihood).__name__} of {found} classes, but y has {K}:"
                f" take MultiClass({K}) or Softmax({K})."
            )
        return self.likelihood

    def predict(self, X: Any) -> AnyNDArray:
        """Return the most probable class at X: [N]."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return np.asarray(self.classes_[best])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the fraction of labels y [N] that `predict` finds at X [N, D]."""
        if sample_weight is not None:
            sample_weight = self._weights(y, sample_weight)
        with naming("X or y"):
            return super().score(X, y, sample_weight)

    def predict_proba(self, X: Any) -> AnyNDArray:
        """Return the probabilities of the classes at X, in the order of `classes_`: [N, K]."""
        X = self._rows(X)
        if self.learned_ is None:
            return np.ones((len(X), 1), default_float())
        p = self.learned_.predict_proba(X)
        if self._class_weights is not None:  # those of `fit`
            p = p * self._class_weights
            p /= p.sum(axis=1, keepdims=True)
        return p

    def predict_log_proba(self, X: Any) -> AnyNDArray:
        """Return the logarithms of `predict_proba`: [N, K]."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict_set(self, X: Any, coverage: float = 0.95, *, adaptive: bool = False) -> AnyNDArray:
        """Return the classes in a set that holds the right one with the given probability.

        [N, K], booleans, in the order of `classes_`. They need a `calibration_fraction`. Adaptive
        sets are larger, and their coverage varies less between easy and hard rows.
        """
        X = self._rows(X)
        checks.coverage(coverage)
        if self.learned_ is None:
            return np.ones((len(X), 1), bool)
        return self.learned_.predict_set(X, coverage, adaptive=adaptive)


GVIClassifier.__init__.__doc__ = GVIClassifier.__doc__


def _warn(what: str) -> None:
    warnings.warn(
        f"{what}: there is nothing to learn, and it is predicted as it is, without doubt. Give "
        "more rows, or leave it out.",
        NumericsWarning,
        stacklevel=3,
    )
