"""The plug-in for mbrs, with the real package: its decoder chooses what `consensus` chooses."""

import math
import random
from pathlib import Path

import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.scores.rewards import Scorer

pytest.importorskip("mbrs", reason="mbrs is not installed: nox -s mbrs")
pytestmark = pytest.mark.filterwarnings("ignore")  # of packages that are not ours

FOLDER = Path(mo.__file__).parent / "samples" / "plugins" / "metric_oracle_mbrs"
WORDS = ("no", "acute", "edema", "small", "left", "effusion", "clear")


@pytest.fixture(scope="module")
def plugin():
    """Return the metric, found as by --plugin_dir."""
    from mbrs.args import ArgumentParser
    from mbrs.metrics import get_metric

    ArgumentParser().import_plugin(FOLDER)
    return get_metric("metric_oracle")


def groups(seed):
    """Return groups of texts that repeat; an empty text would not score 1 with itself."""
    draw = random.Random(seed)
    pool = [" ".join(draw.choices(WORDS, k=draw.randint(1, 6))) for _ in range(9)]
    return {f"s{study}": draw.choices(pool, k=draw.choice((1, 2, 3, 8))) for study in range(12)}


@pytest.mark.parametrize("metric", ["rouge-l", "bleu", "rouge-l:coco"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_decoder_chooses_the_consensus(plugin, metric, weighted):
    from mbrs.decoders import DecoderMBR
    from torch import Tensor

    made = plugin(plugin.Config(metric=metric))
    decoder = DecoderMBR(DecoderMBR.Config(), made)
    samples = groups(metric)
    draw = random.Random(1)
    rows = [
        {"id": study, "candidates": group, "logprobs": [draw.uniform(-3, 0) for _ in group]}
        for study, group in samples.items()
    ]
    ours = mo.consensus(rows, metric, weighted=weighted)
    name = next(iter(ours.chosen))
    for study, row in enumerate(rows):
        group, matrix = row["candidates"], ours.matrices[name][study]
        assert made.pairwise_scores(group, group).tolist() == matrix.tolist()
        assert made.pairwise_scores(group, group[::-1]).tolist() == matrix[:, ::-1].tolist()
        assert made.score(group[0], group[-1]) == matrix[0, -1]
        # mbrs counts a sample as its own reference, too; the score with itself is the same for all samples here,
        # so that without weights the order is that of the consensus.
        chosen = decoder.decode(group, group, reference_lprobs=Tensor(row["logprobs"]) if weighted else None)
        weights = [math.exp(value) if weighted else 1.0 for value in row["logprobs"]]
        expected = [sum(w * s for w, s in zip(weights, line, strict=True)) / sum(weights) for line in matrix.tolist()]
        assert expected[chosen.idx[0]] == pytest.approx(max(expected), abs=1e-6)
        if not weighted and len(group) > 1:
            utilities = ours.utilities[name][study]
            assert utilities[chosen.idx[0]] == pytest.approx(utilities[ours.chosen[name][study]], abs=1e-12)


def test_lower_is_better(plugin, monkeypatch):
    from mbrs.decoders import DecoderMBR

    vectors = {"x": [[1.0, 0.0]], "y": [[0.8, 0.6]], "z": [[0.6, 0.8]]}
    scorer = Scorer.open("sentences", None, {"sentences": lambda texts: [vectors[text] for text in texts]})
    monkeypatch.setattr(Scorer, "open", lambda *given: scorer)
    made = plugin(plugin.Config(metric="sentences"))
    assert made.HIGHER_IS_BETTER is False
    group = ["x", "y", "z"]
    ours = mo.consensus(
        mo.reports({"a": group}, sentences={f"a/{i}": vectors[t] for i, t in enumerate(group)}), "sentences"
    )
    assert made.pairwise_scores(group, group).tolist() == ours.matrices["sentences"][0].tolist()
    chosen = DecoderMBR(DecoderMBR.Config(), made).decode(group, group)
    assert (chosen.idx, chosen.sentence) == (ours.chosen["sentences"], ["y"])


def test_misuse(plugin):
    with pytest.raises(
        InputError, match=r"sources must be NAME=FILE; got 'radgraph\.tar\.gz'\. Write for example radgraph="
    ):
        plugin(plugin.Config(sources=["radgraph.tar.gz"]))
    with pytest.raises(InputError, match=r"radgraph must be a model or a function of texts for metric 'radgraph'"):
        plugin(plugin.Config(metric="radgraph"))
