"""A table of other columns than those that were learned from is refused, as of scikit-learn."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pandas as pd
import pytest

import gpflow_gvi as gvi
from gpflow_gvi.prediction import acquisition
from tests.tolerances import assert_close

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=60)
TABLE = pd.DataFrame(X, columns=["a", "b"])
QUICK = {"kernel": gpflow.kernels.SquaredExponential(), "effort": "fast", "num_inducing": 10}


@pytest.fixture(scope="module")
def learned():
    return gvi.learn((TABLE, Y), **QUICK)


@pytest.fixture(scope="module", params=["here", "loaded", "updated"])
def model(request, learned, tmp_path_factory):
    if request.param == "updated":
        return learned.update(TABLE[:3], Y[:3])
    if request.param == "here":
        return learned
    folder = tmp_path_factory.mktemp("named") / "model"
    learned.save(folder)
    return gvi.load(folder)


REFUSED = r"X has the columns \['b', 'a'\], but what was learned from has \['a', 'b'\], in this"


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, X: model.predict(X),
        lambda model, X: model.predict_f(X, full_cov=True),
        lambda model, X: model.predict_interval(X),
        lambda model, X: model.predict_law(X),
        lambda model, X: model.predict_log_density((X, Y)),
        lambda model, X: model.predict_f_samples(X, 2),
        lambda model, X: model.predict_y_samples(X, 2),
        lambda model, X: model.score_ood(X),
        lambda model, X: model.acquire(X, "variance"),
        lambda model, X: acquisition.acquire(model.parts[0], X, "bald"),
        lambda model, X: model.update(X, Y),
        lambda model, X: gvi.metrics.evaluate(model, (X, Y)),
        lambda model, X: gvi.conformal(model, (X, Y)),
        lambda model, X: gvi.conformal(model, (TABLE, Y)).predict_interval(X),
    ],
)
@pytest.mark.draws
def test_another_order_is_refused(learned, ask):
    with pytest.raises(ValueError, match=REFUSED):
        ask(learned, TABLE[["b", "a"]])
    ask(learned, TABLE)


@pytest.mark.parametrize("plot", ["plot", "plot_calibration", "plot_relevance"])
def test_pictures_are_of_the_same_columns(learned, plot):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    with pytest.raises(ValueError, match=REFUSED):
        getattr(learned, plot)(TABLE[["b", "a"]], Y)
    getattr(learned, plot)(TABLE, Y)
    pyplot.close("all")


def test_names_are_those_of_scikit_learn(learned):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    assert learned.feature_names_in_ == ("a", "b")
    ticks = learned.plot_relevance().get_yticklabels()
    assert {tick.get_text() for tick in ticks} == {"a", "b"}
    pyplot.close("all")


@pytest.mark.slow
def test_labels_are_scored_and_named_by_the_same_columns():
    labels = np.where(Y > 0.0, "c", "a")
    learned = gvi.learn((TABLE, labels), **QUICK)
    permuted = TABLE[["b", "a"]]
    for ask in (
        lambda: gvi.metrics.evaluate(learned, (permuted, labels)),
        lambda: gvi.metrics.evaluate_classes(learned, (permuted, labels)),
        lambda: gvi.conformal(learned, (permuted, labels)),
        lambda: gvi.conformal(learned, (TABLE, labels)).predict_set(permuted),
    ):
        with pytest.raises(ValueError, match=REFUSED):
            ask()
    for plot in (learned.plot, learned.plot_calibration, learned.plot_relevance):
        with pytest.raises(ValueError, match=r"y has labels that are none of .* is 'b'"):
            plot(TABLE, np.where(Y > 0.0, "b", "a"))


def test_other_names_are_refused_and_arrays_are_not(model):
    with pytest.raises(ValueError, match=r"columns \['a', 'c'\] and not \['b'\]"):
        model.predict(TABLE.rename(columns={"b": "c"}))
    with pytest.raises(ValueError, match=r"columns \['a', 'b', 'c'\].*\['a', 'b'\], in this order"):
        model.predict(TABLE.assign(c=1.0))
    assert_close(model.predict(X), model.predict(TABLE))
    assert_close(model.predict(pd.DataFrame(X)), model.predict(TABLE))  # 0 and 1 are no names


def test_tables_of_arrow_have_names(model):
    table = pytest.importorskip("pyarrow").Table.from_pandas(TABLE)
    with pytest.raises(ValueError, match=REFUSED):
        model.predict(table.select(["b", "a"]))
    assert_close(model.predict(table), model.predict(TABLE))
    gap = TABLE.assign(b=TABLE["b"].where(TABLE.index != 3))
    with pytest.raises(ValueError, match=r"X has NaN .*row 3, column 'b'"):
        model.predict(type(table).from_pandas(gap))


@pytest.mark.slow
def test_names_that_are_no_text_are_not_kept():
    learned = gvi.learn((pd.DataFrame(X, columns=[1, 0]), Y), **QUICK)
    assert not hasattr(learned, "feature_names_in_")
    assert_close(learned.predict(TABLE), learned.predict(X))


def test_held_out_tables_have_the_same_columns():
    with pytest.raises(ValueError, match=r"validation_data\[0\] has the columns \['b', 'a'\]"):
        gvi.learn((TABLE, Y), validation_data=(TABLE[["b", "a"]], Y), epochs=1)


@pytest.mark.slow
def test_what_an_estimator_learned_knows_its_columns():
    learned = gvi.GVIRegressor(effort="fast", num_inducing=10).fit(TABLE, Y).learned_
    with pytest.raises(ValueError, match=REFUSED):
        learned.predict_y(TABLE[["b", "a"]])
    with pytest.raises(ValueError, match=r"X \(or Y\) has shape \(2,\).* one row\. Pass X\[None\]"):
        learned.predict_y(X[0])


@pytest.mark.slow
def test_parts_of_a_mixture_and_networks_check_as_well():
    net = keras.Sequential([keras.Input((2,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    for options in ({}, {"network": net, "train_network": False}, {"outputs": "correlated"}):
        learned = gvi.learn((TABLE, Y), **options)
        for ask in (learned.predict, learned.score_ood, lambda X, m=learned: m.predict_law(X)):
            with pytest.raises(ValueError, match=REFUSED):
                ask(TABLE[["b", "a"]])
            ask(TABLE)
