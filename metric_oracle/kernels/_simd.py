"""Inner loops that Numba's own vectoriser does not find: products of a query's tokens with a report's, in registers.

Each factory returns an intrinsic for `jit`-compiled code, written as LLVM vectors of 16 lanes. LLVM fits them to the
processor: one AVX-512 register, two of AVX2, four of NEON. Lanes are the tokens of one query, at most `LANES`; the
tokens of a report pass by, several at a time, so that sums stay in registers. A report of odd length repeats its last
token, which changes no maximum. Addresses are integers (`array.ctypes.data`).
"""

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _numba_intrinsic

intrinsic: Any = _numba_intrinsic
LANES = 64  # query tokens in one pass
_STEP = 16
# Tokens of the report that are multiplied at once: 24 sums, which leaves 8 of 32 registers.
_TOKENS = {1: 12, 2: 12, 3: 8, 4: 6}

_i8, _i16, _i32, _i64, _f16, _f32 = (
    *(ir.IntType(bits) for bits in (8, 16, 32, 64)),
    ir.HalfType(),
    ir.FloatType(),
)
HAS_VNNI = bool(llvm.get_host_cpu_features().get("avx512vnni", False))


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


def _fma(builder, a, b, c):
    return _call(builder, "llvm.fma.v16f32", a.type, a, b, c)


def _add_products(builder, total, unsigned, signed, vnni):
    """Add to 16 sums the products of 4 unsigned and 4 signed bytes each: exact integers on every processor."""
    if vnni:
        return _call(builder, "llvm.x86.avx512.vpdpbusd.512", total.type, total, unsigned, signed)
    wide = _vector(_i32, 4 * _STEP)
    a = builder.zext(builder.bitcast(unsigned, _vector(_i8, 4 * _STEP)), wide)
    b = builder.sext(builder.bitcast(signed, _vector(_i8, 4 * _STEP)), wide)
    product = builder.mul(a, b)
    for place in range(4):
        every_fourth = ir.Constant(_vector(_i32), [4 * lane + place for lane in range(_STEP)])
        total = builder.add(total, builder.shuffle_vector(product, product, every_fourth))
    return total


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


