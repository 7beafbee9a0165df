"""What `learn` is compared with for targets of each kind: GPflow's and scikit-learn's models.

Sparse processes of GPflow have natural gradients for the distribution of f(Z) and Adam for the
rest. Linear models have splines of each feature, with the penalty by cross-validation. Parameters
of laws of residuals are fitted by maximum likelihood.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from scipy import optimize, stats
from scipy.special import expit, logit

if __package__:
    from .target_data import Kind, Sample
else:
    from target_data import Kind, Sample

COVERAGE = 0.9
"""Of intervals, between quantiles at (1 ± COVERAGE) / 2."""

STEPS = 800
"""Of natural gradients and of Adam; half as many of two latent functions, which cost most."""

ENDS = 0.5 - 0.5 * COVERAGE, 0.5 + 0.5 * COVERAGE


class Prediction(NamedTuple):
    """What a model says of the test rows; None of what it does not say."""

    log_density: np.ndarray | None
    """[N]."""
    mean: np.ndarray | None
    """E y, [N, 1]."""
    interval: tuple[np.ndarray, np.ndarray] | None = None
    """Its ends, [N, 1] each."""


Fit = Callable[[Sample, Kind, int], Prediction]


def learn(
    part: Sample, kind: Kind, seed: int, *, plain: bool = False, **options: Any
) -> Prediction:
    """`learn` by default, with the likelihood of the targets unless `plain`."""
    import gpflow_gvi as gvi

    likelihood = None if plain or kind.likelihood is None else kind.likelihood()
    learned = gvi.learn((part.X, part.Y), likelihood=likelihood, seed=seed, **options)
    density = learned.predict_log_density((part.X_test, part.Y_test)).numpy()
    interval = tuple(map(np.asarray, learned.predict_interval(part.X_test, COVERAGE)))
    return Prediction(density, learned.predict(part.X_test), interval)


def robust(part: Sample, kind: Kind, seed: int) -> Prediction:
    """`learn` that leaves outliers out."""
    return learn(part, kind, seed, plain=True, loss="robust")


def clean(part: Sample, kind: Kind, seed: int) -> Prediction:
    """`learn` of the rows that are no outliers, which no model knows."""
    rows = Sample(part.X[part.is_clean], part.Y[part.is_clean], *_test(part))
    return learn(rows, kind, seed, plain=True)


def _test(part: Sample) -> tuple[Any, ...]:
    return part.X_test, part.Y_test, part.mean, part.log_density, part.is_clean[part.is_clean]


def svgp(part: Sample, kind: Kind, seed: int, *, kernel: str, likelihood: Any = None) -> Prediction:
    """GPflow's sparse variational process with a constant mean, in standard units."""
    import gpflow_gvi as gvi

    likelihood = (likelihood or kind.likelihood)()
    has_scale = not isinstance(likelihood, _WITHOUT_SCALE)
    shift, scale = (part.Y.mean(), part.Y.std()) if has_scale else (0.0, 1.0)
    X, X_test = _standard(part)
    D, J = X.shape[1], likelihood.latent_dim or 1
    Z = gvi.inducing.kmeans(X, min(30 * (1 + (D > 1)), len(X)), seed=seed).points
    kernels = [_kernel(kernel, D) for _ in range(J)]
    shared = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(Z)
    )
    model = gpflow.models.SVGP(
        gpflow.kernels.SeparateIndependent(kernels) if J > 1 else kernels[0],
        likelihood,
        shared if J > 1 else Z,
        mean_function=gpflow.functions.Constant(np.zeros(J)),
        num_latent_gps=J,
    )
    _train(model, (X, (part.Y - shift) / scale), STEPS // J)
    density = model.predict_log_density((X_test, (part.Y_test - shift) / scale)).numpy()
    mean = np.asarray(model.predict_y(X_test)[0]) * scale + shift
    found = Prediction(density.reshape(-1) - np.log(scale), mean)
    if J == 1:
        return found
    ends = (end * scale + shift for end in _quantiles(model, X_test, seed))
    return found._replace(interval=tuple(ends))


_WITHOUT_SCALE = (
    gpflow.likelihoods.Poisson,
    gpflow.likelihoods.Gamma,
    gpflow.likelihoods.Exponential,
    gpflow.likelihoods.Beta,
    gpflow.likelihoods.Ordinal,
)


def _train(model: gpflow.models.SVGP, data: tuple[np.ndarray, np.ndarray], steps: int) -> None:
    """Take steps of natural gradients and of Adam in turn."""
    q = [(model.q_mu, model.q_sqrt)]
    for part in q[0]:
        gpflow.set_trainable(part, False)
    rate = tf.Variable(0.01, dtype=tf.float64)
    natural = gpflow.optimizers.NaturalGradient(gamma=rate)
    adam = tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(0.03, steps, 0.05))
    loss = model.training_loss_closure(data, compile=False)
    variables = model.trainable_variables

    @tf.function(autograph=False)
    def step() -> None:
        natural.minimize(loss, q)
        with tf.GradientTape() as tape:
            value = loss()
        adam.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))

    for number in range(steps):
        # The bound under likelihoods that are not log-concave needs small steps at the start.
        rate.assign(min(0.1, 0.005 * 1.02**number))
        step()


