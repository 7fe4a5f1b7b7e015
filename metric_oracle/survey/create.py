"""Makes a survey in which radiologists count errors in reports, by the protocol of Yu et al. (Patterns 2023).

The defaults are the paper's (methods; supplement figures S1 and S2): 50 studies drawn at random, each with the
metric-oracles of several metrics, unnamed and in an order shuffled for each study, and six categories of errors,
each counted as clinically significant or insignificant. The instructions settle what the paper leaves open.

A survey is a folder. ``survey.json`` has the texts that raters see, without ids and origins. ``key.json`` has the
origin of each candidate; only the export opens it, so the server cannot reveal it.
``ratings/<rater>.jsonl`` are the logs (`survey.log`), with a file beside each. ``links.json`` has
the secrets in the raters' addresses.
"""

import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.checksum import write_sealed
from metric_oracle.base.declarations import Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import checksum, identify, new_folder, write_json
from metric_oracle.base.option_types import RESULTS
from metric_oracle.base.validation import Checked, public
from metric_oracle.corpora.label_tables import LABELS, labels_of_table
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.sections import check_sections
from metric_oracle.corpora.tables import (
    canonical_ids,
    changed_as_ids,
    check_unique,
    file_ending,
    is_missing,
    read_table,
)
from metric_oracle.corpora.text_files import read_text
from metric_oracle.findings.results import FIXED, Results, read_results, read_scores
from metric_oracle.findings.writing import check_folder
from metric_oracle.indexes.shards import section_of
from metric_oracle.raters.ratings import CATEGORIES
from metric_oracle.reading import AttachedReports, Given, attached
from metric_oracle.retrieval.search_signature import digest
from metric_oracle.sides import Nouns, Sides
from metric_oracle.survey.folder import FORMAT, VERSION, Survey, open_survey
from metric_oracle.survey.log import Log

STUDIES = 50  # default number of studies, as in the paper
# RadEvalX (Calamida et al., 2024) adds two categories to the six of ReXVal.
SETS = {
    "rexval": CATEGORIES,
    "radevalx": {
        **CATEGORIES,
        "7": "mention of uncertainty that is not in the reference",
        "8": "omission of uncertainty that is in the reference",
    },
}
INSTRUCTIONS = """\
Goal: judge how accurate candidate reports are, against a reference report of the same study.

Each study has one reference and several candidates, written by hypothetical models. For each candidate, count the \
errors of every category, the clinically significant ones and the insignificant ones.

An error is clinically significant if it could change what is done for the patient.
Count a fault in one category only, the one that describes it best.
An empty cell is no answer. Where there is no error, enter 0.
Candidates of the same meaning get the same counts; some are the same word for word.
"""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,39}")
_RATER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
POSITIVE = 1  # value of a positive CheXbert label


@dataclass(frozen=True)
class SurveyOptions(Checked, call="options=mo.SurveyOptions({})"):
    """How a survey draws its studies, and how it shows them.

    Examples
    --------
    >>> mo.SurveyOptions(studies=20, order="per-rater").categories
    'rexval'
    """

    studies: Annotated[option_types.Positive, Doc("Number of studies to draw.")] = STUDIES
    repeats: Annotated[
        option_types.Count,
        Doc(
            "Number of studies that are shown a second time at the end, with their candidates in a new order, to "
            "measure how well each rater agrees with their own first answers."
        ),
    ] = 0
    identical: Annotated[
        option_types.Identical,
        Doc(
            "How candidates of a study with equal texts are rated: {}. once shows the text once and counts the answer "
            "for each of them; show shows each, as in the paper."
        ),
    ] = "once"
    categories: Annotated[
        str | Path,
        Doc(
            "Error categories that raters count: rexval (six), radevalx (eight), or a text file with one category per "
            "line."
        ),
        Flag(kind=str),
    ] = "rexval"
    instructions: Annotated[
        str | Path | None,
        Doc("Text file with the instructions that raters see. By default built-in instructions are shown."),
    ] = None
    unequal: Annotated[
        bool,
        Doc(
            "Allow studies for which some files of candidates have no report. By default every file must have one for "
            "each drawn study."
        ),
    ] = False
    stratify: Annotated[
        str | Path | Mapping[str, str] | None,
        Doc(
            "Table with CheXbert labels (the stratum of a study is its rarest positive finding, or none) or with one "
            "column of strata beside the ids; it must have every reference. In Python also a dict of reference id to "
            "stratum. About equally many studies of each stratum are then drawn. By default every study is equally "
            "likely, as in the paper."
        ),
        Flag(metavar="FILE", kind=Path),
    ] = None
    order: Annotated[
        option_types.Order,
        Doc(
            "Order of studies and candidates: {}. shared is one random order for all raters; per-rater is another "
            "random order for each. Repeated studies are last in both."
        ),
    ] = "shared"
    seed: option_types.Seed = 0


