"""The shortest useful program: learn a function from noisy values, and predict with intervals."""

import numpy as np

import gpflow_gvi as gvi

rng = np.random.default_rng(0)
X = rng.uniform(-3.0, 3.0, size=(200, 1))
Y = np.sin(2.0 * X) + 0.1 * rng.normal(size=X.shape)

learned = gvi.learn((X, Y), verbose=1)

x = np.linspace(-6.0, 6.0, 9)[:, None]
print(np.hstack([x, np.sin(2.0 * x), *learned.predict_interval(x, coverage=0.9)]).round(2))
