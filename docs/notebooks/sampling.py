# ---
# jupytext:
#   text_representation:
#     format_name: percent
# kernelspec:
#   display_name: Python 3
#   name: python3
# ---

# %% [markdown]
# # Samples, derivatives and integrals of a Gaussian process
#
# A Gaussian process is a distribution of functions, and so of their maxima, slopes and integrals; a
# kernel of finitely many features is a distribution of weights. This notebook computes them. All of
# it works for any `GaussianProcess`: a prior, P, or the Q of a trained model, `model.variational`.
# [The procedure](../learning.md) describes how hyper-parameters are fitted.

# %% tags=["hide-input"]
import gpflow
import matplotlib.pyplot as plt
import numpy as np
from scipy import integrate, stats

import gpflow_gvi as gvi

FUNCTIONS = 2000
TURNS = 6
ITERATIONS = 200
SLICES = 4000

# %% [markdown]
# ## Functions from a prior
#
# The joint law of the values at finitely many inputs is a normal distribution. The lengthscale of
# the kernel is the distance over which values are correlated: near zero the function is noise, and
# as it grows, a constant.

# %%
x = np.linspace(0.0, 10.0, 300)[:, None]
figure, panels = plt.subplots(1, 4, figsize=(11, 2.5), sharey=True)
for panel, lengthscale in zip(panels, (0.01, 0.5, 2.5, 100.0), strict=True):
    prior = gvi.GaussianProcess(
        gpflow.functions.Zero(), gpflow.kernels.SquaredExponential(lengthscales=lengthscale)
    )
    panel.plot(x, prior.sample(x, 5, seed=0)[:, :, 0].numpy().T, linewidth=1)
    panel.set_title(f"lengthscale {lengthscale}", fontsize="small")
plt.show()

# %% [markdown]
# `sample` is exact at the given inputs, at a cost of $O(N^3)$. `draw_functions` draws
# functions that can be evaluated anywhere, at a cost linear in N: features of the
# prior, corrected at the observations.
#
# ## Functions from a posterior, and their maxima
#
# `condition` takes exact values (`noise_variance=0`) or noisy ones. Here are eight exact values of
# a function that is expensive to compute.


# %%
def expensive(x):
    return np.sin(x) + np.sin(10.0 * x / 3.0)


prior = gvi.GaussianProcess(
    gpflow.functions.Zero(), gpflow.kernels.SquaredExponential(variance=1.5, lengthscales=0.6)
)
Z = np.linspace(0.2, 6.8, 8)[:, None]
posterior = prior.condition(Z, expensive(Z), noise_variance=0.0)
functions = gvi.sampling.draw_functions(posterior, FUNCTIONS, seed=0)

x = np.linspace(0.0, 7.0, 500)[:, None]
values = functions(x)[:, :, 0].numpy()  # [S, N]

# %% [markdown]
# A continuous function has a maximum on an interval, and one drawn from such a process has almost
# surely a single one. Where it is and how large is uncertain; the samples have its law.

# %%
maxima, where = values.max(axis=1), x[values.argmax(axis=1), 0]
figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 5), sharex=True, height_ratios=(2, 1))
top.plot(x, values[:20].T, linewidth=0.5)
top.plot(where[:20], maxima[:20], "k^", markersize=4)
top.plot(x, expensive(x), "k:")
top.plot(Z, expensive(Z), "ko")
bottom.hist(where, bins=70, density=True)
bottom.set_ylabel("density of argmax")
plt.show()

print(f"maximum by the samples: {maxima.mean():.2f} ± {maxima.std():.2f}")
print(f"argmax by the samples:  {where.mean():.2f} ± {where.std():.2f}")
print(f"that of the function:   {expensive(x).max():.2f} at {x[expensive(x).argmax(), 0]:.2f}")
rank = stats.percentileofscore(maxima, expensive(x).max())
print(f"of the sampled maxima {rank:.0f} % are smaller")

# %% [markdown]
# **To condition on a property of f**, keep the samples that have it. For example, let f be known to
# decrease at x = 2.

