"""The demonstration: four tasks, each beside a rival, with the defaults of everything.

A curve with a gap in its data, a curve with outliers, a table of sailing yachts, and handwritten
digits of which two were never shown. All methods have their defaults. The curve repeats itself,
which `learn` finds out; on a smooth one an exact GP with a smooth kernel is as good.

The yachts are measurements by J. Gerritsma, R. Onnink and A. Versluis of the resistance of hulls,
"Yacht Hydrodynamics", UCI Machine Learning Repository, doi:10.24432/C5XG7R, CC BY 4.0.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
from gpflow.base import AnyNDArray
from scipy.special import entr
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold, cross_val_predict, train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from .. import metrics
from ..integrations.sklearn import GVIClassifier
from ..learning import learn
from ..prediction.class_probabilities import entropies

__all__ = ["NEXT", "NEXT_HERE", "run"]

GAP = (0.2, 1.1)

NEXT = "  gpflow-gvi learn DATA.csv --target COLUMN     from a table to a model, scores and a page"
NEXT_HERE = """
  python examples/quick_start.py                the shortest program
  make docs                                     notebooks, how-to pages, every formula"""
"""What is in the repository alone."""

Gaussian = tuple[AnyNDArray, AnyNDArray]
"""Means and standard deviations of observations: [N] each."""


class Task(NamedTuple):
    """A task: the scores of each method, and the pictures of ours and of a rival."""

    name: str
    scores: dict[str, dict[str, float]]
    """By method: ours, the rival beside it in the picture, and others."""
    draw: Callable[[Any, str], None]
    """What draws a method on Axes."""
    headline: str
    """The score above each."""


def curve_with_gap(seed: int) -> Task:
    """Learn a curve, and predict it where there are no data as well."""
    rng = np.random.default_rng(seed)

    def observed(x: AnyNDArray) -> AnyNDArray:
        return 2.0 * np.sin(2.0 * np.pi * x) + x + 0.3 * rng.normal(size=x.shape)

    X = np.sort(rng.uniform(-2.0, 2.0, 200))
    X = X[(GAP[0] > X) | (GAP[1] < X)][:, None]
    Y = observed(X)
    x = np.linspace(-2.0, 2.0, 401)[:, None]
    y = observed(x)[:, 0]
    in_gap = (x[:, 0] > GAP[0]) & (x[:, 0] < GAP[1])

    learned = learn((X, Y), seed=seed)
    layers = MLPRegressor(hidden_layer_sizes=(50, 50), max_iter=3000, random_state=seed)
    network = make_pipeline(StandardScaler(), layers)
    predicted = {
        "learn": _moments(learned.predict_y(x)),
        "exact GP (GPflow)": _moments(_exact_gp(X, Y).predict_y(x)),
        "network": _with_error_out_of_fold(network, X, Y[:, 0], x),
    }
    scores = {}
    for name, (mean, sd) in predicted.items():
        found, gap = _scores(y, (mean, sd)), _scores(y[in_gap], (mean[in_gap], sd[in_gap]))
        scores[name] = {"NLL": found["NLL"], "NLL in the gap": gap["NLL"]}
        scores[name]["coverage"] = found["coverage"]

    def draw(ax: Any, name: str) -> None:
        _curve(ax, x, predicted[name], (X, Y), (x[in_gap], y[in_gap]))

    return Task("a curve with a gap", scores, draw, "NLL in the gap")


def outliers(seed: int) -> Task:
    """Learn a curve of which 30 % of the observations are too high."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (200, 1))
    x = np.linspace(-3.0, 3.0, 200)[:, None]
    truth, at = (np.sin(2.0 * points) + 0.3 * points for points in (x[:, 0], X))
    wrong = (rng.random(X.shape) < 0.3) * rng.uniform(2.0, 4.0, X.shape)
    Y = at + 0.1 * rng.normal(size=X.shape) + wrong
    predicted = {
        "learn, robust": _moments(learn((X, Y), loss="robust", seed=seed).predict_y(x)),
        "exact GP (GPflow)": _moments(_exact_gp(X, Y).predict_y(x)),
    }
    errors = {name: _scores(truth, of)["RMSE"] for name, of in predicted.items()}
    scores = {name: {"RMSE to the truth": error} for name, error in errors.items()}

    def draw(ax: Any, name: str) -> None:
        _curve(ax, x, predicted[name], (X, Y), (x, truth), is_truth=True)

    return Task("30 % outliers", scores, draw, "RMSE to the truth")


