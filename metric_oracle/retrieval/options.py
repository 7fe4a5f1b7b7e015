"""The options of a search, defined once for the command line, Python, and the workers of a cluster."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_left_out, given_of
from metric_oracle.base.declarations import BERTSCORE, IN_PYTHON, Flag
from metric_oracle.base.option_types import RESTRICTIONS
from metric_oracle.base.validation import Checked
from metric_oracle.metrics import REPRESENTATIONS

# Options that change scores, each of the representations that name it.
SETTINGS = tuple(dict.fromkeys(name for representation in REPRESENTATIONS.values() for name in representation.settings))


@dataclass(frozen=True)
class SearchOptions(Checked, call="options=mo.SearchOptions({})"):
    """Options of a search and of the functions that score what a search could return.

    A function raises InputError for an option that it does not use.

    Examples
    --------
    >>> from metric_oracle import SearchOptions
    >>> SearchOptions(k=5, idf="corpus").settings
    {'idf': 'corpus'}
    """

    k: Annotated[
        option_types.Positive,
        Doc(
            "Number of best reports to list for each test report or, when pairs are mined, for each report of the "
            "index."
        ),
        Flag("-k", "--top-k"),
    ] = 1
    backend: Annotated[
        option_types.Backend,
        Doc(
            "Backend of the search: {}. auto is cpu or, for a small search, reference; cuda uses the GPUs of this "
            "machine; reference scores every report with the plain scorer, which needs no compiled code and is slow "
            "for large searches. All return the same results."
        ),
    ] = "auto"
    threads: option_types.Threads | None = None
    text: option_types.WithText = True
    max_memory: Annotated[
        option_types.Memory | None,
        Doc(
            "Memory in GB that the process should use at most, within a few per cent: pages of the index's files are "
            "released and read again. By default there is no limit."
        ),
        Flag(metavar="GB"),
    ] = None
    idf: Annotated[
        str | Path | None,
        Doc(
            "Weights of the tokens in BERTScore: off (equal weights), tests (inverse document frequencies in the test "
            "reports or references), corpus (in the reports of the index), or a table with the columns token_id and "
            "idf. By default off."
        ),
        Flag(metavar="FROM", panel=BERTSCORE, kind=str),
    ] = None
    rescale: Annotated[
        bool | None,
        Doc(
            "Rescale BERTScore with the encoder's baseline, or do not. By default it is rescaled if the baseline is "
            "known: that of distilroberta-base, or from `rescale_table`."
        ),
        Flag("--rescale/--no-rescale", panel=BERTSCORE),
    ] = None
    prevalence: Annotated[
        Mapping[str, int] | None,
        Doc("CRG: counts of the whole test set, as its signature has them, where the queries are a part of it."),
        IN_PYTHON,
    ] = None
    weights: Annotated[
        str | Path | None,
        Doc(
            "Weights of the metric composite: a JSON file that [`fit_composite`][metric_oracle.fit_composite] wrote. "
            "That metric needs them, and no other takes them."
        ),
    ] = None
    exclude: Annotated[
        str | Sequence[str],
        Doc(
            "Leave out reports of the corpus: self (with the test report's id), text (whose text is equal after case, "
            "white space and Unicode form), same (equal for the metric), or the name of a column that "
            "[`build_index`][metric_oracle.build_index] stored with `keep` (with its value; an empty one excludes "
            "nothing); several with commas. By default none is left out."
        ),
    ] = ()
    min_score: Annotated[
        option_types.MinScore | None,
        Doc(
            "List only reports that score X or better. A list may then be shorter than `k`. By default all scores "
            "count."
        ),
        Flag(metavar="X"),
    ] = None
    where: Annotated[
        str | Sequence[str],
        Doc(
            "List only reports whose score by another metric is >=, >, <= or < X, such as chexbert:agreement>=1; of "
            "several conditions all must hold. The result has a column for each metric. By default no other metric "
            "counts."
        ),
        Flag(metavar='"METRIC>=X"'),
    ] = ()
    part: Annotated[
        str | None,
        Doc(
            "Search only the I-th of N parts, such as 3/16, so that N processes share the work: of the shards of a "
            "set, or of the anchors. [`merge`][metric_oracle.merge] joins the files of all parts. By default all is "
            "searched."
        ),
        Flag(metavar="I/N"),
    ] = None
    runner: option_types.Runner | None = None
    address: option_types.Address | None = None
    num_gpus: option_types.Gpus | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The options that change scores, without those that are None."""
        return {name: getattr(self, name) for name in SETTINGS if getattr(self, name) is not None}

    @property
    def restrictions(self) -> dict[str, Any]:
        """The options that exclude rows (`exclude`, `min_score`, `where`), without unset ones, for the signature."""
        values = {name: getattr(self, name) for name in RESTRICTIONS}
        listed = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {name: value for name, value in listed.items() if value not in ([], "", None)}

    @property
    def is_restricted(self) -> bool:
        """Whether an option excludes rows: a list may then be shorter than k, and RadGraph has no fall-back report."""
        return bool(self.restrictions)

    def check_used(self, names: Container[str], what: str) -> None:
        """Raise InputError if an option was given that a function does not use.

        Parameters
        ----------
        names : container of str
            Options that the function uses.
        what : str
            Name of what is computed, for the message: "the option makes no sense for ...".
        """
        not_default = {field.name: True for field in fields(self) if getattr(self, field.name) != field.default}
        check_left_out(not_default, f"for {what}", allowed=names)


DEFAULTS = SearchOptions()


def with_arguments(options: SearchOptions | None, **arguments: Any) -> SearchOptions:
    """Return search options in which the given arguments that are not None replace those of `options`.

    `options` may be None, for the defaults.
    """
    return replace(options or DEFAULTS, **given_of(arguments))
