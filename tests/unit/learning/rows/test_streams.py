"""Rows that come in blocks: the same model as of arrays, and what is refused."""

from __future__ import annotations

import functools
import re
import subprocess
import sys

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi.learning import Settings
from gpflow_gvi.learning.rows import streams
from gpflow_gvi.learning.rows.split import Split
from gpflow_gvi.learning.rows.streams import Stream, survey
from tests.references import jitter_of_posteriors
from tests.tolerances import P_VALUE, assert_close, assert_estimates

N, SAMPLE = 800, 300


def _rows(N=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(10.0, 16.0, size=(N, 2))
    return X, 100.0 * np.sin(X[:, :1]) + 10.0 * X[:, 1:] + 5.0 * rng.normal(size=(N, 1))


def _mapped(folder, *arrays):
    """Return arrays as those of files."""
    for i, array in enumerate(arrays):
        np.save(folder / f"{i}.npy", array)
    return tuple(np.load(folder / f"{i}.npy", mmap_mode="r") for i in range(len(arrays)))


def _in_blocks(*arrays, size=37):
    return Stream(
        lambda: (tuple(a[i : i + size] for a in arrays) for i in range(0, len(arrays[0]), size))
    )


@pytest.fixture(scope="module")
def small():
    """Let few rows be many, and blocks have few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "MAX_ROWS_OF_SAMPLE", SAMPLE)
        patch.setattr(streams, "MAX_NUMBERS_OF_PREDICTORS", 2 * SAMPLE)
        patch.setattr(streams, "ROWS_OF_BLOCK", 64)
        yield


_learn = functools.partial(
    gvi.learn, kernel=gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0]), num_inducing=15
)


def test_a_sample_is_uniform_and_without_replacement():
    numbers = np.arange(100_000)
    (found,), indices = _in_blocks(numbers, size=997).sample(5_000, seed=3)
    np.testing.assert_array_equal(found, indices)
    assert len(np.unique(found)) == 5_000
    assert np.all(np.diff(found) > 0)
    assert scipy.stats.kstest(found, "uniform", args=(0, 100_000)).pvalue > P_VALUE
    again, _ = _in_blocks(numbers, size=997).sample(5_000, seed=3)
    np.testing.assert_array_equal(again[0], found)
    other, _ = _in_blocks(numbers, size=997).sample(5_000, seed=4)
    both = len(np.intersect1d(other[0], found))
    assert_estimates(both, 250, np.sqrt(5_000 * 0.05 * 0.95**2))  # hypergeometric


def test_a_sample_of_more_rows_than_there_are_is_all_of_them():
    X, Y = _rows(50)
    (found_X, found_Y), indices = _in_blocks(X, Y).sample(50, seed=0)
    np.testing.assert_array_equal(found_X, X)
    np.testing.assert_array_equal(found_Y, Y)
    np.testing.assert_array_equal(indices, np.arange(50))


def test_units_are_those_of_all_rows(small, tmp_path):
    X, Y = _rows()
    X = np.column_stack([X, np.full(N, 1e9)])  # a column that does not vary
    split = Split.of(_mapped(tmp_path, X, Y), Settings())
    assert len(split.train[0]) == SAMPLE
    assert_close(split.inputs.shift, X.mean(axis=0))
    assert_close(split.inputs.scale, [*X[:, :2].std(axis=0), 1.0])
    assert_close(split.outputs.scale, Y.std(axis=0))


SOURCES = {
    "memory-mapped": _mapped,
    "of float32": lambda folder, X, Y: _mapped(folder, X.astype(np.float32), Y[:, 0]),
    "rows": lambda _, X, Y: tf.data.Dataset.from_tensor_slices((X, Y)),
    "rows, numbers": lambda _, X, Y: tf.data.Dataset.from_tensor_slices((X, Y[:, 0])),
    "batches": lambda _, X, Y: tf.data.Dataset.from_tensor_slices((X, Y)).batch(33),
    "batches, vectors": lambda _, X, Y: tf.data.Dataset.from_tensor_slices((X, Y[:, 0])).batch(7),
}


def _numbers(split):
    """Return all that the procedure knows of the rows."""
    return (*split.train, *split.calibration, *split.inputs, *split.outputs)


@pytest.mark.parametrize("source", SOURCES)
def test_few_rows_are_taken_as_arrays(source, tmp_path):
    X, Y = _rows(120)
    X, settings = X.astype(np.float32).astype(float), Settings(calibration_fraction=0.1)
    split = Split.of(SOURCES[source](tmp_path, X, Y), settings)
    expected = Split.of((X, Y), settings)
    assert split.stream is None
    for found, of_arrays in zip(_numbers(split), _numbers(expected), strict=True):
        np.testing.assert_array_equal(found, of_arrays)


def test_gross_values_and_copies_in_few_rows_do_not_count(tmp_path):
    X, Y = _rows(120)
    X[7], Y[7], Y[3] = X[5], Y[5], 1e7
    with pytest.warns(gvi.errors.NumericsWarning, match=r"Y has 1 value .* first 1e\+07 in row 3"):
        split = Split.of(_mapped(tmp_path, X, Y), Settings())
    others = np.delete(np.column_stack([X, Y]), [3, 7], axis=0)
    found = np.column_stack(split.train)
    np.testing.assert_array_equal(np.sort(found, axis=0), np.sort(others, axis=0))
    assert split.notes["gross"] == split.notes["copies"] == 1


@pytest.fixture(scope="module")
def of_blocks(small, tmp_path_factory):
    return _learn(_mapped(tmp_path_factory.mktemp("rows"), *_rows()))


def test_p_is_conditioned_on_all_rows(of_blocks):
    """As GPflow's SGPR is, with the same hyper-parameters and inducing points."""
    rows = of_blocks.inputs.standard(_rows()[0]), of_blocks.outputs.standard(_rows()[1])
    fitted = of_blocks.regulariser
    sgpr = gpflow.models.SGPR(
        rows, fitted.prior.kernel, fitted.inducing_points, noise_variance=fitted.likelihood.variance
    )
    X = of_blocks.inputs.standard(_rows(20, seed=1)[0])
    with jitter_of_posteriors():
        expected = sgpr.predict_f(X)
    for ours, theirs in zip(fitted.posterior.predict(X), expected, strict=True):
        assert_close(ours, theirs)
    factor = of_blocks.model.variational.kernel.factor
    mean, variance = of_blocks.model.predict_f(X)
    assert_close(mean, expected[0])
    assert_close(variance / factor, expected[1])
    assert of_blocks.model.num_data == N


@pytest.mark.parametrize(
    ("numbers", "expected"), [(2 * SAMPLE, SAMPLE), (2 * 500, 500), (2 * N, N), (1, SAMPLE)]
)
def test_a_sample_for_predictors_has_as_many_rows_as_fit_into_memory(
    small, monkeypatch, tmp_path, numbers, expected
):
    monkeypatch.setattr(streams, "MAX_NUMBERS_OF_PREDICTORS", numbers)
    rows = _mapped(tmp_path, *_rows())
    assert len(survey(rows, None, 0, for_predictors=True).rows[0]) == expected
    assert len(survey(rows, None, 0).rows[0]) == SAMPLE
    split = Split.of(rows, Settings())
    assert len(split.train[0]) == expected
    assert (split.stream is None) == (expected == N)
    trained = Split.of(rows, Settings(trains=True, validation_fraction=0.0))
    assert len(trained.train[0]) == SAMPLE


@pytest.mark.slow
def test_what_is_learned_depends_on_the_seed_alone(of_blocks, tmp_path):
    rows = _mapped(tmp_path, *_rows())
    X = _rows(20, seed=1)[0]
    for found, same in zip(of_blocks.predict_y(X), _learn(rows).predict_y(X), strict=True):
        np.testing.assert_array_equal(found, same)
    one, other = (Split.of(rows, Settings(seed=seed)).train[0] for seed in (0, 1))
    assert len(np.intersect1d(one[:, 0], other[:, 0])) < SAMPLE


@pytest.mark.slow
def test_the_order_of_the_rows_does_not_matter(small, tmp_path):
    """Sorted by y; every row is as likely to be in the sample."""
    X, Y = _rows()
    order = np.argsort(Y[:, 0])
    learned = _learn(_mapped(tmp_path, X[order], Y[order]))
    unseen = _rows(500, seed=1)
    mean, variance = learned.predict_y(unseen[0])
    assert np.sqrt(np.mean(np.square(unseen[1] - mean))) < 6.0  # the noise is 5
    ratio = np.mean(np.square(unseen[1] - mean) / variance)
    assert_estimates(ratio, 1.0, np.sqrt(2.0 / 500 + 2.0 / SAMPLE))


@pytest.mark.slow
def test_labels_are_learned_in_batches_from_all_over_the_rows(small, tmp_path):
    X, Y = _rows()
    of_class = (Y[:, 0] > np.median(Y)).astype(int)
    order = np.argsort(of_class)  # all of one class come first
    train = functools.partial(
        gvi.learn,
        likelihood=gpflow.likelihoods.MultiClass(2),
        kernel=gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0]),
        num_inducing=15,
        epochs=2,
    )
    learned = train(_mapped(tmp_path, X[order], of_class[order]))
    unseen, value = _rows(500, seed=1)
    probabilities = learned.predict_proba(unseen)
    right = np.argmax(probabilities, axis=1) == (value[:, 0] > np.median(Y))
    assert np.mean(right) > 0.85
    assert len(learned.history["loss"]) == 2
    again = train(_mapped(tmp_path, X[order], of_class[order]))
    np.testing.assert_array_equal(again.predict_proba(unseen), probabilities)