DEFAULTS = SurveyOptions()

_OF_CANDIDATES = Nouns(prediction="candidate {name}", may_have_more=True)


@public
def create_survey(
    references: Annotated[
        Given,
        Doc("Reference reports, which radiologists wrote, in any form that [`reports`][metric_oracle.reports] takes."),
    ],
    candidates: Annotated[
        Mapping[str, Given],
        Doc(
            "Candidate reports of each type: a result of [`retrieve`][metric_oracle.retrieve], whose best report of "
            "each study is used, or the reports of a model. Raters do not see the name."
        ),
        Flag("--candidates", metavar="NAME=FILE"),
    ],
    out: option_types.NewFolder,
    *,
    raters: Annotated[Sequence[str], Doc("Names of the raters, of letters, digits, - and _.")],
    options: Annotated[
        SurveyOptions | None,
        Doc("How many studies are drawn, and how they are shown; see [`SurveyOptions`][metric_oracle.SurveyOptions]."),
    ] = None,
) -> Survey:
    """Draw studies for a survey, and shuffle their candidates, whose origin raters do not see.

    Returns
    -------
    Survey
        The survey, which ``oracle survey serve`` shows to the raters.

    Raises
    ------
    InputError
        If a study lacks a candidate, a file cannot be read, or an option breaks its rule.

    Examples
    --------
    >>> candidates = {"strong": "strong.csv", "weak": "weak.csv"}
    >>> options = mo.SurveyOptions(studies=5)
    >>> survey = mo.create_survey("test.csv", candidates, "survey", raters=["ann", "bob"], options=options)
    >>> len(survey.studies)
    5
    """
    out, options = Path(out), options or DEFAULTS
    check_folder(out)
    _check_names(list(candidates), list(raters), options)
    tests, strata = attached(references), options.stratify
    if isinstance(strata, str | Path):
        strata = read_strata(strata, tests.options.id_column)
    categories = _categories(options.categories)
    instructions = INSTRUCTIONS if options.instructions is None else read_text(Path(options.instructions))[0]
    read = _Read.of(tests, {name: attached(source) for name, source in candidates.items()})
    usable = read.usable(options)
    rng = np.random.default_rng(options.seed)
    shuffled = [usable[position] for position in rng.permutation(len(usable))]
    drawn = shuffled[: options.studies] if strata is None else _evenly(shuffled, options.studies, strata)
    if not options.unequal:
        _check_complete(drawn, read.texts)
    again = [drawn[position] for position in rng.permutation(options.studies)[: options.repeats]]
    pages, keys = [], []
    for position, study in enumerate([*drawn, *again]):
        page, positions = read.page(study, options.identical, rng)
        pages.append(page)
        stratum = {} if strata is None else {"stratum": strata[study]}
        keys.append({"study_id": study, "positions": positions, "is_repeat": position >= options.studies, **stratum})
    is_own = options.order == "per-rater"
    own_orders = {rater: _own_order(pages, options.studies, rng) for rater in raters} if is_own else {}
    content = {
        "format": FORMAT, "version": VERSION, "made_by": f"metric-oracle {version('metric-oracle')}",
        "categories": categories, "instructions": instructions, "raters": list(raters), "studies": pages,
        **({"orders": own_orders} if own_orders else {}),
    }  # fmt: skip
    key = {
        "seed": int(options.seed), "identical": options.identical, "order": options.order, "unequal": options.unequal,
        "candidates": list(candidates), "studies": keys,
        "references": read.references.source,
        "strata": None if strata is None else dict(Counter(strata[study] for study in usable)),
        "scores": read.scores_of(drawn),
        "sources": read.sources,
    }  # fmt: skip
    _write_folder(out, content, key)
    return open_survey(out)


