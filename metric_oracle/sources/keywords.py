"""The options of the sources of reports and of the models that make them; a module that imports little.

A source is a file, a container in memory or, where its text names one, a model. In Python it may also be a function
that takes a list of texts and returns a value for each. The class of a source, which `metrics.SOURCES` names, reads it.
"""

from pathlib import Path
from typing import Annotated, Any, TypedDict

from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.declarations import BERTSCORE, FILES, Flag
from metric_oracle.base.validation import say_elsewhere

_FILE, _FOLDER = Flag(metavar="FILE", panel=FILES), Flag(metavar="FOLDER", panel=FILES)
_IDS = Doc(
    "Ids of the vectors, if their file has none: a text file with one id per line, or a table with an id column."
)
# Options of the encoder of token states, beside `encoder`.
OF_ENCODER = ("layer", "states", "bf16", "rescale_table")


class Sources(TypedDict, total=False):
    """Sources of reports, options of the models that make them, and the encoder of BERTScore."""

    radgraph: Annotated[
        Any,
        Doc(
            "RadGraph graphs, as the package radgraph returns them (JSON); or a RadGraph model (.tar.gz), which then "
            "makes them."
        ),
        _FILE,
    ]
    chexbert: Annotated[
        Any,
        Doc(
            "CheXbert embeddings (.npz, .npy, .parquet or .pt); or the CheXbert model chexbert.pth, which then makes "
            "them."
        ),
        _FILE,
    ]
    chexbert_ids: Annotated[Any, _IDS, _FILE]
    embeddings: Annotated[Any, Doc("Embeddings by a model other than CheXbert (.npz, .npy, .parquet or .pt)."), _FILE]
    embedding_ids: Annotated[Any, _IDS, _FILE]
    chexbert_labels: Annotated[
        Any, Doc("Table with the 14 CheXbert labels: an id column, and one per label (1, 0, -1 or empty)."), _FILE
    ]
    labels: Annotated[Any, Doc("Table with any labels: an id column, and one per label (1, 0, -1 or empty)."), _FILE]
    srr_labels: Annotated[
        Any, Doc("Table with the SRR-BERT labels: an id column, and one per finding and status (1 or 0)."), _FILE
    ]
    entities: Annotated[
        Any,
        Doc(
            "Entities with their vectors (.parquet, .json or .jsonl); or the folder of the model RaTE-NER, which then "
            "makes them."
        ),
        _FILE,
    ]
    sentences: Annotated[Any, Doc("Vectors of the sentences (.npz, .parquet, .json or .jsonl)."), _FILE]
    uncertain: Annotated[
        option_types.Uncertain | None,
        Doc(
            "What an uncertain label (-1) counts as: {}. blank means not mentioned. There is no default, because this "
            "changes the scores: needed with CheXbert labels, and where other labels are uncertain."
        ),
        Flag(panel=FILES),
    ]
    encoder: Annotated[
        str | Path | None,
        Doc(
            "Encoder of BERTScore: a folder, or the name of a Hugging Face model, which is downloaded. By default test "
            "reports of a search are encoded by the encoder of the index; elsewhere BERTScore needs this option."
        ),
        Flag(metavar="MODEL", panel=BERTSCORE, kind=str),
    ]
    layer: Annotated[
        option_types.Count | None,
        Doc(
            "Number of the layer of `encoder` whose hidden states BERTScore compares. By default 5 for "
            "distilroberta-base; any other encoder needs this option."
        ),
        Flag(panel=BERTSCORE),
    ]
    states: Annotated[
        option_types.States | None,
        Doc(
            "Precision in which the index stores the token states of `encoder` for BERTScore: {}. float16 takes half "
            "the space and changes scores in the fifth digit. By default float32."
        ),
        Flag(panel=BERTSCORE),
    ]
    bf16: Annotated[
        bool,
        Doc(
            "Run `encoder` in bfloat16, which changes the scores of BERTScore. It is faster on a GPU and on processors "
            "with AVX-512 or AMX, and slower on others. By default the encoder runs in float32."
        ),
        Flag(panel=BERTSCORE),
    ]
    rescale_table: Annotated[
        str | Path | None,
        Doc(
            "Baselines of `encoder`, with which BERTScore is then rescaled: the .tsv file of the bert_score package. "
            "By default the published ones of distilroberta-base; scores of other encoders are then not rescaled."
        ),
        Flag(panel=BERTSCORE),
    ]
    radgraph_encoder: Annotated[
        str | Path | None,
        Doc(
            "Folder with the configuration and tokenizer of the transformer that a RadGraph model is based on. By "
            "default a local folder of the transformer's name or, without one, the cache of Hugging Face is read."
        ),
        _FOLDER,
    ]
    vocabulary: Annotated[
        str | Path | None,
        Doc(
            "Vocabulary for the CheXbert model: the file vocab.txt of bert-base-uncased. By default it is taken from "
            "the folder of chexbert.pth or, if it is not there, the cache of Hugging Face."
        ),
        _FILE,
    ]
    entity_encoder: Annotated[
        str | Path | None,
        Doc(
            "Folder of the model BioLORD-2023-C, which makes the vectors of entities. Needed if `entities` is a model, "
            "and only then."
        ),
        _FOLDER,
    ]
    device: Annotated[
        option_types.Device | None,
        Doc("Device that runs the models: {}. By default cuda if this machine has a GPU."),
        Flag(panel=FILES),
    ]


say_elsewhere(Sources.__annotations__, "mo.reports(..., {})")
