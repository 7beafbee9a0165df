"""A Gaussian process around a network: the network's predictions, and how far they are trusted."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import scipy.spatial
import scipy.special
import sklearn.covariance
import tensorflow as tf
import tf_keras

import gpflow_gvi as gvi
from gpflow_gvi.errors import NumericsWarning
from tests.tolerances import ITERATIVE, assert_close, assert_estimates

pytestmark = pytest.mark.draws

SHAPE = (6, 6, 1)
RNG = np.random.default_rng(0)


def images(N, seed=0):
    """Images of three classes, each with a bright row of its own, in noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=N)
    X = rng.uniform(0.0, 0.6, size=(N, *SHAPE))
    X[np.arange(N), 2 * labels] += 0.25
    return X.astype(np.float32), labels


def network(K=keras, *, J=3, activation=None, dtype="float32", shape=SHAPE):
    K.utils.set_random_seed(0)
    return K.Sequential(
        [
            K.Input(shape),
            K.layers.Flatten(dtype=dtype),
            K.layers.Dense(8, "relu", name="hidden", dtype=dtype),
            K.layers.Dense(6, "tanh", name="last_hidden", dtype=dtype),
            K.layers.Dense(J, activation, dtype=dtype),
        ]
    )


def trained(K=keras, **options):
    net = network(K, **options)
    from_logits = options.get("activation") is None
    loss = K.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
    net.compile(K.optimizers.Adam(1e-2), loss)
    net.fit(*images(400, seed=5), epochs=6, verbose=0)
    return net


def around(net, data=None, **options):
    """Learn around a network whose class every row has."""
    options = {"validation_data": images(150, seed=1), "predictor": None} | options
    options = {"num_inducing": 30} | options
    return gvi.learn(
        images(250) if data is None else data, network=net, train_network=False, **options
    )


@pytest.fixture(scope="module")
def net():
    return trained()


@pytest.fixture(scope="module")
def learned(net):
    return around(net, calibration_fraction=0.3)


NEW = images(500, seed=2)
WITHIN = 0.5 * (NEW[0] + NEW[0].mean(axis=0))
"""Images that are nearer to the average than those of the training rows."""


def test_class_of_every_row_is_that_of_the_network(net, learned):
    logits = net.predict(NEW[0], verbose=0)
    p = learned.predict_proba(NEW[0])
    np.testing.assert_array_equal(p.argmax(axis=1), logits.argmax(axis=1))
    np.testing.assert_array_equal(np.argsort(p), np.argsort(logits))
    mean, variance = (np.asarray(part) for part in learned.predict_f(WITHIN))
    factor = learned.model.variational.mean_function.factor
    assert_close(mean, factor * net.predict(WITHIN, verbose=0), ITERATIVE)  # a temperature
    np.testing.assert_array_equal(np.ptp(variance, axis=1), 0.0)


def test_probabilities_are_those_of_the_gaussian_logits(learned):
    mean, variance = (np.asarray(part) for part in learned.predict_f(NEW[0][:5]))
    samples = RNG.normal(mean, np.sqrt(variance), size=(20_000, 5, 3))
    p = scipy.special.softmax(samples, axis=-1)
    error = p.std(axis=0) / np.sqrt(20_000) + 1.0 / 512  # ours are averages over 512 even points
    assert_estimates(learned.predict_proba(NEW[0][:5]), p.mean(axis=0), error)


def test_held_out_rows_are_not_predicted_worse_than_by_the_network(net, learned):
    X, Y = images(150, seed=1)
    plain = scipy.special.softmax(net.predict(X, verbose=0).astype(float), axis=1)
    ours = gvi.metrics.cross_entropy(Y, learned.predict_proba(X))
    assert ours <= gvi.metrics.cross_entropy(Y, plain / plain.sum(1, keepdims=True)) + 1e-3


def test_inputs_unlike_the_data_are_found(learned):
    inverted = 2.0 - 3.0 * NEW[0]
    assert gvi.metrics.auroc(learned.score_ood(NEW[0]), learned.score_ood(inverted)) > 0.9
    known, unknown = learned.entropies(NEW[0]), learned.entropies(inverted)
    assert unknown.epistemic.mean() > 2.0 * known.epistemic.mean()
    _, variance = learned.predict_f(NEW[0])
    assert_close(learned.score_ood(NEW[0]), np.mean(variance, axis=1))