@pytest.mark.parametrize("shape", [[N], [N, 1]])
def test_booleans_are_labels(small, shape):
    X, Y = _rows()
    is_high = Y[:, 0] > np.median(Y)
    dataset = tf.data.Dataset.from_tensor_slices((X, is_high.reshape(shape))).batch(33)
    learned = _learn(dataset)
    assert [known is True for known in learned.classes_.tolist()] == [False, True]
    assert np.mean(learned.predict(X) == is_high) > 0.9
    probability = learned.predict_proba(X)[np.arange(N), is_high.astype(int)]
    assert_close(learned.predict_log_density((X, is_high)), np.log(probability))


def test_batches_are_of_rows_from_everywhere():
    numbers = np.arange(1000)
    batches = _in_blocks(numbers[:, None], numbers, size=100).batches(500, 50, seed=0)
    drawn = np.array([Y.numpy() for _, Y in batches.take(20)])  # two samples
    assert len(np.unique(drawn[:10])) == len(np.unique(drawn[10:])) == 500
    assert not np.array_equal(drawn[:10], drawn[10:])
    assert np.all(np.ptp(drawn, axis=1) > 700)


def test_rows_held_out_are_in_no_block(small, tmp_path):
    X, Y = _rows()
    split = Split.of(_mapped(tmp_path, X, Y), Settings(calibration_fraction=0.2))
    trained = np.concatenate([X for X, _ in split.stream.blocks()])
    assert len(trained) == split.stream.num_rows == N - SAMPLE // 5
    everything = np.concatenate([trained, split.calibration[0]])
    np.testing.assert_array_equal(np.sort(everything, axis=0), np.sort(X, axis=0))
    assert not np.any(np.isin(split.calibration[0][:, 0], trained[:, 0]))


