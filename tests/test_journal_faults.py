"""A short form of the campaigns of `benchmarks.faults` on what grows while work goes on."""

import random

import pytest

from benchmarks.journal_faults import Answers, Saves, attack


@pytest.mark.parametrize("kind", [Answers, Saves])
def test_nothing_is_lost_or_changed_without_a_word(tmp_path, kind):
    count = attack(kind, tmp_path, random.Random(1), 3, 30, 4)
    assert (count["lost"], count["wrong"]) == (0, 0)
    assert count["killed"] == 3
    assert count["cut short"] > 5
    assert count["whole"] + count["told"] + count["refused"] == 37
