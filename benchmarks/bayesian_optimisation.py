"""Simple regret of Bayesian optimisation: `minimise`, and Trieste with GVI and its own models.

    python -m benchmarks.bayesian_optimisation --minutes 15 --output bayesian_optimisation.json

All start with the same Latin hypercube, and maximise expected improvement. Trieste 4.6.1 requires
an older TensorFlow than this package, but works with the current one, installed by `pip install
--no-deps trieste==4.6.1 dill greenlet`. Where it is not installed its methods are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from scipy.stats import qmc

import gpflow_gvi as gvi
from gpflow_gvi.integrations.bayesian_optimisation import minimise
from gpflow_gvi.regulariser.lbfgs import lbfgs

if __package__:
    from .data import add_quick
else:
    from data import add_quick

Array = np.ndarray[Any, Any]


class Problem(NamedTuple):
    """A function of the unit cube, of approximately unit scale, and its minimum."""

    function: Callable[[Array], float]
    dimension: int
    minimum: float
    scale: float
    """The factor from a regret to that of the function in its usual units."""
    evaluations: int
    seeds: int


def branin(u: Array) -> float:
    """Return Branin's function of [-5, 10] × [0, 15], standardised (Picheny et al. 2013)."""
    a, b = 15.0 * u[0] - 5.0, 15.0 * u[1]
    valley = b - 5.1 * a**2 / (4.0 * np.pi**2) + 5.0 * a / np.pi - 6.0
    return (valley**2 + (10.0 - 10.0 / (8.0 * np.pi)) * np.cos(a) - 44.81) / 51.95


HARTMANN_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann6(u: Array) -> float:
    """Return Hartmann's function of six inputs. Dixon and Szegő (1978)."""
    inner = np.sum(HARTMANN_A * (u - HARTMANN_P) ** 2, axis=-1)
    return float(-np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-inner))


PROBLEMS = {
    "Branin": Problem(branin, 2, (0.397887 - 10.0 - 44.81) / 51.95, 51.95, 25, 5),
    "Hartmann-6": Problem(hartmann6, 6, -3.32237, 1.0, 60, 3),
}


def initial(problem: Problem, seed: int) -> Array:
    """Return the first inputs of all methods, which are those of `minimise`."""
    D = problem.dimension
    return qmc.LatinHypercube(D, seed=seed).random(2 * D + 1)


def native(problem: Problem, seed: int) -> Array:
    """Return the values that `minimise` evaluates, in their order."""
    D = problem.dimension
    steps = problem.evaluations - (2 * D + 1)
    return minimise(problem.function, [(0.0, 1.0)] * D, num_steps=steps, seed=seed).Y[:, 0]


def in_trieste(make: Callable[[Any, Any, Problem], Any]) -> Callable[[Problem, int], Array]:
    """Return a function of problem and seed that runs Trieste with a model."""

    def run(problem: Problem, seed: int) -> Array:
        from trieste.bayesian_optimizer import BayesianOptimizer
        from trieste.data import Dataset
        from trieste.space import Box

        def observe(X: tf.Tensor) -> Dataset:
            values = [[problem.function(x)] for x in X.numpy()]
            return Dataset(X, tf.constant(values, tf.float64))

        tf.random.set_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (Trieste draws from it)
        D = problem.dimension
        space = Box([0.0] * D, [1.0] * D)
        data = observe(tf.constant(initial(problem, seed)))
        steps = problem.evaluations - len(data)
        found = BayesianOptimizer(observe, space).optimize(
            steps, data, make(data, space, problem), track_state=False
        )
        return found.try_get_final_dataset().observations.numpy()[:, 0]

    return run


def trieste_gpr(data: Any, space: Any, problem: Problem) -> Any:
    """Return Trieste's exact Gaussian process, as its `build_gpr` has it."""
    from trieste.models.gpflow import GaussianProcessRegression, build_gpr

    return GaussianProcessRegression(build_gpr(data, space, likelihood_variance=1e-5))


def trieste_svgp(data: Any, space: Any, problem: Problem) -> Any:
    """Return Trieste's sparse variational process, as its `build_svgp` has it, trained by Adam."""
    from gpflow.keras import tf_keras
    from trieste.models.gpflow import SparseVariational, build_svgp
    from trieste.models.optimizer import BatchOptimizer

    model = build_svgp(
        data,
        space,
        likelihood_variance=1e-5,
        num_inducing_points=problem.evaluations,
        trainable_likelihood=False,
    )
    adam = tf_keras.optimizers.Adam(0.05)
    return SparseVariational(model, BatchOptimizer(adam, max_iter=100, compile=True))