def _quantiles(model: gpflow.models.SVGP, X: np.ndarray, seed: int) -> np.ndarray:
    """Return quantiles of y at the ends of the interval, from 2000 draws: [2, N, 1]."""
    mean, variance = (np.asarray(part) for part in model.predict_f(X))
    rng = np.random.default_rng(seed)
    f = mean + np.sqrt(variance) * rng.normal(size=(2000, *mean.shape))
    law = model.likelihood.conditional_distribution(f)
    y = law.loc.numpy() + law.scale.numpy() * rng.normal(size=law.loc.shape)
    return np.quantile(y, ENDS, axis=0)


def _kernel(name: str, num_features: int) -> gpflow.kernels.Kernel:
    lengthscales = np.full(num_features, np.sqrt(num_features) / 2.0)
    return getattr(gpflow.kernels, name)(lengthscales=lengthscales)


def _standard(part: Sample) -> tuple[np.ndarray, np.ndarray]:
    shift, scale = part.X.mean(axis=0), part.X.std(axis=0)
    return (part.X - shift) / scale, (part.X_test - shift) / scale


class Change(NamedTuple):
    """A function g of Y that a Gaussian process has for its target, and what that needs."""

    g: Callable[[np.ndarray], np.ndarray]
    inverse: Callable[[np.ndarray], np.ndarray]
    log_slope: Callable[[np.ndarray], np.ndarray]
    """log g'(y)."""


IDENTITY = Change(lambda y: y, lambda z: z, np.zeros_like)
LOG = Change(np.log, np.exp, lambda y: -np.log(y))
LOGIT = Change(
    lambda y: logit(np.clip(y, 1e-12, 1.0 - 1e-12)),
    expit,
    lambda y: -np.log(np.clip(y * (1.0 - y), 1e-12, None)),
)


def gpr(part: Sample, kind: Kind, seed: int, *, change: Change = IDENTITY) -> Prediction:
    """GPflow's exact process of g(y), of two kernels and two starts the one of most evidence."""
    Y = change.g(part.Y)
    shift, scale = Y.mean(), Y.std()
    X, X_test = _standard(part)
    models = []
    for name in ("SquaredExponential", "Matern52"):
        for noise in (0.1, 0.5):
            data = X, (Y - shift) / scale
            model = gpflow.models.GPR(data, _kernel(name, X.shape[1]), noise_variance=noise)
            gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
            models.append((float(model.training_loss()), model))
    best = min(models, key=lambda pair: pair[0])[1]
    mean, variance = (np.asarray(part) for part in best.predict_y(X_test))
    law = stats.norm(mean * scale + shift, np.sqrt(variance) * scale)
    density = law.logpdf(change.g(part.Y_test)) + change.log_slope(part.Y_test)
    nodes, weights = np.polynomial.hermite_e.hermegauss(30)
    z = law.mean() + law.std() * nodes  # [N, 30]
    average = change.inverse(z) @ weights[:, None] / weights.sum()
    ends = (change.inverse(law.ppf(level)) for level in ENDS)
    return Prediction(density[:, 0], average, tuple(ends))


