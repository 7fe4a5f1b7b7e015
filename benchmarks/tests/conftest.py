"""The fixtures of `tests/` that the tests of the harness need too."""

from tests.conftest import iu_xray, one_thread_of_blas, wordnet

__all__ = ["iu_xray", "one_thread_of_blas", "wordnet"]
