"""Networks and data as people have them: several inputs, heads, models inside models, batches."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi._core.network_graph import flat
from gpflow_gvi.learning.around_network.network_rows import Inputs, Outputs, network_rows
from tests.tolerances import ITERATIVE, assert_close

pytestmark = pytest.mark.draws

L = keras.layers
RNG = np.random.default_rng(20261126)
N, SHAPE = 120, (6, 6, 1)
IMAGES = RNG.uniform(size=(N, *SHAPE)).astype(np.float32)
LABELS = RNG.integers(3, size=N)
TOKENS = RNG.integers(20, size=(N, 6))
MASK = RNG.uniform(size=(N, 6)) > 0.3
MASK[:, 0] = True


def around(data, net, **options):
    options = {"num_inducing": 20, "validation_data": data} | options
    return gvi.learn(data, network=net, train_network=False, **options)


def labelled(inputs, net, get=lambda outputs: outputs):
    """Labels that a network is right about, mostly."""
    y = get(net.predict(inputs, verbose=0)).argmax(axis=1)
    return inputs, np.where(RNG.uniform(size=len(y)) < 0.2, (y + 1) % 2, y)


def of_words(kind):
    keras.utils.set_random_seed(1)
    tokens = keras.Input((6,), dtype="int32", name="tokens")
    mask = keras.Input((6,), dtype="bool", name="mask")
    pooled = L.GlobalAveragePooling1D()(L.Embedding(20, 4)(tokens), mask=mask)
    hidden = L.Dense(6, "relu", name="hidden")(pooled)
    heads = {"topic": 9.0 * L.Dense(2)(hidden), "amount": L.Dense(1, name="last")(hidden)}
    taken = {"tokens": tokens, "mask": mask} if kind == "dictionary" else [tokens, mask]
    given = {"mask": MASK, "tokens": TOKENS} if kind == "dictionary" else [TOKENS, MASK]
    return keras.Model(taken, heads), given


def first(inputs, count):
    parts = inputs if isinstance(inputs, dict) else dict(enumerate(inputs))
    few = {key: each[:count] for key, each in parts.items()}
    return few if isinstance(inputs, dict) else list(few.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dictionary", "list"])
def test_several_inputs_and_one_of_two_heads(kind, tmp_path):
    net, inputs = of_words(kind)
    data = labelled(inputs, net, lambda outputs: outputs["topic"])
    learned = around(data, net, output="topic")
    logits = net.predict(inputs, verbose=0)["topic"]
    factor = learned.model.variational.mean_function.factor
    assert_close(learned.predict_f(inputs)[0], factor * logits, ITERATIVE)
    np.testing.assert_array_equal(learned.predict(inputs), logits.argmax(axis=1))
    assert learned.score_ood(inputs).shape == (N,)
    learned.save(tmp_path / "model")
    loaded = gvi.load(tmp_path / "model")
    assert_close(loaded.predict_proba(first(inputs, 5)), learned.predict_proba(first(inputs, 5)))
    amounts = 50.0 + 3.0 * net.predict(inputs, verbose=0)["amount"] + RNG.normal(size=(N, 1))
    scaled = keras.Model(
        net.input, {"amount": net.output["amount"] * 3.0 + 50.0, "other": net.output["topic"]}
    )
    of_amounts = around((inputs, amounts), scaled, output="amount")
    assert_close(
        of_amounts.predict_y(inputs)[0], scaled.predict(inputs, verbose=0)["amount"], ITERATIVE
    )


@pytest.mark.slow
def test_a_network_of_several_inputs_is_trained(tmp_path):
    net, inputs = of_words("dictionary")
    y = np.where(TOKENS[:, 0] < 10, "low", "high")
    learned = gvi.learn(
        (inputs, y), network=net, output="topic", epochs=20, learning_rate=0.05, num_inducing=20
    )
    assert np.mean(learned.predict(inputs) == y) > 0.9


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ({"tokens": TOKENS}, {}, r"X is a dictionary of \['tokens'\], but the network takes"),
        (
            TOKENS,
            {},
            r"has 2 inputs. Pass a dictionary of arrays with the keys \['tokens', 'mask'\]",
        ),
        ([TOKENS, MASK, MASK], {}, "but the network has 2 inputs"),
        (
            [TOKENS, MASK[:9]],
            {},
            r"X\['mask'\] has shape \(9, 6\), but the network takes \(120, 6\)",
        ),
        (
            [TOKENS, MASK],
            {"output": None},
            r"output is None, but .* has the outputs \['topic', 'amount'\]",
        ),
        ([TOKENS, MASK], {"output": "price"}, "output is 'price', but"),
    ],
)
def test_what_does_not_fit_the_inputs_or_heads_is_refused(inputs, options, message):
    net, _ = of_words("dictionary")
    data = inputs, LABELS % 2
    with pytest.raises(ValueError, match=message):
        around(data, net, **({"output": "topic"} | options))


def test_a_process_is_put_around_one_of_several_heads_for_rows_of_numbers():
    rows = keras.Input((6,))
    hidden = L.Dense(5, "relu")(rows)
    net = keras.Model(rows, {"kind": L.Dense(3)(hidden), "amount": L.Dense(1)(hidden)})
    X = RNG.normal(size=(N, 6))
    with pytest.raises(
        ValueError, match="has the outputs \\['kind', 'amount'\\]: pass output='kind'"
    ):
        gvi.learn((X, LABELS), network=net)
    learned = gvi.learn((X, LABELS), network=net, output="kind", epochs=1)
    assert learned.inputs.num_outputs == 3


def test_a_head_of_a_network_with_one_output_is_refused():
    with pytest.raises(ValueError, match="has not several outputs"):
        around((IMAGES, LABELS), plain(), output="topic")
    with pytest.raises(ValueError, match="says what a network returns"):
        gvi.learn((TOKENS.astype(float), LABELS * 1.5), network=lambda X: X[:, :1], output="topic")


@pytest.mark.parametrize(("kind", "output"), [(dict, "topic"), (list, None)])
def test_one_output_in_a_dictionary_or_a_list_is_learned(kind, output):
    net = plain()
    head = net.outputs if kind is list else {"topic": net.outputs[0]}
    around_head = around((IMAGES, LABELS), keras.Model(net.inputs, head), output=output)
    expected = around((IMAGES, LABELS), net).predict_proba(IMAGES)
    assert_close(around_head.predict_proba(IMAGES), expected)


@pytest.mark.parametrize("inputs", [[IMAGES, IMAGES[:, :3]], {"a": IMAGES}])
def test_several_arrays_for_one_input_are_refused(inputs):
    with pytest.raises(TypeError, match=r"X is .* which makes no array of numbers"):
        around((inputs, LABELS), plain())


def plain(activation=None):
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input(SHAPE),
            L.Conv2D(4, 3),
            L.Flatten(),
            L.Dense(5, "relu"),
            L.Dense(3, activation),
        ]
    )


@pytest.mark.slow
def test_batches_are_read_as_arrays_are():
    net, D = plain(), tf.data.Dataset.from_tensor_slices

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, i):
            return IMAGES[40 * i : 40 * i + 40], LABELS[40 * i : 40 * i + 40]

    expected = around((IMAGES, LABELS), net).predict_proba(IMAGES)
    rows = D((IMAGES, LABELS))
    codes = D((IMAGES, np.eye(3)[LABELS])).batch(50)
    for data, networks in ((rows, net), (rows.batch(50), [net]), (codes, net), (Batches(), net)):
        found = around(data, networks, validation_data=(IMAGES, LABELS)).predict_proba(IMAGES)
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="data is a Dataset without an end"):
        around(rows.repeat(), net, validation_data=(IMAGES, LABELS))
    with pytest.raises(ValueError, match="yields 3 parts; it must yield"):
        around(D((IMAGES, LABELS, LABELS)), net, validation_data=(IMAGES, LABELS))


@pytest.mark.slow
def test_callbacks_are_those_of_the_network_that_is_trained():
    epochs = []
    counted = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epochs.append(epoch))
    rows = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(40)
    options = {"epochs": 3, "num_inducing": 20, "callbacks": [counted]}
    learned = gvi.learn(rows, network=plain(), **options)
    assert epochs == list(range(len(learned.history["loss"])))
    with pytest.raises(ValueError, match=r"callbacks is .*not trained: pass train_network=True"):
        around((IMAGES, LABELS), plain(), callbacks=[counted])
    with pytest.raises(ValueError, match=r"callbacks is .*is for a network that is trained before"):
        gvi.learn((np.zeros((9, 2)), np.arange(9.0)), callbacks=[counted])


@pytest.mark.slow
def test_batches_of_several_inputs():
    image, vector = keras.Input(SHAPE, name="image"), keras.Input((3,), name="a vector")
    joined = L.Concatenate()([L.Flatten()(image), vector])
    net = keras.Model({"image": image, "a vector": vector}, L.Dense(3)(joined))
    inputs = {"a vector": RNG.normal(size=(N, 3)), "image": IMAGES}
    unseen = {"validation_data": (inputs, LABELS), "features": "inputs"}
    expected = around((inputs, LABELS), net, **unseen).predict_proba(inputs)
    rows = tf.data.Dataset.from_tensor_slices((inputs, LABELS))
    for data in (rows, rows.batch(50)):
        np.testing.assert_array_equal(around(data, net, **unseen).predict_proba(inputs), expected)


def transferred():
    """The usual pattern: a backbone, in inference mode, and a new head."""
    keras.utils.set_random_seed(0)
    x = keras.Input(SHAPE)
    hidden = L.ReLU()(L.BatchNormalization()(L.Conv2D(4, 3, name="conv")(x)))
    backbone = keras.Model(x, L.ReLU()(L.Conv2D(5, 2, name="conv_of_backbone")(hidden)))
    inner = keras.Sequential([L.GlobalAveragePooling2D(), L.Dense(6, "relu", name="conv")])
    images = keras.Input(SHAPE)
    net = keras.Model(
        images, L.Dense(3)(L.Dropout(0.5)(inner(backbone(images * 2.0, training=False))))
    )
    of_layers = [
        keras.Model(images, backbone(images * 2.0)),
        keras.Model(images, inner(backbone(images * 2.0))),
    ]
    resolution = keras.Model(images, keras.Model(x, hidden)(images * 2.0))
    return net, [resolution, *of_layers]


def test_layers_of_a_backbone_are_features():
    net, (resolution, backbone, last) = transferred()
    inputs = Inputs.of(net, IMAGES)
    rows = network_rows([net], "layers", inputs, Outputs.of(net, inputs, IMAGES))
    predicted = [each.predict(IMAGES, verbose=0) for each in (net, resolution, last)]
    expected = [predicted[0], predicted[1].mean(axis=(1, 2)), predicted[2]]
    assert rows.num_features == (4, 6)
    assert_close(rows(IMAGES), np.hstack(expected), ITERATIVE)
    named = network_rows([net], "conv_of_backbone", inputs, Outputs.of(net, inputs, IMAGES))
    assert named.num_features == (5,)
    weights = [weight.copy() for weight in net.get_weights()]
    np.testing.assert_array_equal(flat(net).predict(IMAGES, verbose=0), predicted[0])
    for weight, before in zip(net.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(weight, before)
    assert backbone.layers  # the layers of the user's own model have no other calls
    assert net.get_layer(index=2).output is not None


class Unfinished(L.Dense):
    def __init__(self, size):
        super().__init__(size)


def test_layers_that_cannot_be_copied_are_told_of():
    inner = keras.Sequential([keras.Input(SHAPE), L.Flatten(), Unfinished(3)])
    net = keras.Sequential([keras.Input(SHAPE), inner, L.Dense(3)])
    with pytest.warns(UserWarning, match="has a layer that cannot be copied"):
        assert flat(net) is net


def tripled(x):
    return 3.0 * x


@pytest.mark.slow
@pytest.mark.parametrize("nested", [False, True])
def test_functions_of_layers_are_those_of_the_network(nested):
    """With the names that they use, which Keras does not copy."""
    keras.utils.set_random_seed(0)
    shape = (4,) if nested else None
    layers = [
        keras.Input(SHAPE),
        L.Lambda(lambda x: tripled(tf.reduce_sum(x, axis=[1, 3])[:, :4]), output_shape=shape),
        L.Dense(4, lambda x: x / 2.0),
        L.Dense(4, tripled),
        L.Dense(3, keras.ops.exp),
    ]
    net = keras.Sequential(layers)
    if nested:
        net = keras.Sequential([keras.Input(SHAPE), net, L.Dense(3)])
    h = net.predict(IMAGES, verbose=0)
    learned = around((IMAGES, h), net)
    assert_close(learned.predict(IMAGES), h, precision=np.float32)
    assert tripled.__name__ == "tripled"
    trained = gvi.learn((IMAGES, h), network=net, epochs=1, num_inducing=20)
    assert np.all(np.isfinite(trained.predict(IMAGES)))


def test_units_of_a_layer_inside_are_kept():
    units = L.Normalization()
    units.adapt(IMAGES)
    inner = keras.Sequential([keras.Input(SHAPE), units, L.Flatten()])
    net = keras.Sequential([keras.Input(SHAPE), inner, L.Dense(3)])
    copy = flat(net)
    assert "normalization" in copy.layers[1].name
    np.testing.assert_array_equal(copy.predict(IMAGES, verbose=0), net.predict(IMAGES, verbose=0))


@pytest.mark.slow
@pytest.mark.parametrize("of_classes", [True, False])
def test_new_rows_say_where_a_network_is_to_be_trusted(of_classes):
    """Against the sparse posterior of all rows at once, by its formula."""
    keras.utils.set_random_seed(0)
    net = keras.Sequential([keras.Input((2,)), L.Dense(5, "tanh"), L.Dense(2)])
    X = RNG.normal(size=(90, 2))
    h = net.predict(X, verbose=0)
    Y = h.argmax(axis=1) if of_classes else h + RNG.normal(size=(90, 2)) * [0.3, 0.6]
    Y[:5] = Y[5:10]  # it is wrong about some
    kernel = gpflow.kernels.SquaredExponential(2.0, 0.7)
    old, new = (X[:60], Y[:60]), (X[60:], Y[60:])
    options = {"features": "inputs", "kernel": kernel, "num_inducing": 25}
    learned = around(old, net, **options)
    updated = learned.update(*new, num_inducing=0)
    assert_close(updated.predict_f(X)[0], learned.predict_f(X)[0])
    P = learned.regulariser
    noise = np.full(1, 2.0) if of_classes else np.asarray(P.likelihood.variance).ravel()
    inputs, Z = learned.inputs.standard(X).numpy()[:, 2:4], P.inducing_points[:, 2:4]
    K, C = kernel(Z).numpy(), kernel(Z, inputs).numpy()
    factor = np.asarray(learned.model.variational.kernel.factor)
    _, variance = updated.predict_f(X)
    for j in range(2):
        of_data = K + C @ C.T / noise[j % len(noise)]
        r = 2.0 - np.sum(C * (np.linalg.solve(K, C) - np.linalg.solve(of_data, C)), axis=0)
        scale = learned.outputs.scale[j % len(learned.outputs.scale)]
        expected = r * factor[j % factor.size] if factor.ndim else r * factor
        assert_close(variance[:, j], expected * scale**2, ITERATIVE)
    wider = learned.update(*new)
    assert len(wider.regulariser.inducing_points) > 25
    assert np.all(wider.score_ood(X[60:]) < learned.score_ood(X[60:]))


KEYS = np.arange(2**24, 2**24 + 12)


def of_keys(kind):
    """Look up keys, or words of which half precision does not have all."""
    keras.utils.set_random_seed(0)
    dtype = "bfloat16" if kind == "half precision" else "float32"
    find = (
        L.Embedding(300, 3, dtype=dtype)
        if kind == "half precision"
        else L.IntegerLookup(vocabulary=KEYS)
    )
    x = keras.Input((2,), dtype="int64", name="keys")
    inputs, y = x, find(x)
    if kind != "half precision":
        y = L.Embedding(20, 3)(y)
    if kind == "two inputs":
        inputs = [x, keras.Input((1,), name="other")]
        y = L.Concatenate()([L.Flatten()(y), inputs[1]])
    return keras.Model(inputs, L.Dense(2, dtype=dtype)(L.Flatten()(y)))


@pytest.mark.parametrize("kind", ["half precision", "large keys", "two inputs"])
def test_what_is_looked_up_keeps_its_value(kind):
    net = of_keys(kind)
    words = 257 + 2 * np.arange(20) if kind == "half precision" else KEYS
    X = RNG.choice(words, size=(N, 2))
    X = [X, np.zeros((N, 1))] if kind == "two inputs" else X
    h = net.predict(X, verbose=0).astype(float)
    learned = around((X, h.argmax(axis=1)), net, predictor=None)
    assert_close(learned.inputs(X)[:, :2], h, precision=np.float32)
    np.testing.assert_array_equal(learned.predict(X), h.argmax(axis=1))


@pytest.mark.slow
def test_what_is_looked_up_keeps_its_value_in_training():
    keys = RNG.choice(KEYS, size=(N, 2))
    X, y = [keys, np.zeros((N, 1))], keys[:, 0] % 2
    options = {"features": "inputs", "epochs": 30, "learning_rate": 0.05, "num_inducing": 20}
    learned = gvi.learn((X, y), network=of_keys("two inputs"), validation_data=(X, y), **options)
    assert np.mean(learned.predict(X) == y) > 0.9


def test_pixels_of_a_network_that_takes_bytes_are_not_divided():
    x = keras.Input(SHAPE, dtype="uint8")
    assert not Inputs.of(keras.Model(x, L.Dense(3)(L.Flatten()(x / 255))), IMAGES).scales_pixels
    assert Inputs.of(plain(), IMAGES).scales_pixels


def test_another_backend_of_keras_is_told_of(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(TypeError, match=r"with the backend 'jax', .* Set KERAS_BACKEND=tensorflow"):
        gvi.mean_functions.Network(plain())


class Tutorial(keras.Model):
    """A model as tutorials write it, whose arguments Keras does not know."""

    def __init__(self, columns, activation=keras.ops.relu):
        super().__init__()
        self.flatten, self.last = L.Flatten(), L.Dense(columns)
        self.hidden, self.activation = L.Dense(8), activation

    def call(self, inputs):
        return self.last(self.activation(self.hidden(self.flatten(inputs))))


def test_a_model_that_is_a_class_has_layers_to_take_features_from(tmp_path):
    model = Tutorial(3)
    h = model(IMAGES).numpy()
    before = [weight.copy() for weight in model.get_weights()]
    learned = gvi.learn((IMAGES, LABELS), network=model, features="penultimate", epochs=1)
    assert learned.inputs.num_features == (8,)
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)
    learned = around((IMAGES, h), model, features="penultimate")
    assert_close(learned.predict(IMAGES), h, precision=np.float32)
    gvi.save(learned, tmp_path / "model")
    loaded = gvi.load(tmp_path / "model")
    assert_close(loaded.predict(IMAGES), learned.predict(IMAGES))


def test_a_model_that_is_a_class_without_a_graph_is_trained_on_its_inputs(tmp_path):
    data = IMAGES, LABELS
    with pytest.raises(
        TypeError, match=r'layers are not known.*keras.ops alone.*features="inputs"'
    ):
        gvi.learn(data, network=Tutorial(3, tf.nn.relu), features="penultimate", epochs=10**6)
    learned = gvi.learn(data, network=Tutorial(3, tf.nn.relu), features="inputs", epochs=1)
    assert learned.predict_proba(IMAGES).shape == (N, 3)
    with pytest.raises(TypeError, match=r"cannot be saved.*let __init__ of the class take \*\*kw"):
        gvi.save(learned, tmp_path / "model")
