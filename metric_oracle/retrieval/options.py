"""The options of a search, defined once for the command line, Python, and the workers of a cluster."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from metric_oracle import choices
from metric_oracle.arguments import check_left_out, given_of
from metric_oracle.choices import RESTRICTIONS
from metric_oracle.metrics import REPRESENTATIONS

# Options that change scores, each of the representations that name it.
SETTINGS = tuple(dict.fromkeys(name for record in REPRESENTATIONS.values() for name in record.settings))


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search and of the functions that score what a search could return.

    A function raises InputError for an option that it does not use.

    Parameters
    ----------
    k : int, default 1
        Reports returned for each query, at most the number of corpus reports that the metric can score.
    backend : {"auto", "cpu", "cuda", "reference"}, default "auto"
        What runs the search. "auto" is the CPU; "cuda" uses the GPUs of this machine; "reference" scores every distinct
        report of the corpus with the plain scorer. The answer does not depend on it.
    threads : int, optional
        Worker threads; by default the cores of this process. The answer does not depend on it.
    text : bool, default True
        Whether results contain the text of the corpus reports.
    max_memory : float, optional
        Memory in GB that the process should use at most, within a few per cent: pages of the index's files are released
        and read again.
    idf : {"off", "tests", "corpus"} or path, optional
        BERTScore: source of the token weights. A path is a table of weights. By default "off".
    rescale : bool, optional
        BERTScore: whether scores are relative to the encoder's baseline. By default they are where it has one.
    prevalence : dict of str to int, optional
        CRG: counts of the whole test set, as its signature has them, where the queries are a part of it.
    weights : path, optional
        Composite: the file that ``oracle fit-composite`` wrote.
    exclude : str or sequence of str, optional
        Rows of the corpus that the list of a query leaves out; lists stay k long where there are k others. ``"self"``:
        the row with the query's id; ``"text"``: rows whose text is equal after case, white space and Unicode form;
        ``"same"``: rows that the metric cannot tell from the query, which must be a row of the index; and the name of a
        column that the index keeps: rows that have the query's value in it. An empty value excludes nothing. Several
        are joined with commas.
    min_score : float, optional
        The worst score that is listed: the least, or the greatest under a metric where lower is better. Lists may then
        be shorter than k.
    where : str or sequence of str, optional
        Conditions that each listed report fulfils, such as ``"chexbert:agreement>=1"``, on any metrics that the index
        can score: ``>=``, ``>``, ``<=`` or ``<`` and a number. The result has a column for each metric. Several are
        joined with commas. On the CPU.
    part : str, optional
        Shard set: "3/16" searches the third of sixteen runs of shards; [`merge`][metric_oracle.merge] joins the
        results.
    runner : {"ray"}, optional
        Shard set: what runs the search of each shard. Each Ray worker uses `threads` cores, by default one, and must
        see the set's folder. A shard whose worker was lost is searched again, three times at most.
    address : str, optional
        Ray: "local" starts it on this machine for the call; "auto" or HOST:PORT is a running cluster. By default the
        connection of this process, or else "local".
    num_gpus : float, optional
        Ray: GPUs of each worker, by default none.

    Examples
    --------
    >>> from metric_oracle import SearchOptions
    >>> SearchOptions(k=5, idf="corpus").settings
    {'idf': 'corpus'}
    """

    k: int = 1
    backend: choices.Backend = "auto"
    threads: choices.Threads | None = None
    text: bool = True
    max_memory: choices.Memory | None = None
    idf: str | Path | None = None
    rescale: bool | None = None
    prevalence: Mapping[str, int] | None = None
    weights: str | Path | None = None
    exclude: str | Sequence[str] = ()
    min_score: choices.MinScore | None = None
    where: str | Sequence[str] = ()
    part: str | None = None
    runner: choices.Runner | None = None
    address: str | None = None
    num_gpus: choices.Gpus | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The options that change scores, without those that are None."""
        return {name: getattr(self, name) for name in SETTINGS if getattr(self, name) is not None}

    @property
    def restrictions(self) -> dict[str, Any]:
        """The options that exclude rows (`exclude`, `min_score`, `where`), without unset ones, for the signature."""
        given = {name: getattr(self, name) for name in RESTRICTIONS}
        listed = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
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
        chosen = {field.name: True for field in fields(self) if getattr(self, field.name) != field.default}
        check_left_out(chosen, f"for {what}", allowed=names)


DEFAULTS = SearchOptions()


def chosen(options: SearchOptions | None, **given: Any) -> SearchOptions:
    """Return search options in which the given arguments that are not None replace those of `options`.

    `options` may be None, for the defaults.
    """
    return replace(options or DEFAULTS, **given_of(given))
