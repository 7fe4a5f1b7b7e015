"""A program that searches and scores corpora of several shapes under a metric of each kernel, in a given folder.

It prints each compiled function that was called with two forms of one argument: an array that may be written and one
that may not, another layout, or another width of integers. Each form is compiled for itself.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from inspect import getclosurevars, isfunction
from pathlib import Path
from typing import Any

from numba.core import types
from numba.core.dispatcher import Dispatcher

import metric_oracle as mo
from metric_oracle.encoders import token_states
from metric_oracle.indexes import bertscore
from metric_oracle.kernels import _jit
from metric_oracle.retrieval import kernels
from support import beside, write, write_corpus
from support.encoder import FakeEncoder

METRICS = (
    *("bleu", "rouge-l", "cider-d", "meteor:nltk-stems", "jaccard:2", "radgraph", "radgraph:rg_er-lower", "srr-bert"),
    *(
        "chexbert",
        "chexbert:labels",
        "chexbert:agreement",
        "labels:f1",
        "crg",
        "temporal",
        "ratescore",
        "sentences",
        "bertscore",
    ),
    "radcliq",
)


def widened(kind: Any) -> Any:
    """Return a type of Numba without what a form adds to it: whether it may be written, its layout and width."""
    if isinstance(kind, types.Array):
        return "array", kind.ndim, widened(kind.dtype)
    if isinstance(kind, types.Integer):
        return "integer"
    if isinstance(kind, types.BaseTuple):
        return getattr(kind, "instance_class", tuple), tuple(map(widened, kind))
    return str(kind)


def compiled() -> Iterator[Dispatcher]:
    """Yield the compiled functions of the kernels, also those of which little is interpreted (`linear`)."""
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith("metric_oracle.kernels")]
    values = [value for module in modules for value in vars(module).values()]
    values += [getclosurevars(value).nonlocals.get("compiled") for value in values if isfunction(value)]
    yield from {id(value): value for value in values if isinstance(value, Dispatcher)}.values()


def run(folder: Path) -> None:
    """Search and score, small work by kernels too."""
    os.chdir(folder)
    kernels.SMALL = kernels.SMALL_SEARCH = _jit.FEW = -1
    token_states.TokenEncoder = bertscore.TokenEncoder = FakeEncoder
    token_states._digest = lambda encoder, *rest: repr((encoder.signature, *rest))  # without PyTorch
    for name, n_reports in (("small", 60), ("large", 1500)):
        corpus = write_corpus(folder / name, n_reports, 8, seed=3)
        train, test = (
            mo.reports(
                str(corpus[side]),
                encoder="fake",
                **{
                    key: str(value) if isinstance(value, Path) else value for key, value in beside(corpus, side).items()
                },
            )
            for side in ("train", "test")
        )
        prepared = mo.build_index(test, folder / name / "prepared", metrics=METRICS)
        index = mo.build_index(train, folder / name / "index", metrics=METRICS)
        for metric in METRICS:
            for queries in (test, prepared):
                mo.retrieve(index, queries, metric, k=2)
                mo.retrieve(index, queries, metric, options=mo.SearchOptions(exclude=["self"]))
            mo.pairwise(test, metric)
            mo.score(test, test, metric)
    empty = write(folder / "empty.csv", {"1": "", "2": "Clear lungs.", "3": " "})
    for metric in ("bleu", "rouge-l", "jaccard:2"):
        mo.retrieve(mo.build_index(empty, folder / metric, metrics=[metric]), empty, metric)


def main() -> None:
    """Run, and print functions with two forms."""
    run(Path(sys.argv[1]))
    for function in compiled():
        forms = defaultdict(list)
        for signature in function.overloads:
            forms[tuple(map(widened, signature))].append(signature)
        for some in forms.values():
            # A constant of the source, such as 0, is no form of data.
            if len({tuple(map(types.unliteral, signature)) for signature in some}) > 1:
                print(function.py_func.__module__, function.py_func.__name__, *some, sep="\n    ")


if __name__ == "__main__":
    main()
