"""Estimators of scikit-learn: `learn` as a regressor and as a classifier.

What `learn` returns is kept as `learned_`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, StudentT, SwitchedLikelihood
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._core import checks, labels
from .._core.data import as_floats, observations
from .._core.errors import NumericsWarning, shown
from .._core.row_blocks import by_blocks
from ..divergences import Divergence
from ..learning import recipe
from ..learning.around_network.learn_around import is_meant
from ..learning.joint_outputs import observed, with_nan
from ..learning.learned import Learned
from ..learning.one_call import learn
from ..learning.rows.scaling import Scaling
from ..learning.settings import Effort, Noise, Settings
from ..learning.variational import is_network, softmax_of
from ..losses import Loss
from ..models import GVI


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class _Estimator(BaseEstimator):
    """The parameters of both estimators, and how `learn` is called with them.

    :param kernel: k of the regulariser P, with the hyper-parameters to start from, in standard
        units of X and y; or several, as of `learn`.
    :param predictor: what P's mean is made of, as of `learn`; for labels, of classifiers.
    :param noise: of real-valued y: "constant", "varying" or "auto".
    :param outputs: of several columns of real-valued y: "correlated" to learn them together.
    :param missing: "ignore" to leave out values of real-valued y that are NaN, None or masked.
    :param network: what is added to the mean of Q, as of `learn`, or the number of units of
        `recipe.network`; or models of Keras to put a process around. X may be images then.
    :param train_network: False to leave a network as it is; by default it is trained.
    :param features: of a network, what the kernel is on, as of `learn`.
    :param classes: of a network, the class of each column, if they are not sorted.
    :param likelihood: of GPflow, for y that are counts, amounts, fractions or levels, or have
        noise of heavy tails; of a classifier, one of as many classes as y has.
    :param loss: "robust" for real-valued y with outliers; or a loss to train Q with, or its name.
    :param mean: m_Q, by its name or as a model of Keras, as of `learn`; with that X may be images.
    :param covariance: r, by its name or as a class, as of `learn`.
    :param regulariser: "posterior" or "prior", what Q is held to.
    :param model: `PGVI` or `GWI`; or `GVI`, which needs a divergence. By default `PGVI`.
    :param divergence: D, or its name; by default that of the model.
    :param divergence_weight: λ; by default 0.1. "1/N" is one D beside the sum of losses.
    :param num_inducing: the maximal number M of inducing points; by default that of `learn`.
    :param calibration_fraction: the part of the rows to set aside for conformal intervals or sets.
    :param epochs: of training Q, at most; by default 20 if any part of it is given, else none.
    :param batch_size: rows of a batch, of what is trained; by default 200.
    :param learning_rate: Adam's at the start, of what is trained; by default 0.003.
    :param effort: "fast", "default" or "best", as of `learn`.
    :param n_jobs: how many predictors are fitted at once, as joblib has it.
    :param random_state: a whole number for the same result in each fit.
    :param verbose: 1 to print what is done now and how long it took; 0 for nothing.
    """

    kernel: Kernel | Sequence[Kernel] | None = None
    predictor: Any = "auto"
    noise: Noise | None = None
    outputs: Literal["independent", "correlated"] = "independent"
    missing: Literal["refuse", "ignore"] = "refuse"
    network: Any = None
    train_network: bool | None = None
    features: Any = None
    classes: Any = None
    likelihood: Likelihood | None = None
    loss: str | Loss | None = None
    mean: Any = None
    covariance: Any = None
    regulariser: Literal["posterior", "prior"] | None = None
    model: type[GVI] | None = None
    divergence: str | Divergence | None = None
    divergence_weight: float | Literal["1/N"] | None = None
    num_inducing: int | None = None
    calibration_fraction: float = Settings.calibration_fraction
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    effort: Effort = "default"
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    def _learn(self, X: AnyNDArray, Y: AnyNDArray, J: int, **options: Any) -> Learned:
        """Return what `learn` makes of X [N, D] and Y, with J latent functions."""
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        network = self.network
        if isinstance(network, int | np.integer):
            checks.count("network", network)
            network = recipe.network(X.shape[-1], J, units=int(network), seed=seed)
        parameters = self.get_params(deep=False)
        del parameters["random_state"]
        return learn((X, Y), **parameters | {"network": network, "seed": seed} | options)

    def _rows(self, X: Any) -> AnyNDArray:
        """Return X as an array, if the estimator is fitted and X is of its kind."""
        check_is_fitted(self)
        return np.asarray(self._validated(X, reset=False))

    def _validated(self, *data: Any, **options: Any) -> Any:
        """Return X, or X and y, as scikit-learn validates them.

        It knows of no masks, takes dates for numbers, and passes on errors of NumPy and pandas.
        """
        with _naming("X or y" if len(data) == 2 else "X"):
            for name, values in zip("Xy", data, strict=False):
                if isinstance(values, np.ma.MaskedArray):
                    checks.array(name, values)
                if name == "X" or options.get("y_numeric"):
                    found = np.asarray(values)
                    if found.dtype.kind in "iumM":
                        as_floats(name, found)
                    if name == "y" and any(isinstance(each, np.ndarray) for each in found.flat):
                        checks.array(name, values)
            images = self._takes_images and len(np.shape(data[0])) > 2
            kind = None if images else default_float()  # pixels in bytes are scaled
            return validate_data(self, *data, dtype=kind, allow_nd=images, **options)

    @property
    def _takes_images(self) -> bool:
        return is_network(self.mean) or not isinstance(self.network, int | np.integer | None)


_Estimator.__init__.__doc__ = _Estimator.__doc__


@contextlib.contextmanager
def _naming(names: str) -> Iterator[None]:
    """Let errors of scikit-learn, NumPy and pandas say which arguments they are about."""
    try:
        yield
    except Exception as error:
        if type(error) in (TypeError, ValueError) and re.search(r"(?<!')\b[Xy]\b", str(error)):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"{names} cannot be taken: {error}. They must be numbers: encode columns of text, "
            "categories or dates, for example by scikit-learn's OneHotEncoder in a pipeline; "
            "names of classes are for GVIClassifier."
        ) from error


class GVIRegressor(MultiOutputMixin, RegressorMixin, _Estimator):
    """Regression by `learn`, with the interface of scikit-learn.

    X and y are in any units. The parameters are those of `__init__`, and each can be searched over.
    A y that is constant, as that of a single row is, has no scale: it is predicted with a standard
    deviation of zero, and a warning.

    After `fit`: `learned_`, the `Learned`, of those columns of y that are not constant (None if all
    are); `n_features_in_`, and `feature_names_in_` if X had names.
    """

    def fit(self, X: Any, y: Any) -> GVIRegressor:
        """Learn from X [N, D] and y, [N] or [N, J]."""
        X, Y = self._pair(X, y)
        if isinstance(self.likelihood, SwitchedLikelihood):
            raise TypeError(
                "likelihood is SwitchedLikelihood, with a column of y that is no output. Take "
                "gpflow_gvi.learn, which predicts under each likelihood."
            )
        self._target_shape = np.asarray(y).shape[1:]
        self._level = np.nanmin(Y, axis=0)
        self._varies = np.nanstd(Scaling.of(Y).scaled(Y), axis=0) > 0.5
        J = int(np.sum(self._varies))
        if Y.shape[1] > J:
            _warn(f"y is constant in {Y.shape[1] - J} of {Y.shape[1]} columns")
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "Y is .* in every row and is regressed"
            )  # a regressor regresses
            self.learned_ = self._learn(X, Y[:, self._varies], J) if J else None
        return self

    def _pair(self, X: Any, y: Any) -> tuple[AnyNDArray, AnyNDArray]:
        """Return X and Y [N, J], which has NaN where a value is missing that may be."""
        options = {"multi_output": True, "y_numeric": True}
        if self.missing == "ignore":
            Y = with_nan("y", y)
            X, _ = self._validated(X, np.where(np.isnan(Y), 0.0, Y), **options)
            return observed((X, Y))
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

        :param X: the inputs.
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

        Of several columns it is the average, with `missing="ignore"` of those with values, there.
        """
        with _naming("X or y"):
            Y = with_nan("y", y) if self.missing == "ignore" else np.asarray(observations("y", y))
            check_consistent_length(X, Y)
            mean, known = np.reshape(self.predict(X), Y.shape), ~np.isnan(Y)
            weights = np.broadcast_to(1.0 if sample_weight is None else sample_weight, len(Y))
            columns = [(known[:, j], j) for j in np.flatnonzero(known.any(axis=0))]
            return float(
                np.mean([r2_score(Y[c], mean[c], sample_weight=weights[c[0]]) for c in columns])
            )

    def predict_interval(self, X: Any, coverage: float = 0.95) -> tuple[AnyNDArray, AnyNDArray]:
        """Return the ends of an interval that holds y with the given probability, in y's shape.

        It is conformal with a `calibration_fraction`, and else central in the predictive density.
        """
        ends = self._moments(
            lambda learned: lambda X: learned.predict_interval(X, coverage), self._rows(X)
        )
        lower, upper = (self._shaped(end, self._level) for end in ends)
        return lower, upper

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> AnyNDArray:
        """Return joint samples of observations y at X: [N, n_samples] or [N, J, n_samples].

        As of scikit-learn's `GaussianProcessRegressor`, but with the noise of y, as in `predict`.
        It takes O(N³) time.
        """
        X, rng = self._rows(X), check_random_state(random_state)
        if self.learned_ is None:
            samples: AnyNDArray = np.empty((n_samples, len(X), 0), default_float())
        else:
            seed = int(rng.randint(np.iinfo(np.int32).max))
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


