"""CREPE trained small, against metrics that count words and entities: ``python -m benchmarks.crepe``.

Pairs of `oracle synth --errors` have gold counts of errors. A small encoder is trained on those of the train split as
`oracle train-crepe` does it, and on those of the test split its score and the scores of BLEU, ROUGE-L and RadGraph F1
(gold graphs of both sides) are correlated with the counts: Kendall's tau-b, as `oracle align` has it.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import metric_oracle as mo
from benchmarks import machine
from benchmarks.machine import Row
from metric_oracle.encoders.crepe_training import TrainingSettings, train
from metric_oracle.raters.counted_pairs import read_counted_pairs
from metric_oracle.raters.metric_agreement import MEAN
from metric_oracle.raters.rank_correlation import TAU
from metric_oracle.synthetic.corpus import write_synthetic

METRICS = ("crepe", "bleu-2", "bleu-4", "rouge-l", "radgraph")
SEED = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Train and measure; return the exit code."""
    options = _options(arguments)
    results = machine.Results("crepe", options.out, seed=SEED)
    with TemporaryDirectory() as folder:
        return results.measure(measure(options, Path(folder)), "{name}: {value:.4f} ({low:.4f} to {high:.4f})")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.crepe", description=__doc__)
    parser.add_argument("--pairs", type=int, default=4000, help="to train on (%(default)s)")
    parser.add_argument("--tests", type=int, default=400, help="held-out pairs (%(default)s)")
    parser.add_argument("--epochs", type=int, default=6, help="(%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="the highest (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch (%(default)s)")
    machine.add_out(parser, "crepe")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Yield a row a metric: its tau-b with the gold counts of held-out pairs, 95 % interval over them."""
    import torch

    torch.set_num_threads(options.threads)
    paths = write_synthetic(folder / "pairs", options.pairs, options.tests, seed=SEED, errors=True)
    pairs, counts = read_counted_pairs(paths["train"], paths["train_candidates"], paths["train_errors"])
    base = _tiny([text for pair in pairs for text in pair], folder / "tiny")
    settings = TrainingSettings(options.epochs, 16, options.learning_rate, 0.5, SEED)
    began = time.process_time()
    trained = train(pairs, counts, base, folder / "crepe", settings, progress=_progress())
    seconds = time.process_time() - began
    began = time.process_time()
    scores = mo.score(
        mo.reports(paths["test"], tell=_tell, radgraph=paths["test_graphs"]),
        mo.reports(paths["test_candidates"], radgraph=paths["test_candidates_graphs"]),
        METRICS,
        crepe=folder / "crepe",
        inner=True,
    )
    scored = time.process_time() - began
    held = scores.table["query_id"].to_pylist()
    ratings = _some(paths["test_errors"], set(held), folder / "rated.csv")
    scores.write(folder / "scores.csv")
    found = mo.align(ratings, folder / "scores.csv", metrics=METRICS, seed=SEED)
    for row in found.metrics.to_pylist():
        if (row["errors"], row["rater"], row["statistic"]) == ("total", MEAN, TAU):
            yield {
                "name": f"tau-{row['metric']}",
                "metric": row["metric"],
                "value": row["value"],
                "low": row["low"],
                "high": row["high"],
                "unit": "tau-b",
                "pairs": len(pairs),
                "tests": len(held),
                "base": "BERT, 2 layers of 128, random weights",
                "settings": asdict(settings),
                "losses": trained["losses"],
                "train_cpu_s": seconds,
                "score_cpu_s": scored,
            }


def _tiny(texts: Sequence[str], out: Path) -> Path:
    """Write a BERT with random weights, two layers of 128 numbers, whose vocabulary is the words of some texts."""
    import torch
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from transformers import BertConfig, BertModel

    split = BertPreTokenizer().pre_tokenize_str
    words = sorted({word for text in texts for word, _ in split(text.lower())})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    torch.manual_seed(SEED)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        initializer_range=0.05,
    )
    BertModel(config).save_pretrained(out)
    (out / "vocab.txt").write_text("".join(f"{word}\n" for word in vocabulary), encoding="utf-8")
    return out


def _some(errors: Path, studies: set[str], out: Path) -> Path:
    """Write the counts of the pairs that are scored."""
    header, *lines = errors.read_text(encoding="utf-8").splitlines()
    out.write_text("\n".join([header, *(line for line in lines if line.split(",")[0] in studies)]) + "\n", "utf-8")
    return out


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def _progress() -> Any:
    """Return what says every 20th batch or so how far the training is, and its CPU time."""
    began = time.process_time()

    def tell(what: str, done: int, total: int) -> None:
        if done % 320 < 16 or done == total:
            print(f"{what}: {done:,} of {total:,} pairs, {time.process_time() - began:.0f} s CPU", file=sys.stderr)

    return tell


if __name__ == "__main__":
    sys.exit(main())