@dataclass(frozen=True)
class _Read:
    """What a survey is drawn from: the references, and the candidates of each type with their scores."""

    references: Reports
    texts: dict[str, dict[str, str]]  # candidate type -> study -> text
    scores: dict[str, dict[str, dict[str, Any]]]  # candidate type -> metric -> study -> score
    sources: dict[str, dict[str, Any]]  # candidate type -> what identifies its file, if it is of one

    @classmethod
    def of(cls, tests: AttachedReports, candidates: Mapping[str, AttachedReports]) -> "_Read":
        """Read references and candidates, of one section."""
        data = {name: _read_results(given.data) for name, given in candidates.items()}
        results = {name: of_type for name, of_type in data.items() if isinstance(of_type, Results)}
        models = {name: given for name, given in candidates.items() if name not in results}
        sides = Sides.of(tests, models, _OF_CANDIDATES).read(section_of(*data.values()))
        references = sides.read_truth
        texts: dict[str, dict[str, str]] = {}
        scores: dict[str, dict[str, dict[str, Any]]] = {}
        for name, of_type in data.items():
            if name in results:
                texts[name], scores[name] = _of_results(name, references, results[name]), {}
            else:
                texts[name], scores[name] = _of_model(name, sides), _scores(of_type)
        files = {name: given.data for name, given in candidates.items() if isinstance(given.data, str | Path)}
        return cls(references, texts, scores, {name: identify(Path(file)) for name, file in files.items()})

    def usable(self, options: SurveyOptions) -> list[str]:
        """Return the studies to draw from; raise InputError if they are too few."""
        some = set[str]().union(*self.texts.values())
        usable = [study for study in self.references.ids if not options.unequal or study in some]
        if len(usable) < options.studies:
            raise InputError(
                "studies",
                f"must be at most {len(usable):,}, the references to draw from",
                options.studies,
                "Draw fewer, give more references, or check the ids.",
            )
        return usable

    def page(self, study: str, identical: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, int]]:
        """Return what raters see of a study, its candidates in random order, and the position of each type."""
        of_study = {name: texts[study] for name, texts in self.texts.items() if study in texts}
        names = [[*of_study][i] for i in rng.permutation(len(of_study))]
        texts, positions = _arranged(names, of_study, identical)
        return {"reference": self._reference_of[study], "candidates": texts}, positions

    @cached_property
    def _reference_of(self) -> dict[str, str]:
        """Study -> text of its reference."""
        return dict(zip(self.references.ids, self.references.texts, strict=True))

    def scores_of(self, studies: Sequence[str]) -> dict[str, dict[str, list[Any]]]:
        """Return candidate type -> metric -> score of each study, None where there is none."""
        return {
            name: {metric: [scores.get(study) for study in studies] for metric, scores in by_metric.items()}
            for name, by_metric in self.scores.items()
        }


def _check_names(names: list[str], raters: list[str], options: SurveyOptions) -> None:
    """Raise InputError unless the names of candidates and raters, and the options, are valid."""
    bad = [name for name in names if not _NAME.fullmatch(name) or name in ("study_id", "gt_report")]
    if not names or bad:
        raise InputError(
            "candidates",
            "must have names of letters, digits and _ . : + -, at least one",
            shown(*bad) or "none",
            "Add `candidates={NAME: FILE}`.",
        )
    bad = [name for name in raters if not _RATER.fullmatch(name)]
    if not raters or bad or len({name.lower() for name in raters}) < len(raters):
        raise InputError(
            "raters",
            "must have different names of letters, digits, - and _",
            shown(*bad) or "a name twice, or none",
            "Rename them.",
        )
    # The tables of the export are read by the rules of all files.
    for what, names_of_kind in (("candidates", names), ("raters", raters)):
        bad = changed_as_ids(names_of_kind)
        if bad:
            raise InputError(
                what,
                "must have names that tables give back as they are, unlike NA, 1.0 and s50414267",
                ", ".join(map(repr, bad)),
                f"Rename {'it' if len(bad) == 1 else 'them'}.",
            )
    if options.repeats > options.studies:
        raise InputError("repeats", f"must be at most the studies, {options.studies}", options.repeats, "Repeat fewer.")


