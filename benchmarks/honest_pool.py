"""A rival: a pool of four simple models, judged by fits without the rows that they predict.

A constant, a ridge, an exact Gaussian process with one kernel, and that around two kinds of trees;
each fitted anew without each of five folds of groups of equal rows, three times for few rows;
Student's t by these predictions; weights by stacking of the densities. There is no noise that
varies, no sum of kernels, no network and no inducing point.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import scipy.linalg
from scipy.optimize import minimize, nnls
from scipy.stats import t as student
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV

Array = np.ndarray[Any, Any]
Moments = tuple[Array, Array]

NUM_FOLDS = 5
MAX_ROWS_OF_FIT, MAX_ROWS = 400, 2000
"""Hyper-parameters are fitted to not more rows than the former, and conditioned on the latter."""


class Model(Protocol):
    """What the pool is of."""

    def fit(self, X: Array, y: Array, groups: Array) -> Model:
        """Fit the model."""

    def predict(self, X: Array) -> Moments:
        """Return mean and variance of y: [N] each."""


class Constant:
    """The mean and the variance of y."""

    def fit(self, X: Array, y: Array, groups: Array) -> Constant:
        """Fit the model."""
        self.moments = np.mean(y), np.var(y, ddof=1) * (1.0 + 1.0 / len(y))
        return self

    def predict(self, X: Array) -> Moments:
        """Return mean and variance of y: [N] each."""
        mean, variance = (np.full(len(X), part) for part in self.moments)
        return mean, variance


class Ridge:
    """A linear function, with the variance of what it leaves."""

    def fit(self, X: Array, y: Array, groups: Array) -> Ridge:
        """Fit the model."""
        self.model = RidgeCV(np.logspace(-2, 4, 13)).fit(X, y)
        left = y - self.model.predict(X)
        parameters = min(X.shape[1] + 1, len(y) // 2)
        self.variance = float(left @ left) / max(len(y) - parameters, 1)
        A = np.column_stack([np.ones(len(X)), X])
        self.inverse = np.linalg.inv(A.T @ A + self.model.alpha_ * np.eye(A.shape[1]))
        return self

    def predict(self, X: Array) -> Moments:
        """Return mean and variance of y: [N] each."""
        A = np.column_stack([np.ones(len(X)), X])
        spread = np.einsum("ni,ij,nj->n", A, self.inverse, A)
        return self.model.predict(X), self.variance * (1.0 + spread)


class Process:
    """An exact Gaussian process with the kernel v SE_ARD + a linear, at the greatest posterior.

    :param floor: the least variance of the noise.
    """

    def __init__(self, floor: float = 1e-4) -> None:
        self.floor = floor

    def fit(self, X: Array, y: Array, groups: Array) -> Process:
        """Fit the model; rows of equal inputs say nothing of the noise, and count once."""
        N, D = X.shape
        order = np.random.default_rng(0).permutation(N)
        some = order[:MAX_ROWS_OF_FIT]
        some = some[np.unique(groups[some], return_index=True)[1]]
        prior = np.r_[np.full(D, 0.5 * np.log(D) + 0.3), 0.0, -1.5, np.log(0.1)]
        starts = prior, prior - np.r_[np.full(D, 0.9), np.zeros(3)]
        options = {"maxiter": 60}
        arguments = X[some], y[some], prior
        found = [
            minimize(self._loss, start, arguments, jac=True, method="L-BFGS-B", options=options)
            for start in starts
        ]
        self.theta = min(found, key=lambda each: each.fun).x
        self.X = X[order[:MAX_ROWS]]
        self.noise = np.exp(self.theta[-1]) + self.floor
        K = sum(self._kernels(self.theta, self.X, self.X))
        self.factor = scipy.linalg.cho_factor(K + (self.noise + 1e-8) * np.eye(len(K)), lower=True)
        self.weights = scipy.linalg.cho_solve(self.factor, y[order[:MAX_ROWS]])
        return self

    def predict(self, X: Array) -> Moments:
        """Return mean and variance of y: [N] each."""
        D = X.shape[1]
        K = sum(self._kernels(self.theta, X, self.X))
        explained = scipy.linalg.solve_triangular(self.factor[0], K.T, lower=True)
        prior = np.exp(self.theta[D]) + np.exp(self.theta[D + 1]) * np.sum(X**2, axis=1) / D
        variance = np.maximum(prior - np.sum(explained**2, axis=0), 0.0) + self.noise
        return K @ self.weights, variance

    @staticmethod
    def _kernels(theta: Array, X: Array, other: Array) -> tuple[Array, Array]:
        D = X.shape[1]
        A, B = X / np.exp(theta[:D]), other / np.exp(theta[:D])
        squares = np.sum(A**2, axis=1)[:, None] + np.sum(B**2, axis=1) - 2.0 * A @ B.T
        stationary = np.exp(theta[D] - 0.5 * np.maximum(squares, 0.0))
        return stationary, np.exp(theta[D + 1]) * (X @ other.T) / D

    def _loss(self, theta: Array, X: Array, y: Array, prior: Array) -> tuple[float, Array]:
        N, D = X.shape
        stationary, linear = self._kernels(theta, X, X)
        noise = np.exp(theta[D + 2])
        S = stationary + linear + (noise + self.floor + 1e-8) * np.eye(N)
        try:
            factor = scipy.linalg.cho_factor(S, lower=True)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        weights = scipy.linalg.cho_solve(factor, y)
        W = scipy.linalg.cho_solve(factor, np.eye(N)) - np.outer(weights, weights)
        loss = 0.5 * y @ weights + np.sum(np.log(np.diag(factor[0])))
        WE, gradient = W * stationary, np.empty_like(theta)
        for d, x in enumerate((X / np.exp(theta[:D])).T):
            gradient[d] = 0.5 * (2.0 * np.sum(WE, axis=1) @ x**2 - 2.0 * x @ (WE @ x))
        gradient[D:] = np.sum(WE), np.sum(W * linear), noise * np.trace(W)
        gradient[D:] *= 0.5
        scale = np.r_[np.ones(D), 1.5, 2.0, 1.5]
        z = (theta - prior) / scale
        return loss + 0.5 * z @ z, gradient + z / scale


class AroundTrees:
    """A Gaussian process of what cross-fitted trees leave, with weights that are not negative.

    :param floor: the least variance of the noise.
    """

    def __init__(self, floor: float = 1e-4) -> None:
        self.floor = floor

    def fit(self, X: Array, y: Array, groups: Array) -> AroundTrees:
        """Fit the model."""
        fold = _folds(groups, seed=7)
        unseen, self.trees = np.zeros((len(y), 2)), []
        for k in range(NUM_FOLDS):
            fitted = [trees.fit(X[fold != k], y[fold != k]) for trees in _trees(len(y))]
            self.trees.append(fitted)
            for c, trees in enumerate(fitted):
                unseen[fold == k, c] = trees.predict(X[fold == k])
        weights, _ = nnls(unseen - y.mean(), y - y.mean())
        self.weights = weights / max(weights.sum(), 1.0)
        self.level = y.mean() * (1.0 - self.weights.sum())
        left = y - self.level - unseen @ self.weights
        self.scale = np.std(left) + 1e-9
        self.process = Process(self.floor).fit(X, left / self.scale, groups)
        return self

    def predict(self, X: Array) -> Moments:
        """Return mean and variance of y: [N] each."""
        of_folds = np.array([[trees.predict(X) for trees in fitted] for fitted in self.trees])
        weighted = np.einsum("kcn,c->kn", of_folds, self.weights)
        mean, variance = self.process.predict(X)
        mean = weighted.mean(axis=0) + self.level + self.scale * mean
        return mean, self.scale**2 * variance + weighted.var(axis=0)


def predict(X: Array, y: Array, X_test: Array) -> tuple[Moments, list[Any]]:
    """Return mean and variance of y at new rows, and the parts of the mixture: (w, law) each.

    :param X: standardised rows, [N, D].
    :param y: standardised observations, [N].
    :param X_test: rows to predict.
    """
    _, groups = np.unique(np.round(X, 9), axis=0, return_inverse=True)
    groups, N = np.ravel(groups), len(y)
    values = np.unique(y)
    step = np.min(np.diff(values)) if 1 < len(values) < 0.5 * N else 0.0
    floor = max(1e-4, step**2 / 12.0)
    kinds: list[Any] = [Constant, Ridge, lambda: Process(floor)]
    if N >= 40:
        kinds.append(lambda: AroundTrees(floor))
    R = 3 if N < 300 else 1
    moments = np.zeros((len(kinds), R, 2, N))
    for r in range(R):
        fold = _folds(groups, seed=r)
        for k in range(NUM_FOLDS):
            given, held = fold != k, fold == k
            for c, kind in enumerate(kinds):
                fitted = kind().fit(X[given], y[given], groups[given])
                moments[c, r][:, held] = fitted.predict(X[held])
    scales, logs = [], []
    for mean, variance in np.moveaxis(moments, 2, 1):
        scale, df = _calibrated(np.ravel(np.square(y - mean) / variance))
        law = student(df, mean, scale * np.sqrt(variance))
        if step:
            mass = (law.cdf(y + step / 2) - law.cdf(y - step / 2)) / step
            logs.append(np.log(np.maximum(mass, 1e-300)).mean(axis=0))
        else:
            logs.append(law.logpdf(y).mean(axis=0))
        scales.append((scale, df))
    weights = _stacked(np.array(logs))
    parts = []
    for kind, weight, (scale, df) in zip(kinds, weights, scales, strict=True):
        if weight > 0.0:
            mean, variance = kind().fit(X, y, groups).predict(X_test)
            parts.append((weight, student(df, mean, scale * np.sqrt(variance))))
    mean = sum(w * law.mean() for w, law in parts)
    square = sum(w * (law.var() + law.mean() ** 2) for w, law in parts)
    return (mean, square - mean**2), parts


def _folds(groups: Array, seed: int) -> Array:
    count = int(np.max(groups)) + 1
    fold = np.random.default_rng(seed).permutation(np.arange(count) % NUM_FOLDS)
    return np.asarray(fold[groups])


def _trees(N: int) -> list[Any]:
    return [
        HistGradientBoostingRegressor(
            learning_rate=0.06,
            max_iter=150,
            max_leaf_nodes=15,
            min_samples_leaf=max(3, min(20, N // 20)),
            l2_regularization=1.0,
            random_state=0,
        ),
        ExtraTreesRegressor(200, min_samples_leaf=2, random_state=0),
    ]


def _calibrated(squares: Array) -> tuple[float, float]:
    """Return scale and degrees of freedom of Student's t for squared errors over the variance."""
    z, best = np.sqrt(squares), (np.inf, 1.0, 3.0)
    for df in (3.0, 4.0, 6.0, 10.0, 20.0, 50.0):
        for scale in np.exp(np.linspace(-0.8, 0.8, 33)):
            loss = -np.sum(student.logpdf(z / scale, df) - np.log(scale))
            loss += 4.0 * np.log(scale) ** 2 + 0.15 * np.log(df)
            best = min(best, (loss, float(scale), df))
    return best[1], best[2]


def _stacked(logs: Array) -> Array:
    """Return weights of the greatest posterior density, those below 0.03 zero: [C]."""
    joint = np.exp(logs - logs.max(axis=0))
    weights = np.full(len(logs), 1.0 / len(logs))
    for _ in range(300):
        share = weights[:, None] * joint
        weights = np.sum(share / share.sum(axis=0), axis=1) + 0.5
        weights /= weights.sum()
    weights = np.where(weights > 0.03, weights, 0.0)
    return weights / weights.sum()
