from __future__ import annotations

import itertools
import operator
import pickle
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import gpflow
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import gpflow_gvi as gvi
from gpflow_gvi.__main__ import main
from gpflow_gvi.experiments import ConfigError, Experiment, read
from gpflow_gvi.experiments.parts.part import Part, kinds
from gpflow_gvi.experiments.parts.regulariser import PowerOfN, Regulariser
from gpflow_gvi.experiments.run import key_of_fit, settings_of
from gpflow_gvi.experiments.run_folder import name_of
from gpflow_gvi.learning.settings import RECIPE

FEW_LINES = """\
data: {kind: curve, number: 4}
regulariser: {kernel: squared_exponential}
covariance: diagonal
divergence: {kind: projected_renyi, alpha: 0.7, context: uniform_box}
"""

TABLE = "{kind: table, path: rows.csv, inputs: [a], outputs: [b]}"


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "experiment.yaml"
        path.write_text(text)
        return path

    return write


def test_few_lines_are_an_experiment_and_what_they_resolve_to_is_the_same_one(write, tmp_path):
    experiment = read(write(FEW_LINES))
    assert experiment.divergence.alpha == 0.7
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text(yaml.safe_dump(experiment.model_dump(mode="json")))
    again = read(resolved)
    assert again == experiment
    assert name_of(again) == name_of(experiment)


def test_name_distinguishes_settings_and_reads_well(write):
    name = name_of(read(write(FEW_LINES)))
    assert name.startswith("curve4-squared_exponential-posterior-recipe-diagonal-projected_renyi-")
    assert name != name_of(read(write(FEW_LINES.replace("0.7", "0.8"))))


def test_a_name_stands_for_a_part_with_its_defaults(write):
    short = "data: yacht\nmean: network\ndivergence: {kind: projected_kl, context: uniform_box}\n"
    long = (
        "data: {kind: yacht}\nmean: {kind: network}\n"
        "divergence: {kind: projected_kl, context: {kind: uniform_box}}\n"
    )
    assert read(write(short)) == read(write(long))


def test_images_have_labels_and_stay_in_their_units(write):
    experiment = read(write("data: mnist\n"))
    assert experiment.likelihood.kind == "multi_class"
    assert not experiment.standardise
    assert experiment.regulariser.kernel.kind == "squared_exponential"  # not that for tables
    assert read(write("data: mnist\nlikelihood: softmax\n")).likelihood.kind == "softmax"


def test_numbers_are_read_as_yaml_1_2_has_them(write):
    text = "data: yacht\noptimiser: {kind: adam, learning_rate: 1e-3}\n"
    assert read(write(text)).optimiser.learning_rate == 0.001
    with pytest.raises(ConfigError, match="standardise is 'yes'"):
        read(write("data: yacht\nstandardise: yes\n"))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("data: yaht\n", 1, ["data", "'yaht'", "concrete", "Did you mean 'yacht'"]),
        ("data: yacht\nsede: 1\n", 2, ["sede", "Did you mean 'seed'", "regulariser"]),
        ("seed: 1\n", 1, ["data is missing"]),
        ("data: {kind: curve}\n", 1, ["data.number is missing"]),
        ("data: yacht\nseed: true\n", 2, ["seed is True", "valid integer"]),
        (
            "data: yacht\nregulariser: {kernel: {kind: sum, parts: [linear, {beta: 2.0}]}}\n",
            2,
            ["regulariser.kernel.parts[1]", "a `kind`", "matern52"],
        ),
        ("data: yacht\ndivergence: [1]\n", 2, ["divergence is [1]", "projected_kl"]),
        ("data: yacht\nregulariser: {inducing: 0}\n", 2, ["regulariser.inducing is 0"]),
        (
            "data: yacht\nregulariser:\n  inducing: {factor: 1.0, powr: 2}\n",
            3,
            ["regulariser.inducing.powr", "Did you mean 'power'"],
        ),
        (
            "data: yacht\nmean:\n  kind: network\n  layers:\n    - dense\n"
            "    - kind: dense\n      units: 0\n",
            7,
            ["mean.layers[1].units is 0"],
        ),
        (
            "data: yacht\nregulariser: {kernel: {kind: sum, parts: [linear]}}\n",
            2,
            ["regulariser.kernel.parts", "at least 2"],
        ),
        ("data: yacht\ndata: energy\n", 2, ["'data' appears twice"]),
        ("data: {kind: curve,\n", 2, ["expected"]),
        ("data: yacht\ncalibration: {fraction: 0.2}\n", 2, ["of kind none", "key of conformal"]),
        ("data: yacht\nregulariser:\n  kernel: {lengthscale: 2}\n", 3, ["kind recipe", "matern32"]),
        ("data: !!python/object:os.system {}\n", 1, ["os.system' is not allowed; write a number"]),
        (
            "data: yacht\noptimiser: {kind: adam, learning_rate: .inf}\n",
            2,
            ["optimiser.learning_rate is inf"],
        ),
    ],
)
def test_errors_name_file_line_value_and_what_is_allowed(write, text, line, words):
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        read(path)
    lines = [each for each in str(caught.value).splitlines() if f"{path}:{line}: " in each]
    assert lines
    for word in words:
        assert any(word in each for each in lines), (word, str(caught.value))


