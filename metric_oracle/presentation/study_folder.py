"""The folder of a study: the scores of each row, the table, a picture."""

import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from metric_oracle.evaluation.comparison import Comparison
from metric_oracle.evaluation.study import check_folder, file_name
from metric_oracle.presentation.comparison_layout import write
from metric_oracle.presentation.comparison_plot import write_plot
from metric_oracle.retrieval.results import Scores


def write_study(systems: Mapping[str, Scores], comparison: Comparison, out: Path) -> None:
    """Write the scores of each system and the table (Markdown, LaTeX, CSV; a picture) into a new folder."""
    check_folder(out)
    unfinished = out.with_name(f".{out.name}.unfinished-{os.getpid()}")
    unfinished.mkdir()
    try:
        for name, scores in systems.items():
            scores.write(unfinished / f"{file_name(name)}.parquet")
        for ending in (".md", ".tex", ".csv"):
            write(comparison, unfinished / f"table{ending}")
        if find_spec("matplotlib"):
            write_plot(comparison, unfinished / "table.png")
        unfinished.rename(out)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
