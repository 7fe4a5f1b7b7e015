"""Sides: references and predictions that are compared, read once, joined on ids, with what serves both.

Every function that compares what models wrote with what radiologists wrote gets them here, so that all join, check and
tell alike.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.base.argument_checks import check_left_out, given_of
from metric_oracle.base.errors import InputError, read_call, shown
from metric_oracle.base.progress import Progress, say
from metric_oracle.corpora.joined import MISSING, UNPREDICTED, UNREFERENCED, UNSCORABLE, JoinedIds, check_lengths
from metric_oracle.corpora.joining import PLACE, check_joined, check_two_columns, shared_column
from metric_oracle.corpora.reports import ALL_SPLITS, Reports, table_of
from metric_oracle.corpora.samples import Samples
from metric_oracle.corpora.sections import check_sections
from metric_oracle.corpora.tables import Table, ids_hint, series_of, together
from metric_oracle.corpora.usual_names import GENERATED, generated_names, matching, written_names
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.shards import is_prepared
from metric_oracle.metrics import ATTACHED, REPRESENTATIONS
from metric_oracle.reading import AttachedReports, Given, attached, say_wordless
from metric_oracle.records import Metric
from metric_oracle.sources.attaching import attach_sources, attached_sources, is_model, run_models

_ROW = "row"  # name of the numbers of rows, the ids of a table without others


@dataclass(frozen=True)
class Nouns:
    """What messages call the sides of a function, and what its caller can say of them."""

    references: str = "references"
    prediction: str = "{name}"  # of a name, such as "model {shown}" with the name in quotes
    has_section: bool = True  # whether a caller can state the section of predictions
    is_of_index: bool = False  # whether the references have the section of an index
    may_have_more: bool = False  # whether predictions without a reference are left out, and are no error
    has_inner: bool = False  # of these, whether the caller can leave references without a prediction out
    is_told: bool = False  # whether a listener hears what was read of each side, also where there is nothing to note

    @property
    def is_name(self) -> bool:
        """Whether messages call predictions by their name alone, as where there is one side of them."""
        return self.prediction == "{name}"

    def step_for(self, section: str, other: str) -> str:
        """Return the advice for references of the section `section` and predictions of the section `other`."""
        if self.is_of_index:
            stated = f"`mo.reports(model, mo.Read(section={section!r}))`"
            return f"Say by {stated} what it writes, or search an index of its section"
        step = f"Pass `mo.reports(..., mo.Read(section={other!r}))`"
        stated = f"`mo.reports(predictions, mo.Read(section={section!r}))`"
        return f"{step}, or {stated} where that is what the model writes" if self.has_section else step


_PLAIN = Nouns()
SCORED = Nouns(is_told=True)


@dataclass(frozen=True)
class Joined:
    """The pairs of references and predictions with one id, in the order of the references."""

    references: list[int]  # positions
    predictions: list[int]
    left_out: dict[str, int]  # numbers of reports left out, by reason


@dataclass(frozen=True, repr=False, eq=False)
class Sides:
    """References and predictions, by name; `read` returns them with what was read."""

    references: AttachedReports | None  # None where predictions are compared with a corpus alone
    predictions: Mapping[str, AttachedReports]
    nouns: Nouns = _PLAIN
    truth: Reports | None = None  # the references that were read
    written: Mapping[str, Any] = field(default_factory=dict)  # the predictions that were read: Reports or Samples

    @classmethod
    def of(cls, references: Given | None, predictions: Mapping[str, Given], nouns: Nouns = _PLAIN) -> "Sides":
        """Return the sides that were given, to be read by `read`; predictions keep the order of their names.

        Predictions are read by the columns named for the references where their file has them, too.
        """
        written = {name: attached(data) for name, data in predictions.items()}
        if references is None:
            return cls(None, written, nouns)
        truth = attached(references)
        written = {name: _beside(side, truth) for name, side in written.items()}
        return cls(*_numbered(truth, written), nouns)

    def noun(self, name: str) -> str:
        """Return what messages call the predictions of a name."""
        return self.nouns.prediction.format(name=name, shown=shown(name))

    def tell(self, line: str) -> None:
        """Tell a line: to the listener, else as a warning."""
        say(line, self.listener)

    @property
    def listener(self) -> Callable[[str], None] | None:
        """The function that one of the sides has for notes, such as that of a command; None if they are warnings."""
        return next((side.models["tell"] for side in self._attached if "tell" in side.models), None)

    @property
    def read_truth(self) -> Reports:
        """The references, which were read."""
        assert self.truth is not None
        return self.truth

    @property
    def _attached(self) -> list[AttachedReports]:
        """The sides as they were given, the references first."""
        return [*([] if self.references is None else [self.references]), *self.predictions.values()]

    def read(
        self,
        section: str | None = None,
        *,
        keep: Sequence[str] = (),
        as_truth: Callable[[AttachedReports], Reports] | None = None,
        as_written: Callable[[AttachedReports, str | None], Any] | None = None,
    ) -> "Sides":
        """Read both sides, tell what was left out or chosen, and check that their sections agree.

        `section` is the default of the references', and theirs that of the predictions'. `keep` names columns of the
        references to keep. `as_truth` and `as_written` read a side in another way, such as samples.
        """
        as_written = as_written or _as_predictions

        def read_truth(column: str | None = None) -> Reports | None:
            """Return the references, by a column of ids if it is named."""
            side = self.references
            if side is None:
                return None
            if as_truth is not None:
                return as_truth(side)
            side = side if column is None else side.with_ids(column)
            return side.read(default_section=section, keep=keep)

        def read_written(truth: Reports | None, side: AttachedReports, column: str | None = None) -> Any:
            """Return predictions in the section of the references, by a column of ids if it is named."""
            wanted = section if truth is None or truth.section is None else truth.section
            return as_written(side if column is None else side.with_ids(column), wanted)

        truth, *predictions = together(
            read_truth, *(partial(read_written, side=side) for side in self.predictions.values())
        )
        written = dict(zip(self.predictions, predictions, strict=True))
        column, columns = self._shared_columns(truth, written, is_free=as_truth is None)
        if column is not None:
            truth = read_truth(column)
        written |= {name: read_written(truth, self.predictions[name], own) for name, own in columns.items()}
        sides = replace(self, truth=truth, written=written)
        sides._tell_of_reading()
        sides._check_sections()
        return sides

    def _shared_columns(
        self, truth: Reports | None, written: Mapping[str, Any], is_free: bool
    ) -> tuple[str | None, Mapping[str, str]]:
        """Return the columns of ids that both sides have in common, by which they are read again.

        The first is that of the references, None if it stays: it changes only if it `is_free`, and all predictions
        have the other.
        """
        if truth is None:
            return None, {}
        pairs = {name: shared_column(truth.ids_from, one.ids_from) for name, one in written.items()}
        pairs = {name: pair for name, pair in pairs.items() if not _is_read(self.predictions[name].data)}
        wanted = {pair and pair[0] for pair in pairs.values()}
        is_free = is_free and self.references is not None and not _is_read(self.references.data)
        column = next(iter(wanted)) if is_free and len(wanted) == 1 and len(pairs) == len(written) else None
        taken = truth.ids_from.name if column is None else column
        return column, {name: pair[1] for name, pair in pairs.items() if pair is not None and pair[0] == taken}

    def _tell_of_reading(self) -> None:
        """Tell what reading left out, counted as missing or chose."""
        read = [(self.noun(name), side, self.written[name]) for name, side in self.predictions.items()]
        if self.references is not None and self.truth is not None:
            read.insert(0, (self.nouns.references, self.references, self.truth))
        for noun, side, one in read:
            if one.is_noted or self.nouns.is_told:
                side.tell_of(noun, one, self.listener)

    def _check_sections(self) -> None:
        """Raise InputError if the sections of both sides differ; tell if they may."""
        of_truth = (None, "") if self.truth is None else self.truth.known_section
        for name, one in self.written.items() if self.truth is not None else ():
            section = one.section if isinstance(one, Samples) else one.known_section
            step = self.nouns.step_for(str(of_truth[0]), str(section[0]))
            nouns = (self.nouns.references, self.noun(name))
            warning = check_sections(of_truth, section, nouns, step, has_option=self.nouns.has_section)
            if warning:
                self.tell(warning)

    def tell_wordless(self, metrics: Iterable[Metric]) -> None:
        """Tell how many texts of each side have no word under the metrics; see `say_wordless`."""
        texts = {} if self.truth is None else {self.nouns.references: self.truth.texts}
        for name, one in self.written.items():
            noun = self.noun(name) if self.nouns.is_name else f"reports of {self.noun(name)}"
            is_sampled = isinstance(one, Samples)
            texts[f"distinct {noun}" if is_sampled else noun] = one.distinct().texts if is_sampled else one.texts
        say_wordless(metrics, texts, self.tell)

    def join(self, name: str, inner: bool = False) -> Joined:
        """Join the references and the predictions called `name` on ids, and tell which reports are left out.

        Raise InputError if less than half of the shorter side is in both, if no id has a text on both sides, if texts
        that are joined by their place differ in number, or, unless `inner`, if a report is left out for another reason
        than a missing or empty reference.
        """
        truth, written = self.read_truth, self.written[name]
        nouns = self.nouns.references, self.noun(name)
        check_joined(truth.ids_from, written.ids_from, self.tell, nouns)
        check_two_columns(truth, written, nouns)
        if isinstance(written, Samples):
            n = len(written.ids)
            written = Reports(written.ids, [""] * n, written.source, {"rows": n}, ids_from=written.ids_from)
        if truth.ids_from == written.ids_from == PLACE:
            check_lengths(truth, written)
        ids = JoinedIds.of(truth, written)
        if ids.is_plain:
            self.tell("ids such as CXR1_IM-0001 are read as 1")
        ids.check_shared(nouns, (truth, written))
        left_out = ids.left_out()
        lacking = {what: of for what, of in left_out.items() if of and what != UNSCORABLE}
        if self.nouns.may_have_more:
            lacking.pop(UNREFERENCED, None)
        if lacking and not inner:
            raise self._incomplete(name, ids, left_out)
        counts = {what: len(of) for what, of in left_out.items() if of}
        if counts:
            whose = "" if self.nouns.is_name else f" of {self.noun(name)}"
            self.tell(f"left out{whose}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))
        return Joined(*ids.pairs(), counts)

    def _incomplete(self, name: str, ids: JoinedIds, left_out: Mapping[str, Sequence[str]]) -> InputError:
        """Return the error for ids that one side lacks."""
        truth = self.read_truth
        nouns = self.nouns.references
        of_split = f" The {nouns} are of all splits: `mo.reports(..., mo.Read(split='test'))` takes those of the tests."
        is_of_all = f", {ALL_SPLITS}, " in truth.source and left_out[UNPREDICTED]
        hint = of_split if is_of_all else ids_hint(ids.references, ids.predictions)
        if self.nouns.may_have_more:
            lacking = [*left_out[UNPREDICTED], *left_out[MISSING]]
            leave = ", or pass `inner=True` to leave these reports out" if self.nouns.has_inner else ""
            return InputError(
                f"{self.noun(name)} has no report for {len(lacking):,} of {len(ids.references):,} "
                f"{self.nouns.references} ({shown(*lacking[:3])}).",
                f"Complete its file{leave}.{hint}",
            )
        listed = " and ".join(f"{len(of)} {what} ({shown(*of[:3])})" for what, of in left_out.items() if of)
        return InputError(
            f"{len(ids.references)} {self.nouns.references} and {len(ids.predictions)} {self.noun(name)}",
            "must have the same ids",
            listed,
            f"Complete them, or pass `inner=True` to score the ids that have both.{hint}",
        )

    @property
    def models(self) -> dict[str, Any]:
        """The options of models that serve both sides.

        Raise InputError if the sides differ in one, or in their encoder, or if `states` or `bf16` is given, which
        scores do not have.
        """
        models: dict[str, Any] = {}
        for side in self._attached:
            check_left_out({name: side.of_encoder.get(name) for name in ("states", "bf16")}, "for scores")
        first = self._attached[0]
        for other in self._attached[1:]:
            both = first.models.keys() & other.models.keys()
            differing = sorted(name for name in both if first.models[name] != other.models[name])
            if first.of_encoder and other.of_encoder and first.of_encoder != other.of_encoder:
                differing.append("encoder")
            if differing:
                rule, step = "must be the same for both sides", "Pass it with the references only."
                raise InputError(differing[0], rule, "two different values", step)
        for side in reversed(self._attached):
            models |= side.models
        return models

    @property
    def is_encoded(self) -> bool:
        """Whether an encoder of token states was given."""
        return any(side.of_encoder for side in self._attached)

    def own_sources(self, name: str) -> dict[str, Any]:
        """Return the sources of predictions by argument, without models that the references have: these serve both."""
        own = self.predictions[name].sources
        of_references = {} if self.references is None else self.references.sources
        shared = {
            source.argument
            for source in attached_sources()
            if source.is_model(own.get(source.argument))
            and str(of_references.get(source.argument)) == str(own[source.argument])
        }
        return {argument: value for argument, value in own.items() if argument not in shared}

    def check_sources(self, name: str, metrics: Sequence[Metric]) -> None:
        """Raise InputError unless both sides have the sources that the metrics read.

        Without metrics, every source that one side has must be given for the other, too.
        """
        read = {kind for metric in metrics for kind in metric.representations} if metrics else {*REPRESENTATIONS}
        available = self._sources_of_both(name, read)
        available |= {kind for kind, metric in REPRESENTATIONS.items() if metric.is_of_texts}
        # Token states of the references are made with the encoder of the predictions'.
        held = self.written[name].attached
        available |= {kind for kind, r in REPRESENTATIONS.items() if r.is_encoded and (self.is_encoded or kind in held)}
        for metric in metrics:
            for kind in metric.representations:
                needs = REPRESENTATIONS[kind].source
                if needs is not None and kind not in available and metric.is_searched:
                    what, rule = f"{needs.plural} of both sides", f"must be given for metric {metric.name!r}"
                    each = ", for each side" if needs.made == "attached" else ""
                    raise InputError(what, rule, "none", f"Add {needs.option}{each}.")

    def _sources_of_both(self, name: str, needed: Set[str]) -> set[str]:
        """Return the names of the sources that both sides have.

        Raise InputError if one side lacks a source that is `needed` and that the other side has. With `uncertain` a
        CheXbert model gives labels, too.
        """
        assert self.references is not None
        files, own = self.references.sources, self.own_sources(name)
        held = self.read_truth.attached, self.written[name].attached
        models = [argument for argument, value in files.items() if is_model(argument, value)]
        is_labelled = self.models.get("uncertain") is not None and "chexbert" in models
        of_both = set()
        for source in ATTACHED:
            kind, argument = source.name, source.arguments[0]
            of_chexbert = kind == "labels" and is_labelled
            both = argument in models or (of_chexbert and argument not in files and argument not in own)
            has = [argument in of or kind in kinds or both for of, kinds in zip((files, own), held, strict=True)]
            if kind in needed and any(has) and not all(has) and (argument in files or argument in own):
                lacking, rule = "references" if has[1] else "predictions", "must be given for both sides"
                raise InputError(source.plural, rule, f"none for the {lacking}", f"Add {source.option}, for each side.")
            of_both |= {kind} if all(has) else set()
        return of_both

    def load(
        self, name: str, truth: Reports, written: Reports, progress: Progress | None = None
    ) -> tuple[Reports, Reports]:
        """Return references and predictions with their sources.

        `truth` and `written` are those of the reports that were read which are to be scored.
        A model that was given for the references runs once for both, and so does the encoder of either side.
        """
        assert self.references is not None
        options = self.models | given_of({"progress": progress})
        encoded = next((side for side in self._attached if side.of_encoder), None)
        encoder = None if encoded is None else encoded.open_encoder(progress)
        own, sides, files = self.own_sources(name), [truth, written], dict(self.references.sources)
        of_both = [argument for argument, value in files.items() if argument not in own and is_model(argument, value)]
        shared = {argument: files.pop(argument) for argument in of_both}
        shared = {name: model for name, model in shared.items() if not all(name in side.attached for side in sides)}
        loaded = [
            run_models(attach_sources(side, opened_encoder=encoder, **options, **sources))
            for side, sources in zip(sides, (files, own), strict=True)
        ]
        if shared:
            texts = [*truth.texts, *written.texts]
            both = run_models(attach_sources(Reports([str(i) for i in range(len(texts))], texts), **options, **shared))
            n = len(truth.texts)
            for i, rows in enumerate((np.arange(n), np.arange(n, len(texts)))):
                loaded[i] = replace(loaded[i], attached={**both.take(rows).attached, **loaded[i].attached})
        # One section for both: `read` has compared them.
        section = truth.known_section if truth.section else written.known_section
        return replace(loaded[0], section=section[0], section_by=section[1]), loaded[1]


def _as_predictions(side: AttachedReports, section: str | None) -> Reports:
    """Return predictions, in the section if it is known."""
    return side.read(predictions=True, default_section=section)


def _is_read(data: Given) -> bool:
    """Return whether reports were read before, so that no option on reading applies to them."""
    return isinstance(data, Reports | Index | Samples) or is_prepared(data)


def _is_same(one: AttachedReports, other: AttachedReports) -> bool:
    """Return whether two sides are one file, or one container."""
    files = [side.data for side in (one, other)]
    if all(isinstance(data, str | Path) for data in files):
        return Path(files[0]) == Path(files[1])
    return files[0] is files[1]


def _beside(predictions: AttachedReports, references: AttachedReports) -> AttachedReports:
    """Return predictions, to be read by the columns named for the references, where their file has them, too.

    A column that is called `prediction` or the like is before the references' column of texts, and that of the same
    file is not taken at all.
    """
    named = {name: value for name, value in references.options.given.items() if name in ("id_column", "text_column")}
    named = {name: value for name, value in named.items() if name not in predictions.options.given}
    if not named or _is_read(predictions.data):
        return predictions
    columns = predictions.column_names()
    if _is_same(predictions, references) or matching(columns, GENERATED):
        named.pop("text_column", None)
    if predictions.options.ids is not None:
        named.pop("id_column", None)
    return predictions.read_as(**{name: column for name, column in named.items() if column in columns})


def _clear_names(table: Table) -> list[str | None]:
    """Return the columns of references and predictions of a table that has both, each None if that is not clear."""

    def unknown() -> list[str]:
        """Return the columns of words without a usual name."""
        return table.others_of_words("")

    of_sides = written_names(table.names, unknown), generated_names(table.names, None, unknown)
    return [names[0] if is_clear else None for names, is_clear in of_sides]


def _numbered(
    references: AttachedReports, predictions: Mapping[str, AttachedReports]
) -> tuple[AttachedReports, Mapping[str, AttachedReports]]:
    """Return both sides, to be read by the numbers of the rows if they are columns of one table without ids.

    Raise InputError if the columns of such a table are not named.
    """
    both = [references, *predictions.values()]
    is_told = any(side.options.id_column or side.options.ids for side in both)
    if not predictions or is_told or _is_read(references.data) or not all(_is_same(references, side) for side in both):
        return references, predictions
    table = table_of(references.data, references.options.encoding, references.options.separator)
    if table is None or table.has_ids:
        return references, predictions
    columns = [side.options.text_column for side in both]
    if len(both) == 2:
        columns = [stated or name for stated, name in zip(columns, _clear_names(table), strict=True)]
    if None in columns or len({*columns}) < len(columns):
        raise InputError(
            "references and predictions",
            "must be two columns of a table without ids that is given for both",
            f"{shown(*[name or 'no column' for name in columns])} of the columns {table.header}",
            f"Say for each how it is read: {read_call(references.data, {'text_column': 'NAME'})}.",
        )
    numbered = replace(table, keys=series_of(_ROW, range(table.n_rows)))
    first, *others = (
        replace(
            side.read_as(encoding=None, separator=None, id_column=_ROW, text_column=column),
            data=numbered,
        )
        for side, column in zip(both, columns, strict=True)
    )
    return first, dict(zip(predictions, others, strict=True))
