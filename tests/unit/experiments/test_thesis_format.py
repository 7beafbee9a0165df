from __future__ import annotations

from pathlib import Path

import pytest

from gpflow_gvi.experiments import ConfigError, read

HERE = Path(__file__).parent
REGULARISER = HERE / "thesis_regulariser.yaml"
APPROXIMATE = HERE / "thesis_approximate.yaml"
CURVE = "{kind: curve, number: 0}"


def test_regulariser_is_read_as_it_is():
    experiment = read(REGULARISER, data=CURVE)
    P = experiment.regulariser
    assert (P.kernel.kind, P.evidence.kind, P.select.kind) == (
        "nngp",
        "inducing",
        "greedy_variance",
    )
    assert [(layer.units, layer.activation) for layer in P.kernel.layers] == [(10, "tanh")]
    assert P.num_inducing(600) == 8  # the cube root is 8.4
    assert (P.max_rounds, P.minimise.steps, P.minimise.learning_rate) == (5, 1000, 0.01)
    assert (experiment.mean.kind, experiment.covariance.kind) == ("regulariser", "regulariser")
    assert experiment.training.epochs == 0


def test_approximate_process_is_read_as_it_is_with_its_regulariser():
    experiment = read(APPROXIMATE, data=CURVE, regulariser=REGULARISER)
    alone = read(REGULARISER, data=CURVE)
    assert experiment.data == alone.data
    assert experiment.regulariser == alone.regulariser
    assert (experiment.divergence.kind, experiment.divergence.alpha) == ("projected_renyi", 0.5)
    assert experiment.divergence.weight == 1.0  # the sum over the data, as in the thesis
    assert [(layer.units, layer.activation) for layer in experiment.mean.layers] == [(10, "tanh")]
    assert experiment.covariance.kind == "sparse_posterior"
    assert experiment.loss.kind == "predictive_log_loss"
    assert (experiment.optimiser.learning_rate, experiment.optimiser.schedule) == (0.01, "constant")
    assert experiment.training.schedule(600).steps == 1000


def test_mode_is_that_of_the_approximate_process(tmp_path):
    path = tmp_path / "approximate.yaml"
    path.write_text(APPROXIMATE.read_text().replace("mode: posterior", "mode: prior"))
    experiment = read(path, data=CURVE, regulariser=REGULARISER)
    assert experiment.regulariser.mode == "prior"


def test_a_regulariser_of_this_package_does_as_well(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("data: yacht\nregulariser: {kernel: matern32}\n")
    experiment = read(APPROXIMATE, regulariser=path)
    assert experiment.data.kind == "yacht"
    assert experiment.regulariser.kernel.kind == "matern32"


def test_what_the_files_do_not_tell_is_asked_for():
    with pytest.raises(ConfigError, match=r"604913dc.*--data"):
        read(REGULARISER)
    with pytest.raises(ConfigError, match=r"7b386a3f.*--regulariser"):
        read(APPROXIMATE, data=CURVE)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "batch_shuffle: true",
            "batch_shuffle: false",
            r"trainer_settings\.batch_shuffle is False",
        ),
        ("kernel_schema: nngp", "kernel_schema: ntk", r"kernel\.kernel_schema is 'ntk'"),
        ("seed: 0", "sead: 0", r"trainer_settings\.sead is no key"),
        ("layer_schema: tanh", "layer_schema: sine", r"layer_2\.layer_schema is 'sine'"),
    ],
)
def test_what_the_reader_does_not_know_is_refused_where_it_stands(old, new, message, tmp_path):
    path = tmp_path / "regulariser.yaml"
    text = REGULARISER.read_text().replace(old, new)
    path.write_text(text)
    line = text[: text.index(new)].count("\n") + 1
    with pytest.raises(ConfigError, match=rf"yaml:{line}: .*{message}"):
        read(path, data=CURVE)
