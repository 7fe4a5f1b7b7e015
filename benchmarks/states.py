"""Token states of BERTScore beside other ways to run the same model: ``python -m benchmarks.states``.

Each side runs the same layers in the same type on the same distinct synthetic impressions, in turns, in one thread, and
gives an array for each text. What counts is the time of its processor, so that other work on the machine hardly does.
States and F1 of some pairs are compared with those of transformers in float32, one text at a time. One more row is a
run that is killed and goes on. ONNX Runtime and OpenVINO are left out where they or onnxscript are not installed.
"""

import argparse
import importlib
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import machine
from benchmarks.encoders import LAYER, encode_all, one_thread, write_base
from benchmarks.gate import GateError
from benchmarks.machine import Row
from metric_oracle.base.job import Job
from metric_oracle.bench.timing import timed
from metric_oracle.corpora.reports import read_reports
from metric_oracle.encoders.token_states import TokenEncoder, write_states
from metric_oracle.synthetic.corpus import write_synthetic
from metric_oracle.synthetic.stand_ins import find_encoder

SEED = 0
# Times as many reports a second as the faster of the packages whose states we replace.
GOAL, PACKAGES = 2.0, ("sentence-transformers", "bert_score")
ONE_BY_ONE = "transformers, one by one"
# Distinct texts of each row, some seconds of work; MiniLM is cut to the layer of the other benchmarks.
TEXTS = {"minilm-float32": 500, "minilm-bfloat16": 1_000, "bert-base-float32": 100, "bert-base-bfloat16": 300}
MINILM_LAYER = 5
RESUMED, RESUMED_TEXTS = "minilm-resumed", 1_500
COMPARED = 32  # texts whose states are compared before any are timed
# Largest difference of a component of the unit vectors.
TOLERANCE = {"float32": 1e-5, "bfloat16": 0.05}
# Tokens per batch of ONNX Runtime and OpenVINO; of 256 to 1,024, neither was faster with others throughout.
PADDED_TOKENS = 512

States = Sequence[npt.NDArray[np.float32]]  # of each text, a row a token
Side = Callable[[list[str]], Any]  # texts -> states, float[T, d] or one array or tensor for each text


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    options = _options(arguments)
    results = machine.Results("states", options.out, resume=True, seed=SEED)
    with TemporaryDirectory() as folder, one_thread():
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
    paths = write_synthetic(folder / "corpus", 2 * RESUMED_TEXTS, 2, seed=SEED)
    texts = list(dict.fromkeys(read_reports(paths["train"]).texts))
    models = {"minilm": (Path(str(find_encoder())), MINILM_LAYER), "bert-base": (folder / "bert", LAYER)}
    if any(name.startswith("bert-base") for name in names):
        write_base(folder / "bert")
    for name in names:
        model, dtype = name.rsplit("-", 1)
        if name == RESUMED:
            yield _resumed(*models[model], texts[:RESUMED_TEXTS], folder)
        else:
            file = folder / f"{model}.onnx"
            exact, sides = _sides(*models[model], dtype, file)
            yield _beside(name, exact, sides, texts[: TEXTS[name]], repetitions, TOLERANCE[dtype])


