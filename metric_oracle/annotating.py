"""Models run over reports, and files of what they make."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from annotated_doc import Doc

from metric_oracle.base.argument_checks import check_left_out, given_of
from metric_oracle.base.checksum import replacing_signed
from metric_oracle.base.errors import InputError
from metric_oracle.base.job import working
from metric_oracle.base.progress import Progress, counter, say
from metric_oracle.base.validation import public
from metric_oracle.corpora.samples import Samples, is_sampled
from metric_oracle.metrics import ATTACHED
from metric_oracle.reading import Given, attached, check_models
from metric_oracle.sources.contract import Source, source_of

# Arguments that name a model, and other files of these models.
MODELS = tuple(source.arguments[0] for source in ATTACHED if source.model)
FILES = tuple(name for source in ATTACHED for name in source.model_arguments)


@public
def annotate(
    reports: Annotated[
        Given,
        Doc(
            "Reports, in any form that [`reports`][metric_oracle.reports] takes; or several reports of a model for "
            "each study, as for [`consensus`][metric_oracle.consensus]. Exactly one model is given with them: "
            "`radgraph`, `chexbert` or `entities`."
        ),
    ],
    out: Annotated[
        str | Path,
        Doc(
            "File to write. RadGraph makes graphs (.json), CheXbert makes embeddings (.npz) or labels (.csv), and the "
            "models of RaTEScore make entities with their vectors (.parquet)."
        ),
    ],
    *,
    progress: Progress | None = None,
) -> int:
    """Run a model over reports and write its output to a file: graphs, embeddings, labels or entities.

    RadGraph makes graphs (.json), CheXbert makes embeddings (.npz) or labels (.csv), and the two models of RaTEScore
    make entities with their vectors (.parquet). One model is given, and the ending of `out` chooses between embeddings
    and labels. The file is accepted everywhere instead of the model. An interrupted run resumes when the same call is
    made again.

    Returns
    -------
    int
        Number of reports in the file.

    Raises
    ------
    InputError
        If not exactly one model is given, or `out` has an ending that this model does not write.
    BackendError
        If a library of the model is not installed.

    Notes
    -----
    Of several reports for each study, [`consensus`][metric_oracle.consensus] and [`best_of`][metric_oracle.best_of]
    find what was made by the ids "50000001/0" (study, then sample). The model runs once for each distinct text. Its
    signature is written next to the file, as ``OUT.signature.json``.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> tests = mo.reports("test.csv", radgraph="radgraph.tar.gz")  # doctest: +SKIP
    >>> mo.annotate(tests, "test_graphs.json")  # doctest: +SKIP
    >>> tests = mo.reports("test.csv", radgraph="test_graphs.json")  # doctest: +SKIP
    """
    side = attached(reports)
    arguments = {**side.sources, **side.models, **side.of_encoder}
    check_left_out(arguments, "for reports that a model annotates", allowed=(*MODELS, *FILES, "device", "tell"))
    source, model, out = _check_call(arguments, out)
    check_models(side)
    data = side.read_samples() if is_sampled(side.data, side.options) else side.read()
    side.tell_of("samples" if isinstance(data, Samples) else "reports", data)
    read = data.reports() if isinstance(data, Samples) else data
    tell = side.models.get("tell")
    opened = source.open(model, {**given_of(arguments, FILES), "device": arguments.get("device")})
    scratch = out.with_name(f".{out.name}.annotating")
    count = counter(progress, "", len(read.ids))
    with working(scratch, "run of `mo.annotate`"):
        annotations = source.run(opened, read.texts, tell=lambda line: say(line, tell), progress=count, scratch=scratch)
        content = source.endings[out.suffix.lower()](annotations, read.ids)
        with replacing_signed(out, opened.signature) as temporary:
            temporary.write_bytes(content)
        shutil.rmtree(scratch)
    return len(read.ids)


def _check_call(arguments: Mapping[str, Any], out: str | Path) -> tuple[Source, Any, Path]:
    """Return the source whose model is to run, the path of the model, and the file to write.

    `arguments` are those of `reports` by name. Raise InputError unless exactly one of them is a model that writes files
    of the ending of `out`.
    """
    named = {name: arguments[name] for name in MODELS if arguments.get(name) is not None}
    if len(named) != 1:
        listed = ", ".join(f"`{name}`" for name in MODELS)
        raise InputError(f"exactly one of {listed}", "must be given", len(named), "Pass one model at a time.")
    ((name, model),) = named.items()
    (source,) = (
        source_of(attached_source.name) for attached_source in ATTACHED if attached_source.arguments[0] == name
    )
    if not source.is_model(model):
        raise InputError(
            name, f"must be {source.record.model}", model, "Pass the model itself, not a file that it wrote."
        )
    if Path(out).suffix.lower() not in source.endings:
        endings = " or ".join(source.endings)
        raise InputError("out", f"must end with {endings} for this model", out, "Name such a file.")
    return source, model, Path(out)
