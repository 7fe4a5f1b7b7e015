"""The folder of a finished study: the scores of each row, the oracles' reports, the table and a figure."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from annotated_doc import Doc

from metric_oracle.base.files import LOCK, move_folder
from metric_oracle.findings.results import Scores
from metric_oracle.tables.comparison import Comparison
from metric_oracle.tables.study_steps import file_name, study_job


def write_study(
    systems: Annotated[
        Mapping[str, Scores],
        Doc("Scores by name of the row, which [`study`][metric_oracle.study] returned."),
    ],
    comparison: Annotated[
        Comparison, Doc("Their table, which [`compare_study`][metric_oracle.compare_study] returned.")
    ],
    out: Annotated[str | Path, Doc("New folder of the study.")],
) -> None:
    """Write a study into its folder: the scores of each system, the table and a figure of it.

    The table is written as Markdown, LaTeX and CSV, the figure only if Matplotlib is installed. The folder
    ``<out>.unfinished``, where [`study`][metric_oracle.study] kept its steps, is renamed when everything is written.

    Raises
    ------
    InputError
        If the folder exists, or its files cannot be written.

    Examples
    --------
    >>> index = mo.build_index("train.csv", "INDEX")
    >>> systems = mo.study(index, "test.csv", {"strong": "strong.csv"}, metrics="bleu", out="study")
    >>> mo.write_study(systems, mo.compare_study(systems, resamples=1000), "study")
    """
    out = Path(out)
    with study_job(out) as job:
        tables = [f"table{ending}" for ending in (".md", ".tex", ".csv")]
        figures = ["table.png"] if find_spec("matplotlib") else []
        files = [*(f"{file_name(name)}.parquet" for name in systems), *tables, "table.csv.signature.json", *figures]
        job.claim(*(name for name in files if name not in job.pieces), made_of="")
        for name, scores in systems.items():
            scores.write(job.folder / f"{file_name(name)}.parquet")
        for name in (*tables, *figures):
            comparison.write(job.folder / name)
        job.record(*files)
        move_folder(job.folder, out)
        (out / LOCK).unlink()
