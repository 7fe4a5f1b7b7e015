"""The options of a search, defined once for the command line, Python, and the workers of a cluster."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from metric_oracle.corpora.reports import check_left_out
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
    backend: str = "auto"
    threads: int | None = None
    text: bool = True
    max_memory: float | None = None
    idf: str | Path | None = None
    rescale: bool | None = None
    prevalence: Mapping[str, int] | None = None
    weights: str | Path | None = None
    part: str | None = None
    runner: str | None = None
    address: str | None = None
    num_gpus: float | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The options that change scores, as far as they were given."""
        return {name: getattr(self, name) for name in SETTINGS if getattr(self, name) is not None}

    def check_used(self, names: Container[str], function: str, what: str) -> None:
        """Raise where an option was given that a function does not use.

        Parameters
        ----------
        names : container of str
            Options that it uses.
        function : str
            Name for the error message.
        what : str
            What the other options make no sense for.
        """
        given = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        check_left_out(given, names, function, what)


DEFAULTS = SearchOptions()
