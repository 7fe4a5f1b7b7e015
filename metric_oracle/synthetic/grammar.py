"""The tables from which synthetic chest X-ray impressions are drawn: `grammar.toml`, which explains its notation."""

import tomllib
from importlib.resources import files

# In the order of metric_oracle.corpora.label_tables.LABELS.
LABEL_CODES = ("EC", "CM", "LO", "LL", "ED", "CO", "PN", "AT", "PT", "PE", "PO", "FX", "SD", "NF")

_CONTENT = tomllib.loads((files("metric_oracle.synthetic") / "grammar.toml").read_text("utf-8"))
TABLES: dict[str, str] = _CONTENT["tables"]
IMPRESSIONS: str = _CONTENT["impressions"]

# Tables whose alternatives are equally likely and too regular to write out. Times stop at 12:59 and lengths at 12.9 cm.
NUMBER_TABLES = {
    "num": [str(n) for n in range(2, 13)],
    "cm": [f"{whole}.{part}+cm:o" for whole in range(1, 13) for part in range(10)],
    "mm": [f"{n}+mm:o" for n in [*range(3, 30), *range(3, 16), *range(4, 10)]],
    "dist": [f"{whole}.{part}+cm:o" for whole in range(1, 8) for part in range(10)]
    + [f"{n}+cm:o" for n in range(2, 8)] * 10,
    "time": [f"{h}:{m:02d} {half}" for h in range(1, 13) for m in range(60) for half in ("a.m.", "p.m.")],
}
