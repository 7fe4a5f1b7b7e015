"""RadCliQ as a composite: the published tables from their means, the end of the scale, the constants; its record."""

import json
from pathlib import Path

import numpy as np
import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.kernels.sum.score import composite
from metric_oracle.metrics import COMPOSABLE, SEARCHED, get_metric
from metric_oracle.metrics import composite as record_of
from metric_oracle.retrieval.kernels import load_reference

# Tables S5 to S7 of Yu et al. (Patterns 2023): BLEU, BERTScore, CheXbert, RadGraph F1, RadCliQ.
PUBLISHED = json.loads((Path(__file__).parents[1] / "golden/published_tables.json").read_text(encoding="utf-8"))["rows"]
PARTS = ("radgraph", "bertscore", "chexbert", "bleu-2")
RADCLIQS = ("radcliq", "radcliq:v0", "radcliq:preprint")


def radcliq(metric: str, *values: float) -> float:
    """Return the kernel's score of the values of PARTS; those without a weight are not looked at."""
    record = get_metric(metric)
    of_part = dict(zip(PARTS, values, strict=True))
    return composite([of_part[part] for part in record.terms], record.terms.values(), record.intercept)


def by_hand(metric: str, values: dict[str, float]) -> float:
    recorded = get_metric(metric).recorded
    parts = recorded["terms"].items()
    return recorded["intercept"] + sum(t["weight"] * (values[part] - t["mean"]) / t["scale"] for part, t in parts)


@pytest.mark.parametrize("model", PUBLISHED)
def test_the_published_tables_are_v1_of_their_means(model):
    bleu, bertscore, chexbert, radgraph, printed = PUBLISHED[model]
    # Means of three decimals leave half a unit each: 0.0005 * (1.245 + 1.651 + 0.995) and the printed one's own.
    assert radcliq("radcliq", radgraph, bertscore, chexbert, bleu) == pytest.approx(printed, abs=0.0025)


def test_eight_rows_agree_within_a_thousandth():
    errors = [abs(radcliq("radcliq", g, b, c, bleu) - printed) for bleu, b, c, g, printed in PUBLISHED.values()]
    assert sum(error < 0.0015 for error in errors) >= 11


def test_a_perfect_pair_has_the_least_value():
    assert radcliq("radcliq", 1.0, 1.0, 1.0, 1.0) == pytest.approx(-1.4407, abs=5e-5)
    # 2.45014 - 1.24522 RadGraph - 1.65085 BERTScore - 0.99477 s_emb, as the published numbers say it.
    nothing = radcliq("radcliq", 0.0, 0.0, 0.0, 0.0)
    assert nothing == pytest.approx(2.45014, abs=1e-4)
    for place, slope in ((0, -1.24522), (1, -1.65085), (2, -0.99477)):
        values = [0.0] * 4
        values[place] = 1.0
        assert radcliq("radcliq", *values) - nothing == pytest.approx(slope, abs=1e-4)


def test_bleu_counts_where_its_weight_does():
    change = {m: radcliq(m, 0.5, 0.5, 0.5, 1.0) - radcliq(m, 0.5, 0.5, 0.5, 0.0) for m in RADCLIQS}
    assert change["radcliq:v0"] == pytest.approx(0.2165861905287535 / 0.30336670936092264)  # predicts more errors
    assert change["radcliq"] == 0.0
    assert change["radcliq:preprint"] == pytest.approx(-0.559 / 0.30336670936092264)


@pytest.mark.parametrize("metric", RADCLIQS)
def test_the_score_is_the_regression(metric):
    rng = np.random.default_rng(0)
    for values in rng.uniform(-1, 1, (50, 4)).tolist():
        assert radcliq(metric, *values) == pytest.approx(by_hand(metric, dict(zip(PARTS, values, strict=True))))


def test_v0_has_its_intercept_at_the_means():
    recorded = get_metric("radcliq:v0").recorded
    means = [recorded["terms"][part]["mean"] for part in PARTS]
    assert radcliq("radcliq:v0", *means) == pytest.approx(recorded["intercept"]) == 1.641666666666666


