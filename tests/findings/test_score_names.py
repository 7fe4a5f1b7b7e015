"""Directions of the score columns of other tools."""

import pytest

from metric_oracle.findings.score_names import direction_of
from metric_oracle.metrics import ALIASES, METRICS


@pytest.mark.parametrize(
    "name",
    [
        *("RadCliQ", "radcliq_v1", "RadCliQ-V1", "RadCliQ-v0", "radcliq:v0", "RADCLIQ v1", "radcliq_score"),
        *("crepe", "crepe_score", "CREPE", "(b) Missing a finding present in the reference", "1/GREEN"),
    ],
)
def test_lower_is_better(name: str) -> None:
    assert direction_of(name) == "lower"


@pytest.mark.parametrize(
    "name",
    [
        *("bleu_score", "BLEU-2", "bertscore", "BertScore", "semb_score", "SembScore", "radgraph_combined", "rougeL"),
        *("radgraph_simple", "radgraph_radcliq", "RaTEScore", "green", "green_score", "crimson", "CRIMSON_score"),
        *("1/RadCliQ-v1", "1 / radcliq", "Matched Findings", "radfact_ct_f1", "srr_bert_weighted_f1", "ROUGE-L"),
    ],
)
def test_higher_is_better(name: str) -> None:
    assert direction_of(name) == "higher"


@pytest.mark.parametrize(
    "name", ["n_tokens", "score", "", "1/", "FineRadScore", "1/FineRadScore", "green_std", "bleu-2.brevity_penalty"]
)
def test_an_unknown_column_has_no_direction(name: str) -> None:
    assert direction_of(name) is None


def test_the_registry_decides_its_own_names() -> None:
    assert len(METRICS) > 20
    for name, metric in {**METRICS, **{alias: METRICS[of] for alias, of in ALIASES.items()}}.items():
        assert direction_of(name) == ("higher" if metric.higher_is_better else "lower"), name
