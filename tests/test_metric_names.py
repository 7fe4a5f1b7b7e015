"""Names of metrics are taken as tables and papers spell them; for another one the message is short, with a hint."""

import pickle
from collections import Counter

import pytest

import metric_oracle as mo
from metric_oracle import metrics
from metric_oracle.base.errors import InputError
from metric_oracle.metrics import ALIASES, METRICS, REPRESENTATIONS, SOURCES, find_metric, folded, get_metric


def test_a_name_is_of_one_record():
    """Folders are collected by name, where a second record of a name would replace the first."""
    assert [metric.name for metric in metrics._collected()] == list(METRICS)
    for metric in METRICS.values():
        for kind in (*metric.reads.parts, metric.reads) if len(metric.terms) == 1 else metric.reads.stored:
            assert REPRESENTATIONS[kind.name] == kind
            assert kind.source is None or SOURCES[kind.source.name] == kind.source
        assert pickle.loads(pickle.dumps(metric)) == metric


def test_spellings_are_of_one_metric():
    of_aliases = [(folded(alias), name) for alias, name in ALIASES.items()]
    meant = {*of_aliases, *((folded(one), name) for name, metric in METRICS.items() for one in (name, metric.title))}
    times = Counter(spelling for spelling, _ in meant)
    assert [spelling for spelling, n in times.items() if n > 1] == []


@pytest.mark.parametrize("name", METRICS)
def test_the_heads_of_our_tables_are_names(name):
    """A table for print has no spelling that is only one of ours, such as "jaccard:1", and no two heads are equal."""
    head = METRICS[name].title
    assert head[0].isupper()
    assert ":" not in head
    assert get_metric(head) is METRICS[name]


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("BLEU", "bleu-2"),
        ("BLEU-4", "bleu-4"),
        ("ROUGE_L", "rouge-l"),
        ("RadGraph F1", "radgraph"),
        ("RadCliQ", "radcliq"),
        ("CheXbert similarity", "chexbert"),
        ("CIDEr-D", "cider-d"),
    ],
)
def test_spellings(typed, name):
    assert find_metric(typed) is METRICS[name]


def test_the_command_line_takes_them(oracle, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("study_id,report\n1,clear\n2,small effusion\n")
    code, out, err = oracle("score", path, path, "-m", "BLEU-2,ROUGE-L", "--format", "csv")
    assert code == 0, err
    assert out.startswith('"query_id","bleu-2","rouge-l"')


OTHERS = r"Choose one \(docs/coming-from\.md has other names\), or name a judge in oracle\.toml\."


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("blew", r"Did you mean 'bleu'\?"),
        ("meteor", r"Did you mean 'meteor:nltk' or 'meteor:nltk-stems' or 'meteor:1\.5'\?"),
        ("green", OTHERS),
        ("sacrebleu", OTHERS),
        ("f1-chexbert", r"`mo\.score_f1_chexbert` computes it, from files of labels\."),
        ("CheXbert F1", r"`mo\.score_f1_chexbert` computes it, from files of labels\."),
        ("srrbert_weighted_f1", r"`mo\.score_f1_srr` computes it, from files of labels\."),
        ("CIDEr", r"Did you mean 'cider-d'\?"),
        ("ROGUE-L", r"Did you mean 'rouge-l'\?"),
    ],
)
def test_a_name_that_is_none_has_a_short_message(typed, hint):
    with pytest.raises(
        InputError, match=rf"^score: metric must be one of those that `mo.list_metrics` lists; got .*\. {hint}$"
    ) as error:
        mo.score(["a"], ["a"], typed)
    assert len(str(error.value)) < 170