@pytest.mark.slow
def test_variance_of_logits_is_that_of_directions_times_the_distance_from_the_classes(net):
    """The last layer's features: a regression on unit vectors, of the least curvature of softmax.

    Its variance grows with the squared distance of Mahalanobis from the nearest class.
    """
    X, labels = images(150)
    learned = around(net, (X, labels), features="penultimate", num_inducing=150)
    hidden = keras.Model(net.inputs, net.get_layer("last_hidden").output)

    def features(images):
        return hidden.predict(images, verbose=0).astype(float)

    def unit(images):
        return features(images) / np.linalg.norm(features(images), axis=1, keepdims=True)

    h = net.predict(X, verbose=0).astype(float)
    distance = np.median(scipy.spatial.distance.pdist(unit(X)))
    kernel = gpflow.kernels.SquaredExponential(
        np.mean(np.square(h - h.mean(axis=1, keepdims=True))), 0.5 * distance
    )
    exact = gpflow.models.GPR((unit(X), h[:, :1]), kernel, noise_variance=2.0)
    means = np.stack([features(X)[labels == k].mean(axis=0) for k in range(3)])
    residuals = features(X) - means[labels]
    inverse = np.linalg.inv(sklearn.covariance.ledoit_wolf(residuals, assume_centered=True)[0])

    def squares(images):
        by = scipy.spatial.distance.cdist(features(images), means, "mahalanobis", VI=inverse)
        return np.square(by.min(axis=1))

    factor = learned.model.variational.kernel.factor

    def expected(exact):
        _, variance = exact.predict_f(unit(WITHIN))
        return factor * variance * 0.5 * (1.0 + squares(WITHIN) / squares(X).mean())[:, None]

    before = np.asarray(learned.predict_f(WITHIN)[1])[:, :1]
    assert_close(before, expected(exact), ITERATIVE)
    more = images(60, seed=9)
    both = unit(np.concatenate([X, more[0]]))
    exact = gpflow.models.GPR((both, np.zeros((210, 1))), kernel, noise_variance=2.0)
    after = np.asarray(learned.update(*more, num_inducing=60).predict_f(WITHIN)[1])[:, :1]
    # New rows at which a thousandth of P's variance is left get no points of their own.
    assert np.max(np.abs(after / expected(exact) - 1.0)) < 0.03
    assert np.max(np.abs(before / expected(exact) - 1.0)) > 0.3


@pytest.mark.slow
def test_far_away_classes_are_as_probable_as_they_are_frequent():
    keras.utils.set_random_seed(0)
    net = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(20, "relu"), keras.layers.Dense(3)]
    )
    rng = np.random.default_rng(0)
    y = rng.choice(3, size=600, p=[0.6, 0.3, 0.1])
    X = 3.0 * np.eye(3)[y][:, :2] + rng.normal(size=(600, 2))
    net.compile(keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(True))
    net.fit(X[:300], y[:300], epochs=20, verbose=0)
    learned = around(net, (X[:300], y[:300]), validation_data=(X[300:], y[300:]))
    scores = []
    for factor in (1.0, 10.0, 100.0, 1e3):
        p = learned.predict_proba(factor * X)
        scores.append(learned.score_ood(factor * X).mean())
    assert np.all(np.diff(np.log(scores)) > 4.0)  # with the fourth power of the distance
    frequencies = (np.bincount(y[:300]) + 1.0) / 303
    assert_estimates(p, frequencies, np.sqrt(frequencies * (1.0 - frequencies) / 512))
    assert learned.predict_proba(X).max(axis=1).mean() > 0.8


def test_summary_says_what_was_done(learned):
    text = str(learned.summary())
    assert "36 features" in text
    assert [stage.what for stage in learned.record.stages][-1].startswith("the covariance of P")


def test_sets_hold_the_label(learned):
    sets = learned.predict_set(NEW[0], 0.8, allow_empty=True)
    held = np.mean(sets[np.arange(500), NEW[1]])
    assert_estimates(held, 0.8, np.sqrt(0.8 * 0.2 / 45))  # as many rows calibrate


