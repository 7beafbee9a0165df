"""The estimators for scikit-learn: predictive standard deviations, intervals, cross-validation."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_iris, make_friedman1
from sklearn.model_selection import cross_val_score, train_test_split

import gpflow_gvi as gvi

X, y = make_friedman1(300, noise=1.0, random_state=0)
X, X_new, y, y_new = train_test_split(X, y, test_size=100, random_state=0)
regressor = gvi.GVIRegressor(random_state=0).fit(X, y)
mean, std = regressor.predict(X_new[:5], return_std=True)
lower, upper = regressor.predict_interval(X_new, coverage=0.9)
print("  y     mean    std")
for row in zip(y_new, mean, std, strict=False):
    print("{:6.2f}  {:6.2f}  {:5.2f}".format(*row))
print(f"R² {regressor.score(X_new, y_new):.3f}")
print(f"in the 90 % interval: {np.mean((lower <= y_new) & (y_new <= upper)):.2f}")

flowers = load_iris()
classifier = gvi.GVIClassifier(random_state=0)
scores = cross_val_score(classifier, flowers.data, flowers.target, cv=3)
print("accuracy on three folds of iris: {:.3f} {:.3f} {:.3f}".format(*scores))
