"""Displays: Axes in, Axes out, and on them what independent computations give."""

from __future__ import annotations

import sys

import gpflow
import matplotlib as mpl
import numpy as np
import pytest
import scipy.stats
from sklearn.base import BaseEstimator

import gpflow_gvi as gvi
from gpflow_gvi import plots

mpl.use("Agg")
import matplotlib.pyplot as plt

from tests.tolerances import assert_close, assert_estimates

FAST = {"num_inducing": 15, "predictor": None, "effort": "fast"}
COUNTS = {
    "kernel": gpflow.kernels.SquaredExponential(),
    "likelihood": gpflow.likelihoods.Poisson(),
    **FAST,
}


def _data(D, N=50):
    rng = np.random.default_rng(D)
    X = 10.0 + 3.0 * rng.normal(size=(N, D))
    return X, 100.0 * np.sin(X[:, :1] / 3.0) + rng.normal(size=(N, 1))


def _learned(D, **options):
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(D))
    return gvi.learn(_data(D), kernel=kernel, **FAST, **options)


@pytest.fixture(scope="module")
def models():
    return {D: _learned(D) for D in (1, 2, 4)}


@pytest.fixture(scope="module")
def classifier():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.array(["low", "mid", "top"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    return gvi.GVIClassifier(num_inducing=15, effort="fast", random_state=0).fit(X, y), X, y


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def test_a_curve_shows_predictions_in_original_units(models):
    learned = models[1]
    X, Y = _data(1)
    _, ax = plt.subplots()
    assert learned.plot(X, Y, ax=ax) is ax
    mean = next(line for line in ax.lines if line.get_label() == "mean")
    x = mean.get_xdata()
    assert_close(mean.get_ydata(), learned.predict_f(x[:, None])[0][:, 0])
    bands = {band.get_label(): band for band in ax.collections}
    heights = bands["95 % interval of y"].get_paths()[0].vertices[1:-1, 1]
    lower, upper = learned.predict_interval(x[:, None])
    assert_close(heights.min(), np.min(lower))
    assert_close(heights.max(), np.max(upper))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y")


@pytest.mark.slow
def test_a_curve_of_counts_is_that_of_their_mean():
    rng = np.random.default_rng(0)
    X = np.linspace(0.0, 6.0, 40)[:, None]
    Y = rng.poisson(np.exp(2.0 + np.sin(X))).astype(float)
    learned = gvi.learn((X, Y), **COUNTS)
    display = plots.CurveDisplay.from_estimator(learned, X, Y)
    assert display.f_interval is None
    assert_close(display.mean, learned.predict_y(display.x[:, None])[0][:, 0])
    lower, upper = display.y_interval
    assert np.all((lower < display.mean) & (display.mean < upper))


@pytest.mark.slow
def test_maps_and_partial_dependence_of_counts_are_those_of_their_mean():
    """f is the logarithm of the rate, and tells counts of rows apart by their ratios alone."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, size=(40, 2))
    Y = rng.poisson(50.0 * np.exp(X[:, 0]))
    learned = gvi.learn((X, Y), **COUNTS)
    display = plots.MapDisplay.from_estimator(learned, X, Y, resolution=5)
    at = np.stack(np.meshgrid(*display.grid), axis=-1).reshape(-1, 2)
    mean, variance = learned.predict_y(at)
    assert_close(display.mean.ravel(), mean[:, 0])
    assert_close(display.sd.ravel(), np.sqrt(variance[:, 0]))
    assert display.ax_[1].get_title() == "standard deviation of y"
    display = plots.PartialDependenceDisplay.from_estimator(learned, X, resolution=4)
    assert display.half_widths is None
    at = X.copy()
    at[:, 0] = display.panels[0].grid[1]
    assert_close(display.means[0][1, 0], np.mean(learned.predict_y(at)[0]))


def test_maps_are_of_mean_and_sd(models):
    display = plots.MapDisplay.from_estimator(models[2], *_data(2), resolution=7)
    assert len(display.ax_) == 2
    i, j = 2, 5
    at = np.array([[display.grid[0][j], display.grid[1][i]]])
    mean, variance = models[2].predict_f(at)
    assert_close(display.mean[i, j], mean[0, 0].numpy())
    assert_close(display.sd[i, j], np.sqrt(variance[0, 0]))


def test_several_panels_go_into_one_axes(models):
    figure, ax = plt.subplots()
    axes = models[2].plot(ax=ax)
    assert len(axes) == 2
    assert all(panel.figure is figure for panel in axes)
    with pytest.raises(ValueError, match="give 1 or 2"):
        models[2].plot(ax=plt.subplots(1, 3)[1])


def test_axes_that_are_no_subplot_hold_one_panel_and_not_several(models):
    place = (0.1, 0.1, 0.8, 0.8)
    ax = plt.figure().add_axes(place)
    assert models[1].plot(ax=ax) is ax
    for ax in (plt.figure().add_axes(place), plt.subplots()[1].inset_axes(place)):
        with pytest.raises(ValueError, match=r"ax is no subplot.*; give a subplot, or 2 Axes"):
            models[2].plot(ax=ax)


def test_observations_of_the_output_that_is_shown_are_drawn():
    X, Y = _data(2)
    Y = np.column_stack([Y, X[:, 1]])
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(2))
    learned = gvi.learn((X, Y), kernel=kernel, **FAST)
    for output in (0, 1):
        left, _ = plots.MapDisplay.from_estimator(learned, X, Y, output=output, resolution=5).ax_
        np.testing.assert_array_equal(left.collections[-1].get_array(), Y[:, output])
        for y in (Y[:, output], np.column_stack([Y, Y])):
            with pytest.raises(ValueError, match=r"y has shape .*\[N, 2\], a column for each out"):
                plots.MapDisplay.from_estimator(learned, X, y, output=output)


@pytest.mark.draws
def test_partial_dependence_has_the_moments_of_the_average(models):
    X, _ = _data(4)
    display = plots.PartialDependenceDisplay.from_estimator(
        models[4], X, features=[0], max_rows=8, resolution=3
    )
    rows = plots.partial_dependence.View.of(models[4]).rows(X, 8)
    rows[:, 0] = display.panels[0].grid[1]
    samples = np.asarray(models[4].predict_f_samples(rows, 20_000))[:, :, 0].mean(axis=1)
    sd = display.half_widths[0][1] / scipy.stats.norm.ppf(0.975)
    assert_estimates(samples.mean(), display.means[0][1, 0], sd / np.sqrt(20_000))
    assert_estimates(samples.std(), sd, sd / np.sqrt(2 * 20_000))
    assert plots.draw(models[4], X, features=["x2", 1])[1].get_xlabel() == "x1"


def test_a_feature_of_few_values_is_shown_at_these(models):
    """Between them a process with a short lengthscale knows nothing."""
    X = _data(4)[0].round(0)
    of = plots.PartialDependenceDisplay.from_estimator(models[4], X, features=[0], resolution=20)
    np.testing.assert_array_equal(of.panels[0].grid, np.unique(X[:, 0]))


def test_values_of_a_feature_are_written_as_they_are(models):
    X = np.full((30, 4), 2021.0) + np.linspace(0.5, 0.6, 30)[:, None]
    ax = plots.PartialDependenceDisplay.from_estimator(models[4], X, features=[0]).ax_
    ax.figure.canvas.draw()
    shown = [float(label.get_text()) for label in ax.get_xticklabels()]
    assert_close(shown, ax.get_xticks())
    assert ax.get_xlim()[0] > 2021.0


def test_relevance_is_that_of_a_squared_exponential_in_closed_form(models):
    """E (f(x + e_d) - f(x))² = 2 σ² (1 - exp(-1 / (2 ℓ_d²))), in units of y."""
    display = plots.RelevanceDisplay.from_estimator(models[4])
    kernel = models[4].regulariser.prior.kernel
    ell, variance = kernel.lengthscales.numpy(), kernel.variance.numpy()
    expected = np.sqrt(2.0 * variance * -np.expm1(-0.5 / ell**2)) * models[4].outputs.scale
    assert_close(display.relevance, expected)
    assert display.relevance.argmax() == 0


def test_permutation_matters_for_the_feature_that_does(models):
    display = plots.RelevanceDisplay.from_estimator(models[4], *_data(4))
    assert display.relevance.argmax() == 0
    assert display.relevance[0] > 10.0 * np.abs(display.relevance[1:]).max()
    with pytest.raises(ValueError, match="both, or neither"):
        models[4].plot_relevance(_data(4)[0])


def test_quantiles_of_true_distributions_are_on_the_diagonal():
    rng = np.random.default_rng(0)
    mean, sd = rng.normal(size=5000), rng.uniform(0.5, 2.0, 5000)
    y = mean + sd * rng.normal(size=5000)
    levels = plots.reliability.LEVELS
    for factor, expected in (
        (1.0, levels),
        (0.5, scipy.stats.norm.cdf(0.5 * scipy.stats.norm.ppf(levels))),
    ):
        display = plots.QuantileDisplay.from_predictions(y, mean, factor * sd)
        error = np.sqrt(expected * (1.0 - expected) / len(y))
        assert_estimates(display.observed, expected, error)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"mean": np.zeros((10, 2))}, r"mean has shape \(10, 2\), .* 10"),
        ({"sd": -np.ones(10)}, "sd is -1 in places; it must be zero or positive"),
        ({"sd": np.ones(20)}, r"sd has shape \(20,\), .* 10"),
    ],
)
def test_predictions_of_other_shapes_and_negative_deviations_are_refused(parts, message):
    x = np.linspace(0.0, 1.0, 10)
    given = {"mean": np.zeros(10), "sd": np.ones(10), **parts}
    with pytest.raises(ValueError, match=message):
        plots.CurveDisplay.from_predictions(x, **given)


def test_what_has_no_quantile_is_no_point_of_a_calibration_curve():
    with pytest.raises(ValueError, match="y, mean or sd is NaN in 1 of 3 rows"):
        plots.QuantileDisplay.from_predictions([0.0, np.nan, 1.0], np.zeros(3), np.ones(3))


def test_calibration_of_an_estimator_is_that_of_its_predictions(models):
    X, Y = _data(1)
    mean, variance = models[1].predict_y(X)
    direct = plots.QuantileDisplay.from_predictions(Y, mean, np.sqrt(variance))
    of_model = plots.QuantileDisplay.from_estimator(models[1], X, Y)
    assert_close(of_model.observed, direct.observed)
    assert models[1].plot_calibration(X, Y).get_xlabel() == "predicted probability p"


@pytest.mark.slow
def test_classes_have_maps_and_reliability(classifier):
    fitted, X, y = classifier
    left, right = plots.draw(fitted, X, y)
    names = [text.get_text() for text in left.get_legend().get_texts()]
    assert names == ["low", "mid", "top"]
    assert "entropy" in right.get_title()
    display = plots.ReliabilityDisplay.from_estimator(fitted, X, y)
    p, labels = fitted.predict_proba(X), np.searchsorted(fitted.classes_, y)
    assert_close(display.ece, gvi.metrics.ece(labels, p, bins=10))
    assert fitted.learned_.plot_calibration(X, y).get_ylabel() == "accuracy"
    display = plots.PartialDependenceDisplay.from_estimator(fitted, X, features=[0])
    assert_close(display.means[0].sum(axis=1), 1.0)


@pytest.mark.slow
def test_classes_are_drawn_with_their_rejection_and_inputs_of_another_kind(classifier):
    fitted, X, y = classifier
    far = np.asarray(X) + 50.0
    display = plots.ClassesDisplay.from_estimator(fitted, X, y, outside=far)
    p, labels = fitted.predict_proba(X), np.searchsorted(fitted.classes_, y)
    score = fitted.learned_.score_ood
    legends = [ax.get_legend().get_texts()[-1].get_text() for ax in display.ax_]
    assert legends[1] == f"AURC {gvi.metrics.aurc(labels, p):.3f}"
    assert legends[2].endswith(f"{gvi.metrics.auroc(score(X), score(far)):.3f}")
    assert_close(display.ax_[1].lines[0].get_ydata()[-1], np.mean(p.argmax(axis=1) != labels))
    assert len(plots.ClassesDisplay.from_predictions(labels, p).ax_) == 2
    with pytest.raises(ValueError, match=r"y has labels that are none of the 3 classes .* 'none'"):
        plots.ClassesDisplay.from_estimator(fitted, X, np.full(len(X), "none"))


@pytest.mark.slow
def test_history_is_that_of_training(models):
    trained = _learned(1, epochs=2)
    axes = np.ravel(trained.plot_history())
    assert [ax.get_ylabel() for ax in axes] == list(trained.history)
    loss = axes[list(trained.history).index("loss")].lines[0]
    assert_close(loss.get_ydata(), trained.history["loss"])
    with pytest.raises(ValueError, match="not trained"):
        models[1].plot_history()


def test_features_have_the_names_of_a_table(models):
    class Named(BaseEstimator):
        learned_, feature_names_in_, target = models[4], ["a", "b", "c", "d"], "price"

    ax = plots.RelevanceDisplay.from_estimator(Named()).ax_
    assert {text.get_text() for text in ax.get_yticklabels()} == {"a", "b", "c", "d"}
    assert plots.draw(Named(), features=["b"]).get_xlabel() == "b"


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda m: plots.CurveDisplay.from_estimator(m[2]), "2 features"),
        (lambda m: plots.MapDisplay.from_estimator(m[4]), "4 features"),
        (lambda m: plots.CurveDisplay.from_estimator(m[1], output=1), "output is 1"),
        (lambda m: plots.draw(m[1], np.zeros((3, 2))), r"X has shape \(3, 2\)"),
        (lambda m: plots.draw(m[4], features=["z"]), "features has 'z'"),
        (lambda m: plots.draw(m[1], coverage=1.5), "coverage is 1.5"),
        (lambda m: m[1].plot(_data(1)[0], np.zeros(3)), "X has 50 rows and y has 3;"),
        (lambda m: m[1].plot(_data(1)[0], np.zeros((50, 2))), r"y has shape \(50, 2\).*\[N, 1\]"),
        (lambda m: m[2].plot(np.full((9, 2), np.nan)), "X has NaN .* 9 of 9 rows"),
        (lambda m: m[4].plot_calibration(_data(4)[0], np.zeros(3)), "X has 50 rows and Y has 3;"),
    ],
)
def test_what_cannot_be_drawn_is_refused(models, draw, message):
    with pytest.raises(ValueError, match=message):
        draw(models)


def test_a_model_around_a_network_is_drawn_at_rows_that_are_given():
    X, Y = _data(1)
    network = gvi.recipe.network(1, 1, units=5)
    network.compile("adam", "mse")
    options = {"train_network": False, "validation_data": _data(1, 60), "num_inducing": 10}
    learned = gvi.learn((X, Y), network=network, **options)
    assert "\n" not in repr(learned)
    assert len(learned.record.stages) >= 1
    ax = learned.plot(X, Y)
    mean = next(line for line in ax.lines if line.get_label() == "mean")
    x = mean.get_xdata()[:, None]
    assert_close(mean.get_ydata(), learned.predict_f(x)[0][:, 0])
    with pytest.raises(ValueError, match="X is needed"):
        learned.plot()


def test_other_estimators_are_refused():
    with pytest.raises(TypeError, match="estimator is a str"):
        plots.draw("model")


def test_without_matplotlib_the_remedy_is_named(models, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'gpflow-gvi\[plots\]'"):
        models[1].plot()


def test_dollars_in_names_of_columns_are_no_mathematics(models):
    class Named(BaseEstimator):
        learned_, feature_names_in_ = models[2], ["US$ / AU$", r"$\frac{$"]

    for kind in (plots.MapDisplay, plots.RelevanceDisplay, plots.PartialDependenceDisplay):
        ax = np.ravel(kind.from_estimator(Named()).ax_)[0]
        ax.figure.canvas.draw()  # which raises where mathematics is wrong
        texts = [*ax.get_yticklabels(), ax.xaxis.label]
        shown = [text._preprocess_math(text.get_text()) for text in texts]
        assert ("US$ / AU$", False) in shown
