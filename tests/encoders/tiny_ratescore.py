"""Tiny models in the layouts of RaTE-NER-Deberta and BioLORD-2023-C, with random weights, and rules for sentences.

The weights are NumPy's, so that they are the same under each PyTorch; `golden/make_ratescore_models.py` gives these
folders to the published package.
"""

import hashlib

import numpy as np

LINE = "no acute focal pleural effusion pneumothorax edema mild severe left right lung lungs heart size is are"
WORDS = f"{LINE} normal clear stable the there of in with and opacity base bilateral unchanged enlarged xxxx".split()
TYPES = ("ABNORMALITY", "NON-ABNORMALITY", "DISEASE", "NON-DISEASE", "ANATOMY")
LABELS = ("O", *(f"{first}-{kind}" for kind in TYPES for first in "BI"))
# Made up, in RuSH's form: pattern, score, what it tells. Odd scores are of places that are none.
RULES = (
    ("\\b(\\C", 0, "stbegin"),
    ("\\b\\s+(\\C", 0, "stbegin"),
    ("\\c.\\s+(\\C", 0, "stbegin"),
    ("\\d.\\s+(\\C)", 0, "stbegin"),
    ("\\n\\s+(\\C)", 0, "stbegin"),
    ("\\n+(\\C)", 0, "stbegin"),
    ("\\n(\\d+.\\s+\\C", 0, "stbegin"),
    ("\\)\\s(\\C", 0, "stbegin"),
    ("?\\s+(\\C)", 0, "stbegin"),
    ("Dr. (\\C)\\c", 1, "stbegin"),
    ("\\c(.)\\s+\\C", 2, "stend"),
    ("\\d(.)\\s+\\C", 2, "stend"),
    ("\\c(.)\\n", 2, "stend"),
    ("\\c(.\\e", 2, "stend"),
    ("\\a(?)\\s+", 2, "stend"),
    ("\\c)\\s+\\n\\n", 2, "stend"),
    ("\\c)\\n\\n", 2, "stend"),
    ("(\\))\\s\\C", 2, "stend"),
    ("\\n\\d+(.)\\s+\\C", 3, "stend"),
    ("Dr(.) \\C\\c", 3, "stend"),
    ("\\c\\n+\\c", 3, "stend"),
    (",\\w+\\c\\c", 3, "stend"),
)
_MARKS = (" ", " ", " ", " ", ", ", ". ", ". ", ".  ", ".\n", ".\n\n", "\n", " \n ", "? ", ") ", ".", "\t", "\n2. ")


def made_up(n=240, seed=11):
    """Return texts of capital and small words with all kinds of marks between; some are empty, or alike."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(n):
        words = rng.choice([*WORDS, "Dr. Smith", "zebra", "3.5", "10", "A"], int(rng.integers(0, 24))).tolist()
        marks = rng.choice(_MARKS, len(words)).tolist()
        is_upper = rng.random(len(words)) < 0.4
        texts.append(
            "".join((w.capitalize() if up else w) + mark for w, up, mark in zip(words, is_upper, marks, strict=True))
        )
    return [*texts, "", " ", "A", "No.", texts[0], "No effusion." * 3, "no effusion " * 300, "\n\nHeart. Lungs clear."]


def write_rules(path, rules=RULES):
    path.write_text("# made up\n" + "".join(f"{p}\t{score}\t{told}\n" for p, score, told in rules), encoding="utf-8")


def fill(model, seed, attention=1.0):
    """Give a model random weights that are large enough to tell texts apart; return their hash.

    With weak attention a word has mostly one label, so that a report seldom has the same words under two types.
    """
    import torch

    rng, hasher = np.random.default_rng(seed), hashlib.sha256()
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            values = (rng.standard_normal(parameter.shape) * (0.6 if parameter.ndim > 1 else 0.2)).astype(np.float32)
            if "LayerNorm.weight" in name:
                values += 1
            elif "attention" in name:
                values *= np.float32(attention)
            parameter.copy_(torch.from_numpy(values))
            hasher.update(values.tobytes())
    return hasher.hexdigest()


def save_tokenizer(tokenizer, folder, **special):
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


def write_recogniser(folder, labels=LABELS, seed=3):
    """Write a token classifier of DeBERTa's second kind, whose words SentencePiece would cut so, and the rules."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import DebertaV2Config, DebertaV2ForTokenClassification

    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    pieces = [*special, *(f"▁{w}" for w in (*WORDS, *map(str.capitalize, WORDS)))]
    pieces += ["▁", "s", "ed", ".", ",", "?", ")", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"]
    pieces = list(dict.fromkeys(pieces))
    scores = [0.0 if p in special else -1.0 - 0.1 * (len(p) < 2) for p in pieces]
    tokenizer = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    save_tokenizer(
        tokenizer, folder, cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]",
        mask_token="[MASK]",
    )  # fmt: skip
    config = DebertaV2Config(
        vocab_size=len(pieces), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=512, relative_attention=True, position_buckets=16, norm_rel_ebd="layer_norm",
        share_att_key=True, pos_att_type=["p2c", "c2p"], type_vocab_size=0, position_biased_input=False,
        max_relative_positions=-1, id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
    )  # fmt: skip
    model = DebertaV2ForTokenClassification(config)
    found = fill(model, seed, attention=0.2)
    model.save_pretrained(folder)
    write_rules(folder / "rush_rules.tsv")
    return found


def write_encoder(folder, width=24, seed=4):
    """Write an encoder of MPNet's kind, which BioLORD-2023-C is."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import MPNetConfig, MPNetModel

    special = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = [*special, *WORDS, *letters, *(f"##{c}" for c in letters), *".,?)"]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    save_tokenizer(
        tokenizer, folder, cls_token="<s>", sep_token="</s>", pad_token="<pad>", unk_token="[UNK]", mask_token="<mask>"
    )
    config = MPNetConfig(
        vocab_size=len(vocabulary), hidden_size=width, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=64,
    )  # fmt: skip
    model = MPNetModel(config)
    found = fill(model, seed)
    model.save_pretrained(folder)
    return found
