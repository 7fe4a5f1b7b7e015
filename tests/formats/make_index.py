"""Write the small index of the current format that the tests open: ``python tests/formats/make_index.py``.

A dozen synthetic reports with gold graphs and labels, and the answers to three queries. Run it once for each new
format, and keep what it wrote for older ones.
"""

import json
import tempfile
from pathlib import Path

from metric_oracle import api
from metric_oracle.corpora.synthetic import write_synthetic
from metric_oracle.indexes.manifest import FORMAT_VERSION

METRICS = ("bleu", "rouge-l", "radgraph", "chexbert:labels")


def make_index(folder: Path) -> Path:
    """Write `format-N` into a folder: the index I, the queries' files, and the answers."""
    out = folder / f"format-{FORMAT_VERSION}"
    out.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        paths = write_synthetic(Path(scratch) / "corpus", 12, 3, seed=1)
        for side in ("", "_graphs", "_labels"):
            source = paths[f"test{side}"]
            (out / f"test{side}{source.suffix}").write_bytes(source.read_bytes())
        files = {"radgraph": paths["train_graphs"], "chexbert_labels": paths["train_labels"], "uncertain": "positive"}
        api.build_index(paths["train"], out / "I", metrics=METRICS, **files)
    (out / "answers.json").write_text(json.dumps(answers(out), indent=1) + "\n", encoding="utf-8")
    return out


def answers(folder: Path) -> dict[str, list]:
    """Return what the index of a folder answers: row and score of the two best of each query and metric."""
    found = {}
    for metric in METRICS:
        given = {"radgraph": folder / "test_graphs.json"} if metric == "radgraph" else {}
        if metric == "chexbert:labels":
            given = {"chexbert_labels": folder / "test_labels.csv", "uncertain": "positive"}
        queries = api.load_queries(folder / "test.csv", **given)
        table = api.retrieve(api.open_index(folder / "I"), queries, metric, k=2).table
        found[metric] = [table["row"].to_pylist(), table["score"].to_pylist()]
    return found


if __name__ == "__main__":
    print(make_index(Path(__file__).parent))
