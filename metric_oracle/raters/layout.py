"""Tables of the agreement of raters, of failure modes (tables S3 and S4 of Yu et al.), and of a fitted composite."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from rich.console import Group

from metric_oracle.findings.cells import NOTHING
from metric_oracle.findings.tables import Entry, PaperTable, entry
from metric_oracle.raters.failure_modes import FailureModes
from metric_oracle.raters.fit_composite import Composite
from metric_oracle.raters.interrater import BETWEEN, Agreement
from metric_oracle.raters.ratings import CATEGORIES, KINDS, ORACLES

_KIND_NAMES = {"total": "sig. and\ninsig. errors", "significant": "sig. errors"}
_KIND_TITLES = {"total": "total number of errors", "significant": "number of clinically significant errors"}


def kind_name(kind: str) -> str:
    """Return the name of a kind of errors or grades in tables, in one or two lines."""
    return _KIND_NAMES.get(kind, kind)


# Agreement


def agreement_entry(record: dict[str, Any]) -> Entry:
    """Return a value with its percentile interval."""
    if record["value"] is None:
        return entry("undefined\n(all equal)")
    return Entry((f"{record['value']:z.3f}", *interval_lines(record)))


def interval_lines(record: dict[str, Any]) -> list[str]:
    """Return the percentile interval of a record as one line, or no line where it does not exist."""
    return [] if record["low"] is None else [f"[{record['low']:z.3f} {record['high']:z.3f}]"]


def p_text(value: float) -> str:
    """Return a p-value as papers print it."""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def agreement_tables(result: Agreement) -> list[PaperTable]:
    """Return the tables of the raters' agreement: with one another by candidate type, and with themselves."""
    records = result.records()
    sides = [[r for r in records if (r["rater"] == BETWEEN) == is_between] for is_between in (True, False)]
    titles = ("Agreement of the radiologists with one another", "Agreement of the radiologists with themselves")
    tables = []
    for title, key, name_of, part in zip(
        titles, ("candidate", "rater"), (candidate_name, rater_name), sides, strict=True
    ):
        if part:
            heads = list(dict.fromkeys(r["statistic"] for r in part))
            rows = [
                (
                    f"{name_of(label)}\n{kind_name(kind)}",
                    [agreement_entry(r) for r in part if (r[key], r["errors"]) == (label, kind)],
                )
                for label, kind in product(dict.fromkeys(r[key] for r in part), KINDS)
            ]
            tables.append(PaperTable(title, heads, rows))
    bootstrap = result.signature["bootstrap"]
    tables[0].notes.extend(
        [
            (
                "ICC(A,1), ICC(A,k): intraclass correlations of one rater and of the mean of all, two-way model, "
                "random raters, absolute agreement (McGraw and Wong 1996); ICC(2,1), ICC(2,k) of Shrout and Fleiss. "
                "Exact agreement: how often two raters count the same number of errors."
            ),
            (
                f"{result.summary()}; 95 % percentile intervals from {bootstrap['resamples']:,} resamples of studies, "
                f"seed {bootstrap['seed']}, the raters fixed."
            ),
            *result.warnings(),
        ]
    )
    return tables


def status_table(records: list[dict[str, Any]]) -> PaperTable:
    """Return the table of the progress of a survey, one row for each rater."""
    heads = ["finished studies", "open cells", "saves", "last save (UTC)"]
    rows = [
        (
            rater_name(r["rater"]),
            [
                entry(f"{r['studies']} of {r['of_studies']}"),
                entry(f"{r['open_cells']:,}"),
                entry(f"{r['saves']:,}"),
                entry(r["last_save"][:16].replace("T", " ") if r["last_save"] else NOTHING),
            ],
        )
        for r in records
    ]
    torn = [f"{r['rater']}: a torn line of {r['torn_bytes']} bytes, never saved." for r in records if r["torn_bytes"]]
    return PaperTable("Survey", heads, rows, torn, "rater")


def rater_name(rater: str) -> str:
    """Return the name of a rater in tables."""
    return f"Rater {rater}" if rater.isdecimal() else rater


# Failure modes


def failure_mode_tables(result: FailureModes) -> list[PaperTable]:
    """Return the tables of means as in table S3 of Yu et al., then one table for each family of tests (S4)."""
    return [*mean_tables(result), *family_tables(result)]


def mean_tables(result: FailureModes) -> list[PaperTable]:
    """Return the two tables of means."""
    heads = [*map(error_name, result.categories), "Total"]
    note = f"Mean over {result.signature['raters']} radiologists and {result.signature['studies']:,} studies."
    legend = "; ".join(f"{error_name(c)}: {CATEGORIES[c]}" for c in result.categories if c in CATEGORIES)
    notes = [note, f"{legend}."] if legend else [note]
    return [
        PaperTable(
            f"Radiologist evaluation in terms of {_KIND_TITLES[kind]}",
            heads,
            [
                (candidate_name(candidate), [entry(f"{value:.3f}") for value in (*row, row.sum())])
                for candidate, row in zip(result.candidates, result.means[kind], strict=True)
            ],
            [*notes, *result.warnings()],
        )
        for kind in KINDS
    ]


_BY_STUDY = (
    "By study: paired t tests of the studies' means, two-sided, so that both rows of a pair have one p and Y stands in "
    "the row that it speaks for; rate ratio: errors of the first by those of the second, 95 % interval over studies. "
    "The paper's test takes each rater's count for independent, and errs in either direction where raters agree or "
    "studies differ."
)