def _splines(part: Sample, estimator: Any, grid: dict[str, Any], scoring: Any = None) -> Any:
    """Return a linear model of splines of each feature, of which a grid is cross-validated."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer, StandardScaler

    knots = {"splinetransformer__n_knots": [5, 8, 12]}
    model = make_pipeline(StandardScaler(), SplineTransformer(extrapolation="linear"), estimator)
    name = type(estimator).__name__.lower()
    grid = {**knots, **{f"{name}__{key}": value for key, value in grid.items()}}
    return GridSearchCV(model, grid, scoring=scoring, cv=5).fit(part.X, part.Y[:, 0])


PENALTIES = {"alpha": [1e-4, 1e-3, 1e-2, 1e-1, 1.0]}


def poisson(part: Sample, kind: Kind, seed: int) -> Prediction:
    """Poisson regression on splines."""
    from sklearn.linear_model import PoissonRegressor

    return _of_rate(part, _splines(part, PoissonRegressor(max_iter=2000), PENALTIES))


def boosting(part: Sample, kind: Kind, seed: int) -> Prediction:
    """Gradient boosting under the Poisson law, of two rates and sizes the best."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import GridSearchCV

    model = HistGradientBoostingRegressor(loss="poisson", max_iter=100, random_state=seed)
    grid = {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [4, 16]}
    found = GridSearchCV(model, grid, scoring="neg_mean_poisson_deviance", cv=5)
    return _of_rate(part, found.fit(part.X, part.Y[:, 0]))


def _of_rate(part: Sample, model: Any) -> Prediction:
    rate = np.maximum(model.predict(part.X_test)[:, None], 1e-6)
    return Prediction(stats.poisson(rate).logpmf(part.Y_test)[:, 0], rate)


def gamma(part: Sample, kind: Kind, seed: int, *, shape: float | None = None) -> Prediction:
    """Gamma regression on splines."""
    from sklearn.linear_model import GammaRegressor

    model = _splines(part, GammaRegressor(max_iter=2000), PENALTIES)
    mean, fitted = (model.predict(X)[:, None] for X in (part.X_test, part.X))

    def nll(log_shape: float) -> float:
        a = np.exp(log_shape)
        return -float(np.mean(stats.gamma(a, 0.0, fitted / a).logpdf(part.Y)))

    a = shape or np.exp(optimize.minimize_scalar(nll, bounds=(-3.0, 5.0), method="bounded").x)
    return Prediction(stats.gamma(a, 0.0, mean / a).logpdf(part.Y_test)[:, 0], mean)


def huber(part: Sample, kind: Kind, seed: int, *, heavy: bool) -> Prediction:
    """Huber's regression on splines, with a normal law of residuals or one of heavy tails.

    Its degrees of freedom are fitted, too. The scale of the normal law is a robust one.
    """
    from sklearn.linear_model import HuberRegressor

    model = _splines(part, HuberRegressor(max_iter=5000), PENALTIES, "neg_median_absolute_error")
    residuals = part.Y[:, 0] - model.predict(part.X)
    mean = model.predict(part.X_test)[:, None]
    law = stats.norm(mean, stats.median_abs_deviation(residuals, scale="normal"))
    if heavy:
        degrees, _, scale = stats.t.fit(residuals, floc=0.0)
        law = stats.t(degrees, mean, scale)
    return Prediction(law.logpdf(part.Y_test)[:, 0], mean, (law.ppf(ENDS[0]), law.ppf(ENDS[1])))