def _float_products(builder, packed, rows, n_steps, start):
    """Add to `start` the products of each row, float32[n_steps] at an address, with packed columns."""

    def multiply(step, sums):
        place = builder.add(packed, builder.mul(step, _i64(64 * len(start))))
        columns = [_load(builder, place, _vector(_f32), 64 * i) for i in range(len(start))]
        offset = builder.mul(step, _i64(4))
        values = [_spread(builder, _load(builder, row, _f32, offset)) for row in rows]
        return [
            [_fma(builder, c, x, s) for c, s in zip(columns, of_row, strict=True)]
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


def make_dots(blocks: int) -> Any:
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
            v16 = _vector(_f32)
            start = [_load(builder, pads, v16, 64 * i) for i in range(blocks)]
            columns = [cgutils.alloca_once_value(builder, _load(builder, column, v16, 64 * i)) for i in range(blocks)]
            width = builder.mul(n_steps, _i64(4))
            for group in _groups(builder, n_tokens, _TOKENS[blocks]):
                at = [builder.add(tokens, builder.mul(t, width)) for t in group]
                sums = _float_products(builder, query, at, n_steps, start)
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
        v16 = _vector(_f32)
        sums = [cgutils.alloca_once_value(builder, ir.Constant(v16, [0.0] * _STEP)) for _ in range(4)]
        steps = builder.udiv(n, _i64(4 * _STEP))
        with cgutils.for_range(builder, steps) as step:
            for i, total in enumerate(sums):
                offset = builder.add(builder.mul(step.index, _i64(256)), _i64(64 * i))
                x, y = _load(builder, a, v16, offset), _load(builder, b, v16, offset)
                builder.store(_fma(builder, x, y, builder.load(total)), total)
        w, x, y, z = (builder.load(total) for total in sums)
        four = builder.fadd(builder.fadd(w, x), builder.fadd(y, z))
        whole = cgutils.alloca_once_value(builder, _fold(builder, four, lambda builder, x, y: builder.fadd(x, y)))
        with cgutils.for_range_slice(builder, builder.mul(steps, _i64(4 * _STEP)), n, _i64(1)) as (place, _):
            offset = builder.mul(place, _i64(4))
            product = builder.fmul(_load(builder, a, _f32, offset), _load(builder, b, _f32, offset))
            builder.store(builder.fadd(builder.load(whole), product), whole)
        return builder.load(whole)

    return types.float32(types.intp, types.intp, types.intp), code


def make_products(blocks: int) -> Any:
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
            start = [ir.Constant(_vector(_f32), [0.0] * _STEP)] * blocks
            width = builder.mul(n_steps, _i64(4))
            for group in _groups(builder, n_queries, _TOKENS[blocks]):
                at = [builder.add(queries, builder.mul(q, width)) for q in group]
                sums = _float_products(builder, codes, at, n_steps, start)
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


def make_bounds(blocks: int, vnni: bool = HAS_VNNI) -> Any:
    """Return a function that bounds the cosines of a report's tokens with those of a query.

    `bounds(query, n_steps, lanes, unit, slack, table, codes, cell, terms, weights, n_tokens, fresh, row, column)`
    writes
    maxima both ways of an upper bound on cosines: with `sum` the product of the codes,
    table[cell] * terms[0] + sum * unit * terms[1] + rest * terms[2] + terms[3] + slack * terms[4].

    query    int8[width / 4, 16 * blocks, 4]
    n_steps  width / 4
    lanes    int32[16 * blocks], minus 128 times the sum of a lane's codes; then float32[16 * blocks], rest of each lane
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
            is_fresh = builder.icmp_unsigned("!=", fresh, _i64(0))
            total = cgutils.alloca_once_value(builder, ir.Constant(_vector(_f32), [0.0] * _STEP))
            v16 = _vector(_f32)
            start = [_load(builder, lanes, _vector(_i32), 64 * i) for i in range(blocks)]
            rest = [_load(builder, lanes, v16, 64 * (blocks + i)) for i in range(blocks)]
            columns = [cgutils.alloca_once_value(builder, _load(builder, column, v16, 64 * i)) for i in range(blocks)]
            width = builder.mul(n_steps, _i64(4))
            for group in _groups(builder, n_tokens, _TOKENS[blocks]):
                at = [builder.add(codes, builder.mul(t, width)) for t in group]

                def multiply(step, sums, at=at):
                    place = builder.add(query, builder.mul(step, _i64(64 * blocks)))
                    q = [_load(builder, place, _vector(_i32), 64 * i) for i in range(blocks)]
                    offset = builder.mul(step, _i64(4))
                    c = [_spread(builder, _load(builder, a, _i32, offset)) for a in at]
                    return [
                        [_add_products(builder, s, c[t], q[i], vnni) for i, s in enumerate(r)]
                        for t, r in enumerate(sums)
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
                        bound = _fma(builder, entry, along, constant)
                        bound = _fma(builder, rest[i], tail, bound)
                        bound = _fma(builder, builder.sitofp(s, v16), scale, bound)
                        builder.store(_greater(builder, bound, builder.load(columns[i])), columns[i])
                        most = bound if most is None else _greater(builder, bound, most)
                    greatest = builder.insert_element(greatest, _fold(builder, most, _greater), _i32(place))
                at_row = builder.add(row, builder.add(builder.mul(group[0], _i64(4)), _i64(4)))
                old = _load(builder, at_row, v16)
                greatest = builder.select(is_fresh, greatest, _greater(builder, greatest, old))
                _save(builder, greatest, at_row)
                # Lanes of repeated tokens, and those beyond the group, weigh nothing.
                left = _spread(builder, builder.trunc(builder.sub(n_tokens, group[0]), _i32))
                counted = ir.Constant(_vector(_i32), [i if i < len(group) else 1 << 30 for i in range(_STEP)])
                weight = _load(builder, weights, v16, builder.mul(group[0], _i64(4)))
                weight = builder.select(
                    builder.icmp_signed("<", counted, left), weight, ir.Constant(v16, [0.0] * _STEP)
                )
                builder.store(_fma(builder, greatest, weight, builder.load(total)), total)
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


@intrinsic
def widen(typingctx: Any, source: Any, target: Any, n: Any) -> Any:
    """Convert `n` float16 numbers to float32; Numba itself knows no float16 on a processor."""

    def code(context, builder, signature, values):
        source, target, n = values
        blocks = builder.udiv(n, _i64(_STEP))
        with cgutils.for_range(builder, blocks) as block:
            half = _load(builder, source, _vector(_f16), builder.mul(block.index, _i64(2 * _STEP)))
            _save(builder, builder.fpext(half, _vector(_f32)), target, builder.mul(block.index, _i64(4 * _STEP)))
        rest = builder.mul(blocks, _i64(_STEP))
        with cgutils.for_range(builder, builder.sub(n, rest)) as one:
            i = builder.add(rest, one.index)
            half = _load(builder, source, _f16, builder.mul(i, _i64(2)))
            _save(builder, builder.fpext(half, _f32), target, builder.mul(i, _i64(4)))
        return context.get_dummy_value()

    return types.void(*[types.intp] * 3), code


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
