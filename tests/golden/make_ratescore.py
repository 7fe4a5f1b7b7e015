"""Make `ratescore.json`: RaTEScore of the package ratescore 0.6.0 over the made-up entities of `support.entities`.

    PYTHONPATH=.:tests python tests/golden/make_ratescore.py FOLDER

FOLDER has the unpacked wheel. Its code runs as it is, but for the models: stand-ins give entities and vectors, these as
float64, in which PyTorch then computes.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch

from support.entities import made_up

for name in ("medspacy", "pandas", "safetensors"):
    sys.modules.setdefault(name, ModuleType(name))
sys.modules["medspacy"].load = lambda **options: None
sys.path.insert(0, sys.argv[1])
published = import_module("RaTEScore.scorer")

pairs = made_up()
published.run_ner = lambda texts, *models: [pairs[int(text[1:])][text[0] == "r"] for text in texts]
published.process_embedding = lambda pair, *models: (
    torch.tensor([vector.tolist() for _, vector in pair], dtype=torch.float64), [kind.upper() for kind, _ in pair]
)  # fmt: skip
scores = {}
for name, matrix in (("ratescore", published.DEFAULT_MATRIX_LONG), ("ratescore:short", published.DEFAULT_MATRIX_SHORT)):
    tool = object.__new__(published.RaTEScore)
    tool.affinity_matrix = {tuple(key.upper().split("_")): value for key, value in matrix.items()}
    tool.idx2label = tool.tokenizer = tool.model = tool.eval_tokenizer = tool.eval_model = tool.device = None
    tool.batch_size, tool.visualization_path = 1, None
    found = tool.compute_score(*([f"{side}{i}" for i in range(len(pairs))] for side in "cr"))
    scores[name] = found[0] if isinstance(found, tuple) else found
content = {"made_by": "ratescore 0.6.0", "scores": scores}
text = json.dumps(content).replace(", ", ",\n")
(Path(__file__).parent / "ratescore.json").write_text(text + "\n", encoding="utf-8")
