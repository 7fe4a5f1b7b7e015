"""The example: a folder with synthetic files of every kind that the commands read, and commands to try."""

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from metric_oracle.base.argument_checks import check_new_folder
from metric_oracle.base.files import new_folder
from metric_oracle.corpora.reports import read_reports
from metric_oracle.projects import FILE
from metric_oracle.raters.ratings import CATEGORIES, ORACLES
from metric_oracle.synthetic.corpus import FIRST_ID, write_corpus, write_samples

N_REPORTS, N_TESTS = 400, 24
N_RATERS, N_SAMPLES = 3, 8
# Source of the rated candidates -> mean number of errors per category; in the order of ReXVal's candidate types.
WRITERS = {"strong": 0.15, "fair": 0.35, "weak": 0.6, "train": 0.8}
MODELS = ("strong", "fair", "weak")
COMMANDS = (
    "oracle reports",
    "oracle build-index train --out INDEX",
    'oracle retrieve INDEX --text "No acute cardiopulmonary process." -m rouge-l -k 3',
    "oracle retrieve INDEX test -m radgraph --out oracle.parquet",
    "oracle verify INDEX oracle.parquet test",
    "oracle baseline random INDEX test -m radgraph --out random.parquet",
    "oracle score test strong -m radgraph,bleu --out strong.parquet",
    (
        "oracle table oracle=oracle.parquet strong=strong.parquet random=random.parquet --random random "
        "--oracle radgraph=oracle"
    ),
    "oracle consensus samples -m radgraph,rouge-l --weighted --out chosen.csv",
    "oracle crg test_labels.csv strong_labels.csv --uncertain positive",
    "oracle align ratings.csv --samples samples.csv -m bleu,rouge-l",
    "oracle failure-modes ratings.csv",
)


def write_example(
    folder: str | Path, n_reports: int = N_REPORTS, n_tests: int = N_TESTS, *, seed: int = 0
) -> list[Path]:
    """Write a synthetic corpus, reports and samples of simulated models, and ratings with random error counts.

    `folder` must be new or empty. It gets its files when all of them are complete. The same seed gives the same bytes.
    Return the files, sorted by name; `COMMANDS` are to try in their folder, in this order.
    """
    folder = Path(folder)
    check_new_folder("folder", folder, may_be_empty=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(folder) as unfinished:
        files = write_corpus(unfinished, n_reports, n_tests, seed=seed, models=True)
        write_samples(unfinished, n_tests, N_SAMPLES, FIRST_ID + n_reports, seed=seed)
        paths = {name: unfinished / file for name, file in files.items()}
        _write_project(unfinished / FILE)
        _write_rated(unfinished, paths, np.random.default_rng(seed))
    return sorted(folder.iterdir())


def _write_project(path: Path) -> None:
    """Write an oracle.toml that names the reports and says what lies beside them."""
    lines = ["# What each set of reports is, said once. Commands take the names: oracle score test strong"]
    for name in ("train", "test", *MODELS):
        lines += [
            f"\n[reports.{name}]",
            f'file = "{name}.csv"',
            f'radgraph = "{name}_graphs.json"',
            f'chexbert-labels = "{name}_labels.csv"',
            'uncertain = "negative"',
        ]
    lines += ["\n[reports.samples]", 'file = "samples.jsonl"', 'radgraph = "samples_graphs.json"']
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_rated(folder: Path, paths: dict[str, Path], rng: np.random.Generator) -> None:
    """Write `samples.csv` and `ratings.csv` in ReXVal's layout, with random counts; `paths` are the corpus's files."""
    tests = read_reports(paths["test"])
    candidates = dict(zip(ORACLES, WRITERS, strict=True))
    texts = {name: read_reports(paths[writer]) for name, writer in candidates.items()}
    of_study = {name: dict(zip(reports.ids, reports.texts, strict=True)) for name, reports in texts.items()}
    # The ids of training reports are not those of test reports. Each test report gets another training report.
    of_study["radgraph"] = dict(zip(tests.ids, texts["radgraph"].texts, strict=False))
    studies = [study for study in tests.ids if all(study in text_of for text_of in of_study.values())]
    references = dict(zip(tests.ids, tests.texts, strict=True))
    rows: list[Iterable[object]] = [
        [study, references[study], *(text_of[study] for text_of in of_study.values())] for study in studies
    ]
    _write_csv(folder / "samples.csv", ["study_id", "gt_report", *candidates], rows)
    rates = np.array(list(WRITERS.values()))[None, :, None, None, None]
    counts = rng.poisson(rates, (len(studies), len(WRITERS), len(CATEGORIES), N_RATERS, 2))
    names = ["study_number", "candidate_type", "error_category", "rater_index", "clinically_significant", "num_errors"]
    rows = [
        [study, list(candidates)[candidate], list(CATEGORIES)[category], rater, bool(significant), count]
        for (study, candidate, category, rater, significant), count in np.ndenumerate(counts)
    ]
    _write_csv(folder / "ratings.csv", names, rows)


def _write_csv(path: Path, header: list[str], rows: Iterable[Iterable[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