# %%
at_two = functions(np.array([[2.0], [2.0 + 1e-4]]))[:, :, 0].numpy()
falls = at_two[:, 1] < at_two[:, 0]
print(f"f decreases at 2 in {100.0 * np.mean(falls):.0f} % of the samples")
print(f"argmax then: {where[falls].mean():.2f} ± {where[falls].std():.2f}")

# %% [markdown]
# ## Where to evaluate next
#
# Four rules choose the next input: the maximum of a sample (Thompson), of the probability of an
# improvement on the best value so far, of the expected improvement
# $\sigma (u\, \Phi(u) + \varphi(u))$ with u = (mean - best)/σ, or of an upper confidence bound.
# Repeated, this is Bayesian optimisation. Here it starts from four values and uses expected
# improvement.

# %%
seen = np.linspace(0.2, 6.8, 4)[:, None]
print("best so far   Thompson   probability   expected improvement   upper bound")
for turn in range(TURNS):
    process = prior.condition(seen, expensive(seen), noise_variance=0.0)
    mean, deviation = process.mean(x)[:, 0], np.sqrt(process.variance(x)[:, 0]) + 1e-9
    best = expensive(seen).max()
    u = (mean - best) / deviation
    rules = (
        gvi.sampling.draw_functions(process, 1, seed=turn)(x)[0, :, 0],
        u,  # the probability is Φ(u)
        deviation * (u * stats.norm.cdf(u) + stats.norm.pdf(u)),
        mean + 2.0 * deviation,
    )
    points = [x[np.argmax(rule), 0] for rule in rules]
    print("{:11.3f}{:11.2f}{:14.2f}{:23.2f}{:14.2f}".format(best, *points))
    seen = np.append(seen, [[points[2]]], axis=0)
print(f"{expensive(seen).max():11.3f}")

# %% [markdown]
# ## Slopes
#
# Where the kernel is smooth enough, the derivative of a Gaussian process is one again, with mean
# $\partial m / \partial x$ and covariance $\partial^2 k(x, x') / \partial x\, \partial x'$, and the
# joint law with f is normal. `calculus.derivative` returns its marginals. Finite differences of the
# sampled functions have nearly the same marginals, up to Monte Carlo error.

# %%
slope, slope_variance = (part.numpy()[:, 0, 0] for part in gvi.calculus.derivative(posterior, x))
step = 1e-4
differences = (functions(x + step) - functions(x - step))[:, :, 0].numpy() / (2.0 * step)
moved = (posterior.mean(x + step) - posterior.mean(x - step))[:, 0].numpy() / (2.0 * step)
print("mean of f differenced, largest difference:", np.abs(moved - slope).max())
print(
    "sampled differences / deviation of the slope, mean of the standard deviations:",
    np.mean(differences.std(axis=0) / np.sqrt(slope_variance)).round(3),
)

gvi.plots.CurveDisplay.from_predictions(
    x, slope, np.sqrt(slope_variance), of="f", names=("x", "df/dx")
)
plt.plot(x, np.cos(x) + 10.0 / 3.0 * np.cos(10.0 * x / 3.0), "k:")
for z in Z[:, 0]:
    plt.axvline(z, color="grey", linewidth=0.5)
plt.show()

# %% [markdown]
# The uncertainty of the slope is smallest half-way between two values. Two values close to each
# other are a finite difference, and remove nearly all of it:

# %%
middle = np.array([[3.5]])
_, variance = gvi.calculus.derivative(posterior, middle)
print("distance   sd of the slope at 3.5")
print(f"no pair {np.sqrt(variance.numpy().item()):14.5f}")
for distance in (0.5, 0.1, 0.01):
    pair = np.concatenate([Z, middle - distance / 2.0, middle + distance / 2.0])
    closer = prior.condition(pair, expensive(pair), noise_variance=0.0)
    _, variance = gvi.calculus.derivative(closer, middle)
    print(f"{distance:8.2f}{np.sqrt(variance.numpy().item()):14.5f}")

# %% [markdown]
# ## Two functions at once
#
# A Gaussian process on pairs (x, which function) is a joint law of both. Here f and g have
# correlation 0.9 at each x. Observations of f alone are informative of g: at these inputs, its
# standard deviation falls by the factor $\sqrt{1 - 0.9^2}$.