@pytest.mark.slow
def test_sets_are_not_calibrated_by_rows_that_the_network_was_trained_with():
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 20))
    y = (X[:, 0] + rng.normal(size=1500) > 0).astype(int)
    net = keras.Sequential(
        [keras.Input((20,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(2)]
    )
    net.compile(keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(True))
    seen, unseen, new = (X[:200], y[:200]), (X[200:500], y[200:500]), (X[500:], y[500:])
    net.fit(*seen, epochs=60, verbose=0)  # it knows these by heart
    learned = around(net, seen, validation_data=unseen, calibration_fraction=0.3)
    sets = learned.predict_set(new[0], 0.8, allow_empty=True)
    held = np.mean(sets[np.arange(1000), new[1]])
    assert_estimates(held, 0.8, np.sqrt(0.8 * 0.2 * (1.0 / 90 + 1.0 / 1000)))
    assert len(learned.calibration.scores) == 90
    with pytest.warns(NumericsWarning, match="without validation_data"):
        around(net, seen, validation_data=None, validation_fraction=0.0, calibration_fraction=0.3)


def test_saved_loaded_and_exported_it_predicts_the_same(learned, tmp_path):
    learned.save(tmp_path / "model")
    loaded = gvi.load(tmp_path / "model")
    expected = learned.predict_proba(NEW[0])
    assert_close(loaded.predict_proba(NEW[0]), expected)
    assert_close(loaded.score_ood(NEW[0]), learned.score_ood(NEW[0]))
    gvi.export(learned, tmp_path / "exported")
    signature = tf.saved_model.load(tmp_path / "exported").signatures["predict"]
    exported = signature(X=tf.constant(NEW[0], tf.float64))["probabilities"]
    assert_close(exported, expected, ITERATIVE)  # the network has single precision
    np.testing.assert_array_equal(np.argmax(exported, axis=1), expected.argmax(axis=1))


@pytest.mark.slow
def test_probabilities_are_as_good_as_logits():
    net = trained(keras, activation="softmax")
    ours = around(net).predict_proba(NEW[0])
    np.testing.assert_array_equal(
        ours.argmax(axis=1), net.predict(NEW[0], verbose=0).argmax(axis=1)
    )
    logits = keras.Sequential([*net.layers[:-1], keras.layers.Dense(3)])
    logits.build((None, *SHAPE))
    logits.set_weights(net.get_weights())
    assert_close(ours, around(logits).predict_proba(NEW[0]), ITERATIVE, precision=np.float32)


def numbers(N, seed=0):
    X, labels = images(N, seed)
    noise = np.random.default_rng(seed + 100).normal(size=(N, 1))
    return X, 50.0 + 10.0 * labels[:, None] + 2.0 * noise


@pytest.fixture(scope="module")
def of_numbers():
    net = network(J=1)
    X, Y = numbers(400, seed=5)
    net.compile(keras.optimizers.Adam(1e-2), "mse")
    net.fit(X, (Y - 50.0) / 10.0, epochs=10, verbose=0)
    weights, bias = net.layers[-1].get_weights()
    net.layers[-1].set_weights([10.0 * weights, 10.0 * bias + 50.0])  # original units
    unseen = numbers(300, seed=1)
    return net, around(
        net, numbers(250), validation_data=unseen, num_inducing=None, features="inputs"
    )


def test_numbers_are_predicted_as_the_network_does_with_the_spread_of_unseen_rows(of_numbers):
    net, learned = of_numbers
    X, Y = numbers(500, seed=2)
    mean, variance = learned.predict_y(X)
    assert_close(mean, net.predict(X, verbose=0), precision=np.float32)
    # Of 500 rows, by the errors of 300 that were held out.
    assert_estimates(np.std((Y - mean) / np.sqrt(variance)), 1.0, np.sqrt(0.5 / 500 + 0.5 / 300))
    lower, upper = learned.predict_interval(X, 0.9)
    held = np.mean((lower < Y) & (upper > Y))
    assert_estimates(held, 0.9, np.sqrt(0.9 * 0.1 / 500 + 0.9 * 0.1 / 300))


def test_variance_is_that_of_a_regression_on_the_features(of_numbers):
    """In standard units: k as wide as what the network predicts, noise as large as its errors.

    By default there is an inducing point at each of up to a thousand rows. Beyond these rows its
    deviation grows with the square of the distance.
    """
    net, learned = of_numbers
    X, _ = numbers(250)
    units, rows = learned.outputs, X.reshape(250, -1).astype(float)
    shift, scale = rows.mean(axis=0), np.sqrt(rows.var(axis=0).mean())
    distance = np.median(scipy.spatial.distance.pdist((rows - shift) / scale))
    h = (net.predict(X, verbose=0) - units.shift) / units.scale
    unseen = numbers(300, seed=1)
    errors = (unseen[1] - net.predict(unseen[0], verbose=0)) / units.scale
    exact = gpflow.models.GPR(
        ((rows - shift) / scale, h),
        gpflow.kernels.SquaredExponential(np.mean(h**2), 0.5 * distance),
        noise_variance=np.mean(errors**2),
    )
    factor = learned.model.variational.kernel.factor * units.scale**2
    farthest = np.sum(np.square(rows - shift), axis=1).max()
    for inputs in (NEW[0][:20], np.full((1, *SHAPE), 1e4)):
        flat = inputs.reshape(len(inputs), -1)
        s = np.maximum(np.sum(np.square(flat - shift), axis=1) / farthest, 1.0)
        _, expected = exact.predict_f((flat - shift) / scale)
        _, found = learned.predict_f(inputs)
        assert_close(found, factor * s[:, None] ** 2 * expected, ITERATIVE)


def test_numbers_far_away_are_lost_in_the_variance(of_numbers):
    _, learned = of_numbers
    far = [learned.predict_y(factor * NEW[0]) for factor in (10.0, 100.0, 1e3)]
    growth = [np.mean(np.abs(mean - 50.0) / np.sqrt(variance)) for mean, variance in far]
    assert growth[0] > 3.0 * growth[1] > 9.0 * growth[2]


def test_a_trained_network_is_a_copy_and_predicts_well():
    net = network()
    before = net.get_weights()
    learned = gvi.learn(images(250), network=net, num_inducing=20, epochs=6, learning_rate=1e-2)
    for weight, old in zip(net.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)
    assert {"loss", "val_loss"} <= set(learned.history)
    assert gvi.metrics.accuracy(NEW[1], learned.predict_proba(NEW[0])) > 0.9
    assert not learned.model.trainable_variables or learned.model.num_data == 225


@keras.saving.register_keras_serializable()
def unfit(labels, logits):
    """A loss that is not for labels."""
    raise ValueError("not for labels")


def test_a_loss_that_is_not_for_labels_is_told_of():
    net = network()
    net.compile("sgd", unfit)
    with pytest.raises(ValueError, match="cannot be trained as it is compiled"):
        gvi.learn(images(100), network=net, epochs=1)


@pytest.fixture(scope="module")
def members(net):
    copy = keras.models.clone_model(net)  # with the same names
    rng = np.random.default_rng(3)
    copy.set_weights([w + 0.3 * rng.normal(size=w.shape) for w in net.get_weights()])
    deeper = keras.Sequential([*network(J=5).layers, keras.layers.Dense(3)])
    x = keras.Input(SHAPE)
    mirrored = [keras.Model(x, each(keras.ops.flip(x, axis=2))) for each in (net, copy)]
    return [net, copy, deeper, *mirrored]  # with weights that they share


@pytest.mark.slow
def test_mean_of_several_networks_is_that_of_their_probabilities(members, tmp_path):
    logits = [member.predict(WITHIN, verbose=0) for member in members]
    p = np.mean(scipy.special.softmax(logits, axis=-1), axis=0)
    learned = around(members)
    mean, _ = learned.predict_f(WITHIN)
    factor = learned.model.variational.mean_function.factor
    assert_close(mean, factor * np.log(p), ITERATIVE)
    probabilities = learned.predict_proba(WITHIN)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), p.argmax(axis=1))
    kernel, _ = learned.regulariser.prior.kernel.kernels
    assert kernel.active_dims.stop - kernel.active_dims.start == 6  # those of the first alone
    learned.save(tmp_path / "model")
    loaded = gvi.load(tmp_path / "model")
    assert_close(loaded.predict_proba(WITHIN), probabilities)


