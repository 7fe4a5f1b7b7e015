"""Results that pages show: of a small synthetic corpus, and of texts that try to break out of a page."""

from typing import NamedTuple

import pytest

import metric_oracle as mo
from metric_oracle.explorer.cases import Cases, read_cases
from support.pages import NASTY, made_up, written


@pytest.fixture(scope="session")
def nasty() -> Cases:
    """Return cases whose ids and texts are hostile, 120 of them, so that there are three pages."""
    ids = [f"{NASTY[i % len(NASTY)]}{i}" for i in range(120)]
    references = [NASTY[(i + 2) % len(NASTY)] for i in range(120)]
    return read_cases(
        [
            made_up(ids, texts=NASTY, k=2),
            made_up(ids, "rouge-l", texts=NASTY[1:], seed=2),
            made_up(ids, "radgraph", texts=NASTY, seed=3),
            made_up(ids, "bleu-2", "random", texts=NASTY, k=3, seed=4, draws=3),
            written(ids, NASTY, references),
        ]
    )


class Prepared(NamedTuple):
    """An index, prepared test reports, and the files of results over them."""

    index: object
    queries: object
    files: list
    folder: object


@pytest.fixture(scope="session")
def prepared(corpus, tmp_path_factory) -> Prepared:
    """Build index and test set of the synthetic corpus with graphs and labels, and write results."""
    folder = tmp_path_factory.mktemp("pages")
    for side, name in (("train", "INDEX"), ("test", "TESTS")):
        mo.build_index(
            mo.reports(
                corpus[side],
                radgraph=corpus[f"{side}_graphs"],
                chexbert_labels=corpus[f"{side}_labels"],
                uncertain="negative",
            ),
            folder / name,
        )
    index, queries = mo.open_index(folder / "INDEX"), mo.reports(folder / "TESTS").load()
    files = []
    for metric in ("bleu-2", "rouge-l", "radgraph", "chexbert:labels"):
        files.append(folder / f"{metric.replace(':', '-')}.parquet")
        mo.retrieve(index, queries, metric, k=2).write(files[-1])
    files.append(folder / "random.parquet")
    mo.baseline(index, queries, "random", "bleu-2", draws=3).write(files[-1])
    files.append(folder / "model.parquet")
    scores = mo.score(folder / "TESTS", dict(zip(queries.ids, index.reports["text"].to_pylist(), strict=False)),
                       ["bleu-2", "rouge-l"], system="model", text=True)  # fmt: skip
    scores.write(files[-1])
    return Prepared(index, queries, files, folder)