def family_tables(result: FailureModes) -> list[PaperTable]:
    """Return one table of tests for each chosen category and each kind of errors."""
    heads = [
        "p-value", f"critical value, FDR {result.signature['rate']:g}", "significant", "rate ratio", "p by study",
        "significant by study",
    ]  # fmt: skip
    tables = []
    for category, kind in product(result.signature["categories"], KINDS):
        family = [r for r in result.records() if (r["category"], r["errors"]) == (category, kind)]
        rows = [(_comparison(r), [*_paper(r), *_by_study(r)]) for r in family]
        note = f"One-sided two-sample t tests, pooled variance. {_families(result)}"
        title = f"{category_title(category)}: {_KIND_TITLES[kind]}"
        tables.append(PaperTable(title, heads, rows, [note, _BY_STUDY]))
    return tables


def _families(result: FailureModes) -> str:
    """Return the sentence that says over which tests p-values are adjusted."""
    n, size = result.signature["families"], result.signature["tests_in_family"]
    return (
        f"Benjamini-Hochberg within {n} families, one for each category and kind of errors: of the paper's tests "
        f"{size['paper']} in each, both directions of a difference with p and 1 - p; by study {size['by_study']}, each "
        "difference once."
    )


def significant_table(result: FailureModes) -> PaperTable:
    """Return the table of the differences that are significant in either test."""
    records = [r for r in result.records() if r["significant"] or r["study_significant"]]
    rows = [
        (
            _comparison(r),
            [
                entry(r["category"]),
                entry("all" if r["errors"] == "total" else "sig."),
                entry(f"{r['mean_a']:.3f}"),
                entry(f"{r['mean_b']:.3f}"),
                *_paper(r),
                *_by_study(r),
            ],
        )
        for r in records
    ]
    by_paper, by_study = (sum(r[name] for r in records) for name in ("significant", "study_significant"))
    note = (
        f"First, second: mean errors of a report. {by_paper} of {result.tests.num_rows} one-sided t tests, by study "
        f"{by_study} of {result.tests.num_rows // 2}, at a false discovery rate of {result.signature['rate']:g} in "
        f"each family. {_families(result)} All tests are in the tables of chosen categories and in result files."
    )
    heads = [
        "error", "counted", "first", "second", "p-value", "critical", "significant", "rate ratio", "p by study",
        "significant by study",
    ]  # fmt: skip
    return PaperTable("Significant differences", heads, rows, [note, _BY_STUDY])


def _paper(record: dict[str, Any]) -> list[Entry]:
    numbers = [entry(scientific(record[name])) for name in ("p_value", "critical_value")]
    return [*numbers, entry("Y" if record["significant"] else "N")]


def _by_study(record: dict[str, Any]) -> list[Entry]:
    if record["study_p_value"] is None:
        return [entry(NOTHING)] * 3
    ratio, low, high = (record[name] for name in ("rate_ratio", "ratio_low", "ratio_high"))
    return [
        entry(NOTHING if ratio is None else f"{ratio:.2f} [{low:.2f} {high:.2f}]"),
        entry(scientific(record["study_p_value"])),
        entry("Y" if record["study_significant"] else "N"),
    ]


def candidate_name(candidate: str) -> str:
    """Return the name of a candidate type in the paper."""
    return ORACLES.get(candidate, candidate)


def error_name(category: str) -> str:
    """Return the short name of an error category."""
    return f"Error {category}" if category.isdecimal() else category


def category_title(category: str) -> str:
    """Return the name of an error category with its meaning."""
    return f"{error_name(category)} ({CATEGORIES[category]})" if category in CATEGORIES else error_name(category)


def _comparison(record: dict[str, Any]) -> str:
    return f"{candidate_name(record['a'])} {record['direction']} {candidate_name(record['b'])}"


def scientific(value: float) -> str:
    """Return a number in the notation of the paper, 3.79e-3."""
    digits, exponent = f"{value:.2e}".split("e")
    return f"{digits}e{int(exponent)}"


def composite_table(fitted: Composite) -> Group:
    """Return the table of the terms of a composite, with its fit in the notes."""
    content, fit = fitted.content, fitted.content["fit"]
    names = ("mean", "scale", "weight", "standard_error")
    rows = [(record["metric"], [entry(f"{record[name]:z.4f}") for name in names]) for record in fitted.records()]
    inside, outside = (_tau(fit, name) for name in ("tau_b", "tau_b_held_out"))
    bootstrap = fit["bootstrap"]
    notes = [
        (
            f"intercept {content['intercept']:.4f}; {fit['pairs']:,} pairs of {fit['studies']:,} studies; "
            f"R2 {fit['r2']:.3f}, Kendall tau-b {inside}, held out {outside}; lower is better"
        ),
        (
            "held out: two reports are compared under a fit without their studies, so 0 is no skill; 95 % percentile "
            f"intervals, {bootstrap['resamples']:,} resamples of studies, seed {bootstrap['seed']}, the fits as they "
            "are; standard errors of weights: clustered by study"
        ),
        *fitted.warnings(),
    ]
    heads = [name.replace("_", " ") for name in names]
    return Group(PaperTable(content["name"], heads, rows, notes, "metric"))


def _tau(fit: Mapping[str, Any], name: str) -> str:
    """Return Kendall's tau with its interval."""
    value, low, high = (fit[name + end] for end in ("", "_low", "_high"))
    return "undefined" if value is None else f"{value:.3f} [{low:.3f} {high:.3f}]"
