"""Make `temporal.json`: keywords and Temporal F1 of RadEval for the texts of `published.json`.

    python tests/golden/make_temporal.py FOLDER/radeval/metrics/f1temporal/f1temporal.py

The argument is a file of the package radeval 2.2.1, which runs as it is, but for Stanza: a stand-in finds no entities.
Of these the published code keeps keywords alone, which its regular expression finds too.
"""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

HOME = Path(__file__).parent
NASTY = (
    "Un-changed; WORSENING, new/worse stable_stably\nimproved",
    "New newer renewed NEW.",
    "(___, __, __) increased --- decreased",
    "unchanged/stable unchanged\u2028stable",
    "no progression; progressive!resolution",
    "ünchanged stable\u00e9 'stable' \"larger\"",
)

stanza = ModuleType("stanza")
stanza.Pipeline = lambda **options: lambda text: SimpleNamespace(entities=[])
sys.modules["stanza"] = stanza
spec = importlib.util.spec_from_file_location("f1temporal", sys.argv[1])
published = importlib.util.module_from_spec(spec)
spec.loader.exec_module(published)

golden = json.loads((HOME / "published.json").read_text(encoding="utf-8"))
texts = [*(text for text, *_ in golden["texts"]), *NASTY]
n = len(texts)
pairs = [(i, (7 * i + 3) % n) for i in range(n)] + [(i, i) for i in range(0, n, 9)]
content = {
    "made_by": "radeval 2.2.1, Stanza's entities left out",
    "texts": [[text, sorted(published.extract_entities(text, published.KEYWORDS))] for text in texts],
    "pairs": [[i, j, published.calculate_tem_score(texts[i], texts[j])["f1"]] for i, j in pairs],
}
(HOME / "temporal.json").write_text(json.dumps(content, indent=0, ensure_ascii=True) + "\n", encoding="utf-8")
