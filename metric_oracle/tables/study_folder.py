"""The folder of a study: the scores of each row, the oracles' reports, the table, a picture."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from metric_oracle.retrieval.results import Scores
from metric_oracle.tables.comparison import Comparison
from metric_oracle.tables.comparison_layout import write
from metric_oracle.tables.comparison_plot import write_plot
from metric_oracle.tables.study_steps import LOCK, Written, check_folder, file_name, unfinished


def write_study(systems: Mapping[str, Scores], comparison: Comparison, out: str | Path) -> None:
    """Write the scores of each system and the table (Markdown, LaTeX, CSV; a picture), and rename the folder.

    What `run_study` kept for `out` is in the folder already; it gets its name when everything is there.
    """
    out = Path(out)
    check_folder(out)
    folder = unfinished(out)
    folder.mkdir(exist_ok=True)
    written = Written(folder)
    written.check()
    (folder / LOCK).touch()  # should this be killed: a study left it
    tables = [f"table{ending}" for ending in (".md", ".tex", ".csv")]
    figures = ["table.png"] if find_spec("matplotlib") else []
    files = [*(f"{file_name(name)}.parquet" for name in systems), *tables, "table.csv.signature.json", *figures]
    written.claim(*files)
    for name, scores in systems.items():
        scores.write(folder / f"{file_name(name)}.parquet")
    for table in tables:
        write(comparison, folder / table)
    for figure in figures:
        write_plot(comparison, folder / figure)
    written.finish(*files)
    (folder / LOCK).unlink()
    folder.rename(out)