@pytest.mark.slow
def test_mean_of_several_networks_of_numbers_is_their_average():
    members = [network(J=2), network(J=2)]
    members[1].set_weights([1.5 * weight for weight in members[1].get_weights()])
    X, Y = images(80)[0], RNG.normal(scale=[1.0, 4.0], size=(80, 2))
    learned = around(members, (X, Y), validation_data=(X, Y))
    expected = np.mean([member.predict(X, verbose=0) for member in members], axis=0)
    assert_close(learned.predict_f(X)[0], expected, ITERATIVE)
    noise = learned.predict_y(X)[1] - learned.predict_f(X)[1]  # of each column its own
    assert_close(noise[0], noise[-1])
    assert noise[0, 0] < 0.5 * noise[0, 1]


@pytest.mark.slow
def test_several_networks_are_trained_one_after_the_other():
    options = {"num_inducing": 20, "epochs": 4, "learning_rate": 1e-2}
    learned = gvi.learn(images(250), network=[network(), network()], **options)
    assert {"loss", "val_loss", "loss of network 2"} <= set(learned.history)
    assert learned.history["loss"] != learned.history["loss of network 2"]  # of other batches
    alone = gvi.learn(images(250), network=network(), **options)
    assert_close(learned.history["loss"], alone.history["loss"], precision=np.float32)
    assert gvi.metrics.accuracy(NEW[1], learned.predict_proba(NEW[0])) > 0.9


