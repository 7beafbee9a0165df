"""Learn targets that are no Gaussian numbers: counts, fractions, levels, waiting times.

Each is drawn from a law whose mean is known. `learn` takes any likelihood of GPflow, and predicts
the mean, an interval and the density of new observations; the last column has the density that the
law itself gives them.

    python examples/other_targets.py
"""

import numpy as np
from gpflow import likelihoods
from scipy import stats

import gpflow_gvi as gvi

rng = np.random.default_rng(0)
X, X_new = rng.uniform(-2.0, 2.0, (150, 1)), rng.uniform(-2.0, 2.0, (1000, 1))


def f(x):
    """The function that all targets follow."""
    return np.sin(2.0 * x) + 0.5 * x


def logistic(x):
    """The inverse of the logit."""
    return 1.0 / (1.0 + np.exp(-x))


targets = {
    "counts": (likelihoods.Poisson(), lambda x: stats.poisson(np.exp(1.0 + f(x)))),
    "waiting times": (likelihoods.Exponential(), lambda x: stats.expon(scale=np.exp(f(x)))),
    "fractions": (
        likelihoods.Beta(),
        lambda x: stats.beta(20.0 * logistic(f(x)), 20.0 * logistic(-f(x))),
    ),
    "levels 0, 1": (likelihoods.Bernoulli(), lambda x: stats.bernoulli(logistic(2.0 * f(x)))),
}
print("target         error of the mean   90 % interval holds   NLL    of the law")
for name, (likelihood, law) in targets.items():
    y, y_new = (law(x).rvs(random_state=rng).astype(float) for x in (X, X_new))
    learned = gvi.learn((X, y), likelihood=likelihood)
    if name.startswith("levels"):
        mean, inside = learned.predict_proba(X_new)[:, 1:], np.nan
    else:
        mean = np.asarray(learned.predict_y(X_new)[0])
        lower, upper = learned.predict_interval(X_new, 0.9)
        inside = np.mean((lower <= y_new) & (y_new <= upper))
    error = np.sqrt(np.mean(np.square(mean - law(X_new).mean())))
    nll = -np.mean(learned.predict_log_density((X_new, y_new)))
    log_density = getattr(law(X_new), "logpmf", getattr(law(X_new), "logpdf", None))
    print(f"{name:14} {error:18.3f} {inside:21.3f} {nll:7.3f} {-np.mean(log_density(y_new)):8.3f}")