def _categories(source: str | Path) -> dict[str, str]:
    """Return label -> description of the error categories of a set of `SETS`, or of a text file, one per line.

    A category from a file is its own description. Raise InputError if one is repeated, a number, or read as missing.
    """
    if str(source) in SETS:
        return dict(SETS[str(source)])
    lines = [line.strip() for line in read_text(Path(source))[0].splitlines() if line.strip()]
    if len(set(lines)) < len(lines) or any(line.isdecimal() for line in lines) or changed_as_ids(lines):
        raise InputError(
            f"{source} is not a text file with one category per line, none of them repeated, a bare number, or a word "
            "such as NA.",
            "Correct the file.",
        )
    return {line: line for line in lines}


def read_strata(path: str | Path, id_column: str | None = None) -> dict[str, str]:
    """Return study -> stratum, of a table with CheXbert labels, or with ids and one other column, the strata.

    With labels, the stratum of a study is its rarest positive finding, or "none". A study with an empty cell is left
    out. `id_column` is needed if its name is not a usual one. Raise InputError for other tables.
    """
    table = read_table(Path(path))
    if set(LABELS) <= set(table.names) and table.id_cells(id_column, is_optional=True) is not None:
        labels = labels_of_table(table, id_column=id_column)
        is_positive = labels.values[:, : len(LABELS) - 1] == POSITIVE  # the last one is No Finding
        rarity = np.where(is_positive, is_positive.sum(axis=0), len(is_positive) + 1)
        rarest = np.where(is_positive.any(axis=1), rarity.argmin(axis=1), -1)
        return dict(zip(labels.ids or (), (LABELS[i] if i >= 0 else "none" for i in rarest.tolist()), strict=True))
    id_cells = table.id_cells(id_column, is_optional=True)
    other_columns = [name for name in table.names if id_cells is None or name != id_cells.name]
    if id_cells is None or len(other_columns) != 1:
        raise InputError(
            f"{path} has neither CheXbert labels with ids nor one column besides the ids; columns: {table.header}.",
            "Name the column of the ids with `mo.reports(..., mo.Read(id_column=NAME))`; without CheXbert labels "
            "keep two columns.",
        )
    studies = canonical_ids(id_cells, f"the ids of {path}")
    check_unique(studies, f"the ids of {path}")
    cells = table.column(other_columns[0])
    return {study: str(cell) for study, cell in zip(studies, cells, strict=True) if not is_missing(cell)}


def _evenly(shuffled: Sequence[str], n_drawn: int, strata: Mapping[str, str]) -> list[str]:
    """Return `n_drawn` studies, in their order: the first of each stratum, equally many as far as the sizes allow.

    `strata` is study -> stratum; raise InputError if it lacks a study.
    """
    missing = [study for study in shuffled if study not in strata]
    if missing:
        raise InputError(
            f"the file of strata has no value for {len(missing)} references, such as {shown(*missing[:3])}.",
            "Complete the file, or leave these references out.",
        )
    queues: dict[str, list[str]] = {}
    for study in shuffled:
        queues.setdefault(strata[study], []).append(study)
    turns = [queue[turn] for turn in range(len(shuffled)) for queue in queues.values() if turn < len(queue)]
    drawn = set(turns[:n_drawn])
    return [study for study in shuffled if study in drawn]


def _of_model(name: str, sides: Sides) -> dict[str, str]:
    """Return study -> text of the candidates of a model."""
    truth, written, joined = sides.read_truth, sides.written[name], sides.join(name, inner=True)
    pairs = zip(joined.references, joined.predictions, strict=True)
    return {truth.ids[i]: written.texts[row] for i, row in pairs}