@pytest.mark.draws
def test_a_dataset_in_another_order_each_time_is_fine_where_nothing_is_held_out(small):
    dataset = tf.data.Dataset.from_tensor_slices(_rows()).shuffle(N)
    read = np.concatenate([Y for _, Y in Split.of(dataset, Settings()).stream.blocks()])
    np.testing.assert_array_equal(np.sort(read, axis=0), np.sort(_rows()[1], axis=0))
    split = Split.of(dataset, Settings(calibration_fraction=0.2))
    with pytest.raises(ValueError, match=r"in another order .*reshuffle_each_iteration"):
        list(split.stream.blocks())


def test_rows_that_can_be_read_once_are_refused(small):
    once = iter(zip(*_rows(), strict=True))
    spec = tf.TensorSpec([2], tf.float64), tf.TensorSpec([1], tf.float64)
    dataset = tf.data.Dataset.from_generator(lambda: once, output_signature=spec)
    with pytest.raises(ValueError, match=r"had 800 rows .*have 0 now.*start anew"):
        list(Split.of(dataset, Settings()).stream.blocks())


def _dataset(elements, *shapes, dtype=tf.float64):
    spec = tuple(tf.TensorSpec(shape, dtype) for shape in shapes)
    return tf.data.Dataset.from_generator(lambda: iter(elements), output_signature=spec)


