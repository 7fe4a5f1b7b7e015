"""The only module that names compiler flags.

``nogil`` lets a thread pool share the work; ``cache`` keeps the machine code beside the package, so that a second
process starts at once; fast-math stays off, because backends must agree to the last bit.
"""

from typing import Any

import numba
import numba.extending

jit: Any = numba.njit(cache=True, nogil=True, fastmath=False, error_model="numpy")

# For `score.py`: the function stays plain Python for the reference and can be called from compiled kernels.
scalar: Any = numba.extending.register_jitable
