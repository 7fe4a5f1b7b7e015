"""Results that pages show, of texts that try to break out of a page, and a client that has the token."""

import html
import re

import numpy as np
import pyarrow as pa
from starlette.testclient import TestClient

from metric_oracle.explorer.cases import Cases
from metric_oracle.explorer.pages import Explorer
from metric_oracle.findings.results import Results, Scores
from metric_oracle.web import server

PORT, TOKEN = 8123, "t" * 43
OWN = f"http://127.0.0.1:{PORT}"
POST = {"sec-fetch-site": "same-origin", "origin": OWN}
NASTY = (
    "<script>alert(1)</script> effusion",
    '"quotes" \' & &amp; </p></textarea> effusion',
    "a\u2028b\u2029c effusion",
    "\u202egnp.exe\u202c \u200f effusion",
    "nul \0 esc \x1b effusion",
    "  leading\n\nblank lines\t effusion ",
    "{{ 7 * 7 }} {% raw %} effusion",
)


def bare(page: str) -> str:
    """Return the text of a piece of a page without elements, numbers of partners and what only ears meet."""
    return html.unescape(re.sub(r'<sup.*?</sup>|<span class="hidden">.*?</span>|<[^>]*>', "", page))


def made_up(queries, metric="bleu-2", baseline=None, k=1, texts=None, seed=0, **signature) -> Results:
    """Return results with random scores; candidates have the `texts` in turn."""
    rng = np.random.default_rng(seed)
    n = len(queries) * k
    table = {
        "query_id": pa.array(np.repeat(np.array(queries, object), k).tolist(), pa.large_string()),
        "rank": np.tile(np.arange(1, k + 1), len(queries)),
        "row": rng.integers(0, 50, n),
        "candidate_id": pa.array([f"c<{i}>" for i in range(n)], pa.large_string()),
        "score": np.round(rng.random(n), 2),
        "n_ties": rng.integers(1, 2000, n),
        "fallback": rng.random(n) < 0.2,
        "exact": rng.random(n) > 0.1,
    }
    if texts is not None:
        table["text"] = pa.array([texts[i % len(texts)] for i in range(n)], pa.large_string())
    more = {} if baseline is None else {"baseline": baseline}
    return Results(pa.table(table), {"metric": metric, "direction": "higher", "k": k, **more, **signature})


def written(queries, texts, references, system="<model>", seed=1) -> Scores:
    """Return scores of a system with the texts of both sides; the first cannot be scored."""
    values = np.round(np.random.default_rng(seed).random(len(queries)), 2).tolist()
    columns = {
        "query_id": pa.array(queries, pa.large_string()),
        "bleu-2": pa.array([None, *values[1:]], pa.float64()),
        "reference": pa.array(references, pa.large_string()),
        "prediction": pa.array([texts[-1 - i % len(texts)] for i in range(len(queries))], pa.large_string()),
    }
    how = {"direction": "higher", "source": "as in a tool"}
    return Scores(pa.table(columns), {"kind": "scores", "system": system, "metrics": {"bleu-2": how}})


def client_of(cases: Cases) -> TestClient:
    app = server.guarded(Explorer(cases).routes(), port=PORT, guests={TOKEN: "reader"})
    client = TestClient(app, base_url=OWN)
    assert client.get(f"/?token={TOKEN}").status_code == 200
    return client
