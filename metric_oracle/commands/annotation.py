"""What `oracle annotate` does: graphs, embeddings or labels of reports, into files that every command reads back."""

import csv
import io
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from metric_oracle.commands.inputs import is_model
from metric_oracle.commands.options import Models
from metric_oracle.errors import InputError

_CELL = {0: "", 1: "1", 2: "0", 3: "-1"}  # of CheXbert's classes, as its label files have them


def check_annotation(radgraph: Path | None, chexbert: Path | None, out: Path | None) -> Path:
    """Return the file to write, or raise unless one model was given that makes such a file."""
    given = [path for path in (radgraph, chexbert) if path is not None]
    if len(given) != 1:
        msg = f"annotate: one of --radgraph and --chexbert must be given; got {len(given)}. Run it once for each."
        raise InputError(msg)
    if not is_model(given[0]):
        msg = f"annotate: models must be a RadGraph .tar.gz or chexbert.pth; got {given[0]}. Pass the model's file."
        raise InputError(msg)
    endings = (".json",) if chexbert is None else (".npz", ".csv")
    if out is None or out.suffix.lower() not in endings:
        msg = f"annotate: out must end with {' or '.join(endings)} for this model; got {out}. Name such a file."
        raise InputError(msg)
    return out


def annotate(
    ids: Sequence[str], texts: Sequence[str], out: Path, *, radgraph: Path | None, chexbert: Path | None,
    models: Models, tell: Callable[[str], None], progress: Callable[[int], None],
) -> None:  # fmt: skip
    """Run a model over reports and write what it makes; a killed run resumes with the parts that it finished."""
    from metric_oracle.retrieval.results import replacing

    scratch = out.with_name(f".{out.name}.annotating")
    run = _graphs if radgraph is not None else _vectors if out.suffix.lower() == ".npz" else _labels
    content, signature = run(radgraph or chexbert, ids, texts, models, tell, {"progress": progress, "scratch": scratch})
    with replacing("annotate", out, out.with_name(f"{out.name}.signature.json")) as (beside, of_signature):
        beside.write_bytes(content)
        of_signature.write_text(json.dumps(signature, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(scratch, ignore_errors=True)


def _graphs(
    archive: Any, ids: Sequence[str], texts: Sequence[str], models: Models, tell: Any, running: dict[str, Any]
) -> tuple[bytes, dict[str, Any]]:
    from metric_oracle.encoders.radgraph import RadGraph

    device = models.device or "auto"
    model = RadGraph(archive, encoder=models.radgraph_encoder, device=device, function="annotate")
    found = model.annotate(texts, **running)
    return json.dumps({study: found[str(i)] for i, study in enumerate(ids)}).encode(), model.signature


def _encoded(
    checkpoint: Any, texts: Sequence[str], models: Models, tell: Any, running: dict[str, Any]
) -> tuple[Any, Any, dict[str, Any]]:
    from metric_oracle.encoders.chexbert import CheXbert

    device = models.device or "auto"
    model = CheXbert(checkpoint, vocabulary=models.vocabulary, device=device, function="annotate")
    embeddings, classes, n_truncated = model.encode(texts, **running)
    if n_truncated:
        tell(f"{n_truncated:,} of {len(texts):,} reports are longer than CheXbert takes: their ends are cut off")
    return embeddings, classes, dict(model.signature)


def _vectors(
    checkpoint: Any, ids: Sequence[str], texts: Sequence[str], models: Models, tell: Any, running: dict[str, Any]
) -> tuple[bytes, dict[str, Any]]:
    import numpy as np

    embeddings, _, signature = _encoded(checkpoint, texts, models, tell, running)
    held = io.BytesIO()
    np.savez(held, ids=np.array(list(ids)), embeddings=embeddings)
    return held.getvalue(), signature


def _labels(
    checkpoint: Any, ids: Sequence[str], texts: Sequence[str], models: Models, tell: Any, running: dict[str, Any]
) -> tuple[bytes, dict[str, Any]]:
    from metric_oracle.corpora.vectors import LABELS

    _, classes, signature = _encoded(checkpoint, texts, models, tell, running)
    held = io.StringIO()
    writer = csv.writer(held, lineterminator="\n")
    writer.writerow(["study_id", *LABELS])
    writer.writerows(
        [study, *(_CELL[value] for value in row)] for study, row in zip(ids, classes.tolist(), strict=True)
    )
    return held.getvalue().encode(), signature