PAIRS = tf.data.Dataset.from_tensor_slices(_rows(50))
X0, Y0 = _rows(3)


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (PAIRS.map(lambda X, Y: (X, tf.as_string(Y))), TypeError, "Y has dtype object"),
        (PAIRS.repeat(), ValueError, r"without an end\. Leave out \.repeat"),
        (PAIRS.take(0), ValueError, "data has no rows"),
        (PAIRS.map(lambda X, Y: {"x": X, "y": Y}), TypeError, "element.*'x'"),
        (PAIRS.map(lambda X, Y: (X[0], Y[0])), ValueError, r"shapes \(\) and \(\)"),
        (_dataset([], None, None), ValueError, "declare the shapes"),
        (_dataset([(X0[0], Y0[0]), (Y0[0], Y0[0])], [None], [1]), ValueError, "cannot be joined"),
        ("rows.parquet", TypeError, r"data is the path 'rows\.parquet'.*ParquetRows\(path, target"),
    ],
)
def test_what_makes_no_rows_is_refused(data, kind, message):
    with pytest.raises(kind, match=message):
        gvi.learn(data)


@pytest.mark.parametrize("name", ["X", "Y"])
def test_the_row_of_a_missing_value_is_named(small, tmp_path, name):
    X, Y = _rows()
    (X if name == "X" else Y)[271, 0] = np.nan
    told = rf"{name}\[(\d+):\] has NaN .*the first is row (\d+)[,)]"
    with pytest.raises(ValueError, match=told) as raised:
        gvi.learn(_mapped(tmp_path, X, Y))
    assert sum(map(int, re.search(told, str(raised.value)).groups())) == 271


@pytest.mark.parametrize("shapes", [((5,), (5,)), ((5, 2), (4,)), ((0, 2), (0,))])
def test_mapped_arrays_that_make_no_rows_are_refused_as_others_are(tmp_path, shapes):
    arrays = [np.ones(shape) for shape in shapes]
    with pytest.raises(ValueError) as of_arrays:  # noqa: PT011
        gvi.learn(tuple(arrays))
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        gvi.learn(_mapped(tmp_path, *arrays))
    assert str(refused.value) == str(of_arrays.value) or "no rows" in str(refused.value)


def test_changes_of_a_private_map_are_kept(tmp_path):
    X, Y = _rows(50)
    np.save(tmp_path / "X.npy", X)
    private = np.load(tmp_path / "X.npy", mmap_mode="c")
    private += 1.0
    seen = survey((private, Y), None, seed=0)
    np.testing.assert_array_equal(seen.rows[0], X + 1.0)
    np.testing.assert_array_equal(private, X + 1.0)


PROGRAM = """
import resource
import sys

import gpflow
import numpy as np

import gpflow_gvi as gvi
from gpflow_gvi.learning.rows import streams

rng, folder, sizes, peaks = np.random.default_rng(0), sys.argv[1], (100_000, 1_000_000), []
for N in sizes:
    rows = np.lib.format.open_memmap(f"{folder}/{N}.npy", "w+", float, (N, 9))
    for i in range(0, N, 50_000):
        rows[i : i + 50_000] = rng.normal(size=(50_000, 9))
        streams._release(rows)
    del rows
    rows = np.load(f"{folder}/{N}.npy", mmap_mode="r")
    gvi.learn((rows[:, :8], rows[:, 8]), effort="fast", num_inducing=50)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)
print(peaks[1] - peaks[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss has another unit")
def test_memory_does_not_grow_with_the_rows(tmp_path):
    """Ten times the rows, 62 MiB more on disk and 343 MiB of K_ZX."""
    program = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    growth = float(subprocess.run(program, capture_output=True, check=True, text=True).stdout)
    assert growth < 30.0
