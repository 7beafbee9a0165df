"""The demonstration: one curve with a gap in its data, three models, a table and a picture.

It shows the procedure with parts of one's own: P is a prior, the mean of Q is a mean function of
GPflow with priors on its weights, and Q is trained on all data by L-BFGS.
"""

from __future__ import annotations

import dataclasses
import operator
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from scipy.stats import norm

from .learning.procedure import Procedure
from .learning.q_training import FullTraining
from .learning.settings import (
    LBFGS,
    ModelSettings,
    RegulariserSettings,
    Settings,
    VariationalSettings,
)
from .learning.split import Split
from .models import GWI, PGVI

Array = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

NOISE = 0.3
GAP = (0.3, 1.1)


class Curve(NamedTuple):
    """Data of a curve: what is trained on, and what is held out, in the gap and beside it."""

    X: Array
    Y: Array
    X_held_out: Array
    Y_held_out: Array

    @property
    def held_out_in_gap(self) -> Mask:
        """Which held-out points lie where there are no data."""
        return _in_gap(self.X_held_out[:, 0])


class Row(NamedTuple):
    """One line of the table."""

    model: str
    nll: float
    rmse: float
    coverage: float
    nll_in_gap: float


class TanhNetwork(gpflow.functions.MeanFunction):
    """A mean function of one hidden layer."""

    def __init__(self, units: int, rng: np.random.Generator) -> None:
        super().__init__()
        # Priors on the weights are GPflow's way to weight decay: they enter the training loss.
        wide, narrow = (tfp.distributions.Normal(np.float64(0.0), s) for s in (2.0, 1.0))
        self.W = gpflow.Parameter(rng.normal(scale=2.0, size=(1, units)), prior=wide)
        self.b = gpflow.Parameter(rng.normal(scale=2.0, size=units), prior=wide)
        self.V = gpflow.Parameter(rng.normal(scale=units**-0.5, size=(units, 1)), prior=narrow)

    def __call__(self, X: gpflow.base.TensorType) -> tf.Tensor:
        """Return tanh(X W + b) V: [N, 1]."""
        return tf.tanh(X @ self.W + self.b) @ self.V


def make_curve(rng: np.random.Generator, num_data: int = 200) -> Curve:
    """Draw noisy values of a curve on [-2, 2], with a gap in the training inputs."""

    def noisy(X: Array) -> Array:
        truth = 2.0 * np.sin(np.pi * X) + 0.5 * X**3
        return np.asarray(truth + NOISE * rng.normal(size=X.shape))

    X = np.sort(rng.uniform(-2.0, 2.0, size=num_data))
    X = X[~_in_gap(X)][:, None]
    X_held_out = np.linspace(-2.0, 2.0, 401)[:, None]
    return Curve(X, noisy(X), X_held_out, noisy(X_held_out))


def fit_models(curve: Curve, rng: np.random.Generator, iterations: int) -> dict[str, Any]:
    """Return an SVGP, a pGVI-GP and a GWI-GP that were fitted to the curve."""
    settings = Settings(
        regulariser=RegulariserSettings(
            kernels=lambda _: [gpflow.kernels.SquaredExponential()],
            predictors=None,
            noise="constant",
            num_inducing=15,
            minimise=LBFGS(iterations),
            process=operator.attrgetter("prior"),
        ),
        variational=VariationalSettings(mean=lambda _: TanhNetwork(16, rng)),
        training=FullTraining(LBFGS(iterations)),
        validation_fraction=0.0,
        standardise=False,
    )
    split = Split.of((curve.X, curve.Y), settings)
    procedure = Procedure(split, settings)
    data = procedure.training_data(split.train)
    regulariser = procedure.fit_regulariser(data, None)

    models: dict[str, Any] = {}
    svgp = gpflow.models.SVGP(
        gpflow.utilities.deepcopy(regulariser.prior.kernel),
        gpflow.utilities.deepcopy(regulariser.likelihood),
        regulariser.inducing_points,
        num_data=len(data.X),
    )
    closure = svgp.training_loss_closure((data.X, data.Y))
    gpflow.optimizers.Scipy().minimize(
        closure, svgp.trainable_variables, options={"maxiter": iterations}
    )
    models["GPflow SVGP"] = svgp

    for name, kind in (("pGVI-GP (Rényi)", PGVI), ("GWI-GP (Wasserstein)", GWI)):
        # The noise stays that of the regulariser.
        model = ModelSettings(kind=kind, train_likelihood=False)
        procedure = Procedure(split, dataclasses.replace(settings, model=model))
        models[name], _ = procedure.train(regulariser, data, None)
    return models


def evaluate(name: str, model: Any, curve: Curve) -> Row:
    """Return the figures of a model on the held-out points."""
    mean, variance = (part.numpy() for part in model.predict_y(curve.X_held_out))
    residual = curve.Y_held_out - mean
    nll = 0.5 * (np.log(2.0 * np.pi * variance) + residual**2 / variance)[:, 0]
    inside = np.abs(residual) <= norm.ppf(0.975) * np.sqrt(variance)
    return Row(
        name,
        float(nll.mean()),
        float(np.sqrt(np.mean(residual**2))),
        float(inside.mean()),
        float(nll[curve.held_out_in_gap].mean()),
    )


def table(rows: list[Row]) -> str:
    """Return the rows as text."""
    header = f"{'model':<22}{'NLL':>8}{'RMSE':>8}{'95 % coverage':>15}{'NLL in the gap':>16}"
    lines = [
        f"{row.model:<22}{row.nll:>8.3f}{row.rmse:>8.3f}{row.coverage:>15.3f}{row.nll_in_gap:>16.3f}"
        for row in rows
    ]
    return "\n".join([header, "-" * len(header), *lines])


def draw(models: dict[str, Any], curve: Curve, path: Path) -> None:
    """Write the picture: data, prediction and 95 % interval of each model."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "The picture needs matplotlib: pip install 'gpflow-gvi[plots]'."
        ) from error
    figure = Figure(figsize=(4.2 * len(models), 3.6), layout="constrained")
    panels = figure.subplots(1, len(models), sharex=True, sharey=True)
    x = np.linspace(-2.4, 2.4, 400)[:, None]
    for panel, (name, model) in zip(panels, models.items(), strict=True):
        mean, variance = (part.numpy()[:, 0] for part in model.predict_y(x))
        width = norm.ppf(0.975) * np.sqrt(variance)
        panel.fill_between(x[:, 0], mean - width, mean + width, alpha=0.25, lw=0)
        panel.plot(x[:, 0], mean)
        panel.plot(curve.X, curve.Y, "k.", ms=3, label="training data")
        gap = curve.held_out_in_gap
        panel.plot(curve.X_held_out[gap], curve.Y_held_out[gap], ".", c="C3", ms=3, label="the gap")
        panel.set_title(name)
        panel.set_ylim(-8.0, 8.0)
    panels[0].legend(loc="upper left", fontsize="small")
    figure.savefig(path, dpi=120)


def run(picture: Path, *, seed: int = 0, iterations: int = 1000) -> str:
    """Fit the models, write the picture, and return the table."""
    rng = np.random.default_rng(seed)
    curve = make_curve(rng)
    models = fit_models(curve, rng, iterations)
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw(models, curve, picture)
    return table([evaluate(name, model, curve) for name, model in models.items()])


def _in_gap(x: Array) -> Mask:
    return np.asarray((x > GAP[0]) & (x < GAP[1]))