def trieste_gvi(data: Any, space: Any, problem: Problem) -> Any:
    """Return a PGVI in Trieste's `SparseVariational`, which calls the procedure at each step."""
    from trieste.models.gpflow import SparseVariational

    D = problem.dimension
    Z = space.sample_sobol(problem.evaluations, skip=0)
    k = gpflow.kernels.Matern52(lengthscales=np.full(D, 0.3 * D**0.5))
    for parameter in (k.lengthscales, k.variance):
        location = tf.math.log(tf.convert_to_tensor(parameter))
        parameter.prior = tfp.distributions.LogNormal(location, tf.ones_like(location))
    m = gpflow.functions.Constant(np.zeros(1))
    mean = gvi.mean_functions.Inducing(k, Z, mean_function=m)
    Q = gvi.GaussianProcess(mean, gvi.covariances.CholeskySVGP(k, mean.inducing_variable))
    likelihood = gpflow.likelihoods.Gaussian(1e-4)
    num_data = tf.Variable(len(data), trainable=False)
    model = gvi.models.PGVI(gvi.GaussianProcess(m, k), Q, likelihood, num_data=num_data)
    return SparseVariational(model, Procedure())


class Procedure:
    """An optimiser for Trieste: fits P by the evidence, starts Q at the optimum, and trains Q.

    It assigns to the existing variables, as Trieste's graphs use them.
    """

    optimizer = gpflow.optimizers.Scipy()

    def optimize(self, model: gvi.models.PGVI, dataset: Any) -> None:
        """Fit the model to the data, the inputs of which are the first of the inducing points."""
        data = dataset.astuple()
        Z = model.inducing_variable
        Z.Z.assign(tf.concat([data[0], Z.Z[len(dataset) :]], axis=0))
        exact = gpflow.models.GPR(
            data, model.kernel, model.mean_function, likelihood=model.likelihood
        )
        lbfgs(
            tf.function(exact.training_loss, autograph=False),
            exact.trainable_variables,
            max_iterations=50,
        )
        noise = model.likelihood.variance
        mean, covariance = model.variational.mean_function, model.variational.kernel
        mean.q_mu.assign(
            type(mean)
            .from_data(model.kernel, Z, data, noise, mean_function=model.mean_function)
            .q_mu
        )
        covariance.q_sqrt.assign(type(covariance).from_data(model.kernel, Z, data[0], noise).q_sqrt)
        own = [parameter.unconstrained_variable for parameter in (mean.q_mu, covariance.q_sqrt)]
        lbfgs(model.training_loss_closure(data), own, max_iterations=20)


METHODS: dict[str, Callable[[Problem, int], Array]] = {
    "GVI, native": native,
    "Trieste, GVI": in_trieste(trieste_gvi),
    "Trieste, GPR": in_trieste(trieste_gpr),
    "Trieste, SVGP": in_trieste(trieste_svgp),
}


def main() -> None:
    """Run seed after seed until all are done or time is up; write after each, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("bayesian_optimisation.json"))
    parser.add_argument("--minutes", type=float, default=60.0, help="start no run after this time")
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--evaluations", type=int, help="instead of those of the problem")
    add_quick(parser)
    options = parser.parse_args()
    if options.quick:
        options.problems, options.evaluations = options.problems[:1], 8
    methods = options.methods
    if importlib.util.find_spec("trieste") is None:
        methods = [name for name in methods if not name.startswith("Trieste")]
        print("trieste is not installed, left out", flush=True)
    seeds = max(1 if options.quick else PROBLEMS[name].seeds for name in options.problems)
    logging.getLogger("gpflow_gvi").setLevel(logging.ERROR)
    start, results = time.perf_counter(), []
    # A seed of all methods before the next, so that what there is can be compared.
    for seed in range(seeds):
        for name in options.problems:
            problem = PROBLEMS[name]
            if options.evaluations:
                problem = problem._replace(evaluations=options.evaluations)
            if seed >= problem.seeds or time.perf_counter() - start > 60.0 * options.minutes:
                continue
            for method in methods:
                begun = time.process_time()
                values = METHODS[method](problem, seed)
                regrets = problem.scale * (np.minimum.accumulate(values) - problem.minimum)
                row = {"problem": name, "method": method, "seed": seed}
                results.append(
                    {**row, "regrets": list(regrets), "cpu": time.process_time() - begun}
                )
                options.output.write_text(json.dumps(results))
                print(f"{name}, {method}, seed {seed}: {regrets[-1]:.2g}", flush=True)
    print(table(results))


def table(results: list[dict[str, Any]]) -> str:
    """Return medians of the simple regret, in Markdown."""
    lines = [
        "| problem | method | seeds | at half | at the end | worst |",
        "| --- | --- | --: | --: | --: | --: |",
    ]
    for problem, method in dict.fromkeys((row["problem"], row["method"]) for row in results):
        rows = [row for row in results if (row["problem"], row["method"]) == (problem, method)]
        regrets = np.array([row["regrets"] for row in rows])
        half, end = np.median(regrets[:, (regrets.shape[1] + 1) // 2 - 1]), regrets[:, -1]
        figures = f"{half:.2g} | {np.median(end):.2g} | {end.max():.2g}"
        lines.append(f"| {problem} | {method} | {len(rows)} | {figures} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
