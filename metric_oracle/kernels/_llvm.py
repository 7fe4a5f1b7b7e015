"""Building blocks of the inner loops in LLVM: vectors of 16 lanes, and products of bytes for each instruction set.

`builder` is llvmlite's, which emits instructions; values and addresses (integers) are those of the emitted code. A
function that emits a value also returns it.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from metric_oracle.kernels._target import Path

STEP = 16
WIDTHS = (32, 48, 64)  # numbers of lanes of a query for which loops are compiled

I8, I16, I32, I64, F16, F32, F64 = (
    *(ir.IntType(bits) for bits in (8, 16, 32, 64)),
    ir.HalfType(),
    ir.FloatType(),
    ir.DoubleType(),
)


def rows_at_once(path: Path, blocks: int) -> int:
    """Return how many rows of a matrix product are computed at once, so that all their sums stay in vector registers.

    The sums take 24 of the 32 registers of an instruction set, `path`, or 8 of 16. `blocks` is the number of vectors of
    16 lanes per row.
    """
    n_sums = 24 if path.registers == 32 else 8
    return min(max(n_sums * path.register_bytes // (4 * STEP * blocks), 1), 12)


def tile(path: Path, blocks: int) -> tuple[int, int]:
    """Return how many rows, and how many of `blocks` vectors of 16 lanes, a product of float32 computes at once.

    Their sums take 24 of the 32 registers of an instruction set, `path`, or 12 of 16. A step reads the vectors, and a
    number of each row: where a vector takes several registers, one with more rows reads less for each sum.
    """
    registers = 4 * STEP // path.register_bytes
    at_once = blocks if registers == 1 else 1
    n_sums = 24 if path.registers == 32 else 12
    return min(n_sums // (registers * at_once), 12), at_once


def vector(element: Any, n: int = STEP) -> Any:
    """Return the LLVM type of a vector of n lanes of the LLVM type `element`."""
    return ir.VectorType(element, n)


def load(builder, address, element, offset=0):
    """Emit a load of a value of the type `element` at an address plus `offset` bytes, without assuming alignment."""
    at = builder.add(address, offset) if isinstance(offset, ir.Value) else builder.add(address, I64(offset))
    value = builder.load(builder.inttoptr(at, element.as_pointer()))
    value.align = 1
    return value


def save(builder, value, address, offset=0):
    """Emit a store of a value at an address plus `offset` bytes, without assuming alignment."""
    at = builder.add(address, offset) if isinstance(offset, ir.Value) else builder.add(address, I64(offset))
    builder.store(value, builder.inttoptr(at, value.type.as_pointer())).align = 1


def spread(builder, value, n=STEP):
    """Emit a vector of n lanes that all hold `value`, and return it."""
    element = vector(value.type, n)
    single = builder.insert_element(ir.Constant(element, ir.Undefined), value, I32(0))
    return builder.shuffle_vector(single, ir.Constant(element, ir.Undefined), ir.Constant(vector(I32, n), [0] * n))


def greater(builder, a, b):
    """Emit the greater of two floats, or the elementwise maximum of two vectors; neither may contain NaN."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def fold(builder, v, combine):
    """Emit the reduction of the lanes of the vector `v` to one value, and return it.

    ``combine(builder, x, y)`` joins two vectors: `v` and itself shifted by half of the lanes, then a quarter and so on.
    """
    n = v.type.count
    while n > 1:
        n //= 2
        order = [(i + n) % v.type.count for i in range(v.type.count)]
        moved = builder.shuffle_vector(v, v, ir.Constant(vector(I32, v.type.count), order))
        v = combine(builder, v, moved)
    return builder.extract_element(v, I32(0))


def call(builder, name, result, *values):
    """Emit a call of the LLVM function `name` with these values and result type `result`; declare it if needed."""
    function = ir.FunctionType(result, [v.type for v in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, function, name), list(values))


def ask_for(builder, address, level=2):
    """Emit a prefetch of the cache line at an address; `level` is LLVM's locality, 3 for the fastest cache."""
    byte = I8.as_pointer()
    wish = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, wish, "llvm.prefetch.p0")
    builder.call(function, [builder.inttoptr(address, byte), I32(0), I32(level), I32(1)])


def fma(builder, a, b, c, path):
    """Emit a * b + c of float32[16] vectors, fused into one rounding if the instruction set `path` can."""
    if "fma" in path.needs or "neon" in path.needs:
        return call(builder, "llvm.fma.v16f32", a.type, a, b, c)
    return builder.fadd(builder.fmul(a, b), c)


