"""Make `meteor_jar.json`: METEOR 1.5 of pycocoevalcap's wrapper around the Java program, over the texts as they are.

    python tests/golden/make_meteor_jar.py ../shared/data/iu_xray

The pairs are every second one of `meteor_cider.json`: real reports of IU X-ray, of which ids and scores alone are kept.
After them come some made-up texts. Java must read UTF-8: LC_ALL=C.UTF-8.
"""

import csv
import json
import sys
from importlib.metadata import version
from pathlib import Path

from pycocoevalcap.meteor.meteor import Meteor

HOME = Path(__file__).parent
MADE_UP = [["", "a b"], ["a b", ""], ["", ""], ["No œdème.", "no œdème ."], [". . .", "."]]
# Java cuts at other white space than Python. Line breaks, which end a line that the program reads, are left out.
APART = "\t\v\f\x1c\x1f\x85\xa0\xad\u1680\u2009\u200b\u2028\u202f\u3000\ufeff"
MADE_UP += [[f"No acute{c}process . Small{c}effusion", "no acute process. small effusion"] for c in APART]
MADE_UP += [[reference, candidate] for candidate, reference in MADE_UP[-len(APART) :]]
MADE_UP += [["no|||acute  process", "no acute process"]]

pairs_of = json.loads((HOME / "meteor_cider.json").read_text(encoding="utf-8"))["sets"]
with (Path(sys.argv[1]) / "indiana_reports.csv").open(encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file))
pairs = [[section, *pair[:2]] for section in ("impression", "findings") for pair in pairs_of[section][::2]]
texts = {(section, row["uid"]): row[section] for row in rows for section in ("impression", "findings")}
both = [*((texts[section, one], texts[section, other]) for section, one, other in pairs), *MADE_UP]
sides = [{place: [pair[side]] for place, pair in enumerate(both)} for side in (1, 0)]
whole, scores = Meteor().compute_score(*sides)
content = {
    "made_by": f"meteor-1.5.jar of pycocoevalcap {version('pycocoevalcap')}",
    "corpus": whole,
    "pairs": [[*pair, score] for pair, score in zip(pairs, scores, strict=False)],
    "made_up": [[*pair, score] for pair, score in zip(MADE_UP, scores[len(pairs) :], strict=True)],
}
text = json.dumps(content).replace("], [", "],\n[")
(HOME / "meteor_jar.json").write_text(text + "\n", encoding="utf-8")
