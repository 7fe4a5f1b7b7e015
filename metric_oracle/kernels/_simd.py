"""Inner loops that Numba's own vectoriser does not find: products of a query's tokens with a report's, in registers.

Each factory returns an intrinsic for `jit`-compiled code, written as LLVM vectors of 16 lanes. LLVM fits them to the
processor: one AVX-512 register, two of AVX2, four of NEON. Lanes are the tokens of one query, at most `LANES`; the
tokens of a report pass by, several at a time, so that sums stay in registers. A report of odd length repeats its last
token, which changes no maximum. Addresses are integers (`array.ctypes.data`).

What LLVM does not find by itself is written for each instruction set (`_target.py`): products of bytes, which are
exact integers on all of them, and the number of sums that the registers hold.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _numba_intrinsic

from metric_oracle.kernels import _target
from metric_oracle.kernels._target import Path

intrinsic: Any = _numba_intrinsic
LANES = 64  # query tokens in one pass
_STEP = 16

_i8, _i16, _i32, _i64, _f16, _f32 = (
    *(ir.IntType(bits) for bits in (8, 16, 32, 64)),
    ir.HalfType(),
    ir.FloatType(),
)


def _at_once(path: Path, blocks: int) -> int:
    """Return how many rows are multiplied at once: 24 of 32 registers hold their sums, or 8 of 16."""
    held = 24 if path.registers == 32 else 8
    return min(max(held * path.register_bytes // (4 * _STEP * blocks), 1), 12)


def _vector(kind: Any, n: int = _STEP) -> Any:
    return ir.VectorType(kind, n)


def _load(builder, address, kind, offset=0):
    """Load a value from an address plus a number of bytes; nothing is known of its alignment."""
    place = builder.add(address, offset) if isinstance(offset, ir.Value) else builder.add(address, _i64(offset))
    value = builder.load(builder.inttoptr(place, kind.as_pointer()))
    value.align = 1
    return value


def _save(builder, value, address, offset=0):
    place = builder.add(address, offset) if isinstance(offset, ir.Value) else builder.add(address, _i64(offset))
    builder.store(value, builder.inttoptr(place, value.type.as_pointer())).align = 1


def _spread(builder, value, n=_STEP):
    """Repeat a value in all lanes."""
    kind = _vector(value.type, n)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _i32(0))
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(_vector(_i32, n), [0] * n))


def _greater(builder, a, b):
    """Return the greater of two floats or vectors of floats; no NaN comes here."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _fold(builder, v, combine):
    """Combine the lanes of a vector, halves first; return one value."""
    n = v.type.count
    while n > 1:
        n //= 2
        order = [(i + n) % v.type.count for i in range(v.type.count)]
        moved = builder.shuffle_vector(v, v, ir.Constant(_vector(_i32, v.type.count), order))
        v = combine(builder, v, moved)
    return builder.extract_element(v, _i32(0))


def _call(builder, name, result, *values):
    function = ir.FunctionType(result, [v.type for v in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, function, name), list(values))


def _fma(builder, a, b, c, path):
    if "fma" in path.needs or "neon" in path.needs:
        return _call(builder, "llvm.fma.v16f32", a.type, a, b, c)
    return builder.fadd(builder.fmul(a, b), c)


