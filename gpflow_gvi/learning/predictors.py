"""Cross-fitting: predictors that are fitted to the data, and predictions of rows unseen by them.

The residuals of a predictor at the rows that it was fitted to are smaller than elsewhere. K fits,
each without one part of the rows, give residuals that are those of new rows.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from gpflow.base import AnyNDArray
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from .._core import progress
from .._core.names import predictor_name
from .._core.network_function import is_keras
from .._core.threads import one_thread
from ..mean_functions.predictor import CrossFitted, Predictor, predictions, require_predictor
from .row_facts import folds_of, left_out_together
from .rows.scaling import Scaling, exactly_original
from .settings import RECIPE
from .start import TrainingData


@dataclasses.dataclass(eq=False)
class CrossFits:
    """Estimators, each fitted K times, each time without one fold of the rows.

    A fit is made when it is needed first. Estimators work in original units. What has no `fit` is
    taken as it is.
    """

    estimators: Sequence[Any]
    """Estimators of scikit-learn, or with their `fit` and `predict`; clones are fitted. Or
    predictors that have not seen the data."""
    data: TrainingData
    """The rows, in the units of the model."""
    targets: AnyNDArray
    """What to predict there, in original units: [N, J]."""
    num_folds: int
    """K."""
    n_jobs: int | None = None
    """How many fits run at once, as joblib has it."""
    wrap: Callable[[Any], Any] | None = None
    """What takes a fitted model to one that predicts in the units of the model: `InOriginalUnits`
    if not given."""
    what: str | None = None
    """What is fitted, in words; the names of the estimators if not given."""
    is_brief: bool = False
    """Whether training ends before it converges on purpose, so that this is no news."""
    _models: dict[tuple[int, frozenset[int]], Any] = dataclasses.field(default_factory=dict)

    @property
    def num_means(self) -> int:
        """The number of estimators."""
        return len(self.estimators)

    def _wrapped(self, model: Any) -> Any:
        if self.wrap is not None:
            return self.wrap(model)
        inputs, outputs = self.data.units
        return InOriginalUnits(model, inputs, outputs.linear)

    @functools.cached_property
    def fold(self) -> AnyNDArray:
        """The fold of each row: [N]."""
        groups = left_out_together(self.data.X)
        return folds_of(groups, self.num_folds, self.data.seed)

    @functools.cached_property
    def means(self) -> list[Predictor]:
        """Each estimator: the average of its fits, and at rows of the data the one without them."""
        without = [frozenset([k]) for k in range(self.num_folds)]
        self._fit(without)
        X, J = self.data.X, self.data.J
        found: list[Predictor] = []
        for c, estimator in enumerate(self.estimators):
            if not hasattr(estimator, "fit"):
                found.append(Predictor(self._wrapped(estimator), num_outputs=J))
                continue
            models = [self._models[c, folds] for folds in without]
            out_of_fold = np.empty((len(X), J))
            for k, model in enumerate(models):
                out_of_fold[self.fold == k] = predictions(model, X[self.fold == k], J)
            found.append(CrossFitted(models, X, out_of_fold))
        return found

    def of_fold(self, k: int) -> tuple[AnyNDArray, AnyNDArray]:
        """Return the rows of a fold, [B], and what each estimator predicts there: [B, C, J].

        Only the fits without that fold are needed.
        """
        self._fit([frozenset([k])])
        rows = np.flatnonzero(self.fold == k)
        return rows, self._at(rows, frozenset([k]))

    def unseen(self, k: int) -> AnyNDArray:
        """Return predictions by fits that have seen neither the row nor fold k: [N, C, J].

        They are what cross-fitting the rows without fold k gives: at these rows out of fold, and at
        those of fold k the average. A fit without two folds serves both of them.
        """
        pairs = [frozenset([k, other]) for other in range(self.num_folds) if other != k]
        self._fit(pairs)
        values = np.zeros((len(self.data.X), self.num_means, self.data.J), self.data.X.dtype)
        for pair in pairs:
            rows = np.flatnonzero(np.isin(self.fold, list(pair)))
            found, is_held = self._at(rows, pair), self.fold[rows] == k
            values[rows[~is_held]] = found[~is_held]
            values[rows[is_held]] += found[is_held] / len(pairs)
        return values

    def _at(self, rows: AnyNDArray, folds: frozenset[int]) -> AnyNDArray:
        """Return the predictions of the fits without some folds: [B, C, J]."""
        X, J = self.data.X[rows], self.data.J
        models = [
            self._models[c, folds] if hasattr(each, "fit") else self._wrapped(each)
            for c, each in enumerate(self.estimators)
        ]
        return np.stack([predictions(model, X, J) for model in models], axis=1)

    def only(self, kept: Sequence[int]) -> CrossFits:
        """Return some of the estimators, with their fits.

        :param kept: their numbers, in order.
        """
        found, kept = copy.copy(self), list(kept)
        vars(found).pop("means", None)  # those of all estimators, where they are cached
        found.estimators = [self.estimators[c] for c in kept]
        found._models = {
            (kept.index(c), folds): model for (c, folds), model in self._models.items() if c in kept
        }
        return found

    def of_partition(self, seed: int) -> CrossFits:
        """Return cross-fits of the same estimators with another partition into folds."""
        found = copy.copy(self)
        for name in ("means", "fold"):
            vars(found).pop(name, None)
        found.data = dataclasses.replace(self.data, seed=seed)
        found._models = {}
        return found

    def _fit(self, without: Sequence[frozenset[int]]) -> None:
        """Fit the estimators without each of these sets of folds, if they are not fitted yet."""
        missing = [
            (c, folds)
            for c, estimator in enumerate(self.estimators)
            for folds in without
            if hasattr(estimator, "fit") and (c, folds) not in self._models
        ]
        if not missing:
            return
        names = dict.fromkeys(predictor_name(self.estimators[c]) for c, _ in missing)
        what = self.what or ", ".join(names)
        progress.now(f"cross-fitting {what}, {len({folds for _, folds in missing})} fits of each")
        X = exactly_original(self.data.units[0], self.data.X)
        y = self.targets[:, 0] if self.targets.shape[1] == 1 else self.targets
        with one_thread("openmp", len(X)):
            fits = Parallel(n_jobs=self.n_jobs)(
                delayed(_fitted)(
                    self.estimators[c],
                    X[given],
                    y[given],
                    None if self.data.weights is None else self.data.weights[given],
                    is_brief=self.is_brief,
                )
                for c, folds in missing
                for given in [~np.isin(self.fold, list(folds))]
            )
        self._models |= {key: self._wrapped(fit) for key, fit in zip(missing, fits, strict=True)}


@dataclasses.dataclass(frozen=True)
class InOriginalUnits:
    """A predictor that works in original units, as one that works in those of the model."""

    model: Any
    inputs: Scaling
    outputs: Scaling

    def predict(self, X: AnyNDArray) -> AnyNDArray:
        """Return the predictions at X: [N] or [N, J]."""
        rows = exactly_original(self.inputs, X)
        values = np.asarray(getattr(self.model, "predict", self.model)(rows))
        J = len(self.outputs.shift)
        if values.dtype.kind not in "fiub" or values.shape not in ((len(X),), (len(X), J)):
            return values  # to be refused
        scaled = (values.reshape(-1, J) - self.outputs.shift) / self.outputs.scale
        return scaled.astype(X.dtype)


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A predictor that is not fitted again, as it has no `fit`."""

    model: Any

    def predict(self, X: AnyNDArray) -> Any:
        """Return the predictions at X."""
        return self.model.predict(X)