BOMB = "data: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n"
    for before, name in itertools.pairwise(["a", "mean", "seed", "loss", "split", "model", "kind"])
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: yacht\n? [1]\n: 2\n", ":2: a key is a sequence"),
        ("data: yacht\nloss: {kind: beta_loss, 3: 1}\n", ":2: loss has the key 3"),
        ("data:\n  {kind: !!set {a, b}}\n", ":2: '!!set' is not allowed; write a number, a text"),
        ("data: yacht\n<<: 3\n", ":2: expected a mapping"),
        ("data: yacht\nseed: \x00\n", r":2: the character '\x00' is not allowed"),
        ("data: yacht\nseed: " + "9" * 5000, ":2: this is no int"),
        ("data: yacht\nseed: " + "9" * 400, ":2: seed is 9999"),
        ("data: yacht\nseed: !!bool abc\n", ":2: this is no bool"),
        ("data: yacht\nmean: &a [*a]\n", ":2: found unconstructable recursive node"),
        (BOMB, "its aliases written out"),
        ("data: yacht\nmean: " + "[" * 500 + "]" * 500, "nested too deeply"),
        ("data: yacht\nloss: [" + "x, " * 5000 + "]\n", ":2: loss is ['x', 'x'"),
        ("data: {kind: [1]}\n", ":1: data is of kind '[1]'"),
    ],
)
def test_whatever_a_file_holds_the_error_is_short_and_has_a_line(write, text, message):
    with pytest.raises(ConfigError) as caught:
        read(write(text))
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "text",
    [
        "data: yacht\nloss: {kind: beta_loss, beta: 1}",
        "data: mnist\nloss: {kind: beta_loss, beta: 0.5}",  # without Gaussian noise
        "data: yacht\ndivergence: {kind: projected_renyi, alpha: 3e38, weight: 0}",
        "data: yacht\ndivergence: {kind: regularised_kl, gamma: 1.2e-38}",
        "data: yacht\ndivergence: inducing_kl\nregulariser: {mode: prior}\nmean: inducing",  # SVGP
    ],
)
def test_what_is_at_the_edge_is_taken(write, text):
    read(write(text))


def test_all_errors_are_reported_at_once(write):
    with pytest.raises(ConfigError) as caught:
        read(write("data: yaht\nseed: -1\ntraining: {epochs: many}\n"))
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is empty"), ("# nothing\n", "is empty"), ("- 1\n", "holds a list"), ("3\n", "a int")],
)
def test_files_that_hold_no_experiment_are_refused(write, text, message):
    with pytest.raises(ConfigError, match=message):
        read(write(text))


