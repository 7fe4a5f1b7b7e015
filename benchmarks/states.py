"""Token states of BERTScore beside sentence-transformers and bert_score: ``python -m benchmarks.states``.

Each side runs the same model in the same type on the same distinct synthetic impressions, in turns, with PyTorch's own
number of threads and the batches of its own choice, which are sorted by length; each gives an array for each text. One
more row is a run that is killed and goes on.
"""

import argparse
import importlib
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.encoders import LAYER, encode_all, write_base
from benchmarks.gate import GateError
from benchmarks.machine import Row
from metric_oracle.base.job import Job
from metric_oracle.bench.timing import timed
from metric_oracle.corpora.reports import read_reports
from metric_oracle.encoders.token_states import TokenEncoder, write_states
from metric_oracle.synthetic.corpus import write_synthetic
from metric_oracle.synthetic.stand_ins import find_encoder

SEED = 0
GOAL = 1.3  # times as many reports a second as the faster of the others
# Distinct texts of each row, some seconds of work on two cores; MiniLM is cut to the layer of the other benchmarks.
TEXTS = {"minilm-float32": 1_500, "minilm-bfloat16": 4_000, "bert-base-float32": 400, "bert-base-bfloat16": 1_500}
MINILM_LAYER = 5
RESUMED = "minilm-resumed"
COMPARED = 32  # texts whose states are compared before any are timed
# Largest difference of a component of the unit vectors.
TOLERANCE = {"float32": 1e-5, "bfloat16": 0.05}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    options = _options(arguments)
    results = machine.Results("states", options.out, resume=True, seed=SEED)
    with TemporaryDirectory() as folder:
        rows = _rows(Path(folder), options.only, options.repetitions)
        return results.measure(rows, "{name}: {value:.4g} {unit}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.states", description=__doc__.partition("\n")[0])
    names = [*TEXTS, RESUMED]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="ROW", help=f"of {', '.join(names)}")
    parser.add_argument("--repetitions", type=int, default=3, help="of each side, in turns (%(default)s)")
    machine.add_out(parser, "states")
    return parser.parse_args(arguments)


def _rows(folder: Path, names: Sequence[str], repetitions: int) -> Iterator[Row]:
    paths = write_synthetic(folder / "corpus", 2 * max(TEXTS.values()), 2, seed=SEED)
    texts = list(dict.fromkeys(read_reports(paths["train"]).texts))
    models = {"minilm": (Path(str(find_encoder())), MINILM_LAYER), "bert-base": (folder / "bert", LAYER)}
    if any(name.startswith("bert-base") for name in names):
        write_base(folder / "bert")
    for name in names:
        model, dtype = name.rsplit("-", 1)
        if name == RESUMED:
            yield _resumed(*models[model], texts[: TEXTS["minilm-float32"]], folder)
        else:
            yield _beside(name, _sides(*models[model], dtype), texts[: TEXTS[name]], repetitions, TOLERANCE[dtype])


def _sides(path: Path, layer: int, dtype: str) -> dict[str, Callable[[list[str]], Any]]:
    """Return name -> texts to states, float[T, d] or one array for each text; "" are ours."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Transformer

    published = importlib.import_module("bert_score.utils")
    encoder = TokenEncoder(path, layer=layer, dtype=dtype)
    kind = getattr(torch, dtype)
    sentences = SentenceTransformer(modules=[Transformer(str(path), model_kwargs={"dtype": kind})], device="cpu")
    cut: Any = next(module for module in sentences.modules() if type(module).__name__ == "BertEncoder")
    cut.layer = cut.layer[:layer]
    model, tokenizer = published.get_model(str(path), layer).to(kind), published.get_tokenizer(str(path))
    idf = dict.fromkeys(range(len(tokenizer)), 1.0)

    def of_bert_score(texts: list[str]) -> list[Any]:
        """Return the states by the steps of `bert_cos_score_idf` before it matches."""
        ordered = sorted(texts, key=lambda text: len(text.split(" ")), reverse=True)
        states: dict[str, Any] = {}
        for first in range(0, len(ordered), 64):
            batch = ordered[first : first + 64]
            padded, mask, _ = published.get_bert_embedding(batch, model, tokenizer, idf, device="cpu")
            states |= {text: padded[i, : int(mask[i].sum())] for i, text in enumerate(batch)}
        return [states[text] for text in texts]

    def of_sentences(texts: list[str]) -> Any:
        return sentences.encode(texts, output_value="token_embeddings", show_progress_bar=False)

    return {"": partial(encode_all, encoder), "sentence-transformers": of_sentences, "bert_score": of_bert_score}


def _beside(
    name: str, sides: dict[str, Callable[[list[str]], Any]], texts: list[str], repetitions: int, tolerance: float
) -> Row:
    """Compare the states of some texts, then time all sides in turns; the faster of the others counts."""
    import torch

    ours, *others = (side(texts[:COMPARED]) for side in sides.values())
    difference = 0.0
    for states in others:
        flat = torch.cat(list(states)).float()
        unit = (flat / flat.norm(dim=1, keepdim=True)).numpy()
        difference = max(difference, float(np.abs(unit - ours).max()))
    if difference > tolerance:
        msg = f"{name}: states differ from ours by up to {difference:.3g}"
        raise GateError(msg)
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(repetitions):
        for side, run in sides.items():
            seconds[side].append(timed(partial(run, texts)))
    rates = {side: len(texts) / median(values) for side, values in seconds.items()}
    value = rates.pop("")
    peer = max(rates, key=rates.__getitem__)
    return {
        "name": name, "value": value, "unit": "reports/s", "others": rates, "peer": peer, "times": value / rates[peer],
        "goal": GOAL, "difference": difference, "reports": len(texts), "repetitions": repetitions, "seconds": seconds,
        "words": float(np.mean([len(text.split()) for text in texts])), "threads": torch.get_num_threads(),
    }  # fmt: skip


def _resumed(path: Path, layer: int, texts: list[str], folder: Path) -> Row:
    """Time a run that is killed when half of its parts are written and the one that goes on, beside a whole one."""
    encoder = TokenEncoder(path, layer=layer)
    tokens = encoder.tokenize(texts)
    encoder.run([tokens.ids[None, : int(tokens.ptr[1])].astype(np.int64)])  # warm
    whole_s = timed(lambda: write_states(encoder, tokens, folder / "whole", storage=np.float16))
    n_parts = len(Job(folder, "whole.json").pieces["whole"].parts)
    killed = folder / "killed"
    process = multiprocessing.get_context("spawn").Process(target=_write, args=(path, layer, texts, killed))
    process.start()
    n_kept = 0
    while n_kept < n_parts // 2:
        sleep(0.01)
        n_kept = sum(len(piece.parts) for piece in Job(folder, "killed.json").pieces.values())
    process.kill()
    process.join()
    start = perf_counter()
    states = write_states(encoder, tokens, killed, storage=np.float16)
    resumed_s = perf_counter() - start
    if states.tobytes() != (folder / "whole").read_bytes():
        msg = "the states of the resumed run are not those of the whole one"
        raise GateError(msg)
    return {
        "name": RESUMED, "value": resumed_s, "unit": "s", "whole_s": whole_s, "parts": n_parts, "kept": n_kept,
        "reports": len(texts), "words": float(np.mean([len(text.split()) for text in texts])),
    }  # fmt: skip


def _write(path: Path, layer: int, texts: list[str], states: Path) -> None:
    encoder = TokenEncoder(path, layer=layer)
    write_states(encoder, encoder.tokenize(texts), states, storage=np.float16)


if __name__ == "__main__":
    sys.exit(main())
