"""The candidates that `learn` tries by default, and the numbers by which it chooses.

`python -m benchmarks.ablation` shows what each of them is worth. Rules are for data in standard
units: columns of mean zero and standard deviation one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.kernels import Kernel, SeparateIndependent, Sum
from gpflow.likelihoods import Gaussian
from scipy.stats import skew

from .._core.graphs import deepcopy
from ..kernels import LogInputs
from ..kernels.active_columns import on_columns
from . import starts
from .default_predictors import Classifiers, Regressors, of_columns
from .row_facts import grouping_column, left_out_together, num_groups

if TYPE_CHECKING:
    from .start import TrainingData

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The rules, each a number that says from how many rows on it holds, or by which gap."""

    # Kernels

    sums: bool = True
    """Whether there are kernels of sums: of functions of each feature and of several scales, of a
    changing trend, of frequencies. Otherwise there is one squared exponential, beside a linear
    function, from its starts."""
    max_features_of_sums: int = 100
    """Up to this number of features there are sums of functions of each: they are slow to fit, with
    a cosine for each pair of rows and each feature."""
    min_rows_of_functions: int = 5
    """Fewer rows tell no function from noise: beside its mean and slope a line would leave errors
    of less than three degrees of freedom, whose variance is not to be had. P is a constant there.
    """
    min_rows_of_seasons: int = 20
    """Fewer rows do not determine frequencies: a function through all of them would be known
    without doubt, so that there is a smooth one."""
    min_gain_of_series: float = 0.05
    """A trend that changes is taken if it predicts better by as many nats: otherwise the deviations
    beside it follow the noise of few rows, and the densities hardly differ."""
    log_inputs: bool = True
    """Whether each kernel is tried on the logarithms of skewed positive columns, too. Otherwise
    functions of relative differences need many rows where these are small."""
    min_rows_of_relevance: int = 100
    """From this number of rows on a fit starts from lengthscales by the relevance in trees, too."""
    level_of_groups: float = 0.01
    """Where no smooth function of a column fits the means of rows with equal values, by a test of
    this level, a kernel has a function with a value of its own for each of these, too."""
    max_gap_of_groups: float = 0.2
    """Values that are farther apart, in standard units, are told apart by the other kernels."""
    max_rows_of_shared: int = 50
    """Up to this number of rows for each feature all of them may share a lengthscale."""
    min_rows_of_lengthscales: int = 20
    """From this number of labels for each feature on lengthscales of each start equal."""

    # Noise

    max_variance: float = 4.0
    """The largest variance of noise that varies, in units of the variance of y: beyond the data a
    pattern may be anything, but observations hardly vary more than they do among the data."""
    min_rows_of_varying_noise: int = 100
    """From this number of groups of rows on noise may vary with x."""
    max_error_of_grid: float = 0.5
    """Where rows left out are predicted with errors of less than this part of those that rounding
    leaves, y is on a grid for another reason, and its noise may be less than the grid's."""
    min_rows_of_free_noise: tuple[int, int] = (100, 10)
    """Below this number of rows, and of rows for each feature, the noise has a prior: of many
    features some explain what is left of few rows by chance."""

    # Predictors

    min_rows_of_trees: int = 40
    min_rows_of_networks: int = 1000
    min_rows_of_lasso: int = 40
    """From this number of rows on, up to `max_rows_of_shared` for each feature, P may be around a
    linear function of few features, which a kernel cannot find by so few rows."""

    max_error_ratio: float = 1.1
    """P is around predictors with errors of up to this many times P's own."""
    standard_errors_of_useless: float = 3.0
    """A predictor that is worse by so many standard errors is not fitted without further folds."""
    min_gain_of_predictors: float = 0.0
    """A kernel around predictors is judged where the screening finds it better than the same kernel
    alone by more nats: for few rows predictors are fitted again without each two folds."""
    min_weight_of_predictor: float = 0.01
    """A predictor of a smaller weight has none: squares of what is fitted end near zero, not at it.
    """

    max_rows_of_few_leaves: int = 500
    """Up to this number of rows there are half as many boosted trees, of half as many leaves."""
    max_rows_of_small_trees: int = 5000
    """Up to this number of rows the trees are those for small data."""
    max_rows_of_randomised: int = 20_000
    """Beyond this number of rows trees are boosted only: it takes long to grow randomised ones."""
    max_leaves: int = 5000
    """About the maximal number of leaves of a randomised tree: with more rows a leaf has several.
    """
    max_classes_of_boosting: int = 5
    """Boosting fits a tree for each class at a time, so that it is left out for more."""
    min_rows_of_class: int = 10
    """Where a class has fewer rows nothing is stopped early: scikit-learn parts the rows by classes
    for that, and raises where a fold leaves a class a single row."""
    max_rows_of_small_networks: int = 200_000
    """With more rows a network has twice as many units, and batches of five times as many rows:
    what limits it is no longer how few rows there are, but what it can express and the noise of its
    steps."""

    # Units

    log_ratio: float = 2.0
    """Positive y are learned as logarithms, too, and so are functions of positive columns of X,
    where the largest is so many times the smallest: where not, logarithms are almost linear."""
    min_rows_of_logs: int = 10
    """Fewer positive y do not show that there are no others."""

    # Screening

    few_rows: int = 300
    """Kernels are first fitted to not more rows than these, from each of their starts. Up to this
    number there are several partitions into folds, so that chance decides less."""
    gap_of_starts: float = 0.5
    """The second best kernel is fitted to all rows, too, if its start is worse by less nats."""
    gap: float = 0.1
    """The second best fit is tried around predictors and with varying noise, too, if it is worse by
    less nats."""
    gap_of_pool: float = 0.3
    """A candidate that the screening finds worse by more nats is not fitted again."""
    max_candidates: int = 4
    """The largest number of candidates in a pool, beside a constant and a linear function."""

    # Fits without some of the rows

    max_rows_of_refits: int = 2000
    """Beyond this number of rows, those that hyper-parameters have not seen are predicted in closed
    form."""
    min_optimism: float = 0.01
    """p hyper-parameters know p/N nats of a row (Akaike 1974). Where that is less than this, they
    are not fitted again without it."""
    max_rows_of_scores: int = 30_000
    """The screening predicts not more rows than these."""
    max_rows_of_nested: int = 300
    """Up to this number of rows predictors are fitted without each two folds: with more, a single
    row hardly changes the predictions at others."""
    num_partitions: int = 3
    """The number of partitions of few rows."""

    # Fits by sites

    max_values_of_sites: int = 4000
    """Hyper-parameters are fitted to not more rows times latent functions than these."""
    max_rows_of_exact_sites: int = 200
    """Hyper-parameters are fitted to not more rows without inducing points: with more, a hundred
    points cost less."""
    max_points_of_sites: int = 100
    """Hyper-parameters are fitted at not more inducing points: a bound costs O(J N M²)."""
    max_rounds_again: int = 2
    """The maximal number of rounds of a refit without some of the rows: an optimum hardly moves."""
    share_of_kernel: float = 0.1
    """The share of the variance of f at which a fit around classifiers starts. From all of it, f
    would explain the labels before the classifiers do, at an optimum of smaller evidence."""

    # Inducing points

    max_rows_of_points: int = 2000
    """Up to this number all distinct rows are inducing points: what fewer miss of a function counts
    for nothing in a posterior."""
    max_rows_of_more_points: int = 100_000
    """Beyond this number of rows there are never more points than usual: to condition on them and
    to predict takes too long."""
    max_rows_of_choice: int = 50_000
    """Inducing points are chosen among the first rows, not more than these: a choice needs a matrix
    of them."""
    max_missed: float = 0.01
    """As many inducing points as there may be are taken if few miss more nats for each row."""

    # Pool

    prior: float = 0.5
    """The prior weight of each candidate, in rows."""
    min_weight: float = 0.03
    """A candidate with less weight is left out, as it takes as long to predict as the others."""
    max_parts: int = 3
    standard_errors: float = 2.0
    """A candidate may be the better one if it is worse by less than so many standard errors."""
    min_gain: float = 0.01
    """A pool is one candidate alone where it gains fewer nats in each row."""
    max_loss_beside_constant: float = 0.1
    """What predicts worse than a constant by more nats, and by more `standard_errors`, is warned
    of: less is chance where rows are few."""

    def kernels(self, data: TrainingData) -> list[Kernel]:
        """Return kernels to choose among, with the hyper-parameters to start from."""
        X = data.X[:, data.features]
        if data.of_classes:
            found = self._kernels_of_classes(X, data.responses)
        elif self._are_too_few(data):
            found = [starts.constant()]
        else:
            found = self.kernels_of_numbers(X, data.responses)
        return _on_features(found, data, self._zeros(data) if self.log_inputs else None)

    def _are_too_few(self, data: TrainingData) -> bool:
        return not data.of_classes and _num_units(data.X) < self.min_rows_of_functions

    def _zeros(self, data: TrainingData) -> Array | None:
        """Return the zeros of columns that may be taken as logarithms, NaN for others: [D].

        They are positive, and less skewed as logarithms. None where there are no such columns.
        """
        inputs, features = data.units[0], data.features
        if len(features) > self.max_features_of_sums:
            return None
        zeros = -inputs.shift / inputs.scale
        x = data.X - zeros
        least, most = x.min(axis=0), x.max(axis=0)
        may = (least > 1e-9 * most) & (most >= self.log_ratio * least)  # zeros are rounded
        columns = features[may[features]]
        values = x[:, columns]
        columns = columns[np.abs(skew(np.log(values))) < np.abs(skew(values))]
        found: Array = np.full(data.D, np.nan)
        found[columns] = zeros[columns]
        return found if columns.size else None

    def kernels_of_numbers(self, X: Array, Y: Array) -> list[Kernel]:
        """Return the kernels of functions of real values; of one feature, those with a trend.

        A smooth function has a linear one beside it, which goes on where there are no rows.

        :param X: standardised inputs, [N, D].
        :param Y: standardised outputs, [N, J].
        """
        N, D = X.shape
        if D == 1 and self.sums:
            few = self.min_rows_of_seasons > N
            functions: Sequence[Kernel] = [starts.one_kernel(1)] if few else starts.seasons(X, Y)
            return [Sum([each, *starts.trend()]) for each in functions]
        smooth: list[Kernel] = [starts.one_kernel(D)]
        if D > 1 and self.min_rows_of_relevance <= N:
            smooth.append(starts.relevant_first(X, Y))
        if (column := self._grouping_column(X, Y)) is not None:
            smooth = [each + starts.groups(X, column) for each in smooth]
        if self.sums and self.max_features_of_sums >= D:
            smooth = [*starts.sums(D), *smooth]
        if self.sums and self.max_rows_of_shared * D > N:
            smooth.append(starts.shared_kernel(D))
        return [each + starts.linear(D) for each in smooth]

    def _grouping_column(self, X: Array, Y: Array) -> int | None:
        """Return the column that names groups of rows whose values or labels are alike, if any."""
        if not self.sums:
            return None
        return grouping_column(X, Y, self.level_of_groups, self.max_gap_of_groups)

    def kernels_of_series(self, data: TrainingData) -> list[Kernel]:
        """Return kernels of one feature with a trend whose slope changes, for Gaussian noise.

        Deviations last for a while, which outliers look like.
        """
        X = data.X[:, data.features]
        if not self.sums or X.shape[1] > 1 or len(X) < self.min_rows_of_seasons:
            return []
        seasons = starts.seasons(X, data.responses)
        return _on_features([Sum([each, *starts.changing_trend()]) for each in seasons], data)

    def _kernels_of_classes(self, X: Array, Y: Array) -> list[Kernel]:
        """Return kernels of labels: with one lengthscale, with one for each feature, and fast.

        Where features are many, as those of categories are, few of them tell the classes: the ones
        that randomised trees find have shorter lengthscales from the start.
        """
        N, D = _num_units(X), X.shape[1]
        functions = [[starts.shared_kernel(D), starts.linear(D)]]
        if self.sums:
            functions.append([starts.fast_kernel(D)])
            if D > 1 and self.min_rows_of_lengthscales * D <= N:
                functions.append([starts.one_kernel(D), starts.linear(D)])
            elif D > 1 and self.min_rows_of_relevance <= N:
                functions.append([starts.relevant_first(X, Y), starts.linear(D)])
        indicators = np.equal(Y, np.unique(Y)).astype(X.dtype) if Y.shape[-1] == 1 else Y
        if D > 1 and (column := self._grouping_column(X, indicators)) is not None:
            of_groups = starts.groups(X, column)
            functions.append([starts.shared_kernel(D), of_groups, starts.linear(D)])
        return [Sum([starts.constant_of_classes(), *each]) for each in functions]

    def rough(self, data: TrainingData) -> Kernel:
        """Return the kernel of a function of a single feature with kinks."""
        return _on_features([starts.rough_kernel()], data)[0]

    def floor(self, data: TrainingData) -> list[Kernel]:
        """Return the kernels of a constant and of linear functions: others have to be better.

        There are none where P is a constant anyway.
        """
        if self._are_too_few(data):
            return []
        constant = starts.constant_of_classes() if data.of_classes else starts.constant()
        few, D = data.first(self.few_rows), len(data.features)
        steep = starts.variance_of_slopes(few.X[:, data.features], few.responses)
        # It is less than the usual 1/D unless columns are correlated.
        slopes = (None, steep) if steep * D > 1.0 else (None,)
        linear = [Sum([deepcopy(constant), starts.linear(D, each)]) for each in slopes]
        zeros = self._zeros(data) if self.log_inputs else None
        return _on_features([constant], data) + _on_features(linear, data, zeros)

    def noise(self, num_rows: int, num_features: int, lower: float) -> Gaussian:
        """Return the noise to start from, a tenth of the variance of Y.

        :param lower: the least variance of the noise.
        """
        gaussian = Gaussian(max(0.1, 2.0 * lower), variance_lower_bound=lower)
        (variance,) = gaussian.parameters
        of_all, of_each = self.min_rows_of_free_noise
        if num_rows < self.min_rows_of_seasons:
            variance.prior = starts.around(0.1, 1.0)
        elif num_rows < max(of_all, of_each * num_features):
            variance.prior = starts.with_mode(0.1)
        return gaussian

    def predictors(self, data: TrainingData) -> list[Any]:
        """Return estimators whose cross-fitted predictions P may be around.

        Boosted trees, which have the steps that kernels do not have; and with several features
        randomised trees, where rows are few for each a linear function of some of them (Tibshirani
        1996), and where rows are many a network. None of labels in several columns, which
        classifiers of scikit-learn do not take.
        """
        if data.of_classes and data.Y.shape[1] > 1:
            return []
        N, D = num_groups(data.X), len(data.features)  # repeated values are known
        kind: Any = Classifiers if data.of_classes else Regressors
        of_data = kind(data, self)
        per_feature = self.min_rows_of_lengthscales if data.of_classes else self.max_rows_of_shared
        found = of_data.trees() if self.min_rows_of_trees <= N else []
        if D == 1:
            found = found[:1]
        else:
            found += of_data.lasso() if self.min_rows_of_lasso <= N < per_feature * D else []
            found += of_data.networks() if self.min_rows_of_networks <= N else []
        return found if data.D == D else [of_columns(e, data.features) for e in found]


