"""Every source as a function of the texts: the same values in memory, in files, and from models that stand in for real.

What a source gives for a report follows from its text alone, so that each route must end in the same answers.
"""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.corpora.entities import TYPES, EntityTable
from metric_oracle.corpora.label_tables import LABELS
from metric_oracle.encoders.ratescore import Recognised
from support import write

CELL = {0: "", 1: 1, 2: 0, 3: -1}


def graphs(texts: Sequence[str]) -> dict[str, Any]:
    """Return RadGraph's answer: every word is an entity, absent after "no"; "no" and "mild" modify the next word."""
    found = {}
    for place, text in enumerate(texts):
        words = text.split()
        entities = {
            str(i): {
                "tokens": word,
                "label": "OBS-DA" if words[i - 1] == "no" else "OBS-DP",
                "relations": [["modify", str(i + 1)]] if word in ("no", "mild") and i + 1 < len(words) else [],
            }
            for i, word in enumerate(words)
        }
        found[str(place)] = {"text": text, "entities": entities}
    return found


def vectors(texts: Sequence[str]) -> np.ndarray:
    """Return a vector for each text; few differ, so that scores tie."""
    return np.array([[len(text) % 5 + 1.0, text.count("e"), 1 + text.count("m")] for text in texts], np.float32)


def classes(texts: Sequence[str]) -> np.ndarray:
    """Return CheXbert's 14 classes for each text; its head for "No Finding" knows no negative and no uncertain."""
    found = np.array([[(len(text) * place + text.count("e")) % 4 for place in range(14)] for text in texts], np.uint8)
    found[:, -1] %= 2
    return found


def label_sets(texts: Sequence[str]) -> list[dict[str, int]]:
    """Return a table of SRR-BERT's kind: 1 for the labels that a report has."""
    return [{f"label {n}": (len(text) * n + text.count("e")) % 3 % 2 for n in range(1, 8)} for text in texts]


