import re
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from metric_oracle.corpora.radgraph_json import read_graphs
from metric_oracle.corpora.tables import read_table
from metric_oracle.raters.ratings import read_ratings
from metric_oracle.synthetic import wrong_reports as synthetic_errors
from metric_oracle.synthetic.corpus import write_synthetic
from metric_oracle.synthetic.drafts import drafts_of
from metric_oracle.synthetic.notation import compile_sentence
from metric_oracle.synthetic.wrong_reports import (
    CATEGORIES,
    MAX_ADDED,
    MAX_ERRORS,
    _compares,
    _Edit,
    _has_finding,
    _is_idle,
    with_errors,
)


def candidates(n, seed=0, split="test"):
    return list(zip(drafts_of(seed, split), islice(with_errors(drafts_of(seed, split), seed, split), n), strict=False))


@pytest.fixture(scope="module")
def pairs():
    return candidates(1500)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_synthetic(tmp_path_factory.mktemp("synth") / "out", 30, 12, seed=4, errors=True)


def always(*numbers):
    """Return draws that repeat some numbers."""
    place = -1

    def draw():
        nonlocal place
        place += 1
        return numbers[place % len(numbers)]

    return draw


def test_counts_are_spread_and_bounded(pairs):
    counts = np.array([candidate.counts for _, candidate in pairs])
    totals = Counter(counts.sum(1).tolist())
    assert counts.shape == (len(pairs), len(CATEGORIES))
    assert set(totals) <= set(range(MAX_ERRORS + 1))
    assert all(totals[n] > 0.05 * len(pairs) for n in range(4))
    assert (counts.sum(0) > 0.03 * len(pairs)).all()  # every category occurs
    assert counts[:, 0].max() == MAX_ADDED


def notations(draft):
    return [sentence.notation for sentence in draft.sentences]


def test_without_an_error_the_findings_are_the_same(pairs):
    """Only order, words of one meaning, and statements without a finding differ."""
    clean = [(report, candidate) for report, candidate in pairs if not sum(candidate.counts)]
    assert len(clean) > 50
    assert sum(report.text != candidate.draft.text for report, candidate in clean) > 0.5 * len(clean)
    for report, candidate in clean:
        states = [Counter(s.labels for s in draft.sentences if not _is_idle(s.notation))
                  for draft in (report, candidate.draft)]  # fmt: skip
        assert states[0] == states[1]


def test_counts_of_findings_are_those_of_the_labels(pairs):
    """Made-up findings bring new topics and omitted ones take theirs: gold labels, made apart, agree."""
    for report, candidate in pairs:
        a, b = candidate.counts[:2]
        n = [sum(_has_finding(s) for s in draft.sentences) for draft in (report, candidate.draft)]
        assert n[1] - n[0] == a - b
        topics = [
            set().union(*(s.topics for s in draft.sentences if _has_finding(s))) for draft in (report, candidate.draft)
        ]
        assert len(topics[1] - topics[0]) >= (a > 0)


