"""Document frequencies are those of a named corpus, wherever scores are made; without one, scores are refused."""

from types import SimpleNamespace

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.findings.signature import short_signature
from metric_oracle.raters.rated_scores import score_texts
from metric_oracle.tables.compare import compare

pytestmark = pytest.mark.usefixtures("fake_encoder")
COUNTING = [("cider-d:corpus", {}), ("bertscore", {"idf": "corpus"})]


@pytest.fixture(scope="module")
def index(corpus, fake_encoder, tmp_path_factory):
    return mo.build_index(mo.reports(corpus["train"], encoder="bert"), tmp_path_factory.mktemp("counted") / "I")


@pytest.fixture(scope="module")
def shards(corpus, fake_encoder, tmp_path_factory):
    return mo.build_index(
        mo.reports(corpus["train"], encoder="bert"), tmp_path_factory.mktemp("counted") / "S", shard_rows=100
    )


@pytest.fixture(scope="module")
def tests(corpus):
    return mo.read_reports(corpus["test"])


def answers(index, tests, metric, settings):
    found = mo.retrieve(index, tests, metric, options=mo.SearchOptions(**settings))
    return found, dict(zip(found.table["query_id"].to_pylist(), found.table["text"].to_pylist(), strict=True))


@pytest.mark.parametrize(("metric", "settings"), COUNTING)
def test_predictions_are_weighted_by_the_corpus(index, shards, tests, metric, settings):
    found, texts = answers(index, tests, metric, settings)
    options = {"encoder": "bert"} if settings else {}
    scored = mo.score(mo.reports(tests, **options), texts, metric, index=index, options=mo.SearchOptions(**settings))
    assert scored.table[metric].to_pylist() == found.table["score"].to_pylist()
    in_set = mo.score(mo.reports(tests, **options), texts, metric, index=shards, options=mo.SearchOptions(**settings))
    assert in_set.table[metric].equals(scored.table[metric])
    few = dict(list(texts.items())[:3])  # whatever else is predicted
    with pytest.warns(UserWarning, match="^left out: 9 without a prediction$"):
        alone = mo.score(
            mo.reports(tests, **options), few, metric, index=index, inner=True, options=mo.SearchOptions(**settings)
        )
    assert alone.table[metric].to_pylist() == scored.table[metric].to_pylist()[:3]
    own = mo.build_index(mo.reports(texts, **options), index.folder.parent / f"own-{len(metric)}")
    assert (
        mo.score(mo.reports(tests, **options), texts, metric, index=own, options=mo.SearchOptions(**settings)).mean()
        != scored.mean()
    )


@pytest.mark.parametrize(("metric", "settings"), COUNTING)
def test_predictions_have_words_that_the_corpus_lacks(index, tests, metric, settings):
    texts = {i: f"{text} zebra zebra quagga" for i, text in zip(tests.ids, tests.texts, strict=True)}
    options = {"encoder": "bert"} if settings else {}
    scored = mo.score(mo.reports(tests, **options), texts, metric, index=index, options=mo.SearchOptions(**settings))
    matrix = mo.pairwise(
        list(texts.values()), metric, mo.reports(tests, **options), index=index, options=mo.SearchOptions(**settings)
    )
    assert np.array_equal(np.diag(matrix), scored.table[metric].to_numpy())


@pytest.mark.parametrize(("metric", "settings"), COUNTING)
def test_without_a_corpus_scores_are_refused(tests, metric, settings):
    options = mo.SearchOptions(**settings)
    tests = mo.reports(tests, **({"encoder": "bert"} if settings else {}))
    what = "idf 'corpus'" if settings else "metric 'cider-d:corpus'"
    step = r"which counts the documents of a corpus; got none\. "
    with pytest.raises(InputError, match=rf"^score: index must be given for {what}, {step}"):
        mo.score(tests, tests, metric, options=options)
    with pytest.raises(InputError, match=rf"index must be given for {what}, {step}"):
        mo.compute(references=tests, predictions=tests, metrics=metric, options=options)
    with pytest.raises(InputError, match=rf"^pairwise: index must be given for {what}, {step}"):
        mo.pairwise(tests, metric, options=options)


