import json
import re
import shutil

import numpy as np
import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.encoders.crepe import Crepe
from metric_oracle.synthetic.corpus import write_synthetic
from support import assert_refused, write
from support.crepe import VOCABULARY

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from metric_oracle.encoders import crepe_training as training  # noqa: E402

WORDS = ("edema", "mild", "effusion", "heart", "large", "left")
FAST = training.TrainingSettings(epochs=6, batch_size=8, learning_rate=5e-3, presence_weight=0.5, seed=1)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """So small a model is four times as fast without company."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Return a tiny encoder with a vocabulary of whole words, as a folder of the Hugging Face kind."""
    folder = tmp_path_factory.mktemp("base") / "bert"
    words = [*VOCABULARY, *WORDS]
    torch.manual_seed(2)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        initializer_range=0.2,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return folder


def made_up(n, seed=0):
    """Return pairs in which every word of the candidate is an error of its own category."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 2, (n, 6)).astype(np.float64)
    return [("no", " ".join(w for w, c in zip(WORDS, row, strict=True) if c) or "no") for row in counts], counts


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "crepe"
    told = []
    made = training.train(*made_up(160), base, out, FAST, device="cpu", progress=lambda *said: told.append(said))
    return out, made, told


def test_it_learns(trained):
    out, made, told = trained
    pairs, counts = made_up(60, seed=9)
    found, _ = Crepe(out, device="cpu").count_errors(pairs)
    constant = ((counts - counts.mean(0)) ** 2).mean()
    assert ((found - counts) ** 2).mean() < 0.6 * constant
    assert made["losses"][-1] < 0.7 * made["losses"][0]
    assert len(made["losses"]) == FAST.epochs
    assert told[-1] == ("epoch 6", 160, 160)
    assert len({said[0] for said in told}) == FAST.epochs


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.txt"])
def test_a_changed_checkpoint_is_refused(trained, tmp_path, name):
    out = tmp_path / "crepe"
    shutil.copytree(trained[0], out)
    content = bytearray((out / name).read_bytes())
    content[-5] ^= 1
    (out / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"{name} was changed after it was written: .* Write it again, or delete"):
        Crepe(out)


def test_the_checkpoint_has_the_published_layout(trained, base):
    from safetensors.torch import load_file

    out, made, _ = trained
    files = {"config.json", "model.safetensors", "training.json", "vocab.txt"}
    assert {p.name for p in out.iterdir()} == files | {f"{name}.signature.json" for name in files}
    config = json.loads((out / "config.json").read_text())
    wanted = {"num_error_categories": 6, "use_poisson_loss": False, "use_presence_loss": True,
              "presence_loss_weight": 0.5, "model_type": "bert"}  # fmt: skip
    assert wanted.items() <= config.items()
    names = load_file(out / "model.safetensors").keys()
    assert {f"{head}.{i}.{part}" for head in ("error_regressors", "error_presence") for i in range(6)
            for part in ("weight", "bias")} == {name for name in names if not name.startswith("bert.")}  # fmt: skip
    described = json.loads((out / "training.json").read_text())
    assert described == made
    assert described["base"] == str(base)
    assert described["pairs"] == 160
    assert {"epochs": 6, "batch_size": 8, "learning_rate": 5e-3, "presence_weight": 0.5, "seed": 1}.items() <= (
        described["settings"].items()
    )
    assert not list(out.parent.glob(".*"))


def test_the_same_seed_gives_the_same_model_and_leaves_the_callers_numbers(base, tmp_path):
    pairs, counts = made_up(24)
    torch.manual_seed(77)
    first = torch.rand(3)
    torch.manual_seed(77)
    settings = training.TrainingSettings(epochs=1, batch_size=8, learning_rate=1e-3)
    for name in "ab":
        training.train(pairs, counts, base, tmp_path / name, settings, device="cpu")
    assert torch.equal(torch.rand(3), first)
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    other = training.TrainingSettings(epochs=1, batch_size=8, learning_rate=1e-3, seed=1)
    training.train(pairs, counts, base, tmp_path / "c", other, device="cpu")
    assert (tmp_path / "a/model.safetensors").read_bytes() != (tmp_path / "c/model.safetensors").read_bytes()


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_dual_loss(weight):
    """By hand, cell by cell: (1 - w) of the squared errors' mean and w of the cross-entropies' mean."""
    rng = np.random.default_rng(3)
    found, presence, wanted = rng.normal(size=(4, 6)), rng.normal(size=(4, 6)), rng.integers(0, 3, (4, 6))
    squares = [(f - w) ** 2 for f, w in zip(found.ravel(), wanted.ravel(), strict=True)]
    entropies = [
        -np.log(1 / (1 + np.exp(-p))) if w > 0 else -np.log(1 - 1 / (1 + np.exp(-p)))
        for p, w in zip(presence.ravel(), wanted.ravel(), strict=True)
    ]
    by_hand = (1 - weight) * sum(squares) / 24 + weight * sum(entropies) / 24
    tensors = [torch.tensor(values, dtype=torch.float64) for values in (found, presence, wanted)]
    assert float(training.dual_loss(*tensors, weight)) == pytest.approx(by_hand, abs=1e-12)


def test_every_pair_is_seen_once_an_epoch():
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 90, 1003).tolist()
    batches = training._batches(lengths, 16, rng)
    assert sorted(np.concatenate(batches).tolist()) == list(range(1003))
    assert max(map(len, batches)) == 16
    spread = [max(lengths[i] for i in some) - min(lengths[i] for i in some) for some in batches]
    assert np.mean(spread) < 10  # of like lengths: little padding


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"epochs": 0}, "epochs must be an int of at least 1; got 0."),
        ({"batch_size": 0}, "batch_size must be an int of at least 1; got 0."),
        ({"learning_rate": 0.0}, "learning_rate must be a number between 0 and 1; got 0.0."),
        ({"learning_rate": 1.0}, "learning_rate must be a number between 0 and 1; got 1.0."),
        ({"presence_weight": 1.5}, "presence_weight must be a number from 0 to 1; got 1.5."),
    ],
)
def test_settings_that_are_none(base, tmp_path, changes, line):
    with pytest.raises(InputError, match=f"^{re.escape(line)} Choose another number\\.$"):
        training.train(*made_up(4), base, tmp_path / "out", training.TrainingSettings(**changes), device="cpu")
    assert not list(tmp_path.iterdir())


def test_a_loss_that_grows_without_end(base, tmp_path):
    pairs, counts = made_up(8)
    with pytest.raises(InputError, match=r"^loss must stay finite; got (inf|nan) in epoch 1\. Lower"):
        training.train(pairs, counts * 1e30, base, tmp_path / "out", training.TrainingSettings(1, 8, 0.9), device="cpu")
    assert not list(tmp_path.iterdir())


def test_what_there_is_nothing_to_learn_from(base, tmp_path):
    pairs, counts = made_up(4)
    for some, numbers, below in (
        (pairs, counts[:, :5], ""),
        (pairs[:3], counts, ""),
        ([], counts[:0], ""),
        (pairs, counts - 5, ", with numbers below 0 or NaN"),
        (pairs, counts * np.nan, ", with numbers below 0 or NaN"),
    ):
        line = (
            f"counts must be numbers from 0, six for each of {len(some)} pairs (at least one); got shape "
            f"{numbers.shape}{below}. Pass the errors of categories A to F."
        )
        with pytest.raises(InputError, match=f"^{re.escape(line)}$"):
            training.train(some, numbers, base, tmp_path / "out", FAST, device="cpu")
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match=r"^out must be a new folder; got .*/out, which exists\."):
        training.train(pairs, counts, base, tmp_path / "out", FAST, device="cpu")


def test_a_base_that_is_none(base, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for path in base.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    config = json.loads((base / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "model_type": "roberta"}))
    with pytest.raises(InputError, match=r"^base must be a BERT encoder with.*got roberta in"):
        training.train(*made_up(4), other, tmp_path / "out", FAST, device="cpu")
    (other / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"^base must be a BERT encoder with"):
        training.train(*made_up(4), other, tmp_path / "out", FAST, device="cpu")


def test_the_command_from_synthetic_pairs_to_scores(oracle, tmp_path, base):
    paths = write_synthetic(tmp_path / "synth", 40, 10, seed=1, errors=True)
    out = tmp_path / "crepe"
    train = ("train-crepe", paths["train"], paths["train_candidates"], paths["train_errors"], "--base", base)
    code, shown, err = oracle(*train, "--out", out, "--epochs", 2, "--batch-size", 8, "--learning-rate", "0.001")
    assert (code, shown) == (0, ""), err
    assert re.search(rf"{re.escape(str(out))}: \d\d pairs, mean loss of each epoch \d\.\d{{4}}, \d\.\d{{4}}\n$", err)
    settings = json.loads((out / "training.json").read_text())["settings"]
    assert {"epochs": 2, "batch_size": 8, "learning_rate": 0.001, "presence_weight": 0.5}.items() <= settings.items()
    code, shown, err = oracle(
        "score", paths["test"], paths["test_candidates"], "-m", "crepe,bleu", "--crepe", out, "--format", "csv"
    )
    assert code == 0, err
    assert shown.startswith(
        '"query_id","crepe","bleu-2","crepe.nA","crepe.nB","crepe.nC","crepe.nD","crepe.nE","crepe.nF"'
    )


def test_ratings_of_other_pairs(oracle, tmp_path, base):
    references, made = (write(tmp_path / f"{name}.csv", {"1": "a b", "2": "c"}) for name in ("one", "two"))
    header = ("study_id", "error_category", "rater_index", "clinically_significant", "num_errors")

    def rated(name, studies, categories):
        rows = [(s, c, 0, g, 1) for s in studies for c in range(categories) for g in ("true", "false")]
        return write(tmp_path / name, rows, header)

    common = ("--base", base, "--out", tmp_path / "out")
    outcome = oracle("train-crepe", references, made, rated("other.csv", "89", 6), *common)
    assert_refused(outcome, r"train-crepe: ratings must be of these pairs; got none of 2 in .*other\.csv\.", r".*")
    outcome = oracle("train-crepe", references, made, rated("eight.csv", "12", 8), *common)
    assert_refused(outcome, r"train-crepe: ratings must have six categories of errors, A to F; got 8 in", r".*")
    code, _, err = oracle("train-crepe", references, made, rated("some.csv", "1", 6), *common, "--epochs", "1")
    assert code == 0
    assert "left out: 1 pairs without counts\n" in err


def test_counts_belong_to_the_pairs_by_their_ids(oracle, tmp_path, base):
    """Rated pairs that have no text, and another order of the rows, change nothing that is learned."""
    header = ("study_id", "error_category", "rater_index", "clinically_significant", "num_errors")
    texts = {str(n): f"{WORDS[n % 6]} {WORDS[n % 5]}" for n in range(1, 7)}
    rows = [(s, c, 0, g, (int(s) * (c + 1)) % 4) for s in texts for c in range(6) for g in ("true", "false")]
    more = [("0", c, 0, g, 9) for c in range(6) for g in ("true", "false")]
    references, made = (write(tmp_path / f"{name}.csv", texts) for name in ("one", "two"))
    learned = []
    for name, rated in (("plain", rows), ("more", [*more, *rows[::-1]]), ("fewer", [*rows[:-1], (*rows[-1][:4], 9)])):
        words = ["train-crepe", references, made, write(tmp_path / f"{name}.csv", rated, header), "--base", base]
        code, _, err = oracle(*words, "--out", tmp_path / name, "--epochs", "2", "--batch-size", "2")
        assert code == 0, err
        learned.append(json.loads((tmp_path / name / "training.json").read_text())["losses"])
    plain, of_more, of_others = learned
    assert of_more == plain
    assert of_others != plain
