"""How Numba compiles functions that only other compiled functions call.

By itself Numba optimises each such function and makes its machine code, then does both again in each caller, for the
copy that is linked into it: of a chain of five functions the last is compiled five times. Here the copies alone are
optimised, in the function that Python calls.
"""

from typing import Any

import numba
from numba import _dynfunc, types  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering

from metric_oracle.kernels._cache import KNOWN


class _Library(JITCodeLibrary):
    """The code of a function, to be linked into its callers."""

    def _optimize_final_module(self) -> None:
        """Do nothing: the code is optimised in each function that it is linked into."""

    def _finalize_final_module(self) -> None:
        """Make no machine code."""
        self._finalize_dynamic_globals()
        self._finalized = True


def _require_numbers(name: str, state: Any) -> None:
    """Raise TypeError if a function compiled without reference counting returns arrays, or calls one that does.

    Such arrays would be freed while they are in use, or never.
    """
    if state.flags.nrt:
        return
    calls = [call for call in state.calltypes if getattr(call, "op", "") == "call"]
    compiled = [call for call in calls if isinstance(state.typemap[call.func.name], types.Dispatcher)]
    for kind in (state.return_type, *(state.calltypes[call].return_type for call in compiled)):
        if state.targetctx.data_model_manager[kind].contains_nrt_meminfo():
            msg = f"{name} is @inner: it must not return arrays, nor call what returns them; use @jit"
            raise TypeError(msg)


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    """Numba's step from typed code to LLVM's, without an address that Python can call."""

    _name = "inner_lowering"

    def run_pass(self, state: Any) -> bool:
        """Make the code of a function, and tell Numba where its callers find it."""
        name = state.func_id.func_qualname
        _require_numbers(name, state)
        state.library = _Library(state.targetctx.codegen(), name)
        state.flags.no_compile = True
        super().run_pass(state)
        made = state["cr"]
        # Callers look the code up by an object of Python that would call address 0.
        key = _dynfunc.make_function(made.fndesc.lookup_module(), name, "", 0, made.env, (state.library,))
        state.targetctx.insert_user_function(key, made.fndesc, [state.library])
        state["cr"] = made._replace(cfunc=key)
        return True


class _Compiler(CompilerBase):
    """Numba's compiler, with `_Lowering` in place of its own step."""

    def define_pipelines(self) -> list[Any]:
        """Return these steps, as Numba asks for them."""
        steps = PassManager("inner")
        for step, description in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            steps.add_pass(_Lowering if step is NativeLowering else step, description)
        steps.finalize()
        return [steps]


# Options of Numba for such a function. LLVM inlines it into its callers whatever its size, because a call that passes
# dozens of arrays is slow: without inlining BERTScore's search took 6 % longer, BLEU's 25 %. With a release of Numba
# that was not tested, Numba's own compiler is used.
OPTIONS: Any = {"no_cfunc_wrapper": True, "forceinline": True}
if numba.__version__.startswith(KNOWN):
    OPTIONS["pipeline_class"] = _Compiler