def test_the_reference_scores_the_parts_by_their_own_scorers():
    graph = ({("edema", "OBS-DP")}, set(), set(), set())
    empty = (set(), set(), set(), set())
    pair = {"radgraph": graph, "ngrams": ("edema",)}, {"radgraph": graph, "ngrams": ("edema",)}
    plain = load_reference(get_metric("radcliq:preprint"))
    value, parts = plain(*pair)
    assert parts == {"radgraph": 0.5, "bleu-2": pytest.approx(0.1**0.5)}
    assert value == by_hand("radcliq:preprint", parts)
    worse, _ = plain({"radgraph": empty, "ngrams": ()}, pair[1])
    assert worse > value


# The record of a composite


def test_a_composite_reads_what_its_parts_read():
    metric = record_of("composite", {"bleu-4": (0, 1, 1), "bleu": (0, 1, 1), "radgraph:rg_e": (0, 1, 1)}, 0, "x")
    assert metric.representations == ("ngrams", "radgraph")
    assert list(metric.terms) == ["bleu-4", "bleu-2", "radgraph:rg_e"]
    assert metric.settings == ()
    assert get_metric("radcliq").settings == ("idf", "rescale")
    assert set(COMPOSABLE) == {
        name
        for name in SEARCHED
        if name
        not in (
            *RADCLIQS,
            "cider-d",
            "crg",
            "embedding",
            "ratescore",
            "ratescore:short",
            "sentences",
            "bertscore:precision",
            "bertscore:recall",
        )
    }


@pytest.mark.parametrize(
    ("terms", "got"),
    [
        ({}, "none"),
        ({"crg": (0, 1, 1)}, "'crg'"),
        ({"radcliq": (0, 1, 1)}, "'radcliq'"),
        ({"bleu": (0, 1, 1), "bertscore:recall": (0, 1, 1)}, "'bertscore:recall'"),
        ({"bleu": (0, 1, 1), "bleu-2": (0, 1, 1)}, "one twice"),
    ],
)
def test_terms_that_cannot_be(terms, got):
    match = rf"^terms must be among {', '.join(COMPOSABLE)}, each once; got {got}\. Choose others\.$"
    with pytest.raises(InputError, match=match):
        record_of("composite", terms, 0.0, "x")


def test_a_term_that_is_no_metric():
    with pytest.raises(InputError, match=r"^metric must be one of .*; got 'bluu'\. Did you mean 'bleu'\?$"):
        record_of("composite", {"bluu": (0, 1, 1)}, 0.0, "x")


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "numbers",
    [(NAN, 1, 1), (0, NAN, 1), (0, 1, NAN), (INF, 1, 1), (0, INF, 1), (0, 1, -INF), (0, 0, 1), (0, -1, 1), (0, 1, 0),
     (0, 1e-300, 1e300), (1e300, 1e-100, 1)],
)  # fmt: skip
def test_numbers_that_cannot_be(numbers):
    match = (
        r"^mean, scale and weight must be below 1e\+100 \(mean and weight also over scale\), scale above 0 and weight "
        r"other than 0; got .* for 'rouge-l'\. Fit it again, or leave the metric out\.$"
    )
    with pytest.raises(InputError, match=match):
        record_of("composite", {"bleu": (0, 1, 1), "rouge-l": numbers}, 0.0, "x")


@pytest.mark.parametrize("intercept", [NAN, INF])
def test_an_intercept_that_cannot_be(intercept):
    with pytest.raises(InputError, match=r"^intercept must be below 1e\+100; got .*\. Fit the composite again\.$"):
        record_of("composite", {"bleu": (0, 1, 1)}, intercept, "x")


def test_a_composite_without_weights():
    match = (
        r"^weights must be given for metric 'composite'; got none\. Pass the file that `mo\.fit_composite` wrote; "
        r"an index is built for the metrics of its terms\.$"
    )
    with pytest.raises(InputError, match=match):
        get_metric("composite")