# %%
which = gpflow.kernels.Coregion(2, 2, active_dims=[1])
which.W.assign(np.linalg.cholesky([[1.0, 0.9], [0.9, 1.0]]))
which.kappa.assign([1e-6, 1e-6])
both = gvi.GaussianProcess(
    gpflow.functions.Zero(), gpflow.kernels.SquaredExponential(active_dims=[0]) * which
)
of_f, of_g = (np.array([[1.0, j], [2.5, j]]) for j in (0.0, 1.0))
after = both.condition(of_f, np.array([[1.0], [-0.5]]), noise_variance=0.0)
print("g where f is 1 and -0.5:", after.mean(of_g)[:, 0].numpy().round(3), end=" ± ")
print(np.sqrt(after.variance(of_g)[:, 0]).round(3), "   √(1 - 0.9²) =", round(0.19**0.5, 3))

# %% [markdown]
# ## Integrals
#
# The integral of f is a random number as well: Bayesian quadrature. `calculus.integrate` returns
# its mean and variance under a uniform or a Gaussian measure, in closed form for the squared
# exponential.

# %%
uniform = gvi.calculus.UniformMeasure([0.0], [7.0])
normal = gvi.calculus.GaussianMeasure([3.0], [1.0])


def weighted(x):
    return expensive(x) * stats.norm.pdf(x, 3.0, 1.0)


exact = {
    "uniform": integrate.quad(expensive, 0.0, 7.0)[0] / 7.0,
    "normal": integrate.quad(weighted, -7.0, 13.0)[0],
}
print("measure    values   Bayesian quadrature   scipy.integrate.quad   Monte Carlo")
for name, measure in {"uniform": uniform, "normal": normal}.items():
    for count in (4, 8, 16):
        points = np.linspace(0.0, 7.0, count)[:, None]
        seen = prior.condition(points, expensive(points), noise_variance=0.0)
        mean, variance = (part.numpy().item() for part in gvi.calculus.integrate(seen, measure))
        rng = np.random.default_rng(count)
        at = rng.uniform(0.0, 7.0, count) if name == "uniform" else rng.normal(3.0, 1.0, count)
        print(f"{name:<8}{count:9d}{mean:12.4f} ± {variance**0.5:.4f}", end="")
        print(f"{exact[name]:22.4f}{expensive(at).mean():14.4f}")

# %% [markdown]
# ## Weights
#
# A kernel of finitely many features, $k(x, x') = \phi(x)^\top \phi(x')$, is the law of
# $f(x) = \phi(x)^\top w$ for $w \sim \mathcal{N}(0, I)$: Bayesian linear regression. With fewer
# features than observations `condition` works with the weights, and `draw_functions` draws them.
# The feature map here consists of powers, so that the drawn functions are parabolas.


# %%
def powers(x):
    return np.sqrt(10.0) * (x - 3.5) ** np.array([0.0, 1.0, 2.0]) / np.array([1.0, 3.5, 3.5**2])


parabolas = gvi.GaussianProcess(
    gpflow.functions.Zero(), gvi.kernels.FeatureMap(gpflow.kernels.Linear(), powers)
)
rng = np.random.default_rng(0)
X = rng.uniform(0.0, 7.0, size=(30, 1))
Y = 2.0 - 0.5 * (X - 3.0) ** 2 + 0.5 * rng.normal(size=X.shape)
after = parabolas.condition(X, Y, noise_variance=0.25)

Phi, phi = powers(X), powers(x)
A = np.eye(3) + Phi.T @ Phi / 0.25
by_hand = phi @ np.linalg.solve(A, Phi.T @ Y) / 0.25
variance_by_hand = np.sum(phi * np.linalg.solve(A, phi.T).T, axis=1)
print("largest difference of means:    ", np.abs(after.mean(x) - by_hand).max())
print("largest difference of variances:", np.abs(after.variance(x)[:, 0] - variance_by_hand).max())
drawn = gvi.sampling.draw_functions(after, 5, seed=1)(x)[:, :, 0].numpy()
thirds = np.diff(drawn, 3, axis=1)
print("largest third difference of drawn functions:", np.abs(thirds).max())

