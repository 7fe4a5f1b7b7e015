"""Make `f1_chexbert.json`: F1 of scikit-learn over real CheXbert labels, each study against another's.

    python tests/golden/make_f1_chexbert.py ../shared/data/iu_xray

Kept are ids and scores alone.
"""

import csv
import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
from sklearn.metrics import f1_score

FIVE = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")

with (Path(sys.argv[1]) / "chexbert_labels_organ.csv").open(encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file))
names = [name for name in rows[0] if name not in ("", "Id")]
ids = sorted(row["Id"] for row in rows)
of_id = {row["Id"]: [row[name] for name in names] for row in rows}
# Every fourth study keeps its own labels; the others get those of a neighbour.
pairs = [(ids[7 * i], ids[7 * i] if i % 4 == 0 else ids[(7 * i + 3) % len(ids)]) for i in range(len(ids) // 7)]
scores = []
for labels, columns in (("14", names), ("5", FIVE)):
    for uncertain in ("positive", "negative", "blank"):
        positive = {"1.0": 1, "-1.0": int(uncertain == "positive")}
        sides = [
            np.array([[positive.get(of_id[pair[side]][names.index(name)], 0) for name in columns] for pair in pairs])
            for side in (0, 1)
        ]
        for average in ("micro", "macro", "samples"):
            scores.append([labels, uncertain, average, f1_score(*sides, average=average, zero_division=0)])
content = {"made_by": f"scikit-learn {version('scikit-learn')}", "pairs": pairs, "scores": scores}
text = json.dumps(content).replace("], [", "],\n[")
(Path(__file__).parent / "f1_chexbert.json").write_text(text + "\n", encoding="utf-8")
