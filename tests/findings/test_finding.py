"""Every result is written by the ending of a path, with its signature and checksum; see `findings.finding`."""

import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError


def test_a_result_without_a_figure_says_what_can_be_written(tmp_path):
    chosen = mo.consensus({"s1": ["no edema", "no edema seen", "clear"]}, "rouge-l")
    with pytest.raises(InputError, match=r"Consensus has no figure. Write tables or numbers: .md, .tex, .csv"):
        chosen.figure()
