"""What a new backend costs: one module beside the others of a metric, and its name in the registry."""

import sys
from types import ModuleType

import pytest

import metric_oracle as mo
from metric_oracle.base.errors import BackendError
from metric_oracle.base.validation import public
from metric_oracle.corpora.reports import Reports
from metric_oracle.kernels.rouge_l import cpu
from metric_oracle.retrieval import kernels
from metric_oracle.retrieval.plan import retrieve

TEXTS = ["no acute process", "no effusion", "stable edema", "no acute process", "edema"]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    reports = Reports([f"r{i}" for i in range(5)], TEXTS, "made up")
    return mo.build_index(reports, tmp_path_factory.mktemp("backends") / "I", metrics=["rouge-l", "bleu"])


@public
def searched(index, queries, metric, **options):
    """Return the answers of a search with an undeclared backend: within a public function nothing is checked."""
    return retrieve(index, queries, metric, **options)


@pytest.fixture
def abacus(monkeypatch):
    """Add a backend that searches as the CPU's does; return its class.

    Its name is not declared in `option_types.Backend`, so that it is given to `searched`.
    """
    module = ModuleType("metric_oracle.kernels.rouge_l.abacus")

    class Backend(cpu.Backend):
        seen: list[int] = []  # noqa: RUF012
        broken = ""

        def search(self, corpus, batch, queries, k, answers, workspace):
            self.seen.append(len(queries))
            super().search(corpus, batch, queries, k, answers, workspace)

        def lacking(self):
            return self.broken

    module.Backend = Backend
    monkeypatch.setitem(sys.modules, module.__name__, module)
    find = kernels.find_spec
    monkeypatch.setattr(kernels, "find_spec", lambda name: module if name == module.__name__ else find(name))
    return Backend


def test_a_backend_is_one_module_and_a_name(index, abacus):
    asked = ["no acute edema", "effusion"]
    fast, made_up = (searched(index, asked, "rouge-l", k=4, backend=b) for b in ("cpu", "abacus"))
    assert made_up.table.equals(fast.table)
    assert made_up.signature["backend"] == "abacus"
    assert abacus.seen == [2]


def test_a_metric_without_it(index, abacus):
    match = r'^searched: backend "abacus" is not usable: bleu-2 has no abacus kernels\. Use "cpu", or "auto"\.$'
    with pytest.raises(BackendError, match=match):
        searched(index, ["edema"], "bleu", backend="abacus")


def test_what_it_lacks_is_said(index, abacus, monkeypatch):
    monkeypatch.setattr(abacus, "broken", "two beads are missing")
    match = r'^searched: backend "abacus" is not usable: two beads are missing\. Use "cpu", or "auto"\.$'
    with pytest.raises(BackendError, match=match):
        searched(index, ["edema"], "rouge-l", backend="abacus")
