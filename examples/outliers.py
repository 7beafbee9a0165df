"""Learn from data of which three in ten rows say nothing: `loss="robust"`.

python examples/outliers.py
"""

import numpy as np

import gpflow_gvi as gvi

rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, (150, 1))
truth = np.sin(2.0 * X)
Y = truth + 0.1 * rng.normal(size=X.shape)
wrong = rng.random(150) < 0.3
Y[wrong] = rng.uniform(-8.0, 8.0, (np.sum(wrong), 1))

robust = gvi.learn((X, Y), loss="robust")
for name, learned in {
    "all rows, Gaussian noise": gvi.learn((X, Y)),
    "all rows, robust": robust,
    "the right rows alone": gvi.learn((X[~wrong], Y[~wrong])),
}.items():
    x = np.linspace(-2.0, 2.0, 401)[:, None]
    mean, variance = (np.asarray(part) for part in learned.predict_y(x))
    error, sd = np.sqrt(np.mean(np.square(mean - np.sin(2.0 * x)))), np.sqrt(np.mean(variance))
    print(f"{name:25} error {error:.3f}   sd of y {sd:.3f} (0.100 in truth)")
found = robust.outliers
print(f"{np.sum(wrong)} rows are wrong, {np.mean(wrong):.2f}; {found.fraction:.2f} are estimated")
print(f"left out: {len(found.rows)}, of which right: {np.sum(~wrong[found.rows])}")
kept = wrong & ~np.isin(np.arange(150), found.rows)
print(f"wrong, but kept: {np.sum(kept)}, at {np.abs(Y - truth)[kept].mean():.2f} from the curve")
for row in found.rows[:5]:
    print(f"row {row:3d}: y = {Y[row, 0]:6.2f}, an outlier at {found.probability[row]:.3f}")