def test_what_is_no_file_of_text_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read(tmp_path / "no.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        read(tmp_path / "binary.yaml")


KL = "data: yacht\ndivergence: inducing_kl\n"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (f"{KL}mean: inducing\n", "regulariser.mode"),
        (f"{KL}regulariser: {{mode: prior}}\n", "mean"),
        (f"{KL}regulariser: {{mode: prior}}\nmean: inducing\ncovariance: kernelised", "covariance"),
        (
            "data: yacht\nsplit: {kind: given, validation: 0.0}\nloss: gamma_loss",
            "training.early_stopping",
        ),
        (
            "data: yacht\nsplit: {kind: given, validation: 0.0}\ntraining: {early_stopping: none}",
            "tempering",
        ),
        ("data: {kind: curve, number: 1}\nsplit: {kind: given, index: 2}\n", "split.index"),
        (
            "data: {kind: curve, number: 1}\nsplit: {kind: given, validation: 0.1}",
            "split.validation",
        ),
        (f"data: {TABLE}\nsplit: given\n", "split"),
        (f"data: {TABLE.replace('[b]', '[b, a]')}", "data.outputs"),
        (f"data: {TABLE.replace('[a]', '[a, c, a]')}", "data.inputs"),
        ("data: {kind: thesis_curve, number: 3, gaps: 10}", "data.gaps"),
        ("data: mnist\nlikelihood: gaussian\n", "likelihood"),
        ("data: mnist\nlikelihood: bernoulli\n", "likelihood"),
        ("data: yacht\nlikelihood: softmax\n", "likelihood"),
        ("data: yacht\nregulariser: {evidence: inducing, select: kmeans}\n", "regulariser.select"),
        ("data: yacht\nmean: {kind: network, layers: [conv2d]}\n", "mean.layers[0]"),
        (
            "data: yacht\n"
            "regulariser: {kernel: {kind: nngp, layers: [{kind: dense, activation: elu}]}}",
            "regulariser.kernel.layers",
        ),
        (
            "data: mnist\nregulariser: {kernel: {kind: nngp, layers: [max_pooling_2d]}}",
            "regulariser.kernel.layers",
        ),
        ("data: mnist\nregulariser: {noise: constant}", "regulariser.noise"),
        ("data: mnist\nregulariser: {kernel: recipe}", "regulariser.kernel"),
        ("data: yacht\nregulariser: {starts: 2}", "regulariser.starts"),
        ("data: yacht\nregulariser: {evidence: inducing, noise: auto}", "regulariser.noise"),
        (
            "data: yacht\nregulariser: {evidence: inducing, predictors: recipe}",
            "regulariser.predictors",
        ),
        ("data: yacht\ntrain_q: false\ncovariance: diagonal", "train_q"),
        ("data: yacht\nloss: {kind: beta_loss, beta: 0.9}", "loss.beta"),
        ("data: yacht\ndivergence: {kind: projected_renyi, alpha: 1e100}", "divergence.alpha"),
        ("data: yacht\nmodel: svgp\nloss: log_loss", "loss"),
        ("data: yacht\ntraining: lbfgs\noptimiser: adam", "optimiser"),
        (
            "data: yacht\ntraining: lbfgs\ndivergence: {kind: projected_kl, context: uniform_box}",
            "divergence.context",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_where_it_stands(write, text, path):
    with pytest.raises(ConfigError) as caught:
        read(write(text))
    assert re.search(rf"yaml:\d+: {re.escape(path)} is ", str(caught.value))


@pytest.mark.parametrize(
    ("said", "trains"),
    [
        ("", False),
        ("regulariser: {kernel: matern52}\ntempering: none\nrefit: false", False),
        ("likelihood: {kind: gaussian, trainable: false}", False),
        ("mean: recipe", True),
        ("training: {batch_size: 200}", True),
        ("train_q: true", True),
        ("train_q: false", False),
        ("train_q: false\ndivergence: projected_renyi", False),
    ],
)
def test_what_is_given_of_q_is_trained_even_if_it_is_the_default(write, tmp_path, said, trains):
    experiment = read(write(f"data: yacht\n{said}\n"))
    assert settings_of(experiment, None).trains_q is trains
    assert ("divergence" in experiment.settings()) is trains
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text(yaml.safe_dump(experiment.settings()))
    for again in (read(resolved), pickle.loads(pickle.dumps(experiment))):
        assert again == experiment
        assert again.train_q is trains


GIVEN = "regulariser: {kernel: matern52, inducing: 9}\n"


@pytest.mark.parametrize(
    ("one", "other", "is_shared"),
    [
        ("covariance: diagonal", "divergence: projected_kl", True),
        ("mean: network", "loss: gamma_loss", True),
        ("mean: network", "mean: recipe", False),  # P's noise may vary where Q follows P
        ("loss: log_loss", "loss: gamma_loss", False),
        ("loss: log_loss", "", False),
        (f"{GIVEN}mean: network", f"{GIVEN}mean: recipe", True),
        (f"{GIVEN}seed: 1", GIVEN, False),
        ("regulariser: {mode: prior}", "regulariser: {mode: posterior}", True),
        ("tempering: none", "tempering: held_out", False),  # the latter leaves out rows of P's
        ("tempering: none\nmean: network", "mean: network", True),
    ],
)
def test_a_fit_of_the_regulariser_is_shared_by_runs_that_fit_it_alike(write, one, other, is_shared):
    keys = {key_of_fit(read(write(f"data: yacht\n{said}\n"))) for said in (one, other)}
    assert (len(keys) == 1) is is_shared


def test_a_number_of_inducing_points_that_is_given_is_not_exceeded(write):
    for said, most in (("", 1000), ("regulariser: {inducing: 200}", 200)):
        experiment = read(write(f"data: yacht\n{said}\n"))
        assert settings_of(experiment, None).regulariser.most_inducing(5000) == most


@pytest.mark.parametrize(
    ("said", "tails", "noise"),
    [
        ("", True, "auto"),
        ("mean: network\n", True, "constant"),
        ("mean: network\nregulariser: {noise: constant}\n", False, "constant"),
        ("mean: network\nregulariser: {kernel: matern52}\n", False, "constant"),
        ("mean: network\nloss: gamma_loss\n", False, "constant"),
    ],
)
def test_noise_and_tails_are_those_of_learn_by_default(write, said, tails, noise):
    found = settings_of(read(write(f"data: yacht\n{said}")), None).regulariser
    assert (found.has_heavy_tails, found.noise) == (tails, noise)


def test_labels_have_the_predictors_of_learn_by_default(write):
    experiment = read(write(f"data: {TABLE}\nlikelihood: bernoulli\n"))
    likelihood = gpflow.likelihoods.Bernoulli()
    assert settings_of(experiment, likelihood).regulariser.predictors is RECIPE


def test_other_models_are_written_without_the_parts_that_they_do_not_have(write, tmp_path):
    experiment = read(write("data: yacht\nmodel: svgp\nseed: 3\n"))
    assert set(experiment.settings()) == {"data", "split", "standardise", "model", "seed"}
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text(yaml.safe_dump(experiment.settings()))
    for again in (read(resolved), pickle.loads(pickle.dumps(experiment))):
        assert again == experiment


def test_schema_takes_what_the_reader_takes(write):
    jsonschema = pytest.importorskip("jsonschema")
    schema = Experiment.model_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    experiment = read(write(FEW_LINES))
    for value in (yaml.safe_load(FEW_LINES), experiment.model_dump(mode="json")):
        jsonschema.validate(value, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"data": "yacht", "covariance": "round"}, schema)


def test_no_part_has_a_key_named_like_its_kind():
    # The search for the line of an error passes over names of kinds.
    parts = [Part]
    for part in parts:
        parts += part.__subclasses__()
    for part in parts:
        assert not set(kinds(part)) & set(part.model_fields)


def test_answers_that_need_no_tensorflow_do_without_it(write):
    code = (
        "import sys; from gpflow_gvi.__main__ import main;"
        "main(['run', sys.argv[1], '--dry-run']); main(['schema']);"
        "sys.exit('tensorflow' in sys.modules or 'gpflow' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(write(FEW_LINES))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "projected_renyi" in done.stdout.partition("$defs")[0]
    assert "properties" in done.stdout


@given(root=st.integers(1, 50), power=st.integers(1, 4), rest=st.floats(0.0, 0.999))
def test_number_of_inducing_points_is_the_root_rounded_down(root, power, rest):
    N = int(Fraction(root) ** power + Fraction(rest) * ((root + 1) ** power - root**power))
    part = Regulariser(inducing=PowerOfN(power=float(power)))
    assert part.num_inducing(N) == root


def test_a_part_without_a_kind_is_of_the_kind_that_it_has_by_default(write):
    path = write("data: yacht\noptimiser: {learning_rate: 0.5}\nloss: {beta: 2.0}\n")
    with pytest.raises(ConfigError, match="beta is no key of this part; its keys are kind"):
        read(path)
    experiment = read(write("data: yacht\noptimiser: {learning_rate: 0.5}\n"))
    assert experiment.optimiser.kind == "adam"
    assert experiment.optimiser.learning_rate == 0.5


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        (f"data: {TABLE}\nsplit: {{validation: 0.2}}", "split.kind", "random"),
        (f"data: {TABLE}\nsplit: {{validation: 0.2}}", "split.validation", 0.2),
        (f"data: {TABLE}\nsplit: {{validation: 0.2}}", "split.test", 0.1),
        ("data: banana\nsplit: {test: 0.3}\nlikelihood: bernoulli", "split.kind", "random"),
        ("data: yacht\nsplit: {validation: 0.2}", "split.kind", "given"),
        ("data: mnist\nregulariser: {inducing: 9}", "regulariser.inducing", 9),
        ("data: mnist\nregulariser: {inducing: 9}", "regulariser.kernel.ard", False),
        ("data: mnist\nregulariser: {inducing: 9}", "regulariser.kernel.lengthscale", 8.0),
        ("data: mnist\nregulariser: {kernel: {lengthscale: 3}}", "regulariser.kernel.ard", False),
        (
            "data: mnist\nregulariser: {kernel: {kind: squared_exponential, ard: false}}",
            "regulariser.kernel.lengthscale",
            None,  # of a kind that is given, not of the data
        ),
    ],
)
def test_a_part_without_a_kind_is_that_of_the_data(write, text, path, value):
    assert operator.attrgetter(path)(read(write(text))) == value