def partial_labels(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return a table of labels, some of whose cells are missing."""
    cells = (1, 0, None)
    return [{f"finding {n}": cells[(len(text) * n + text.count("m")) % 3] for n in range(1, 5)} for text in texts]


def entities(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return an entity with a vector for each word."""
    return [
        {
            "types": [TYPES[len(word) % len(TYPES)] for word in text.split()],
            "vectors": [[len(word), word.count("e"), 1.5] for word in text.split()],
        }
        for text in texts
    ]


def sentences(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return a sentence vector for each word that is not "no", so that some reports have none."""
    return [
        {"vectors": [[len(word) - 4, word.count("e"), 0.5] for word in text.split() if word != "no"]} for text in texts
    ]


def _write_json(path: Path, ids: Sequence[str], made: Any) -> Path:
    rows = made.values() if isinstance(made, dict) else made
    path.write_text(json.dumps(dict(zip(ids, rows, strict=True))), encoding="utf-8")
    return path


def _write_npz(path: Path, ids: Sequence[str], made: np.ndarray) -> Path:
    np.savez(path, ids=np.array(ids), embeddings=made)
    return path


def _write_classes(path: Path, ids: Sequence[str], made: np.ndarray) -> Path:
    rows = ([i, *(CELL[c] for c in row)] for i, row in zip(ids, made.tolist(), strict=True))
    return write(path, rows, ("study_id", *LABELS))


def _write_table(path: Path, ids: Sequence[str], made: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["study_id", *made[0]])
        writer.writerows([i, *row.values()] for i, row in zip(ids, made, strict=True))
    return path


class Case(NamedTuple):
    """A source: its argument, a metric that reads it, its values as a function of texts, and how its file is written.

    `model` is the file name of a model that makes it, "" where there is none; `settings` are other arguments.
    """

    argument: str
    metric: str
    make: Callable[[Sequence[str]], Any]
    write: Callable[[Path, Sequence[str], Any], Path]
    ending: str
    model: str = ""
    settings: Mapping[str, Any] = MappingProxyType({})

    def file(self, folder: Path, ids: Sequence[str], texts: Sequence[str]) -> dict[str, Any]:
        """Write the source of some reports into a file; return the arguments that name it."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.argument}{self.ending}"
        return {self.argument: self.write(path, ids, self.make(texts)), **self.settings}

    def function(self) -> dict[str, Any]:
        """Return the arguments that give it as a function of texts."""
        return {self.argument: self.make, **self.settings}

    def models(self, folder: Path) -> dict[str, Any]:
        """Return the arguments that name a model, whose file or folder is made here and read by nothing."""
        path = folder / self.model
        path.mkdir(exist_ok=True) if not path.suffix else path.touch()
        argument = "chexbert" if self.argument == "chexbert_labels" else self.argument
        return {argument: path, **self.settings}


CASES = {
    "radgraph": Case("radgraph", "radgraph", graphs, _write_json, ".json", "radgraph.tar.gz"),
    "chexbert": Case("chexbert", "chexbert", vectors, _write_npz, ".npz", "chexbert.pth"),
    "embedding": Case("embeddings", "embedding", vectors, _write_npz, ".npz"),
    "labels": Case(
        "chexbert_labels",
        "chexbert:labels",
        classes,
        _write_classes,
        ".csv",
        "chexbert.pth",
        MappingProxyType({"uncertain": "blank"}),
    ),
    "label_table": Case("labels", "labels:f1", partial_labels, _write_table, ".csv"),
    "srr": Case("srr_labels", "srr-bert", label_sets, _write_table, ".csv"),
    "entities": Case("entities", "ratescore", entities, _write_json, ".json", "RaTE-NER"),
    "sentences": Case("sentences", "sentences", sentences, _write_json, ".json"),
}


class _Stand:
    """What the stand-ins have in common: they take what the real models take, and say so in a signature."""

    def __init__(self, path: Any, *, device: str = "auto", function: str = "", **files: Any) -> None:
        self.signature = {"model": Path(path).name, "sha256": "0" * 64}

    @staticmethod
    def _keep(scratch: Path | None, name: str, texts: Sequence[str], progress: Any) -> None:
        if scratch is not None:
            scratch.mkdir(parents=True, exist_ok=True)
            (scratch / f"{name}-000000.part").write_text("kept")
        if progress is not None:
            progress(len(texts))


class RadGraph(_Stand):
    """In the place of `encoders.radgraph.RadGraph`."""

    def annotate(self, texts: Sequence[str], *, progress: Any = None, scratch: Path | None = None) -> dict[str, Any]:
        self._keep(scratch, "radgraph", texts, progress)
        return graphs(texts)


class CheXbert(_Stand):
    """In the place of `encoders.chexbert.CheXbert`."""

    def encode(self, texts: Sequence[str], *, progress: Any = None, scratch: Path | None = None) -> Any:
        self._keep(scratch, "chexbert", texts, progress)
        return vectors(texts), classes(texts), 0


class EntityModels(_Stand):
    """In the place of `encoders.ratescore.EntityModels`."""

    def recognise(self, texts: Sequence[str], *, progress: Any = None, scratch: Path | None = None) -> Recognised:
        self._keep(scratch, "entities", texts, progress)
        made = entities(texts)
        kinds = [TYPES.index(kind) for report in made for kind in report["types"]]
        table = EntityTable(
            [str(i) for i in range(len(texts))],
            np.cumsum([0, *(len(report["types"]) for report in made)]).astype(np.int64),
            np.array(kinds, np.uint8),
            np.array([v for report in made for v in report["vectors"]], np.float32).reshape(len(kinds), 3),
        )
        words = [word for text in texts for word in text.split()]
        return Recognised(table, words, np.arange(len(texts)), 0)


def stand_in(patch: Any) -> None:
    """Let the stand-ins be opened in the place of the models."""
    for name, model in (("radgraph", RadGraph), ("chexbert", CheXbert), ("ratescore", EntityModels)):
        patch.setattr(f"metric_oracle.encoders.{name}.{model.__name__}", model)