def table(seed: int) -> Task:
    """Learn the resistance of sailing yachts from 215 measurements."""
    file = resources.files(__package__).joinpath("yacht.csv")
    rows = np.genfromtxt(file.read_text("utf-8").splitlines(), delimiter=",", skip_header=1)
    X, x, Y, y = train_test_split(rows[:, :-1], rows[:, -1], test_size=0.3, random_state=seed)
    trees = HistGradientBoostingRegressor(random_state=seed)
    learned = learn((X, Y), seed=seed)
    predicted = {
        "learn": _moments(learned.predict_y(x)),
        "boosted trees": _with_error_out_of_fold(trees, X, Y, x),
    }
    scores = {name: _scores(y, of) for name, of in predicted.items()}
    scores["learn"]["NLL"] = -float(np.mean(learned.predict_log_density((x, y))))

    def draw(ax: Any, name: str) -> None:
        from ..plots import QuantileDisplay
        from ..plots.display import legend_above

        if name == "learn":
            QuantileDisplay.from_estimator(learned, x, y, ax=ax)
        else:
            QuantileDisplay.from_predictions(y, *predicted[name], ax=ax)
        legend_above(ax, ncols=1)

    return Task("a table (yachts)", scores, draw, "RMSE")


def digits(seed: int) -> Task:
    """Learn the digits 0 to 7, and detect unfamiliar images by their uncertainty (AUROC)."""
    images = load_digits()
    X, labels = images.data / 16.0, images.target
    X, unknown, labels = X[labels < 8], X[labels >= 8], labels[labels < 8]
    X, x, labels, y = train_test_split(X, labels, test_size=0.3, random_state=seed)
    ours = GVIClassifier(random_state=seed).fit(X, labels)
    network = MLPClassifier((100, 100), max_iter=500, random_state=seed).fit(X, labels)
    kinds = {"0 to 7": x, "8 and 9": unknown, "black on white": 1.0 - x}
    uncertainty = {
        "learn": [entropies(ours.learned_, rows).total for rows in kinds.values()],
        "network": [entr(network.predict_proba(rows)).sum(axis=1) for rows in kinds.values()],
    }
    scores = {}
    for name, model in (("learn", ours), ("network", network)):
        known, *others = uncertainty[name]
        scores[name] = {"accuracy": model.score(x, y)}
        for kind, values in zip(list(kinds)[1:], others, strict=True):
            scores[name][f"AUROC {kind}"] = metrics.auroc(known, values)

    def draw(ax: Any, name: str) -> None:
        from ..plots.display import BLUE, ORANGE, VERMILLION, legend_above

        bins = np.linspace(0.0, np.log(8.0), 22)
        style = {"density": True, "histtype": "stepfilled", "alpha": 0.6}
        ax.hist(uncertainty[name][0], bins, color=BLUE, label="0 to 7", **style)
        ax.hist(uncertainty[name][1], bins, color=ORANGE, label="8 and 9", **style)
        style = {"density": True, "histtype": "step", "lw": 2.0}
        ax.hist(uncertainty[name][2], bins, color=VERMILLION, label="black on white", **style)
        ax.set_yscale("symlog", linthresh=0.1)
        ax.set(xlabel="uncertainty of the class, nats", yticks=[], ylabel="density")
        legend_above(ax, ncols=2, handlelength=1.2)

    return Task("unfamiliar digits", scores, draw, "AUROC black on white")