def test_a_corpus_without_what_is_counted(tests, tmp_path):
    small = mo.build_index(tests, tmp_path / "I", metrics="rouge-l")
    with pytest.raises(InputError, match=r"^score: metric must be one of rouge-l, jaccard.* got 'cider-d:corpus'"):
        mo.score(tests, tests, "cider-d:corpus", index=small)


def test_an_encoder_that_is_not_the_corpus_s(index, tests):
    with pytest.raises(
        InputError, match=r"^score: encoder must be the one of the index whose frequencies count, bert; "
    ):
        mo.score(
            mo.reports(tests, encoder="other"), tests, "bertscore", index=index, options=mo.SearchOptions(idf="corpus")
        )


def test_a_study_has_one_set_of_frequencies(index, tests):
    _, texts = answers(index, tests, "bleu", {})
    systems = mo.study(index, tests, {"same": texts}, metrics="cider-d:corpus,bleu")
    scored = mo.score(tests, texts, "cider-d:corpus", index=index)
    assert systems["same"].table["cider-d:corpus"].equals(scored.table["cider-d:corpus"])
    assert systems["same"].table["cider-d:corpus"].equals(systems["bleu-2 oracle"].table["cider-d:corpus"])


@pytest.mark.parametrize(("metric", "settings"), COUNTING)
def test_a_table_has_one_set_of_frequencies(index, tests, tmp_path, metric, settings):
    found, texts = answers(index, tests, metric, settings)
    tests, options = mo.reports(tests, **({"encoder": "bert"} if settings else {})), mo.SearchOptions(**settings)
    scored = mo.score(tests, texts, metric, index=index, options=options)
    assert scored.signature["metrics"][metric]["frequencies"] == index.fingerprint
    assert f"|frequencies:{index.fingerprint[:8]}|" in short_signature(scored.signature)
    table = compare({"model": scored, "oracle": found})
    assert len({table.cells[name, metric].mean for name in table.systems}) == 1
    other = mo.build_index(mo.reports(texts, **({"encoder": "bert"} if settings else {})), tmp_path / "I")
    apart = mo.score(tests, texts, metric, index=other, options=options)
    with pytest.raises(
        InputError,
        match=rf"^compare: 'b' was not scored as 'a': {metric}, frequencies is {other.fingerprint[:20]}.*, not "
        rf"{index.fingerprint[:20]}.*\. Score both again in the same way\.$",
    ):
        compare({"a": scored, "b": apart})


def test_rated_pairs_have_no_corpus():
    rated = SimpleNamespace(pairs=["1"], references=["small effusion"], predictions=["effusion"])
    match = r"^metrics must not count the documents of a corpus, which rated pairs do not have; got 'cider-d:corpus'"
    with pytest.raises(InputError, match=match):
        score_texts(rated, ["bleu", "cider-d:corpus"])


def test_a_reward_does_not_depend_on_company(index, tests):
    reward = mo.reward("cider-d:corpus", index=index)
    references, completions = tests.texts[:6], tests.texts[1:7]
    together = reward(completions=completions, reference=references)
    assert together == [
        reward(completions=[one], reference=[other])[0] for one, other in zip(completions, references, strict=True)
    ]
    assert len(set(together)) > 1
    with pytest.raises(InputError, match=r"^reward: index must be given for metric 'cider-d:corpus', which counts"):
        mo.reward("cider-d:corpus")
    match = r"^reward: metric must be such that the score of a pair depends on this pair alone; got '{}'\. "
    with pytest.raises(
        InputError, match=match.format("cider-d") + r"Use cider-d:corpus, which counts the reports of an"
    ):
        mo.reward("cider-d")
    with pytest.raises(InputError, match=match.format("crg") + r"Choose another\.$"):
        mo.reward("crg", sources={"chexbert_labels": lambda texts: np.zeros((len(texts), 14)), "uncertain": "positive"})
