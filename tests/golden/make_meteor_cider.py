"""Make `meteor_cider.json`: METEOR of nltk over the tokens of BLEU, and CIDEr-D of pycocoevalcap.

    python tests/golden/make_meteor_cider.py /usr/share/wordnet ../shared/data/iu_xray

The first argument has WordNet 3.0 as Debian's package wordnet-base does, the second the public IU X-ray tables. Of
these nothing is kept but ids and scores. Pairs (candidate, reference) are those of `published.json`, and of real
reports. All pairs of a set are one evaluated set for CIDEr-D, whose document frequencies are those of its references.
CIDEr-D gets the raw texts, lower-cased and with a blank before each ".".
`synonyms` are what WordNet has for the stems of these texts, among themselves: nltk asks it for what is left after
stemming, which are stems. With them the tests need no WordNet.
"""

import csv
import json
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import nltk
from nltk.stem.porter import PorterStemmer
from nltk.translate.meteor_score import single_meteor_score
from pycocoevalcap.cider.cider import Cider

HOME = Path(__file__).parent
# What Debian's files lack and nltk opens: the names of the lexicographers' files, in the order of lexnames(5WN), and an
# index of senses, which no METEOR reads and which stays empty.
LEXNAMES = """
    adj.all adj.pert adv.all noun.Tops noun.act noun.animal noun.artifact noun.attribute noun.body noun.cognition
    noun.communication noun.event noun.feeling noun.food noun.group noun.location noun.motive noun.object noun.person
    noun.phenomenon noun.plant noun.possession noun.process noun.quantity noun.relation noun.shape noun.state
    noun.substance noun.time verb.body verb.change verb.cognition verb.communication verb.competition verb.consumption
    verb.contact verb.creation verb.emotion verb.motion verb.perception verb.possession verb.social verb.stative
    verb.weather adj.ppl
"""
PLACES = {"noun": 1, "verb": 2, "adj": 3, "adv": 4}


class NoWordNet:
    """A WordNet that knows no word."""

    def synsets(self, word):
        return []


def open_wordnet(folder, home):
    """Lay a WordNet out where nltk finds it, and return it."""
    nltk.data.path.insert(0, str(home))
    home /= "corpora/wordnet"
    shutil.copytree(folder, home)
    lines = [f"{i:02}\t{name}\t{PLACES[name.partition('.')[0]]}\n" for i, name in enumerate(LEXNAMES.split())]
    (home / "lexnames").write_text("".join(lines), encoding="utf-8")
    (home / "index.sense").touch()
    return nltk.corpus.wordnet


def prepared(text):
    return text.lower().replace(".", " .")


def tokens_of(text):
    return [piece for piece in prepared(text).split(" ") if piece]


def scores_of(pairs, wordnet):
    """Return METEOR with and without synonyms, and CIDEr-D of the pairs of texts as one evaluated set."""
    given, asked = ({i: [prepared(pair[side])] for i, pair in enumerate(pairs)} for side in (0, 1))
    cider = Cider().compute_score(asked, given)[1]
    meteor = [
        [
            single_meteor_score(tokens_of(reference), tokens_of(candidate), wordnet=some)
            for some in (wordnet, NoWordNet())
        ]
        for candidate, reference in pairs
    ]
    return [[*two, float(value)] for two, value in zip(meteor, cider, strict=True)]


def synonyms_of(words, wordnet):
    stem = PorterStemmer().stem
    stems = {stem(word) for word in words}
    found = {}
    for word in sorted(stems):
        names = {lemma.name() for synset in wordnet.synsets(word) for lemma in synset.lemmas()}
        if names & stems - {word}:
            found[word] = sorted(names & stems - {word})
    return found


published = json.loads((HOME / "published.json").read_text(encoding="utf-8"))
texts = [text for text, *_ in published["texts"]]
sets = {"published": ([(i, j) for i, j, _ in published["pairs"]], dict(enumerate(texts)))}
with (Path(sys.argv[2]) / "indiana_reports.csv").open(encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file))
for section, n in (("impression", 400), ("findings", 200)):
    by_id = {row["uid"]: row[section] for row in rows if row[section].strip()}
    ids = sorted(by_id, key=int)
    chosen = [(ids[(13 * i + 5) % len(ids)], ids[7 * i]) for i in range(n)]
    sets[section] = ([*chosen, *((i, i) for i, _ in chosen[::20])], by_id)
with tempfile.TemporaryDirectory() as folder:
    wordnet = open_wordnet(sys.argv[1], Path(folder))
    content = {
        "made_by": f"nltk {version('nltk')}, WordNet {wordnet.get_version()}, pycocoevalcap {version('pycocoevalcap')}",
        "sets": {},
    }
    used = set()
    for name, (pairs, by_id) in sets.items():
        scores = scores_of([(by_id[i], by_id[j]) for i, j in pairs], wordnet)
        content["sets"][name] = [[*pair, *values] for pair, values in zip(pairs, scores, strict=True)]
        used |= {word for pair in pairs for i in pair for word in tokens_of(by_id[i])}
    content["synonyms"] = synonyms_of(used, wordnet)
lines = json.dumps(content, ensure_ascii=True).replace("], [", "],\n[")
(HOME / "meteor_cider.json").write_text(lines + "\n", encoding="utf-8")
