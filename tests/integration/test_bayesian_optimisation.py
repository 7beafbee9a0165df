"""The benchmark of Bayesian optimisation knows its problems, and a GVI model works in Trieste."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import bayesian_optimisation as benchmark
from tests.tolerances import ITERATIVE, assert_close

MINIMA = {
    "Branin": np.array([(np.pi + 5.0) / 15.0, 2.275 / 15.0]),
    "Hartmann-6": np.array([0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573]),
}


@pytest.mark.parametrize("name", MINIMA)
def test_least_values_are_where_they_are_known_to_be(name, rng):
    problem = benchmark.PROBLEMS[name]
    assert_close(problem.function(MINIMA[name]), problem.minimum, ITERATIVE)  # of few digits
    values = [problem.function(u) for u in rng.random((500, problem.dimension))]
    assert min(values) > problem.minimum
    assert 0.1 < np.std(values) < 2.0


def test_table_has_medians_of_the_seeds():
    rows = [
        {"problem": "P", "method": "m", "seed": seed, "regrets": [9.0, 4.0, end, end], "cpu": 2.0}
        for seed, end in enumerate((1.0, 2.0, 5.0))
    ]
    assert benchmark.table(rows).splitlines()[-1] == "| P | m | 3 | 4 | 2 | 5 |"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["Trieste, GVI", "Trieste, GPR"])
def test_a_model_in_trieste(method):
    pytest.importorskip("trieste")
    problem = benchmark.PROBLEMS["Branin"]._replace(evaluations=9)
    values = benchmark.METHODS[method](problem, 0)
    assert len(values) == 9
    starts = [problem.function(u) for u in benchmark.initial(problem, 0)]
    assert_close(values[:5], starts)