def _in_registers(builder, path, element, function, *values):
    """Emit `function` of vectors of 64 bytes, in parts that fit the vector registers of `path`; return int32[16].

    ``function(*parts)`` gets a part of each of the values, as vectors of the type `element`.
    """
    n = 64 // path.register_bytes
    if n == 1:
        return function(*(builder.bitcast(v, element) for v in values))
    lanes = STEP // n
    parts = []
    for i in range(n):
        order = ir.Constant(vector(I32, lanes), list(range(i * lanes, (i + 1) * lanes)))
        parts.append(function(*(builder.bitcast(builder.shuffle_vector(v, v, order), element) for v in values)))
    while len(parts) > 1:
        parts = [
            builder.shuffle_vector(x, y, ir.Constant(vector(I32, 2 * x.type.count), list(range(2 * x.type.count))))
            for x, y in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def add_products(builder, total, unsigned, signed, path):
    """Emit 16 sums: those in `total`, int32[16], plus the products of 4 bytes of the corpus with 4 of a query, exactly.

    Bytes of the corpus are `unsigned`, those of the query `signed`, 64 each. If the processor `path` has no instruction
    for four products, two products are added in 16 bits first. They fit because codes of a query are at most 63 in
    absolute value on such paths.
    """
    n_bytes = path.register_bytes
    words, halves, byte_vector = (vector(I32, n_bytes // 4), vector(I16, n_bytes // 2), vector(I8, n_bytes))
    if path.name in ("avx512-vnni", "avx-vnni"):
        name = f"llvm.x86.avx512.vpdpbusd.{8 * n_bytes}"
        return _in_registers(
            builder, path, words, lambda t, u, s: call(builder, name, words, t, u, s), total, unsigned, signed
        )
    if path.name == "neon-dotprod":
        name = "llvm.aarch64.neon.sdot.v4i32.v16i8"

        def add_dot(t, u, s):
            flipped = builder.xor(u, ir.Constant(words, [0x80808080] * (n_bytes // 4)))
            return call(builder, name, words, t, *(builder.bitcast(x, byte_vector) for x in (flipped, s)))

        return _in_registers(builder, path, words, add_dot, total, unsigned, signed)
    if path.name in ("avx512", "avx2"):
        wide = path.name == "avx512"
        byte_pairs = "llvm.x86.avx512.pmaddubs.w.512" if wide else "llvm.x86.avx2.pmadd.ub.sw"
        pairs = "llvm.x86.avx512.pmaddw.d.512" if wide else "llvm.x86.avx2.pmadd.wd"
        ones = ir.Constant(halves, [1] * (n_bytes // 2))

        def multiply(u, s):
            return call(builder, pairs, words, call(builder, byte_pairs, halves, u, s), ones)

        return builder.add(total, _in_registers(builder, path, byte_vector, multiply, unsigned, signed))
    eight = ir.Constant(halves, [8] * (n_bytes // 2))

    def multiply_halves(u, s):
        """Emit the products of even and of odd bytes, each widened to the 16 bits of its pair; sum them by four."""
        low = builder.mul(
            builder.and_(u, ir.Constant(halves, [255] * (n_bytes // 2))), builder.ashr(builder.shl(s, eight), eight)
        )
        both = builder.add(low, builder.mul(builder.lshr(u, eight), builder.ashr(s, eight)))
        if path.name == "neon":
            return call(builder, "llvm.aarch64.neon.saddlp.v4i32.v8i16", words, both)
        sixteen = ir.Constant(words, [16] * (n_bytes // 4))
        pair = builder.bitcast(both, words)
        return builder.add(builder.ashr(builder.shl(pair, sixteen), sixteen), builder.ashr(pair, sixteen))

    return builder.add(total, _in_registers(builder, path, halves, multiply_halves, unsigned, signed))


def groups_of(builder, n_tokens, size):
    """Emit a loop over groups of `size` tokens; yield a list with the index of the token at each position of a group.

    If the last group is not full, its last token is repeated.
    """
    last = builder.sub(n_tokens, I64(1))
    with cgutils.for_range(builder, builder.udiv(builder.add(last, I64(size)), I64(size))) as group:
        first = builder.mul(group.index, I64(size))
        places = [builder.add(first, I64(i)) for i in range(size)]
        yield [builder.select(builder.icmp_unsigned("<", t, last), t, last) for t in places]


def run_sums(builder, start, n_steps, multiply):
    """Emit a loop ``sums = multiply(step, sums)`` over the steps 0 .. n_steps - 1; return the final sums.

    `start` and the sums are lists of lists of values.
    """
    variables = [[cgutils.alloca_once(builder, s.type) for s in row] for row in start]
    for row, initial in zip(variables, start, strict=True):
        for variable, s in zip(row, initial, strict=True):
            builder.store(s, variable)
    with cgutils.for_range(builder, n_steps) as step:
        after = multiply(step.index, [[builder.load(v) for v in row] for row in variables])
        for row, values in zip(variables, after, strict=True):
            for variable, s in zip(row, values, strict=True):
                builder.store(s, variable)
    return [[builder.load(v) for v in row] for row in variables]


def by_lanes(builder, name, lanes, arguments, result, emit):
    """Emit a call of the version of the loop `name` for `lanes` lanes, one of `WIDTHS`; return what it returns.

    Each version is a function of its own, which is compiled once however often the loop is called.
    ``emit(builder, blocks, *arguments)`` writes it, for as many vectors of 16 lanes, and returns a value of the type
    `result`, or None for none.
    """
    of_width = []
    for width in WIDTHS:
        where, of_function = builder.append_basic_block(f"lanes{width}"), f"{name}.{width}"
        function = builder.module.globals.get(of_function)
        if function is None:
            kind = ir.FunctionType(result or ir.VoidType(), [v.type for v in arguments])
            function = ir.Function(builder.module, kind, of_function)
            function.linkage = "internal"
            function.attributes.add("noinline")
            inside = ir.IRBuilder(function.append_basic_block("entry"))
            value = emit(inside, width // STEP, *function.args)
            inside.ret(value) if result else inside.ret_void()
        of_width.append((width, where, function))
    end = builder.append_basic_block("end")
    choice = builder.switch(lanes, of_width[-1][1])
    values = []
    for width, where, function in of_width:
        choice.add_case(I64(width), where)
        builder.position_at_end(where)
        values.append((builder.call(function, arguments), where))
        builder.branch(end)
    builder.position_at_end(end)
    if result is None:
        return None
    out = builder.phi(result)
    for value, where in values:
        out.add_incoming(value, where)
    return out
