"""Make `ratescore_models.json`: RaTEScore of the package ratescore 0.6.0, from texts on, with tiny models.

    pip install medspacy==1.3.1                              # in an environment of its own: it wants NumPy 1
    python tests/golden/make_ratescore_models.py sentences ../shared/data/iu_xray SENTENCES.json
    pip install --no-deps --target SITE RaTEScore==0.6.0     # with torch 2.13.0 and transformers 5.23.0
    python tests/golden/make_ratescore_models.py scores SITE ../shared/data/iu_xray SENTENCES.json

medspaCy cannot be installed beside NumPy 2, so its sentences are found first; then the package's class runs as it is
over a stand-in that gives them. The models are those of `tests/encoders/tiny_ratescore.py`. Of the reports of IU X-ray
ids and values alone are kept: how many sentences a report has, with a hash of them, and the scores of pairs.
"""

import csv
import hashlib
import importlib.util
import json
import random
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

HOME = Path(__file__).parent
N_SCORED = 140  # of the real reports
spec = importlib.util.spec_from_file_location("tiny_ratescore", HOME.parent / "encoders/tiny_ratescore.py")
tiny = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tiny)


def real_reports(folder):
    """Return 300 places (uid, section) of reports of IU X-ray, and their texts."""
    with (Path(folder) / "indiana_reports.csv").open(encoding="utf-8", newline="") as file:
        texts = {(r["uid"], s): r[s] for r in csv.DictReader(file) for s in ("findings", "impression")}
    places = random.Random(7).sample(sorted(place for place, text in texts.items() if text.strip()), 300)
    return places, [texts[place] for place in places]


def sentences(folder, out):
    """Find sentences with medspaCy as the package does, by its own rules and by the tiny ones."""
    import medspacy
    from loguru import logger

    logger.remove()
    found = {}
    for name, texts in (("iu_xray", real_reports(folder)[1]), ("made_up", tiny.made_up())):
        # The package asks for a component "medspacy_conte", which does not exist: this one alone runs.
        nlp = medspacy.load(medspacy_enable=["medspacy_pyrush", "medspacy_conte"])
        if name == "made_up":
            with tempfile.TemporaryDirectory() as home:
                rules = Path(home) / "rush_rules.tsv"
                tiny.write_rules(rules)
                nlp.remove_pipe("medspacy_pyrush")
                nlp.add_pipe("medspacy_pyrush", config={"rules_path": str(rules)})
        found[name] = {text: [str(sentence) for sentence in nlp(text).sents] for text in texts}
    Path(out).write_text(json.dumps(found), encoding="utf-8")


def scores(site, folder, sentences_file):
    """Run the package's class over texts, and write the golden file."""
    import torch
    import transformers

    given = json.loads(Path(sentences_file).read_text(encoding="utf-8"))
    known = given["iu_xray"] | given["made_up"]
    places, texts = real_reports(folder)
    content = {
        "made_by": f"ratescore 0.6.0, medspacy 1.3.1, PyRuSH 1.0.13, torch {torch.__version__}, transformers "
        f"{transformers.__version__}",
    }
    with tempfile.TemporaryDirectory() as home:
        recogniser, encoder = Path(home) / "ner", Path(home) / "biolord"
        content["weights"] = [tiny.write_recogniser(recogniser), tiny.write_encoder(encoder)]
        for name in ("medspacy", "pandas"):
            sys.modules.setdefault(name, ModuleType(name))
        sys.modules["medspacy"].load = lambda **options: lambda text: SimpleNamespace(sents=known[text])
        sys.path.insert(0, site)
        published = import_module("RaTEScore")

        def run(texts):
            """Return scores of each text with the next but one, and entities of those that the package can read."""
            tool = published.RaTEScore(str(recogniser), str(encoder), use_gpu=False)
            # A text without a sentence would get the entities of the next.
            is_read = [any(len(s.strip()) >= 3 for s in known[text]) for text in texts]
            some = [text for text, one in zip(texts, is_read, strict=True) if one]
            found = tool.compute_score(some[2:] + some[:2], some)
            pairs = published.scorer.run_ner(some, tool.idx2label, tool.tokenizer, tool.model, tool.device, 1)
            return is_read, found, pairs

        torch.set_num_threads(1)
        made_up = tiny.made_up()
        is_read, found, pairs = run(made_up)
        content["made_up"] = {
            "sentences": [[s.strip() for s in known[text] if s.strip()] for text in made_up],
            "is_read": is_read, "entities": pairs, "scores": found,
        }  # fmt: skip
        is_read, found, pairs = run(texts[:N_SCORED])
        assert all(is_read)
        clean = [[s.strip() for s in known[text] if s.strip()] for text in texts]
        content["iu_xray"] = {
            "places": places,
            "sentences": [[len(some), hashlib.sha256("\n".join(some).encode()).hexdigest()[:12]] for some in clean],
            "n_entities": [len(some) for some in pairs],
            "scores": found,
        }
    text = json.dumps(content).replace("], [", "],\n[").replace(', "', ',\n"')
    (HOME / "ratescore_models.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    {"sentences": sentences, "scores": scores}[sys.argv[1]](*sys.argv[2:])
