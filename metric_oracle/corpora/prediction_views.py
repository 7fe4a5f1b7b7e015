"""Predictions of images as predictions of studies: the image of each study is chosen by its view, as in Yu et al."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metric_oracle.base.errors import InputError, option
from metric_oracle.corpora.missing import is_missing
from metric_oracle.corpora.prediction_files import Keys
from metric_oracle.corpora.tables import canonical_ids, read_table, shown_names

_FRONTAL = {"AP", "PA"}
_VIEW_OF_CODE = {"antero-posterior": "AP", "postero-anterior": "PA"}


def text_of_chosen_image(
    keys: Keys, texts: Sequence[str | None], metadata: Path, seed: int, path: str | Path
) -> dict[str, str | None]:
    """Return id of a study -> text of one of its images, chosen by the rule of Yu et al.

    That is a random frontal image, or if there is none, a random other one; the study and `seed` decide. `keys` and
    `texts` are those of the rows, `metadata` is MIMIC-CXR's table of images, and `path` is for messages.
    """
    if keys.images is None:
        raise InputError(
            "metadata",
            "must be left out for predictions without image ids",
            f"{metadata} for {path}",
            f"Leave out {option('metadata')}.",
        )
    study_of, view_of = _read_metadata(metadata)
    unknown = [image for image in keys.images if image not in study_of]
    if unknown:
        raise InputError(
            f"{metadata} lacks {len(unknown)} images of the predictions: {shown_names(unknown[:3])}.",
            "Pass the metadata of this data set.",
        )
    text_of: dict[str, str | None] = {}
    images_of: dict[str, list[str]] = {}
    for row, (image, text) in enumerate(zip(keys.images, texts, strict=True)):
        study = study_of[image]
        if (keys.studies is not None and keys.studies[row] != study) or text_of.setdefault(image, text) != text:
            raise InputError(
                f"{path} has image {shown_names([image])} with two texts, or in another study than the metadata.",
                "Repair the file.",
            )
        images_of.setdefault(study, []).append(image)
    chosen = {}
    for study, images in images_of.items():
        pool = sorted({image for image in images if view_of[image] in _FRONTAL} or set(images))
        # A seed for each study, so that its choice does not depend on other predictions.
        chosen[study] = text_of[random.Random(f"{seed} {study}").choice(pool)]
    return chosen


def _read_metadata(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Return image -> study, and image -> view. A missing view is derived from the meaning of its numeric code."""
    table = read_table(path)
    cells = [table.column(name) for name in ("dicom_id", "study_id", "ViewPosition")]
    images = canonical_ids(cells[0], f"'dicom_id' in {path}")
    studies = canonical_ids(cells[1], f"'study_id' in {path}")
    code = "ViewCodeSequence_CodeMeaning"
    codes = table.column(code) if code in table.names else [None] * len(images)
    views = [
        _VIEW_OF_CODE.get(str(meaning)) if is_missing(view) else view
        for view, meaning in zip(cells[2], codes, strict=True)
    ]
    return dict(zip(images, studies, strict=True)), dict(zip(images, views, strict=True))
