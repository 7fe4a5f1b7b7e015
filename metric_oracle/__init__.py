"""Exact metric-oracle retrieval for radiology reports.

>>> import metric_oracle as mo
>>> index = mo.build_index("train.csv", "INDEX")        # doctest: +SKIP
>>> results = mo.retrieve(index, "test.csv", "bleu")    # doctest: +SKIP
>>> scores = mo.score("test.csv", "generated.csv")      # doctest: +SKIP
>>> mo.compute(predictions=["a b"], references=["a c"], metrics="rouge-l")  # doctest: +SKIP

A study compares the oracle of every metric, random retrieval, the most frequent report and models under every metric.

>>> corpus = mo.reports("train.csv", radgraph="train_graphs.json")  # doctest: +SKIP
>>> index = mo.build_index(corpus, "INDEX")             # doctest: +SKIP
>>> models = {                                          # doctest: +SKIP
...     "strong": mo.reports("strong.csv", radgraph="strong_graphs.json"),
...     "weak": mo.reports("weak.csv", radgraph="weak_graphs.json"),
... }
>>> tests = mo.reports("test.csv", radgraph="test_graphs.json")  # doctest: +SKIP
>>> systems = mo.study(index, tests, models, metrics="bleu,radgraph", out="study")  # doctest: +SKIP
>>> table = mo.compare_study(systems)                   # doctest: +SKIP
>>> mo.write_study(systems, table, "study")             # doctest: +SKIP

The public names, listed in `__init__.pyi`, are imported when first used, so that importing the package is fast.
"""

from typing import Any

from metric_oracle.base.lazy import load


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("metric-oracle")
    if name in ("Model", "load_queries"):
        msg = f"module {__name__!r} has no attribute {name!r}. Write mo.reports(...)"
        raise AttributeError(msg)
    value = load(__name__, name)
    if isinstance(value, type):
        from metric_oracle.base.validation import guard

        guard(value)
    elif callable(value):
        from metric_oracle.base.validation import public

        value = globals()[name] = public(name, value, _homes(name))
    return value


def _homes(name: str) -> dict[str, str]:
    """Return the call that takes each argument of `reports`, `Read` and `SearchOptions`, such as "mo.reports(..., {})".

    Error messages of the public function `name` that lacks the argument show this call; one that reads files takes the
    options of `Read` itself.
    """
    from dataclasses import fields

    from metric_oracle.corpora.read import Read
    from metric_oracle.retrieval.options import SearchOptions
    from metric_oracle.sources.keywords import Sources

    own = {field.name: "options=mo.SearchOptions({})" for field in fields(SearchOptions)}
    own |= dict.fromkeys((*Sources.__annotations__, "tell"), "mo.reports(..., {})")
    of_reading = "read=mo.Read({})" if name.startswith("read_") else "mo.reports(..., read=mo.Read({}))"
    return own | {field.name: of_reading for field in fields(Read)}


def __dir__() -> list[str]:
    return load(__name__, "__all__")
