"""Choose where to measure next, and learn from what was measured: `acquire` and `update`.

python examples/more_rows.py
"""

import numpy as np

import gpflow_gvi as gvi

rng = np.random.default_rng(0)


def measured(x):
    """A function with noise, which is expensive to measure."""
    return np.sin(3.0 * x) + 0.3 * x + 0.05 * rng.normal(size=x.shape)


X = rng.uniform(-1.0, 1.0, (30, 1))  # of a half of all inputs only
learned = start = gvi.learn((X, measured(X)))
candidates = np.linspace(-2.0, 2.0, 201)[:, None]
truth = np.sin(3.0 * candidates) + 0.3 * candidates

print("rows   next x   error of the mean   largest sd of f")
for step in range(13):
    mean, variance = (np.asarray(part) for part in learned.predict_f(candidates))
    error = np.sqrt(np.mean(np.square(mean - truth)))
    best = candidates[[np.argmax(learned.acquire(candidates, "variance"))]]
    if step % 3 == 0:
        sd = np.sqrt(np.max(variance))
        print(f"{30 + step:4d} {best[0, 0]:8.2f} {error:15.3f} {sd:19.3f}")
    learned = learned.update(best, measured(best))

# The same number of rows at random, from the same start.
random = rng.uniform(-2.0, 2.0, (13, 1))
mean = np.asarray(start.update(random, measured(random)).predict_f(candidates)[0])
print(f"at random: error {np.sqrt(np.mean(np.square(mean - truth))):.3f}")
lowest = candidates[np.argmax(learned.acquire(candidates, "expected_improvement"))]
minimum = candidates[truth.argmin(), 0]
print(f"to find the minimum, measure at {lowest[0]:.2f}; it is at {minimum:.2f}")
