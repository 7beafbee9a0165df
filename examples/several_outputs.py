"""Learn two outputs together where each has a gap that the other fills: `missing="ignore"`.

python examples/several_outputs.py
"""

import numpy as np

import gpflow_gvi as gvi

rng = np.random.default_rng(0)


def outputs(x):
    """Two outputs in different units that have most in common."""
    return np.c_[np.sin(2.0 * x), 30.0 - 10.0 * np.sin(2.0 * x) + np.cos(5.0 * x)]


X = rng.uniform(-3.0, 3.0, (80, 1))
Y = outputs(X[:, 0]) + np.array([0.05, 1.0]) * rng.normal(size=(80, 2))
Y[X[:, 0] > 1.0, 0] = np.nan  # the first was not measured here
Y[X[:, 0] < -1.0, 1] = np.nan  # nor the second there
together = gvi.learn((X, Y), missing="ignore")
rows = [~np.isnan(column) for column in Y.T]
apart = [gvi.learn((X[seen], Y[seen, j])) for j, seen in enumerate(rows)]

x = np.linspace(-3.0, 3.0, 13)[:, None]
truth = outputs(x[:, 0])
mean, variance = (np.asarray(part) for part in together.predict_f(x))
alone = np.hstack([np.asarray(learned.predict_f(x)[0]) for learned in apart])
print("    x    first: truth together  apart   second: truth together  apart")
for n in range(13):
    first, second = (f"{truth[n, j]:9.2f} {mean[n, j]:8.2f} {alone[n, j]:7.2f}" for j in (0, 1))
    print(f"{x[n, 0]:5.1f}     {first}      {second}")
for name, found in (("together", mean), ("apart", alone)):
    error = np.sqrt(np.mean(np.square(found - truth), axis=0))
    print(f"error {name:9}: {error[0]:.3f} and {error[1]:.3f}")

# New rows, of the second output where it was missing.
X_new = np.linspace(-2.5, -1.5, 5)[:, None]
Y_new = np.c_[np.full(5, np.nan), outputs(X_new[:, 0])[:, 1]]
updated = together.update(X_new, Y_new)
sds = [np.sqrt(np.asarray(learned.predict_f([[-2.0]])[1])[0, 1]) for learned in (together, updated)]
print(f"sd of the second output at -2: {sds[0]:.2f}; given 5 more rows: {sds[1]:.2f}")
