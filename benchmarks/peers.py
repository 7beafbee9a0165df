"""Steps of SVGP in other libraries, each in a process and an interpreter of its own.

    python benchmarks/peers.py gpjax

reads lines "B M fixed calls" and answers each with the seconds of processor time of this number of
steps (loss and gradient), with kernel and inducing points fixed (1) or trained (0). `Peer` calls
it. Models and data are those of `steps.py`: an ARD kernel on 8 columns, M inducing points, a
network of ten tanh units as the mean, float64, one core.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

D, UNITS = 8, 10


def inputs(B: int, M: int, D: int = D) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X [B, D], Y [B, 1] and inducing points [M, D]."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(B, D))
    Y = np.sin(X.sum(axis=1, keepdims=True)) + 0.1 * rng.normal(size=(B, 1))
    return X, Y, rng.normal(size=(M, D))


def gpytorch(B: int, M: int, fixed: bool) -> Callable[[], Any]:
    """Return a step of GPyTorch's SVGP."""
    import gpytorch as gpt
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    X, Y, Z = (torch.as_tensor(part) for part in inputs(B, M))

    class SVGP(gpt.models.ApproximateGP):
        def __init__(self) -> None:
            q = gpt.variational.CholeskyVariationalDistribution(M)
            strategy = gpt.variational.VariationalStrategy
            super().__init__(strategy(self, Z, q, learn_inducing_locations=not fixed))
            self.network = torch.nn.Sequential(
                torch.nn.Linear(D, UNITS), torch.nn.Tanh(), torch.nn.Linear(UNITS, 1)
            )
            self.kernel = gpt.kernels.ScaleKernel(gpt.kernels.RBFKernel(ard_num_dims=D))

        def forward(self, x: Any) -> Any:
            return gpt.distributions.MultivariateNormal(self.network(x)[..., 0], self.kernel(x))

    model, likelihood = SVGP(), gpt.likelihoods.GaussianLikelihood()
    model.kernel.base_kernel.lengthscale = D**0.5
    model.kernel.requires_grad_(not fixed)
    parameters = [*model.parameters(), *likelihood.parameters()]
    elbo = gpt.mlls.VariationalELBO(likelihood, model, num_data=B)

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        (-elbo(model(X), Y[:, 0])).backward()

    return step


def gpjax(B: int, M: int, fixed: bool) -> Callable[[], Any]:
    """Return a step of GPJax's SVGP, compiled."""
    import equinox as eqx
    import gpjax as gpx
    import jax
    import jax.numpy as jnp
    import paramax

    jax.config.update("jax_enable_x64", True)
    X, Y, Z = (jnp.asarray(part) for part in inputs(B, M))

    class Network(gpx.mean_functions.AbstractMeanFunction):
        layers: list[Any]

        def __init__(self) -> None:
            shapes = ((D, UNITS), (UNITS, 1))
            keys = jax.random.split(jax.random.key(0), 2)
            weights = (jax.random.normal(key, s) for key, s in zip(keys, shapes, strict=True))
            self.layers = [(w / 3.0, jnp.zeros(w.shape[1])) for w in weights]

        def __call__(self, x: Any) -> Any:
            (first, shift), (second, offset) = self.layers
            return jnp.tanh(x @ first + shift) @ second + offset

    kernel = gpx.kernels.RBF(lengthscale=jnp.full(D, D**0.5))
    prior = gpx.gps.Prior(mean_function=Network(), kernel=kernel)
    posterior = prior * gpx.likelihoods.Gaussian()
    q = gpx.variational_families.WhitenedVariationalGaussian(posterior, Z)
    if fixed:
        parts = lambda q: (q.model.prior.kernel, q.inducing_inputs)  # noqa: E731
        q = eqx.tree_at(parts, q, replace_fn=paramax.non_trainable)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def step(q: Any, X: Any, Y: Any) -> Any:
        return -gpx.objectives.elbo(paramax.unwrap(q), gpx.Dataset(X, Y))

    return lambda: jax.block_until_ready(step(q, X, Y))


STEPS: dict[str, Callable[[int, int, bool], Callable[[], Any]]] = {
    "gpytorch": gpytorch,
    "gpjax": gpjax,
}


class Peer:
    """A process of another interpreter that times steps of one of `STEPS`.

    :param library: its name.
    :param python: an interpreter that can import it.
    """

    def __init__(self, library: str, python: str) -> None:
        self.process = subprocess.Popen(
            [python, __file__, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def timed(self, B: int, M: int, *, fixed: bool = False) -> Callable[[int], float]:
        """Return the time of steps, as `timing.timed` does."""
        return functools.partial(self._ask, B, M, fixed)

    def _ask(self, B: int, M: int, fixed: bool, calls: int) -> float:
        print(B, M, int(fixed), calls, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


def can_import(library: str, python: str) -> bool:
    """Try to import a library in an interpreter, and return whether that succeeds."""
    command = [python, "-c", f"import {library}"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def serve(library: str) -> None:
    """Answer the lines of standard input until it ends."""
    step_of = functools.lru_cache(maxsize=2)(STEPS[library])
    for line in sys.stdin:
        B, M, fixed, calls = map(int, line.split())
        step = step_of(B, M, bool(fixed))
        start = time.process_time()
        for _ in range(calls):
            step()
        print(time.process_time() - start, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