def test_a_key_of_another_split_is_told_apart_from_those_of_a_table(write):
    with pytest.raises(ConfigError, match="It is of kind random; index is a key of given"):
        read(write(f"data: {TABLE}\nsplit: {{index: 1}}"))


EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("name", ["experiment", "small_sweep", "uci_sweep"])
def test_examples_can_be_run(name, capsys):
    command = "sweep" if name.endswith("sweep") else "run"
    assert main([command, str(EXAMPLES / f"{name}.yaml"), "--dry-run"]) == 0
    assert capsys.readouterr().out


def test_training_by_lbfgs_can_be_read_again(write):
    text = (
        "data: {kind: thesis_curve, number: 3}\ntraining: {kind: lbfgs, iterations: 7}\n"
        "divergence: {kind: projected_kl, context: {kind: halton_box, num_points: 9}}\n"
    )
    experiment = read(write(text))
    assert (experiment.train_q, experiment.training.iterations) == (True, 7)
    again = read(write(yaml.safe_dump(experiment.settings())))
    assert again == experiment
    assert pickle.loads(pickle.dumps(experiment)) == experiment


def test_the_weight_of_the_papers_is_that_of_gwi(write):
    text = "data: yacht\ndivergence: {kind: gaussian_wasserstein, weight: 1/N}"
    model = settings_of(read(write(text)), None).model
    assert (model.kind, model.divergence_weight) == (gvi.models.GVI, "1/N")
    with pytest.raises(ConfigError, match=r"divergence\.weight is '1/M'"):
        read(write(text.replace("1/N", "1/M")))
