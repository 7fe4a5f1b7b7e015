"""Make `corpus_bleu.json`: pycocoevalcap's BLEU-1 to BLEU-4 of whole sets of raw texts.

    python tests/golden/make_corpus_bleu.py ../shared/data/iu_xray

The pairs are those of `meteor_cider.json`: real reports of IU X-ray, of which only ids are kept there, and the texts of
`published.json`, lower-cased and with a blank before each ".". The argument is the folder of the public tables,
../shared/data/iu_xray.
"""

import csv
import json
import sys
from importlib.metadata import version
from pathlib import Path

from pycocoevalcap.bleu.bleu import Bleu

HOME = Path(__file__).parent


def prepared(text):
    return text.lower().replace(".", " .")


published = json.loads((HOME / "published.json").read_text(encoding="utf-8"))
pairs_of = json.loads((HOME / "meteor_cider.json").read_text(encoding="utf-8"))["sets"]
with (Path(sys.argv[1]) / "indiana_reports.csv").open(encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file))
texts = {"published": {i: text for i, (text, *_) in enumerate(published["texts"])}}
texts |= {section: {row["uid"]: row[section] for row in rows} for section in ("impression", "findings")}
sets = {}
for name, pairs in pairs_of.items():
    sides = [{place: [prepared(texts[name][pair[side]])] for place, pair in enumerate(pairs)} for side in (1, 0)]
    sets[name] = Bleu(4).compute_score(*sides, verbose=0)[0]
content = {"made_by": f"pycocoevalcap {version('pycocoevalcap')}", "sets": sets}
(HOME / "corpus_bleu.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
