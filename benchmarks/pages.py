"""The pages: seconds of requests from the first byte asked to the last one answered, without a browser's own time."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

import metric_oracle as mo
from benchmarks.data import Data
from metric_oracle.base.option_types import Baseline
from metric_oracle.bench.timing import SINGLE_WARM_UP, after_warm_up, repeated, single_queries, timed

_FILES: tuple[tuple[str, Baseline | None], ...] = (
    ("bleu", None),
    ("rouge-l", None),
    ("radgraph", None),
    ("bleu", "random"),
    ("bleu", "most-frequent"),
)
_PORT, _TOKEN = 8123, "t" * 43
_HOME = f"http://127.0.0.1:{_PORT}"


@contextmanager
def _client(cases: Any) -> Iterator[Any]:
    """Yield a client of the explorer that has its token."""
    from starlette.testclient import TestClient

    from metric_oracle.explorer.pages import Explorer
    from metric_oracle.web import server

    app = server.guarded(Explorer(cases).routes(), port=_PORT, guests={_TOKEN: "reader"})
    with TestClient(app, base_url=_HOME) as client:
        client.get("/", params={"token": _TOKEN})
        yield client


def live_query(data: Data) -> list[float]:
    """Return the seconds of live queries under the metrics that are ticked at first, BLEU-2 and ROUGE-L, warmed up."""
    from metric_oracle.explorer.cases import read_cases

    with _client(read_cases([], data.index)) as client:
        ticked = {"metric:bleu-2": "1", "metric:rouge-l": "1"}

        def ask(text: str) -> None:
            answer = client.post("/live", data={"text": text, **ticked}, headers={"origin": _HOME})
            assert answer.status_code == 200

        return after_warm_up([timed(partial(ask, query.texts[0])) for query in single_queries(data.queries)])


def first_page(data: Data, n: int) -> list[float]:
    """Return the seconds of the first page of a study of five files, the very first time and n more."""
    with _client(_study(data)) as client:
        return repeated(partial(_get, client, "/"), 1 + n)


def case_pages(data: Data, n: int) -> list[float]:
    """Return the seconds of the pages of n test reports of the same study, evenly spread, warmed up."""
    cases = np.linspace(0, len(data.queries.ids) - 1, n + SINGLE_WARM_UP).astype(int).tolist()
    with _client(_study(data)) as client:
        return after_warm_up([timed(partial(_get, client, f"/case/{case}")) for case in cases])


def _study(data: Data) -> Any:
    """Return the test reports with the results of five files."""
    from metric_oracle.explorer.cases import read_cases

    files = [
        mo.retrieve(data.index, data.queries, metric)
        if kind is None
        else mo.baseline(data.index, data.queries, kind, metric)
        for metric, kind in _FILES
    ]
    return read_cases(files, data.index, data.queries)


def _get(client: Any, path: str) -> None:
    assert client.get(path).status_code == 200