def _of_results(name: str, references: Reports, source: Results) -> dict[str, str]:
    """Return study -> text of the best reports of a search; raise InputError if they are of other references."""
    section = source.signature.get("section"), "its signature"
    check_sections(references.known_section, section, ("references", f"candidate {name}"))
    table = source.table
    if "text" not in table.column_names:
        raise InputError(f"the results of candidate {name} have no column text.", "Search again without `text=False`.")
    rows = table.filter(np.array(table["rank"].to_numpy() == 1))
    text_of = dict(zip(rows["query_id"].to_pylist(), rows["text"].to_pylist(), strict=True))
    searched = source.signature.get("references")
    if searched is not None and text_of.keys() == set(references.ids) and searched != digest(references):
        raise InputError(
            f"the results of candidate {name} are for other texts with the same ids.",
            "Read the same section of the same file.",
        )
    return text_of


def _read_results(source: Given) -> Given:
    """Return the results of a search if `source` is a file that has them; otherwise `source` as it is."""
    names: list[str] = []
    if isinstance(source, str | Path) and file_ending(Path(source)) in RESULTS:
        with suppress(InputError):
            names = read_table(Path(source)).names
    return read_results(source) if set(FIXED) <= set(names) else source


def _scores(source: Given) -> dict[str, dict[str, Any]]:
    """Return metric -> study -> score if `source` is a file of ``oracle score``, otherwise {}."""
    scored = None
    if isinstance(source, str | Path) and file_ending(Path(source)) in RESULTS:
        with suppress(InputError):
            scored = read_scores(source)
    if scored is None:
        return {}
    ids = canonical_ids(scored.table["query_id"].to_pylist(), f"the ids of {source}")
    return {name: dict(zip(ids, scored.table[name].to_pylist(), strict=True)) for name in scored.metrics}


def _check_complete(drawn: Sequence[str], texts_of: Mapping[str, Mapping[str, str]]) -> None:
    """Raise InputError if a drawn study lacks a candidate; `texts_of` is candidate type -> study -> text."""
    for name, texts in texts_of.items():
        missing = [study for study in drawn if study not in texts]
        if missing:
            raise InputError(
                f"candidate {name} has no report for {len(missing)} drawn studies, such as {shown(*missing[:3])}.",
                "Complete the file, or allow it with `options=mo.SurveyOptions(unequal=True)`.",
            )


def _arranged(names: Sequence[str], texts: Mapping[str, str], identical: str) -> tuple[list[str], dict[str, int]]:
    """Return the texts to show, in the order of the candidate types `names`, and type -> position of its text.

    `texts` is type -> text. If `identical` is "once", types with texts that are equal up to blanks share one.
    """
    distinct: list[str] = []
    position_of: dict[str, int] = {}
    positions = {}
    for name in names:
        text = " ".join(texts[name].split()) if identical == "once" else name
        if text not in position_of:
            position_of[text] = len(distinct)
            distinct.append(texts[name])
        positions[name] = position_of[text]
    return distinct, positions


def _own_order(studies: Sequence[Mapping[str, Any]], n_studies: int, rng: np.random.Generator) -> list[Any]:
    """Return a random order for one rater: [position of a study in `studies`, order of its candidates] for each.

    The studies behind the first `n_studies`, which are repeated ones, are last in it, too.
    """
    positions = [*rng.permutation(n_studies), *(n_studies + rng.permutation(len(studies) - n_studies))]
    return [[int(position), rng.permutation(len(studies[position]["candidates"])).tolist()] for position in positions]


def _write_folder(out: Path, content: dict[str, Any], key: dict[str, Any]) -> None:
    """Write the folder of a survey, whole and for its owner alone: survey.json with `content`, key.json with `key`.

    Each rater gets an empty log and, in links.json, a new secret link.
    """
    identity = checksum(content)
    with new_folder(out, 0o700) as folder:
        ratings = folder / "ratings"
        ratings.mkdir(mode=0o700)
        write_json(folder / "survey.json", {**content, "fingerprint": identity})
        write_sealed(folder / "key.json", {"survey": identity, **key})
        write_sealed(folder / "links.json", {rater: secrets.token_urlsafe(24) for rater in content["raters"]})
        for rater in content["raters"]:
            Log(ratings / f"{rater}.jsonl", [], 0, identity).start()
        for path in folder.rglob("*.json*"):
            path.chmod(0o600)