def _num_units(X: Array) -> int:
    """Return the number of rows that say something of their own: copies of one do not."""
    return int(np.max(left_out_together(X))) + 1


def _on_features(
    kernels: list[Kernel], data: TrainingData, zeros: Array | None = None
) -> list[Kernel]:
    """Return kernels of the features as ones of X, and of several latent functions if need be.

    :param zeros: if given, each kernel is there once more, of the logarithms of these columns.
    """
    if len(data.features) < data.D:
        kernels = [on_columns(kernel, data.features.tolist()) for kernel in kernels]
    if zeros is not None:
        kernels = [*kernels, *(LogInputs(deepcopy(kernel), data.X, zeros) for kernel in kernels)]
    # Each latent function of one observation has its own.
    if data.of_classes or data.Y.shape[-1] >= data.J:
        return kernels
    return [SeparateIndependent([deepcopy(kernel) for _ in range(data.J)]) for kernel in kernels]


def network(D: int, J: int, *, units: int = 50, seed: int = 0) -> Any:
    """Return a network of two hidden layers that starts at zero.

    It is added to the mean of a sparse GP, so that Q starts at the posterior of the regulariser and
    learns what that has missed.
    """
    import keras
    from gpflow.config import default_float

    dtype = np.dtype(default_float()).name

    def dense(size: int, layer_seed: int) -> Any:
        start = keras.initializers.GlorotUniform(seed=layer_seed)
        return keras.layers.Dense(size, "relu", kernel_initializer=start, dtype=dtype)

    readout = keras.layers.Dense(J, kernel_initializer="zeros", dtype=dtype)
    layers = [keras.Input((D,), dtype=dtype), dense(units, seed), dense(units, seed + 1), readout]
    return keras.Sequential(layers)
