"""The file of results is read again as far as it was written."""

from __future__ import annotations

import pytest

from gpflow_gvi.experiments.results import Results


@pytest.mark.parametrize("torn", ["", "{", '{"name": "torn'])
def test_a_result_is_added_after_a_line_that_was_torn(torn, tmp_path):
    results = Results(tmp_path)
    results.path.write_text(torn, encoding="utf-8")
    record = {"name": "whole", "status": "done"}
    results.add(record)
    found, wrong = results.read()
    assert found == {"whole": record}
    assert len(wrong) == (1 if torn else 0)