# %% [markdown]
# ## Observations that are not normal
#
# The posterior is then not a Gaussian process. Variational inference finds the closest one, for any
# likelihood of GPflow. The errors of these data have Student's t distribution with three degrees of
# freedom; the third model has normal noise with a standard deviation that is linear in x.

# %%
X = rng.uniform(0.0, 7.0, size=(100, 1))
Y = expensive(X) + 0.3 * rng.standard_t(3, size=X.shape)
points = gpflow.inducing_variables.InducingPoints(np.linspace(0.0, 7.0, 20)[:, None])
gpflow.set_trainable(points, False)
likelihoods = {
    "normal": gpflow.likelihoods.Gaussian(0.1),
    "Student's t": gpflow.likelihoods.StudentT(0.3, df=3.0),
    "normal, varying": gpflow.likelihoods.Gaussian(scale=gpflow.functions.Linear([[0.01]], [0.3])),
}
predictions = {}
print("likelihood           RMSE   mean sd of f")
for name, likelihood in likelihoods.items():
    Q = gvi.GaussianProcess(
        gvi.mean_functions.Inducing.from_data(prior.kernel, points, (X, Y), 0.1),
        gvi.covariances.CholeskySVGP.from_data(prior.kernel, points, X, 0.1),
    )
    model = gvi.models.GVI(prior, Q, likelihood, gvi.divergences.InducingKL(), num_data=len(X))
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure((X, Y)),
        model.trainable_variables,
        options={"maxiter": ITERATIONS},
    )
    mean, variance = predictions[name] = model.predict_f(x)
    rmse = gvi.metrics.rmse(expensive(x), mean)
    print(f"{name:<17}{rmse:8.3f}{np.mean(np.sqrt(variance)):15.3f}")

# %% [markdown]
# The posterior itself can be sampled, which takes longer. Elliptical slice sampling (Murray, Adams
# and MacKay 2010) needs no tuning where the prior is normal: from values f it proposes a point on
# the ellipse through f and a draw from the prior, and shrinks the bracket of angles until the
# likelihood exceeds a threshold. Given values at the data, f is a Gaussian process, so that the
# posterior is a mixture with one component for each draw. The components share their covariance,
# and `condition` takes all of them at once.


# %%
scale = likelihoods["Student's t"].scale.numpy()


def log_likelihood(f):
    """Return the log density of the observations, given the values [N] at the data."""
    return np.sum(stats.t.logpdf(Y[:, 0], df=3.0, loc=f, scale=scale))


L = np.linalg.cholesky(prior.covariance(X)[0] + 1e-6 * np.eye(len(X)))
f, draws = L @ rng.normal(size=len(X)), []
for _ in range(SLICES):
    other = L @ rng.normal(size=len(X))
    threshold = log_likelihood(f) + np.log(rng.uniform())
    angle = rng.uniform(0.0, 2.0 * np.pi)
    low, high = angle - 2.0 * np.pi, angle
    while log_likelihood(f * np.cos(angle) + other * np.sin(angle)) < threshold:
        low, high = (angle, high) if angle < 0.0 else (low, angle)
        angle = rng.uniform(low, high)
    f = f * np.cos(angle) + other * np.sin(angle)
    draws.append(f)

U = np.stack(draws[SLICES // 4 :: 5], axis=1)  # [N, S]
means, variances = prior.condition(X, U, noise_variance=1e-6).predict(x)  # [., S]
sampled = np.mean(means, axis=1)
deviation = np.sqrt(np.var(means, axis=1) + np.mean(variances, axis=1))
mean, variance = (np.asarray(part)[:, 0] for part in predictions["Student's t"])

plt.figure(figsize=(8, 3))
plt.fill_between(x[:, 0], sampled - 2 * deviation, sampled + 2 * deviation, color="C1", alpha=0.3)
plt.plot(x, sampled, "C1", label="sampled, ±2 sd")
for sign in (-2, 2):
    plt.plot(x, mean + sign * np.sqrt(variance), "C0--", linewidth=1)
plt.plot(x, mean, "C0", label="variational, ±2 sd")
plt.plot(X, Y, "k.", markersize=3)
plt.ylim(-4.0, 6.0)
plt.legend(fontsize="small")
plt.show()
print("mean sd of f, sampled and variational:", np.mean(deviation), np.mean(np.sqrt(variance)))