@pytest.mark.parametrize(
    ("error", "before", "after"),
    [
        ("_misplace", "small:o left:a pleural:A effusion:O #PE", "small:o right:a pleural:A effusion:O #PE"),
        ("_misplace", "right:a upper:a lobe:A left:a pneumonia:O #PN", None),  # two places: which is wrong?
        ("_misplace", "no left:a pleural:A effusion:N #PE!", None),
        ("_misjudge", "massive:o left:a pleural:A effusion:O #PE", "small:o left:a pleural:A effusion:O #PE"),
        ("_misjudge", "left:a pleural:A effusion:O #PE", None),
        ("_make_up_comparison", "mild:o cardiomegaly:O #CM", "mild:o cardiomegaly:O #CM , unchanged:o from prior"),
        ("_make_up_comparison", "stable:o cardiomegaly:O #CM", None),
        ("_make_up_comparison", "clear:O lungs:A", None),
        ("_leave_out_comparison", "stable:o cardiomegaly:O #CM", "cardiomegaly:O #CM"),
        ("_leave_out_comparison", "cardiomegaly:O #CM , worse:o from prior", "cardiomegaly:O #CM"),
        ("_leave_out_comparison", "new:o cardiomegaly:O #CM , worse:o from prior", None),  # two comparisons
        ("_leave_out_comparison", "edema:O #ED , unchanged:o , and left:a effusion:O #PE", None),
        ("_leave_out", "mild:o cardiomegaly:O #CM", ""),
        ("_leave_out", "stable:o cardiomegaly:O #CM", None),  # it would take the comparison with it
        ("_leave_out", "edema:O #ED | and effusion:O #PE", None),  # two findings
    ],
)
def test_each_error_is_one_change(error, before, after):
    idle = _Edit("no pneumothorax:N #PT!")
    sentences = [idle, _Edit(before)]
    changed = getattr(synthetic_errors, error)(sentences, set(), always(0.0))
    assert changed == (after is not None)
    found = [edit.notation for edit in sentences]
    assert found == [idle.notation, *([before] if after is None else [after] if after else [])]
    assert [edit.is_wrong for edit in sentences[1:]] == [True] * bool(after) or after is None
    wrong = [idle, _Edit(before, True)]
    assert not getattr(synthetic_errors, error)(wrong, set(), always(0.0))  # one error a sentence


def test_the_last_sentence_stays():
    sentences = [_Edit("cardiomegaly:O #CM")]
    assert not synthetic_errors._leave_out(sentences, set(), always(0.0))


def test_what_is_made_up_is_new(pairs):
    draw = np.random.default_rng(0).random
    every = set(range(14))
    assert not synthetic_errors._make_up([], set(every), draw)
    for _ in range(30):
        sentences, topics = [], {0, 1, 2}
        assert synthetic_errors._make_up(sentences, topics, draw)
        sentence = compile_sentence(sentences[0].notation)
        assert topics == {0, 1, 2} | sentence.topics
        assert not sentence.topics & {0, 1, 2}
        assert not _compares(sentence.notation)


def test_the_same_seed_gives_the_same_candidates():
    found = [[(c.draft.text, c.counts) for _, c in candidates(40, seed, split)]
             for seed, split in ((1, "test"), (1, "test"), (2, "test"), (1, "train"))]  # fmt: skip
    assert found[0] == found[1]
    assert found[0] not in found[2:]


def test_files(written, tmp_path):
    again = write_synthetic(tmp_path / "again", 30, 12, seed=4, errors=True)
    plain = write_synthetic(tmp_path / "plain", 30, 12, seed=4)
    assert {name: path.read_bytes() for name, path in again.items()} == {n: p.read_bytes() for n, p in written.items()}
    assert all(written[name].read_bytes() == path.read_bytes() for name, path in plain.items())
    for split, n in (("train", 30), ("test", 12)):
        reports, made = (read_table(written[name]) for name in (split, f"{split}_candidates"))
        assert made.column("study_id").to_list() == reports.column("study_id").to_list()
        found = [candidate for _, candidate in candidates(n, 4, split)]
        assert made.column("report").to_list() == [candidate.draft.text for candidate in found]
        ratings = read_ratings(written[f"{split}_errors"])
        assert ratings.pairs == made.column("study_id").to_list()
        assert ratings.counts.shape == (n, 1, 6, 2)
        assert np.array_equal(ratings.counts[:, 0, :, 1], [candidate.counts for candidate in found])
        assert not ratings.counts[..., 0].any()
        graphs = read_graphs(written[f"{split}_candidates_graphs"])
        assert len(graphs.keys) == n
        labels = read_table(written[f"{split}_candidates_labels"])
        assert labels.n_rows == n


def test_graphs_are_of_the_candidates(written):
    import json

    graphs = json.loads(written["test_candidates_graphs"].read_text())
    table = read_table(written["test_candidates"])
    for study, text in zip(table.column("study_id"), table.column("report"), strict=True):
        tokens = graphs[str(study)]["text"].split()
        assert "".join(tokens) == re.sub(r"\s", "", text)
        for entity in graphs[str(study)]["entities"].values():
            assert tokens[entity["start_ix"] : entity["end_ix"] + 1] == entity["tokens"].split()