def parse_predictor(
    predictor: Any, by_recipe: bool, data: Any, validation_data: Any
) -> tuple[Callable[[TrainingData], Sequence[Any]] | Literal["recipe"] | None, Any, Any]:
    """Return the predictors that `learn`'s argument stands for, and the rows to learn from.

    :param predictor: the argument.
    :param by_recipe: whether "auto" stands for the recipe's predictors, and not for none.
    :param data: the rows that were given.
    :param validation_data: those for validation, from which P is learned if the predictor is
        fitted already.
    """
    if isinstance(predictor, str):
        if predictor != "auto":
            raise ValueError(
                f'predictor is {predictor!r}; it must be "auto", None, an estimator or a function.'
            )
        return RECIPE if by_recipe else None, data, validation_data
    if predictor is None:
        return None, data, validation_data
    estimators = list(predictor) if isinstance(predictor, list | tuple) else [predictor]
    for estimator in estimators:
        require_predictor(estimator)
        if is_keras(estimator):
            raise TypeError(
                f"predictor is the Keras model {estimator.name!r}, which is no estimator. Pass it "
                "as network=, or its predictions as a function, predictor=model.predict."
            )
    fitted = [_is_fitted(estimator) for estimator in estimators if hasattr(estimator, "fit")]
    if not any(fitted):
        return lambda _: estimators, data, validation_data
    if not all(fitted):
        raise ValueError(
            "predictor has estimators that are fitted and others that are not. Give clones of the "
            "former (sklearn.base.clone), which are cross-fitted, or fit the latter."
        )
    if validation_data is None:
        raise ValueError(
            f"predictor is a {type(estimators[0]).__name__} that is fitted already. If it was "
            "fitted to data, its errors there are smaller than elsewhere, and so would be the "
            "uncertainty: give rows that it has not seen as validation_data, or an estimator that "
            "is not fitted (sklearn.base.clone), which is cross-fitted."
        )
    predictors = [Fitted(e) if hasattr(e, "predict") else e for e in estimators]
    return lambda _: predictors, validation_data, None


def _is_fitted(estimator: Any) -> bool:
    from sklearn.pipeline import Pipeline

    if callable(getattr(estimator, "is_fitted", None)):  # CatBoost
        return bool(estimator.is_fitted())
    if isinstance(estimator, Pipeline):
        return _is_fitted(estimator[-1])
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError, AttributeError):  # the last of what is no BaseEstimator
        return False
    # A Gaussian process predicts before it is fitted, too, and passes the check.
    return hasattr(estimator, "__sklearn_is_fitted__") or any(
        name.endswith("_") for name in vars(estimator)
    )


def _fitted(
    estimator: Any, X: AnyNDArray, Y: AnyNDArray, weights: AnyNDArray | None, *, is_brief: bool
) -> Any:
    takes_weights = weights is not None and has_fit_parameter(estimator, "sample_weight")
    options = {"sample_weight": weights} if takes_weights else {}
    with warnings.catch_warnings():
        if is_brief:
            warnings.simplefilter("ignore", ConvergenceWarning)
        copy = clone(estimator, safe=False)  # of any object with `fit` and `predict`
        copy.fit(X, Y, **options)
        return copy