def run(picture: Path, *, seed: int = 0, say: Callable[[str], None] | None = None) -> str:
    """Do all tasks, two at a time, write the picture if Matplotlib is there, return the table."""

    def done(number: int, of: Callable[[int], Task]) -> Task:
        if say is not None:
            say(f"{number} of 4: {(of.__doc__ or '').splitlines()[0]}")
        return of(seed)

    with ThreadPoolExecutor(max_workers=2) as two:
        tasks = list(two.map(done, range(1, 5), (curve_with_gap, outliers, table, digits)))
    lines = []
    for task in tasks:
        names = next(iter(task.scores.values()))
        lines += ["", f"{task.name:<28}" + "".join(f"{name:>22}" for name in names)]
        for method, scores in task.scores.items():
            lines.append(f"  {method:<26}" + "".join(f"{v:>22.3f}" for v in scores.values()))
    if importlib.util.find_spec("matplotlib") is None:
        lines += ["", "For the picture: pip install 'gpflow-gvi[plots]'"]
    else:
        if not picture.suffix:  # Matplotlib would add it
            picture = picture.with_suffix(".png")
        _draw(tasks, picture)
        lines += ["", f"The picture is {picture.resolve()}."]
    return "\n".join(lines[1:])


def _draw(tasks: list[Task], picture: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(tasks), 7.0), layout="constrained")
    panels = figure.subplots(2, len(tasks))
    for column, task in zip(panels.T, tasks, strict=True):
        for ax, method in zip(column, task.scores, strict=False):
            task.draw(ax, method)
            title = f"{method}\n{task.headline}: {task.scores[method][task.headline]:.2f}"
            if ax is column[0]:
                title = f"{task.name.capitalize()}\n\n{title}"
            ax.set_title(title, pad=34, loc="left", fontweight="bold", fontsize="medium")
        limits = [ax.get_ylim() for ax in column]
        if task.name != "unfamiliar digits":
            for ax in column:
                ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=150)


def _curve(
    ax: Any, x: AnyNDArray, of: Gaussian, data: Any, beside: Any, is_truth: bool = False
) -> None:
    from ..plots import CurveDisplay
    from ..plots.display import VERMILLION, legend_above

    CurveDisplay.from_predictions(x, *of, data=data, ax=ax)
    kind = {"ls": ":", "label": "truth"} if is_truth else {"ls": "", "marker": ".", "ms": 3}
    ax.plot(*beside, color=VERMILLION, **{"label": "not given", **kind})
    legend_above(ax, ncols=2, handlelength=1.2)


def _exact_gp(X: AnyNDArray, Y: AnyNDArray) -> gpflow.models.GPR:
    exact = gpflow.models.GPR((X, Y), gpflow.kernels.SquaredExponential())
    gpflow.optimizers.Scipy().minimize(exact.training_loss, exact.trainable_variables)
    return exact


def _moments(predicted: Any) -> Gaussian:
    mean, variance = (np.asarray(part)[:, 0] for part in predicted)
    return mean, np.sqrt(variance)


def _scores(y: AnyNDArray, of: Gaussian) -> dict[str, float]:
    """Return the scores of predictions; coverage is that of 95 % intervals."""
    y, mean, sd = (part[:, None] for part in (y, *of))
    return {
        "NLL": metrics.nll(y, mean, sd**2),
        "RMSE": metrics.rmse(y, mean),
        "coverage": metrics.coverage(y, mean - 1.96 * sd, mean + 1.96 * sd),
    }


def _with_error_out_of_fold(
    estimator: Any, X: AnyNDArray, y: AnyNDArray, x: AnyNDArray
) -> Gaussian:
    """Return predictions of an estimator, with the deviation of its errors out of fold."""
    folds = KFold(shuffle=True, random_state=0)
    error = y - cross_val_predict(estimator, X, y, cv=folds)
    mean = estimator.fit(X, y).predict(x)
    return mean, np.full_like(mean, np.sqrt(np.mean(np.square(error))))