def test_rows_that_the_network_may_have_seen_and_pixels_in_bytes_are_told_of(net, caplog):
    X, labels = images(60)
    pixels = np.round(255 * X).astype(np.uint8)
    with pytest.warns(NumericsWarning, match="without validation_data"):
        learned = around(net, (pixels, labels), validation_data=None)
    assert "X has pixels in bytes" in caplog.text
    expected = learned.predict_proba(pixels / 255.0)
    assert_close(learned.predict_proba(pixels), expected)


@pytest.mark.slow
def test_a_network_of_mixed_precision():
    net = trained(dtype="mixed_float16")
    p = around(net).predict_proba(NEW[0])
    np.testing.assert_array_equal(p.argmax(axis=1), net.predict(NEW[0], verbose=0).argmax(axis=1))


@pytest.mark.slow
def test_directions_that_hardly_differ_are_told_apart_in_single_precision():
    """Rounding of their unit lengths would be as large as their distances."""
    net = network(activation="softmax")
    last = net.get_layer("last_hidden")
    last.set_weights([1e-3 * last.weights[0].numpy(), 1.0 + last.weights[1].numpy()])
    options = {"num_inducing": 100, "predictor": "auto"}
    expected = around(net, **options).predict_f(NEW[0])[1]
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        found = around(net, **options).predict_f(NEW[0])[1]
    assert found.dtype == np.float32
    assert_close(found, expected, ITERATIVE)