def _sides(path: Path, layer: int, dtype: str, file: Path) -> tuple[Side, dict[str, Side]]:
    """Return transformers in float32, one by one, and all sides by name; "" is ours. `file` is for an ONNX model."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Transformer

    published = importlib.import_module("bert_score.utils")
    encoder = TokenEncoder(path, layer=layer, device="cpu", dtype=dtype)
    kind = getattr(torch, dtype)
    sentences = SentenceTransformer(modules=[Transformer(str(path), model_kwargs={"dtype": kind})], device="cpu")
    cut: Any = next(module for module in sentences.modules() if type(module).__name__ == "BertEncoder")
    cut.layer = cut.layer[:layer]
    model, tokenizer = published.get_model(str(path), layer).to(kind), published.get_tokenizer(str(path))
    whole = published.get_model(str(path), layer)
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

    def one_by_one(model: Any, texts: list[str]) -> list[Any]:
        with torch.inference_mode():
            return [model(**tokenizer(text, return_tensors="pt"))[0][0] for text in texts]

    packages = dict(zip(PACKAGES, (of_sentences, of_bert_score), strict=True))
    sides: dict[str, Side] = {"": partial(encode_all, encoder), ONE_BY_ONE: partial(one_by_one, model), **packages}
    if find_spec("onnxscript"):
        sides |= {name: partial(_padded, encoder, run) for name, run in _runtimes(whole, dtype, file)}
    return partial(one_by_one, whole), sides


def _runtimes(model: Any, dtype: str, file: Path) -> Iterator[tuple[str, Callable[[Any, Any], Any]]]:
    """Yield name and run of each installed runtime of ONNX; run is ids and mask, int64[B, L], to states [B, L, d]."""
    import torch

    class Last(torch.nn.Module):
        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return model(input_ids=input_ids, attention_mask=attention_mask)[0]

    if not file.exists():
        last, ids = Last().eval(), torch.ones(3, 7, dtype=torch.int64)
        last.model = model
        shape = {0: torch.export.Dim("texts", min=1, max=512), 1: torch.export.Dim("tokens", min=2, max=512)}
        names: Any = {"input_names": ["ids", "mask"], "output_names": ["states"], "dynamic_shapes": (shape, shape)}
        torch.onnx.export(last, (ids, ids.clone()), str(file), dynamo=True, verbose=False, **names)
    # ONNX Runtime has no products in bfloat16 on x86.
    if find_spec("onnxruntime") and dtype == "float32":
        onnxruntime: Any = importlib.import_module("onnxruntime")
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = settings.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
        yield "ONNX Runtime", lambda ids, mask: session.run(None, {"ids": ids, "mask": mask})[0]
    if find_spec("openvino"):
        openvino: Any = importlib.import_module("openvino")
        hints: dict[str, Any] = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
        hints["INFERENCE_PRECISION_HINT"] = {"float32": "f32", "bfloat16": "bf16"}[dtype]
        compiled = openvino.Core().compile_model(str(file), "CPU", hints)
        yield "OpenVINO", lambda ids, mask: compiled([ids, mask])[0]


def _padded(encoder: TokenEncoder, run: Callable[[Any, Any], Any], texts: list[str]) -> list[Any]:
    """Return the states of texts from padded batches, longest first."""
    tokens = encoder.tokenize(texts)
    length = np.diff(tokens.ptr)
    ordered = np.argsort(-length, kind="stable")
    states: list[Any] = [None] * len(texts)
    while len(ordered):
        n_ids = int(length[ordered[0]])
        n_texts = max(1, PADDED_TOKENS // n_ids)
        batch, ordered = ordered[:n_texts], ordered[n_texts:]
        ids, mask = np.zeros((2, len(batch), n_ids), np.int64)
        for row, i in enumerate(batch):
            ids[row, : length[i]] = tokens.ids[tokens.ptr[i] : tokens.ptr[i + 1]]
            mask[row, : length[i]] = 1
        for i, of_text in zip(batch, run(ids, mask), strict=True):
            states[i] = of_text[: length[i]].copy()
    return states


def _beside(
    name: str, exact: Side, sides: dict[str, Side], texts: list[str], repetitions: int, tolerance: float
) -> Row:
    """Compare the states of some texts, then time all sides in turns; the faster of `PACKAGES` counts."""
    some = texts[:COMPARED]
    expected = _units(exact(some), [])
    length = [len(states) for states in expected]
    found = {side: _units(run(some), length) for side, run in sides.items()}
    difference = {
        side: max(_apart(*both) for both in zip(states, expected, strict=True)) for side, states in found.items()
    }
    of_f1 = {side: _apart(_f1(states), _f1(expected)) for side, states in found.items()}
    if difference[""] > tolerance:
        msg = f"{name}: states differ from those of transformers by up to {difference['']:.3g}"
        raise GateError(msg)
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(repetitions):
        for side, run in sides.items():
            before = process_time()
            run(texts)
            seconds[side].append(process_time() - before)
    rates = {side: len(texts) / median(values) for side, values in seconds.items()}
    value = rates.pop("")
    peer = max(PACKAGES, key=rates.__getitem__)
    return {
        "name": name, "value": value, "unit": "reports/s", "others": rates, "peer": peer, "times": value / rates[peer],
        "goal": GOAL, "difference": difference, "f1_difference": of_f1, "reports": len(texts),
        "repetitions": repetitions, "seconds": seconds, "words": float(np.mean([len(text.split()) for text in texts])),
        "threads": 1,
    }  # fmt: skip


def _units(states: Any, length: Sequence[int]) -> States:
    """Return the states of each text as unit vectors; those of one array are cut by the lengths of the texts."""
    if isinstance(states, np.ndarray):
        states = np.split(states, np.cumsum(length)[:-1])
    arrays = [of_text if isinstance(of_text, np.ndarray) else of_text.float().numpy() for of_text in states]
    return [array / np.linalg.norm(array, axis=1, keepdims=True) for array in arrays]


def _apart(a: Any, b: Any) -> float:
    return float(np.abs(a - b).max())


def _f1(states: States) -> npt.NDArray[np.float64]:
    """Return BERTScore's F1 of each text and the next one, special tokens left out."""
    products = [(a[1:-1].astype(np.float64) @ b[1:-1].T) for a, b in pairwise(states)]
    sides = np.array([(product.max(1).mean(), product.max(0).mean()) for product in products])
    return 2 * sides.prod(1) / sides.sum(1)


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
