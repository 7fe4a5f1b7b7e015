"""RadCliQ: the published tables from their means, the end of the scale, the sign of BLEU, the constants."""

import numpy as np
import pytest

from metric_oracle.kernels.radcliq.reference import score
from metric_oracle.kernels.radcliq.score import CONSTANTS, PARTS, radcliq, table

# Tables S5 to S7 of Yu et al. (Patterns 2023): BLEU, BERTScore, CheXbert, RadGraph F1, RadCliQ.
PUBLISHED = {
    "BLEU metric-oracle": (0.557, 0.661, 0.689, 0.476, 0.081),
    "BERTScore metric-oracle": (0.491, 0.721, 0.738, 0.498, -0.095),
    "CheXbert metric-oracle": (0.381, 0.573, 0.954, 0.403, 0.052),
    "RadGraph metric-oracle": (0.366, 0.541, 0.739, 0.677, -0.020),
    "CXR-RePaiR": (0.055, 0.193, 0.379, 0.090, 1.642),
    "random impression": (0.048, 0.222, 0.269, 0.050, 1.755),
    "M2 Trans": (0.220, 0.386, 0.452, 0.244, 1.059),
    "random findings": (0.123, 0.323, 0.235, 0.105, 1.553),
    "R2Gen": (0.137, 0.271, 0.286, 0.134, 1.552),
    "WCL": (0.144, 0.275, 0.309, 0.143, 1.511),
    "CvT2DistilGPT2": (0.143, 0.280, 0.335, 0.154, 1.463),
    "random both": (0.100, 0.256, 0.190, 0.090, 1.726),
}


def by_hand(variant: str, values: dict[str, float]) -> float:
    parts, intercept = CONSTANTS[variant]
    return intercept + sum(w * (values[part] - mean) / scale for part, (mean, scale, w) in parts.items())


@pytest.mark.parametrize("model", PUBLISHED)
def test_the_published_tables_are_v1_of_their_means(model):
    bleu, bertscore, chexbert, radgraph, printed = PUBLISHED[model]
    # Means of three decimals leave half a unit each: 0.0005 * (1.245 + 1.651 + 0.995) and the printed one's own.
    assert radcliq(radgraph, bertscore, chexbert, bleu, *table("v1")) == pytest.approx(printed, abs=0.0025)


def test_eight_rows_agree_within_a_thousandth():
    errors = [abs(radcliq(g, b, c, bleu, *table("v1")) - printed) for bleu, b, c, g, printed in PUBLISHED.values()]
    assert sum(error < 0.0015 for error in errors) >= 11


def test_a_perfect_pair_has_the_least_value():
    assert radcliq(1.0, 1.0, 1.0, 1.0, *table("v1")) == pytest.approx(-1.4407, abs=5e-5)
    # 2.45014 - 1.24522 RadGraph - 1.65085 BERTScore - 0.99477 s_emb, as the published numbers say it.
    assert radcliq(0.0, 0.0, 0.0, 0.0, *table("v1")) == pytest.approx(2.45014, abs=1e-4)
    for place, slope in ((0, -1.24522), (1, -1.65085), (2, -0.99477)):
        values = [0.0] * 4
        values[place] = 1.0
        assert radcliq(*values, *table("v1")) - radcliq(*[0.0] * 4, *table("v1")) == pytest.approx(slope, abs=1e-4)


def test_bleu_counts_where_its_weight_does():
    low, high = ({"radgraph": 0.5, "bertscore": 0.5, "chexbert": 0.5, "bleu": x} for x in (0.0, 1.0))
    change = {
        v: radcliq(*high.values(), *table(v)) - radcliq(*low.values(), *table(v)) for v in ("v0", "v1", "preprint")
    }
    assert change["v0"] == pytest.approx(0.2165861905287535 / 0.30336670936092264)  # a higher BLEU predicts more errors
    assert change["v1"] == 0.0
    assert change["preprint"] == pytest.approx(-0.559 / 0.30336670936092264)


@pytest.mark.parametrize("variant", CONSTANTS)
def test_the_score_is_the_regression(variant):
    rng = np.random.default_rng(0)
    for values in rng.uniform(-1, 1, (50, 4)).tolist():
        assert radcliq(*values, *table(variant)) == pytest.approx(
            by_hand(variant, dict(zip(PARTS, values, strict=True)))
        )


def test_v0_has_its_intercept_at_the_means():
    parts, intercept = CONSTANTS["v0"]
    assert radcliq(*(parts[part][0] for part in PARTS), *table("v0")) == pytest.approx(intercept) == 1.641666666666666


def test_the_reference_scores_only_the_parts_that_it_gets():
    graph = ({("edema", "OBS-DP")}, set(), set(), set())
    empty = (set(), set(), set(), set())
    pair = {"radgraph": graph, "bleu": ("edema",)}, {"radgraph": graph, "bleu": ("edema",)}
    value, parts = score(*pair, variant="preprint")
    assert parts == {"radgraph": 0.5, "bleu": pytest.approx(0.1**0.5)}
    assert value == by_hand("preprint", parts)
    worse, _ = score({"radgraph": empty, "bleu": ()}, pair[1], variant="preprint")
    assert worse > value