def _in_registers(builder, path, kind, function, *values):
    """Apply `function` to the parts of vectors of 64 bytes that fit the registers of a path; return int32[16]."""
    n = 64 // path.register_bytes
    if n == 1:
        return function(*(builder.bitcast(v, kind) for v in values))
    lanes = _STEP // n
    parts = []
    for i in range(n):
        order = ir.Constant(_vector(_i32, lanes), list(range(i * lanes, (i + 1) * lanes)))
        parts.append(function(*(builder.bitcast(builder.shuffle_vector(v, v, order), kind) for v in values)))
    while len(parts) > 1:
        parts = [
            builder.shuffle_vector(x, y, ir.Constant(_vector(_i32, 2 * x.type.count), list(range(2 * x.type.count))))
            for x, y in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def _add_products(builder, total, unsigned, signed, path):
    """Add to 16 sums the products of 4 bytes of the corpus and 4 of a query each: exact integers on every path.

    Without an instruction for four products, two of them are added in 16 bits, which the range of a query's codes
    (63 at most) allows.
    """
    n_bytes = path.register_bytes
    words, halves, some = (_vector(_i32, n_bytes // 4), _vector(_i16, n_bytes // 2), _vector(_i8, n_bytes))
    if path.name in ("avx512-vnni", "avx-vnni"):
        name = f"llvm.x86.avx512.vpdpbusd.{8 * n_bytes}"
        return _in_registers(
            builder, path, words, lambda t, u, s: _call(builder, name, words, t, u, s), total, unsigned, signed
        )
    if path.name == "neon-dotprod":
        name = "llvm.aarch64.neon.sdot.v4i32.v16i8"

        def add_dot(t, u, s):
            flipped = builder.xor(u, ir.Constant(words, [0x80808080] * (n_bytes // 4)))
            return _call(builder, name, words, t, *(builder.bitcast(x, some) for x in (flipped, s)))

        return _in_registers(builder, path, words, add_dot, total, unsigned, signed)
    if path.name in ("avx512", "avx2"):
        wide = path.name == "avx512"
        byte_pairs = "llvm.x86.avx512.pmaddubs.w.512" if wide else "llvm.x86.avx2.pmadd.ub.sw"
        pairs = "llvm.x86.avx512.pmaddw.d.512" if wide else "llvm.x86.avx2.pmadd.wd"
        ones = ir.Constant(halves, [1] * (n_bytes // 2))

        def multiply(u, s):
            return _call(builder, pairs, words, _call(builder, byte_pairs, halves, u, s), ones)

        return builder.add(total, _in_registers(builder, path, some, multiply, unsigned, signed))
    eight = ir.Constant(halves, [8] * (n_bytes // 2))

    def multiply_halves(u, s):
        """Multiply the even and the odd bytes, each widened in the place of its pair."""
        low = builder.mul(
            builder.and_(u, ir.Constant(halves, [255] * (n_bytes // 2))), builder.ashr(builder.shl(s, eight), eight)
        )
        both = builder.add(low, builder.mul(builder.lshr(u, eight), builder.ashr(s, eight)))
        if path.name == "neon":
            return _call(builder, "llvm.aarch64.neon.saddlp.v4i32.v8i16", words, both)
        sixteen = ir.Constant(words, [16] * (n_bytes // 4))
        pair = builder.bitcast(both, words)
        return builder.add(builder.ashr(builder.shl(pair, sixteen), sixteen), builder.ashr(pair, sixteen))

    return builder.add(total, _in_registers(builder, path, halves, multiply_halves, unsigned, signed))


def _groups(builder, n_tokens, size):
    """Loop over groups of tokens; yield the token of each place of a group, the last one repeated."""
    last = builder.sub(n_tokens, _i64(1))
    with cgutils.for_range(builder, builder.udiv(builder.add(last, _i64(size)), _i64(size))) as group:
        first = builder.mul(group.index, _i64(size))
        places = [builder.add(first, _i64(i)) for i in range(size)]
        yield [builder.select(builder.icmp_unsigned("<", t, last), t, last) for t in places]


def _sums(builder, start, n_steps, multiply):
    """Run `multiply(step, sums) -> sums` over the width of the vectors."""
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


def _float_products(builder, packed, rows, n_steps, start, path):
    """Add to `start` the products of each row, float32[n_steps] at an address, with packed columns."""

    def multiply(step, sums):
        place = builder.add(packed, builder.mul(step, _i64(64 * len(start))))
        columns = [_load(builder, place, _vector(_f32), 64 * i) for i in range(len(start))]
        offset = builder.mul(step, _i64(4))
        values = [_spread(builder, _load(builder, row, _f32, offset)) for row in rows]
        return [
            [_fma(builder, c, x, s, path) for c, s in zip(columns, of_row, strict=True)]
            for x, of_row in zip(values, sums, strict=True)
        ]

    return _sums(builder, [start] * len(rows), n_steps, multiply)


def _keep_maxima(builder, cosines, tokens, columns, row):
    """Take the cosines of some tokens (rows) with all lanes (columns) into both kinds of maxima."""
    for token, values in zip(tokens, cosines, strict=True):
        most = values[0]
        for i, v in enumerate(values):
            builder.store(_greater(builder, v, builder.load(columns[i])), columns[i])
            most = v if i == 0 else _greater(builder, v, most)
        place = builder.mul(token, _i64(4))
        greatest = _fold(builder, most, _greater)
        _save(builder, _greater(builder, greatest, _load(builder, row, _f32, place)), row, place)


def make_dots(blocks: int, path: Path | None = None) -> Any:
    """Return `dots(query, n_steps, pads, tokens, n_tokens, row, column)`: maxima of float32 products both ways.

    query    float32[width, 16 * blocks]
    n_steps  width
    pads     float32[16 * blocks], 0 for a token of the query, a very negative number for a lane without one
    tokens   float32[n_tokens, width]
    row      float32[n_tokens], raised to the greatest product of each token
    column   float32[16 * blocks], raised to the greatest product of each lane
    """

    @intrinsic
    def dots(typingctx, query, n_steps, pads, tokens, n_tokens, row, column):
        def code(context, builder, signature, values):
            query, n_steps, pads, tokens, n_tokens, row, column = values
            of = path or _target.path()
            v16 = _vector(_f32)
            start = [_load(builder, pads, v16, 64 * i) for i in range(blocks)]
            columns = [cgutils.alloca_once_value(builder, _load(builder, column, v16, 64 * i)) for i in range(blocks)]
            width = builder.mul(n_steps, _i64(4))
            for group in _groups(builder, n_tokens, _at_once(of, blocks)):
                at = [builder.add(tokens, builder.mul(t, width)) for t in group]
                sums = _float_products(builder, query, at, n_steps, start, of)
                _keep_maxima(builder, sums, group, columns, row)
            for i in range(blocks):
                _save(builder, builder.load(columns[i]), column, 64 * i)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 7), code

    return dots


@intrinsic
def dot(typingctx, a, b, n):
    """Return the product of two float32[n], summed in an order of its own."""

    def code(context, builder, signature, values):
        a, b, n = values
        of = _target.path()
        v16 = _vector(_f32)
        sums = [cgutils.alloca_once_value(builder, ir.Constant(v16, [0.0] * _STEP)) for _ in range(4)]
        steps = builder.udiv(n, _i64(4 * _STEP))
        with cgutils.for_range(builder, steps) as step:
            for i, total in enumerate(sums):
                offset = builder.add(builder.mul(step.index, _i64(256)), _i64(64 * i))
                x, y = _load(builder, a, v16, offset), _load(builder, b, v16, offset)
                builder.store(_fma(builder, x, y, builder.load(total), of), total)
        w, x, y, z = (builder.load(total) for total in sums)
        four = builder.fadd(builder.fadd(w, x), builder.fadd(y, z))
        whole = cgutils.alloca_once_value(builder, _fold(builder, four, lambda builder, x, y: builder.fadd(x, y)))
        with cgutils.for_range_slice(builder, builder.mul(steps, _i64(4 * _STEP)), n, _i64(1)) as (place, _):
            offset = builder.mul(place, _i64(4))
            product = builder.fmul(_load(builder, a, _f32, offset), _load(builder, b, _f32, offset))
            builder.store(builder.fadd(builder.load(whole), product), whole)
        return builder.load(whole)

    return types.float32(types.intp, types.intp, types.intp), code


def make_products(blocks: int, path: Path | None = None) -> Any:
    """Return `products(codes, n_steps, queries, n_queries, out, stride, greatest)`: all products, and the greatest.

    codes     float32[width, 16 * blocks]
    n_steps   width
    queries   float32[n_queries, width]
    out       float32[n_queries, 16 * blocks], rows `stride` bytes apart
    greatest  float32[n_queries]
    """

    @intrinsic
    def products(typingctx, codes, n_steps, queries, n_queries, out, stride, greatest):
        def code(context, builder, signature, values):
            codes, n_steps, queries, n_queries, out, stride, greatest = values
            of = path or _target.path()
            start = [ir.Constant(_vector(_f32), [0.0] * _STEP)] * blocks
            width = builder.mul(n_steps, _i64(4))
            for group in _groups(builder, n_queries, _at_once(of, blocks)):
                at = [builder.add(queries, builder.mul(q, width)) for q in group]
                sums = _float_products(builder, codes, at, n_steps, start, of)
                for q, row in zip(group, sums, strict=True):
                    place = builder.add(out, builder.mul(q, stride))
                    most = row[0]
                    for i, values in enumerate(row):
                        _save(builder, values, place, 64 * i)
                        most = _greater(builder, values, most) if i else most
                    _save(builder, _fold(builder, most, _greater), greatest, builder.mul(q, _i64(4)))
            return context.get_dummy_value()

        return types.void(*[types.intp] * 7), code

    return products


def make_bounds(blocks: int, path: Path | None = None) -> Any:
    """Return a function that bounds the cosines of a report's tokens with those of a query.

    `bounds(query, n_steps, lanes, unit, slack, table, codes, cell, terms, weights, n_tokens, fresh, row, column)`
    writes
    maxima both ways of an upper bound on cosines: with `sum` the product of the codes,
    table[cell] * terms[0] + sum * unit * terms[1] + rest * terms[2] + terms[3] + slack * terms[4].

    query    int8[width / 4, 16 * blocks, 4]
    n_steps  width / 4
    lanes    int32[16 * blocks], minus 128 times the sum of a lane's codes, or 0 where the path's products are of signed
             bytes; then float32[16 * blocks], rest of each lane
    unit, slack  float32
    table    int16[cells, LANES]
    codes    uint8[n_tokens, width], 128 added
    cell     uint16[n_tokens]
    terms    float32[n_tokens, 5]
    weights  float32[n_tokens], and 16 readable numbers more
    fresh    1 where `row` holds nothing yet, 0 where it is raised
    row      float32[1 + n_tokens + 16]
        The greatest bound of each token from place 1 on, noise after the last; place 0 is their weighted sum.
        Whole vectors are written, and summed here: narrow stores that are read back as vectors would stall.
    column   as for :func:`make_dots`
    """

    @intrinsic
    def bounds(
        typingctx, query, n_steps, lanes, unit, slack, table, codes, cell, terms, weights, n_tokens, fresh, row, column
    ):
        def code(context, builder, signature, values):
            query, n_steps, lanes, unit, slack, table, codes, cell, terms, weights, n_tokens, fresh, row, column = (
                values
            )
            of = path or _target.path()
            is_old = builder.icmp_unsigned("==", fresh, _i64(0))
            total = cgutils.alloca_once_value(builder, ir.Constant(_vector(_f32), [0.0] * _STEP))
            v16 = _vector(_f32)
            start = [_load(builder, lanes, _vector(_i32), 64 * i) for i in range(blocks)]
            rest = [_load(builder, lanes, v16, 64 * (blocks + i)) for i in range(blocks)]
            columns = [cgutils.alloca_once_value(builder, _load(builder, column, v16, 64 * i)) for i in range(blocks)]
            width = builder.mul(n_steps, _i64(4))
            for group in _groups(builder, n_tokens, _at_once(of, blocks)):
                at = [builder.add(codes, builder.mul(t, width)) for t in group]

                def multiply(step, sums, at=at):
                    place = builder.add(query, builder.mul(step, _i64(64 * blocks)))
                    q = [_load(builder, place, _vector(_i32), 64 * i) for i in range(blocks)]
                    offset = builder.mul(step, _i64(4))
                    c = [_spread(builder, _load(builder, a, _i32, offset)) for a in at]
                    return [
                        [_add_products(builder, s, c[t], q[i], of) for i, s in enumerate(r)] for t, r in enumerate(sums)
                    ]

                sums = _sums(builder, [start] * len(group), n_steps, multiply)
                greatest = ir.Constant(v16, [-1e30] * _STEP)  # lanes beyond the group lower nothing that is there
                for place, (token, integers) in enumerate(zip(group, sums, strict=True)):
                    base = builder.add(terms, builder.mul(token, _i64(20)))
                    t = [_load(builder, base, _f32, 4 * i) for i in range(5)]
                    along, scale, tail = (_spread(builder, x) for x in (t[0], builder.fmul(unit, t[1]), t[2]))
                    constant = _spread(builder, builder.fadd(t[3], builder.fmul(slack, t[4])))
                    number = builder.zext(_load(builder, cell, _i16, builder.mul(token, _i64(2))), _i64)
                    line = builder.add(table, builder.mul(number, _i64(2 * LANES)))
                    most = None
                    for i, s in enumerate(integers):
                        entry = builder.sitofp(_load(builder, line, _vector(_i16), 32 * i), v16)
                        bound = _fma(builder, entry, along, constant, of)
                        bound = _fma(builder, rest[i], tail, bound, of)
                        bound = _fma(builder, builder.sitofp(s, v16), scale, bound, of)
                        builder.store(_greater(builder, bound, builder.load(columns[i])), columns[i])
                        most = bound if most is None else _greater(builder, bound, most)
                    greatest = builder.insert_element(greatest, _fold(builder, most, _greater), _i32(place))
                at_row = builder.add(row, builder.add(builder.mul(group[0], _i64(4)), _i64(4)))
                merged = cgutils.alloca_once_value(builder, greatest)
                with builder.if_then(is_old):  # a load of what was just stored in other pieces would stall
                    builder.store(_greater(builder, greatest, _load(builder, at_row, v16)), merged)
                greatest = builder.load(merged)
                _save(builder, greatest, at_row)
                # Lanes of repeated tokens, and those beyond the group, weigh nothing.
                left = _spread(builder, builder.trunc(builder.sub(n_tokens, group[0]), _i32))
                counted = ir.Constant(_vector(_i32), [i if i < len(group) else 1 << 30 for i in range(_STEP)])
                weight = _load(builder, weights, v16, builder.mul(group[0], _i64(4)))
                weight = builder.select(
                    builder.icmp_signed("<", counted, left), weight, ir.Constant(v16, [0.0] * _STEP)
                )
                builder.store(_fma(builder, greatest, weight, builder.load(total), of), total)
            for i in range(blocks):
                _save(builder, builder.load(columns[i]), column, 64 * i)
            _save(builder, _fold(builder, builder.load(total), lambda b, x, y: b.fadd(x, y)), row)
            return context.get_dummy_value()

        arguments: list[Any] = [types.intp] * 14
        arguments[3] = arguments[4] = types.float32
        return types.void(*arguments), code

    return bounds


@intrinsic
def lowest_angles(typingctx: Any, table: Any, cell: Any, radius: Any, n_tokens: Any, lowest: Any) -> Any:
    """Lower `lowest` (uint8[LANES]) to the least `table[cell] - radius`, at least 0, over some tokens.

    table  uint8[cells, LANES]; cell uint16[n_tokens]; radius uint8[n_tokens]
    """

    def code(context, builder, signature, values):
        table, cell, radius, n_tokens, lowest = values
        v64 = _vector(_i8, LANES)
        least = cgutils.alloca_once_value(builder, _load(builder, lowest, v64))
        with cgutils.for_range(builder, n_tokens) as token:
            number = builder.zext(_load(builder, cell, _i16, builder.mul(token.index, _i64(2))), _i64)
            line = _load(builder, builder.add(table, builder.mul(number, _i64(LANES))), v64)
            less = _spread(builder, _load(builder, radius, _i8, token.index), LANES)
            angle = _call(builder, f"llvm.usub.sat.v{LANES}i8", v64, line, less)
            builder.store(_call(builder, f"llvm.umin.v{LANES}i8", v64, builder.load(least), angle), least)
        _save(builder, builder.load(least), lowest)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5), code


def _to_float(builder, bits, path):
    """Convert a float16 number or vector, given as integers, to float32."""
    n = bits.type.count if isinstance(bits.type, ir.VectorType) else 1

    def of(kind):
        return kind if n == 1 else _vector(kind, n)

    def constant(kind, value):
        return ir.Constant(of(kind), value if n == 1 else [value] * n)

    if "f16c" in path.needs or "neon" in path.needs:
        return builder.fpext(builder.bitcast(bits, of(_f16)), of(_f32))
    wide = builder.zext(bits, of(_i32))
    exponent = builder.and_(wide, constant(_i32, 0x7C00))
    shifted = builder.shl(builder.and_(wide, constant(_i32, 0x7FFF)), constant(_i32, 13))
    normal = builder.bitcast(builder.add(shifted, constant(_i32, 112 << 23)), of(_f32))
    # Below 2^-14 it is a whole number of 2^-24; infinity keeps the greatest exponent.
    small = builder.fmul(builder.uitofp(builder.and_(wide, constant(_i32, 0x3FF)), of(_f32)), constant(_f32, 2.0**-24))
    infinite = builder.bitcast(builder.or_(shifted, constant(_i32, 0x7F800000)), of(_f32))
    value = builder.select(builder.icmp_unsigned("==", exponent, constant(_i32, 0)), small, normal)
    value = builder.select(builder.icmp_unsigned("==", exponent, constant(_i32, 0x7C00)), infinite, value)
    sign = builder.shl(builder.and_(wide, constant(_i32, 0x8000)), constant(_i32, 16))
    return builder.bitcast(builder.or_(builder.bitcast(value, of(_i32)), sign), of(_f32))


def make_widen(path: Path | None = None) -> Any:
    """Return `widen(source, target, n)`: it converts `n` float16 numbers to float32, which Numba itself does not."""

    @intrinsic
    def widen(typingctx, source, target, n):
        def code(context, builder, signature, values):
            source, target, n = values
            of = path or _target.path()
            blocks = builder.udiv(n, _i64(_STEP))
            with cgutils.for_range(builder, blocks) as block:
                half = _load(builder, source, _vector(_i16), builder.mul(block.index, _i64(2 * _STEP)))
                _save(builder, _to_float(builder, half, of), target, builder.mul(block.index, _i64(4 * _STEP)))
            rest = builder.mul(blocks, _i64(_STEP))
            with cgutils.for_range(builder, builder.sub(n, rest)) as one:
                i = builder.add(rest, one.index)
                half = _load(builder, source, _i16, builder.mul(i, _i64(2)))
                _save(builder, _to_float(builder, half, of), target, builder.mul(i, _i64(4)))
            return context.get_dummy_value()

        return types.void(*[types.intp] * 3), code

    return widen


widen = make_widen()


@intrinsic
def prefetch(typingctx: Any, address: Any, n_bytes: Any) -> Any:
    """Ask for the cache lines of an array that is needed soon; changes nothing else."""

    def code(context, builder, signature, values):
        address, n_bytes = values
        byte = _i8.as_pointer()
        wish = ir.FunctionType(ir.VoidType(), [byte, _i32, _i32, _i32])
        function = cgutils.get_or_insert_function(builder.module, wish, "llvm.prefetch.p0")
        lines = builder.udiv(builder.add(n_bytes, _i64(63)), _i64(64))
        with cgutils.for_range(builder, lines) as line:
            place = builder.add(address, builder.mul(line.index, _i64(64)))
            builder.call(function, [builder.inttoptr(place, byte), _i32(0), _i32(2), _i32(1)])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), code