def logistic(part: Sample, kind: Kind, seed: int) -> Prediction:
    """Logistic regression of levels as classes, on splines."""
    from sklearn.linear_model import LogisticRegression

    grid = {"C": [0.1, 1.0, 10.0, 100.0]}

    def score(estimator: Any, X: np.ndarray, y: np.ndarray) -> float:
        p = np.c_[estimator.predict_proba(X), np.full(len(X), 1e-3)]  # of an unseen level
        return float(np.mean(np.log(p[np.arange(len(y)), np.searchsorted(estimator.classes_, y)])))

    model = _splines(part, LogisticRegression(max_iter=5000), grid, score)
    p = np.full((len(part.X_test), int(max(part.Y.max(), part.Y_test.max())) + 1), 1e-3)
    p[:, model.classes_.astype(int)] = model.predict_proba(part.X_test)
    density = np.log(np.take_along_axis(p, part.Y_test.astype(int), axis=1))[:, 0]
    return Prediction(density, p @ np.arange(p.shape[1])[:, None])


def quantiles(part: Sample, kind: Kind, seed: int) -> Prediction:
    """Quantile regression on splines: an interval alone."""
    from sklearn.linear_model import QuantileRegressor
    from sklearn.metrics import make_scorer, mean_pinball_loss

    ends = []
    for level in ENDS:
        score = make_scorer(mean_pinball_loss, alpha=level, greater_is_better=False)
        found = _splines(
            part, QuantileRegressor(quantile=level), {"alpha": [1e-4, 1e-3, 1e-2]}, score
        )
        ends.append(found.predict(part.X_test)[:, None])
    return Prediction(None, None, (ends[0], ends[1]))


def truth(part: Sample, kind: Kind, seed: int) -> Prediction:
    """The law that the data are drawn from."""
    law = kind.law(kind.f(part.X_test), part.X_test)
    ppf = getattr(law, "ppf", None)
    return Prediction(part.log_density, part.mean, ppf and (ppf(ENDS[0]), ppf(ENDS[1])))


SPARSE: dict[str, Fit] = {
    "SVGP, squared exponential": functools.partial(svgp, kernel="SquaredExponential"),
    "SVGP, Matérn 5/2": functools.partial(svgp, kernel="Matern52"),
}
STUDENT: dict[str, Fit] = {
    "SVGP, Student's t": functools.partial(
        svgp, kernel="SquaredExponential", likelihood=gpflow.likelihoods.StudentT
    )
}
OF_KIND: dict[str, dict[str, Fit]] = {
    "counts": {
        "learn": learn,
        **SPARSE,
        "PoissonRegressor": poisson,
        "boosting, Poisson": boosting,
    },
    "heavy tails": {
        "learn": learn,
        **SPARSE,
        "GPR": gpr,
        "HuberRegressor": functools.partial(huber, heavy=True),
    },
    "amounts": {
        "learn": learn,
        **SPARSE,
        "GPR of log y": functools.partial(gpr, change=LOG),
        "GammaRegressor": gamma,
    },
    "waiting times": {
        "learn": learn,
        **SPARSE,
        "GPR of log y": functools.partial(gpr, change=LOG),
        "GammaRegressor": functools.partial(gamma, shape=1.0),
    },
    "fractions": {
        "learn": learn,
        **SPARSE,
        "GPR of logit y": functools.partial(gpr, change=LOGIT),
    },
    "levels": {"learn": learn, **SPARSE, "LogisticRegression": logistic},
    "outliers": {
        "learn of clean rows": clean,
        "learn, robust": robust,
        "learn, Gaussian": functools.partial(learn, plain=True),
        **STUDENT,
        "GPR": gpr,
        "HuberRegressor": functools.partial(huber, heavy=False),
    },
    "varying noise": {
        "learn": functools.partial(learn, plain=True),
        "learn, two functions": learn,
        **SPARSE,
        "GPR": gpr,
        "QuantileRegressor": quantiles,
    },
}


def rivals(name: str) -> dict[str, Fit]:
    """Return the models for a kind of targets, the truth first."""
    models = {"truth": truth, **OF_KIND[name.partition(",")[0]]}
    if name == "varying noise, 3 features":  # two latent functions take longest
        for model in ("learn, two functions", "SVGP, Matérn 5/2"):
            models.pop(model)
    return models
