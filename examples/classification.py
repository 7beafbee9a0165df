"""Classification with three overlapping classes: probabilities, entropies and conformal sets."""

from __future__ import annotations

import gpflow
import numpy as np

import gpflow_gvi as gvi

rng = np.random.default_rng(0)
centres = np.array([[0.0, 1.5], [-1.5, -1.0], [1.5, -1.0]])
labels = rng.integers(3, size=300)
X = centres[labels] + rng.normal(size=(300, 2))

learned = gvi.learn(
    (X, labels),
    kernel=gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0]),
    likelihood=gpflow.likelihoods.MultiClass(3),
    num_inducing=40,
    calibration_fraction=0.2,
)

x = np.array([[0.0, 1.5], [0.0, 0.0], [0.0, 8.0]])  # in a class, between three, away from all
probabilities = learned.predict_proba(x)
uncertain = gvi.classification.entropies(learned, x)
sets = learned.predict_set(x, coverage=0.9)
print("   x1     x2    p(0)   p(1)   p(2)  epistemic  classes in the set")
for row, p, epistemic, named in zip(x, probabilities, uncertain.epistemic, sets, strict=True):
    print("{:5.1f}  {:5.1f}  {:.3f}  {:.3f}  {:.3f}".format(*row, *p), end="  ")
    print(f"{epistemic:9.3f}  {np.flatnonzero(named).tolist()}")