class GVIClassifier(ClassifierMixin, _Estimator):
    """Classification by `learn`, with the interface of scikit-learn.

    X is in any units, and labels are whatever can be sorted. The parameters are those of
    `__init__`, and each can be searched over. The likelihood is `Bernoulli` of two classes, and
    `Softmax` of more, with one latent function for each. Labels that are all the same are predicted
    with certainty, with a warning.

    After `fit`: `classes_`, sorted; `learned_`, the `Learned` (None of one class);
    `n_features_in_`, and `feature_names_in_` if X had names.
    """

    def fit(self, X: Any, y: Any) -> GVIClassifier:
        """Learn from X [N, D] and labels y [N]."""
        X, y = self._validated(X, y)
        with _naming("y"):
            check_classification_targets(y)
            self.classes_, codes = np.unique(y, return_inverse=True)
        K = len(self.classes_)
        if K == 1:
            _warn(f"y has examples of class {shown(self.classes_[0])} alone")
            self.learned_ = None
            return self
        is_number = isinstance(self.network, int | np.integer)  # of units
        around = not is_number and is_meant(self.network, self.features, self.train_network, X)
        likelihood = self._around(K) if around else self._of_classes(K)
        latents = K if around else labels.num_latents(likelihood, codes[:, None])
        columns = self.classes
        if columns is not None:  # by their numbers, as labels are given to `learn`
            columns = labels.encoded("classes", columns, self.classes_).tolist()
        self.learned_ = self._learn(X, codes, latents, likelihood=likelihood, classes=columns)
        return self

    def _around(self, K: int) -> Likelihood | None:
        """Return the likelihood around a network: one column says how probable the second is."""
        network = self.network[0] if isinstance(self.network, list | tuple) else self.network
        shape = getattr(network, "output_shape", None)
        is_single = isinstance(shape, tuple) and shape[-1] == 1
        if self.likelihood is None and K == 2 and is_single:
            return Bernoulli(invlink=tf.math.sigmoid)
        return self.likelihood

    def _of_classes(self, K: int) -> Likelihood:
        if self.likelihood is None:
            return softmax_of(self.mean) or labels.likelihood_of(self.classes_)
        found = labels.num_classes(self.likelihood)
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
        with _naming("X or y"):
            return super().score(X, y, sample_weight)

    def predict_proba(self, X: Any) -> AnyNDArray:
        """Return the probabilities of the classes at X, in the order of `classes_`: [N, K]."""
        X = self._rows(X)
        if self.learned_ is None:
            return np.ones((len(X), 1), default_float())
        return self.learned_.predict_proba(X)

    def predict_set(self, X: Any, coverage: float = 0.95, *, adaptive: bool = False) -> AnyNDArray:
        """Return which classes are in a set that holds the right one with the given probability.

        [N, K], booleans, in the order of `classes_`. They need a `calibration_fraction`. Adaptive
        sets are larger, and their coverage varies less between easy and hard rows.
        """
        X = self._rows(X)
        if self.learned_ is None:
            return np.ones((len(X), 1), bool)
        return self.learned_.predict_set(X, coverage, adaptive=adaptive)


def _warn(what: str) -> None:
    warnings.warn(
        f"{what}: there is nothing to learn, and it is predicted as it is, without doubt. Give "
        "more rows, or leave it out.",
        NumericsWarning,
        stacklevel=3,
    )
