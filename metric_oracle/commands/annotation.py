"""What `oracle annotate` does: graphs, embeddings, labels, entities of reports, into files that commands read back."""

import csv
import io
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from metric_oracle.commands.inputs import is_model
from metric_oracle.commands.options import Models
from metric_oracle.errors import InputError

_CELL = {0: "", 1: "1", 2: "0", 3: "-1"}  # of CheXbert's classes, as its label files have them


_ENDINGS = {"radgraph": (".json",), "chexbert": (".npz", ".csv"), "entities": (".parquet",)}


def check_annotation(files: Mapping[str, Path | None], out: Path | None) -> Path:
    """Return the file to write, or raise unless one model was given that makes such a file."""
    found = {name: path for name, path in files.items() if path is not None}
    if len(found) != 1:
        msg = (
            "annotate: one of --radgraph, --chexbert and --entities must be given; "
            f"got {len(found)}. Run it once for each."
        )
        raise InputError(msg)
    ((name, model),) = found.items()
    if not is_model(model):
        msg = (
            "annotate: models must be a RadGraph .tar.gz, chexbert.pth or the folder of RaTE-NER; "
            f"got {model}. Pass the model."
        )
        raise InputError(msg)
    if out is None or out.suffix.lower() not in _ENDINGS[name]:
        msg = f"annotate: out must end with {' or '.join(_ENDINGS[name])} for this model; got {out}. Name such a file."
        raise InputError(msg)
    return out


def annotate(
    ids: Sequence[str], texts: Sequence[str], out: Path, *, files: Mapping[str, Path | None], models: Models,
    tell: Callable[[str], None], progress: Callable[[int], None],
) -> None:  # fmt: skip
    """Run a model over reports and write what it makes; a killed run resumes with the parts that it finished."""
    from metric_oracle.files import json_text, replacing

    scratch = out.with_name(f".{out.name}.annotating")
    makers = {".json": _graphs, ".npz": _vectors, ".csv": _labels, ".parquet": _entities}
    (model,) = (path for path in files.values() if path is not None)
    run = makers[out.suffix.lower()]
    content, signature = run(model, ids, texts, models, tell, {"progress": progress, "scratch": scratch})
    with replacing("annotate", out, out.with_name(f"{out.name}.signature.json")) as (beside, of_signature):
        beside.write_bytes(content)
        of_signature.write_text(json_text(signature), encoding="utf-8")
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


def _entities(
    folder: Any, ids: Sequence[str], texts: Sequence[str], models: Models, tell: Any, running: dict[str, Any]
) -> tuple[bytes, dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from metric_oracle.corpora.entities import TYPES
    from metric_oracle.encoders.ratescore import EntityModels

    device = models.device or "auto"
    model = EntityModels(folder, encoder=models.entity_encoder, device=device, function="annotate")
    found = model.recognise(texts, **running)
    if found.n_truncated:
        tell(found.cut_off())
    # One list for each distinct report, taken by row.
    ptr, width = pa.array(found.table.ptr), found.table.vectors.shape[1]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(found.table.vectors.reshape(-1)), width)
    columns = {
        "entities": pa.array(found.words, pa.string()),
        "types": pa.array([TYPES[kind] for kind in found.table.kinds], pa.string()),
        "vectors": vectors.cast(pa.list_(pa.float32())),
    }
    lists = {name: pa.LargeListArray.from_arrays(ptr, values) for name, values in columns.items()}
    of_row = pa.array(found.of_row)
    table = pa.table(
        {"study_id": pa.array(list(ids), pa.string()), **{n: some.take(of_row) for n, some in lists.items()}}
    )
    held = io.BytesIO()
    pq.write_table(table, held, compression="zstd")
    return held.getvalue(), model.signature
