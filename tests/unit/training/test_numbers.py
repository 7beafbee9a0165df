"""N and λ may change while a model is trained, and its graph stays."""

from __future__ import annotations

from typing import Any

import keras
import pytest

import gpflow_gvi as gvi
from gpflow_gvi.training.numbers import Numbers
from tests.models import N, data, make
from tests.tolerances import assert_close

X, Y = data()
MODEL = make()
TERMS = MODEL.loss_terms((X, Y))


def expected(num_data: float, weight: float) -> float:
    return num_data * (float(TERMS.loss) + weight * float(TERMS.divergence))


@pytest.mark.parametrize("on_wrapper", [False, True], ids=["model", "self.model"])
@pytest.mark.parametrize("name", ["divergence_weight", "num_data"])
def test_callbacks_may_set_numbers(name: str, on_wrapper: bool) -> None:
    model = MODEL
    model.num_data, model.divergence_weight = N, 1.0
    if model.optimizer is None:  # one graph for all
        model.compile(keras.optimizers.SGD(0.0))

    class Set(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            setattr(self.model if on_wrapper else model, name, epoch)

    losses = model.fit(X, Y, epochs=3, batch_size=None, verbose=0, callbacks=[Set()]).history
    given = [{"num_data": N, "weight": 1.0, name.removeprefix("divergence_"): e} for e in range(3)]
    assert_close(losses["loss"], [expected(**each) for each in given])
    assert getattr(model, name) == 2


@pytest.mark.parametrize("compile", [False, True])
def test_a_closure_follows_the_numbers(compile: bool) -> None:
    model = make()
    closure = model.training_loss_closure((X, Y), compile=compile)
    for num_data, weight in ((N, 1.0), (N, 0.0), (7, 2.5)):
        model.num_data, model.divergence_weight = num_data, weight
        assert_close(closure(), expected(num_data, weight))


def test_one_over_n_follows_n() -> None:
    model = make(kind=gvi.models.GWI)
    numbers = Numbers(model)
    model.num_data = 4
    numbers.refresh()
    with numbers.lent():
        assert float(model.divergence_weight) == 0.25
    assert model.num_data == 4
