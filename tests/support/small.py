"""Small work of every kind, in a process that may compile nothing: ``python -m support.small FOLDER``."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from numba.core import compiler

import metric_oracle as mo
from metric_oracle.encoders import token_states
from metric_oracle.retrieval import kernels
from support import beside, write_corpus
from support.encoder import FakeEncoder

METRICS = (
    "bleu-2", "bleu-4:coco", "rouge-l", "cider-d", "cider-d:corpus", "meteor:nltk-stems", "jaccard:2", "temporal",
    "radgraph", "radgraph:rg_er-bar-lower", "chexbert", "embedding", "chexbert:labels", "chexbert:agreement",
    "srr-bert", "labels:f1", "ratescore", "sentences", "crg", "bertscore", "radgraph+rouge-l", "radcliq",
)  # fmt: skip
SIZE = 16, 5
AS_SHIPPED = {name: getattr(kernels, name) for name in ("SMALL", "SMALL_SEARCH")}


@contextmanager
def as_in_a_new_process() -> Iterator[None]:
    """Let plain scorers do small work; the fixture `compiled` has kernels do it in most tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name, seconds in AS_SHIPPED.items():
            patch.setattr(kernels, name, seconds)
        patch.setattr(kernels, "_spent", {})
        yield


def answers(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the name and the answer of each call, an Arrow table or JSON values, on a corpus written into a folder."""
    corpus = write_corpus(folder, *SIZE, seed=5)
    train = mo.reports(corpus["train"], **beside(corpus, "train"), encoder="fake", layer=1)
    test = mo.reports(corpus["test"], **beside(corpus, "test"))
    wholes = {"one": mo.build_index(train, folder / "I"), "set": mo.build_index(train, folder / "S", shard_rows=6)}
    for name, index in wholes.items():
        for metric in METRICS:
            found = mo.retrieve(index, test, metric, k=3)
            yield f"retrieve {name} {metric}", found.table
            if "+" in metric:
                continue
            for kind in ("random", "most-frequent", "identity"):
                yield f"baseline {name} {metric} {kind}", mo.baseline(index, test, kind, metric).table
            yield f"expectation {name} {metric}", mo.expectation(index, test, metric).table
        excluded = mo.SearchOptions(exclude=("text",), min_score=0.2)
        yield f"restricted {name}", mo.retrieve(index, test, "rouge-l", k=4, options=excluded).table
        yield f"verify {name}", mo.verify(index, mo.retrieve(index, test, "bleu-2"), test)
        yield f"mine {name}", mo.mine(index, "rouge-l", folder / f"{name}.parquet", k=2).counts
    lines = mo.read_reports(corpus["test"]).texts
    predictions = mo.reports(dict(zip(mo.read_reports(corpus["test"]).ids, lines[::-1], strict=True)))
    yield "score", mo.score(corpus["test"], predictions, "bleu-2,rouge-l,meteor:nltk-stems,temporal").table
    samples = {name: [text, lines[0], "", "no effusion"] for name, text in zip("abcde", lines, strict=True)}
    yield "consensus", mo.consensus(samples, "bleu-2,rouge-l").table
    yield "best_of", mo.best_of(samples, dict(zip("abcde", lines, strict=True)), "rouge-l").table
    yield "overlap", mo.overlap(wholes["one"], {"test": corpus["test"]}, resamples=100).table
    yield "reward", mo.reward("bleu-2")(prompts=None, completions=[*lines], reference=[*lines[::-1]])


def stand_in(patch: pytest.MonkeyPatch) -> None:
    """Let encoders of token states be fake ones."""
    for module in ("indexes.bertscore", "encoders.token_states"):
        patch.setattr(f"metric_oracle.{module}.TokenEncoder", FakeEncoder)
    patch.setattr(token_states, "_digest", lambda encoder, *rest: repr((encoder.signature, *rest)))  # without PyTorch


def written(answer: Any) -> Any:
    """Return an answer as JSON values, floats by all their bits."""
    return json.loads(json.dumps([str(answer.schema), answer.to_pylist()] if hasattr(answer, "schema") else answer))


def main() -> None:
    """Write the answers of a process whose compiler raises to FOLDER/answers.json."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError(f"this compiles {arguments[2].__qualname__}")

    folder = Path(sys.argv[1])
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        patch.setattr(compiler, "compile_extra", refuse)
        found = {name: written(answer) for name, answer in answers(folder / "work")}
    (folder / "answers.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