NAN = network()
NAN.set_weights([np.full_like(weight, np.nan) for weight in NAN.get_weights()])
X_ONLY = images(5)[0]
DEAD = network()
DEAD.layers[1].set_weights([np.zeros((36, 8)), np.zeros(8)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": network(J=2)}, r"labels that are not whole numbers from 0 to 1"),
        (
            {"network": network(shape=(7, 7, 1))},
            r"X has shape \(60, 6, 6, 1\), but the network takes",
        ),
        ({"network": network(activation="relu")}, "it is not clear whether they are probabilities"),
        ({"network": NAN}, "network returns NaN"),
        ({"network": []}, "network is an empty list"),
        ({"network": [network(), network(J=2)]}, "returns 3 columns.*, 2 columns.*the same"),
        ({"network": [network(), network(tf_keras)]}, "of tf_keras; it must be of Keras 3"),
        ({"network": [network(), network(shape=(7, 7, 1))]}, r"takes rows of shape \(7, 7, 1\)"),
        ({"network": DEAD}, "features are the same for all rows"),
        ({"Y": np.ones(60)}, "Y has examples of class 1 alone"),
        ({"Y": np.full((60, 3), 0.5), "network": network(activation="softmax")}, "one-hot"),
        ({"features": "nowhere"}, "features is 'nowhere', but network .* hidden, last_hidden"),
        ({"features": []}, "features is empty"),
        ({"divergence_weight": 0.3}, r"divergence_weight is 0\.3, which has no effect"),
        ({"validation_data": X_ONLY}, "validation_data is a ndarray; it must be the pair"),
        ({"kernel": [gpflow.kernels.Linear()]}, "it must be one kernel"),
        ({"network": None, "train_network": False}, "pass network="),
        ({"network": None}, r"X has shape \(60, 6, 6, 1\).*Pass a network"),
        ({"network": lambda X: X[:, 0, :3, 0] - 9.0}, "must be a model of Keras"),
        (
            {
                "network": lambda X: X[:, 0, :3, 0] - 9.0,
                "train_network": False,
                "validation_data": images(20),
            },
            "whose layers are not known",
        ),
        ({"likelihood": gpflow.likelihoods.MultiClass(4)}, "network returns 3 columns.* has 4"),
        ({"likelihood": gpflow.likelihoods.Poisson(), "network": network(J=1)}, "Poisson"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, message):
    X, labels = images(60)
    options = {"network": network(), "epochs": 0} | options
    if options.get("train_network") is False:
        del options["epochs"]
    data = X, options.pop("Y", labels)
    with pytest.raises((TypeError, ValueError), match=message):
        gvi.learn(data, **options)


def test_nan_pixels_are_refused(learned):
    X = NEW[0].copy()
    X[3, 0, 0] = np.nan
    with pytest.raises(ValueError, match="first is row 3"):
        learned.predict_proba(X)
    with pytest.raises(ValueError, match=r"X has shape \(500, 5, 6, 1\)"):
        learned.predict_proba(NEW[0][:, 1:])


@pytest.mark.slow
def test_images_are_rows_for_a_kernel_on_pixels():
    X, Y = numbers(60)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=6.0)
    new = NEW[0][:10]
    of_images = gvi.learn((X, Y), kernel=kernel)
    assert_close(of_images.predict_y(new), of_images.predict_y(new.reshape(10, -1)))
    assert np.ptp(of_images.inputs.scale) == 0.0  # pixels that hardly vary do not count for more


NAMES = np.array(["truck", "cat", "boat"])  # in the order of the columns, which is not sorted


def _named(data):
    return data[0], NAMES[data[1]]


def test_columns_in_another_order_than_names_are_refused_or_said(net):
    data = {"data": _named(images(250)), "validation_data": _named(images(150, seed=1))}
    with pytest.raises(ValueError, match=r"Pass classes=\['truck', 'cat', 'boat'\]"):
        around(net, **data)
    learned = around(net, **data, classes=NAMES)
    assert learned.classes_.tolist() == sorted(NAMES)
    X, y = _named(NEW)
    expected = NAMES[net.predict(X, verbose=0).argmax(axis=1)]
    np.testing.assert_array_equal(learned.predict(X), expected)
    assert np.mean(learned.predict(X) == y) > 0.9
    with pytest.raises(ValueError, match=r"classes is .*Y has the classes"):
        around(net, **data, classes=["truck", "cat", "ship"])


def test_codes_of_labels_are_labels(net):
    def coded(data):
        return data[0], np.eye(3)[data[1]]

    validation = coded(images(150, seed=1))
    learned = around(net, data=coded(images(250)), validation_data=validation)
    found = learned.predict(NEW[0])
    np.testing.assert_array_equal(found, net.predict(NEW[0], verbose=0).argmax(axis=1))


@pytest.mark.slow
def test_pixels_in_bytes_are_what_the_network_was_trained_with():
    def in_bytes(data):
        return (255.0 * data[0]).astype(np.uint8), data[1]

    net = trained()
    hidden = net.get_layer("hidden")
    weights, bias = hidden.get_weights()
    hidden.set_weights([weights / 255.0, bias])
    new, truth = in_bytes(NEW)
    expected = net.predict(new.astype(np.float32), verbose=0).argmax(axis=1)
    assert np.mean(expected == truth) > 0.9
    with pytest.warns(NumericsWarning, match=r"Divided by 255, .* they are taken as they are"):
        learned = around(net, in_bytes(images(250)), validation_data=in_bytes(images(150, seed=1)))
    np.testing.assert_array_equal(learned.predict(new), expected)


def test_a_network_for_other_units_is_told_of(of_numbers):
    net, _ = of_numbers
    data, unseen = ((X, 1e3 + 10.0 * Y) for X, Y in (numbers(60), numbers(100, seed=1)))
    with pytest.warns(NumericsWarning, match="the network misses Y by .* Is it for other units"):
        around(net, data, validation_data=unseen)
