"""The commands table and study."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_given, check_left_out
from metric_oracle.base.declarations import OUTPUT, ROWS, Flag, declarations
from metric_oracle.base.option_types import TABLES
from metric_oracle.commands.command import Call, command
from metric_oracle.commands.inputs import (
    TESTS,
    TEXTS,
    check_models,
)
from metric_oracle.commands.output import (
    Destination,
    deliver_finding,
    note,
    progress,
)
from metric_oracle.commands.shared_options import FORMATS, Foreign

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "oracle table R2Gen=r2gen.parquet WCL=wcl.parquet --out table.md",
    'oracle table "BLEU oracle=bleu.csv" R2Gen=r2gen.csv random=random.csv \\\n'
    '--random random --oracle "bleu=BLEU oracle" --paired R2Gen,random',
    "oracle table R2Gen=r2gen.parquet --foreign R2Gen=green.csv",
    "oracle table STUDY --without identity --digits 2 --out table.tex",
    panel=ROWS,
    endings=TABLES,
    formats=FORMATS,
    plot=True,
    name="table",
)
def compare(
    call: Call, to: Destination, *, foreign: Foreign | None = None, directions: option_types.Directions | None = None
) -> None:
    """Add the scores of other tools to the rows, or read those of a study."""
    systems: dict[str, list[Any]] = call.values["systems"]
    folder = _study(systems)
    if folder is None:
        for name, scores in read_foreign_files(foreign, directions):
            systems.setdefault(name, []).append(scores)
    else:
        from metric_oracle.tables.study import compare_study

        own = {name: value for name, value in call.values.items() if name in ("random", "oracles", "paired")}
        own |= {"foreign": foreign, "directions": directions}
        check_left_out(own, "with the folder of a study")
        shared = {name: value for name, value in call.values.items() if name in declarations(compare_study)}
        call = replace(call, function=compare_study, values={**shared, "systems": folder})
    deliver_finding(to, call.tracked("table"))


def _study(systems: Mapping[str, Sequence[Any]]) -> str | Path | None:
    """Return the folder of a study, if one is given in the place of all files; None for files."""
    given = [file for files in systems.values() for file in files]
    is_folder = len(given) == 1 and isinstance(given[0], str | Path) and Path(given[0]).is_dir()
    return given[0] if is_folder else None


def read_foreign_files(
    foreign: Mapping[str, Sequence[str | Path]] | None, directions: Mapping[str, str] | None
) -> list[tuple[str, Any]]:
    """Return pairs of the name of a system and its scores by another tool, from --foreign and --direction."""
    from metric_oracle.tables.foreign import read_foreign

    if directions:
        step = "Add `foreign=NAME=FILE`, or leave `directions` out."
        check_given("directions", foreign or None, "with scores of another tool", step, got="none")
    return [(name, read_foreign(name, file, directions)) for name, files in (foreign or {}).items() for file in files]


@command(
    app,
    "oracle study INDEX test r2gen WCL=wcl.csv -m bleu,radgraph --out study",
    reports={"queries": TESTS, "models": TEXTS},
    formats=FORMATS,
)
def study(
    call: Call,
    to: Destination,
    *,
    overlap: Annotated[
        bool,
        Doc(
            "Also write overlap.md and overlap.csv into the folder of the study: what the reports of models and the "
            "test reports copy from the corpus, as oracle overlap measures it. Needs --out."
        ),
        Flag(panel=OUTPUT),
    ] = False,
    pairs: Annotated[
        Path | None,
        Doc(
            "Write a file of pairs for a judge that runs elsewhere, and no study: all that the judge of the study has "
            "no score for yet. When the files of its entry in oracle.toml have the scores, the same command line "
            "without --pairs makes the study."
        ),
        Flag(metavar="FILE", panel=OUTPUT),
    ] = None,
    interval: option_types.IntervalMethod = "bca",
    seed: option_types.Seed = 0,
) -> None:
    """Make the table, and write the folder."""
    from metric_oracle.findings.writing import check_folder, check_out
    from metric_oracle.indexes.shards import open_index
    from metric_oracle.judges.given import parted
    from metric_oracle.projects import write_study_project
    from metric_oracle.tables.study import compare_study, study_pairs
    from metric_oracle.tables.study_folder import write_study

    out = call.values.get("out")
    if out is not None:
        check_folder(out)
    elif overlap:
        advice = "Add `out=FOLDER`, or leave out `overlap`."
        check_given("out", out, "with `overlap`", advice, got="none")
    if pairs is not None:
        check_out(pairs, to.inputs, argument="pairs")
        given = {name: value for name, value in {**call.values, "overlap": overlap}.items() if value is not False}
        check_left_out(given, "with `pairs`", allowed=declarations(study_pairs))
    tests = call.values["queries"]
    check_models(tests)
    models = call.values.get("models") or call.attach["models"]({})
    index = open_index(call.values["index"])
    if pairs is not None:
        with progress("pool") as step:
            asked = {**call.values, "index": index, "models": models, "progress": step}
            found = study_pairs(**{name: asked[name] for name in declarations(study_pairs) if name in asked})
        found.write(pairs)
        judged = found.signature["pool"]["judged"]
        note(f"{pairs}: {found.table.num_rows:,} distinct pairs{f'; {judged:,} others are judged' if judged else ''}")
        return
    threads = call.values.get("threads")
    copies = _copies(index, tests, models, call.values["inner"], seed, threads) if overlap else None
    with progress("study") as step:
        systems = call(index=index, models=models, progress=step, tell=note)
        compared = compare_study(systems, step, method=interval, seed=seed)
    to.out = out
    table = "" if out is None else f"; the table is {out / 'table.md'}, and table.tex, table.csv beside it"
    deliver_finding(
        to,
        compared,
        summary=f"{compared.summary()}{table}",
        write=partial(write_study, systems, compared),
        brief=compared.brief,
    )
    if out is not None:
        judges = parted(call.values.get("metrics"))[1]
        write_study_project(out, index.folder, tests, models, judges)
    if copies is not None and out is not None:
        for name in ("overlap.md", "overlap.csv"):
            copies.write(out / name)
        note(f"{out / 'overlap.md'}: {copies.summary()}")


def _copies(index: Any, tests: Any, rows: dict[str, Any], inner: bool, seed: int, threads: int | None) -> Any:
    """Return the report on copies in the reports of models, `rows`, and in the test reports.

    With `inner`, of the test reports only those count that every model has.
    """
    from metric_oracle.copies.overlap import overlap
    from metric_oracle.indexes.shards import is_prepared
    from metric_oracle.sides import Sides
    from metric_oracle.tables.study_inputs import OF_STUDY

    sides = Sides.of(tests, rows, OF_STUDY)
    kept = [] if is_prepared(tests.data) else [name for name in tests.column_names() if name in index.columns]
    sides = sides.read(index.section[0], keep=kept)
    truth = sides.read_truth
    if inner:
        written = [set(one.ids) for one in sides.written.values()]
        truth = truth.take([row for row, study in enumerate(truth.ids) if all(study in ids for ids in written)])
    with progress("overlap") as step:
        return overlap(
            index, sides.predictions, replace(truth, is_loaded=True), seed=seed, threads=threads, progress=step
        )
