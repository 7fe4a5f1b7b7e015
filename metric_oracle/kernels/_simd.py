"""Vectorised inner loops that Numba does not produce: products of the tokens of a query and of a report.

Each factory returns an intrinsic for `jit`-compiled code, written as LLVM vectors of 16 lanes. LLVM fits them to the
processor: one AVX-512 register, two of AVX2, four of NEON. Lanes are the tokens of one query, at most `LANES`; the
tokens of a report follow, several at a time, so that sums stay in registers. A report of odd length repeats its last
token, which changes no maximum. Addresses are integers (`array.ctypes.data`).

Two things are written for each instruction set (`_target.py`): products of bytes, which are
exact integers on all of them, and the number of sums that the registers hold.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _numba_intrinsic

from metric_oracle.kernels import _target
from metric_oracle.kernels._errors import FLOAT32, FLOAT64, gamma, product_error, underflow
from metric_oracle.kernels._llvm import (
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STEP,
    ask_for,
    by_lanes,
    fma,
    fold,
    greater,
    groups_of,
    load,
    rows_at_once,
    run_sums,
    save,
    spread,
    tile,
    vector,
)
from metric_oracle.kernels._target import Path

intrinsic: Any = _numba_intrinsic
LANES = 64  # query tokens in one pass


def _float_products(builder, parts, step_bytes, rows, n_steps, start, path):
    """Emit the sums `start` plus the products of rows with all lanes; return these, a list of vectors for each row.

    `rows` are addresses of float32[n_steps], and each row starts from the vectors `start`. As many of these as `tile`
    says are multiplied at a time, a part; `parts` are the addresses of the lanes of each, `step_bytes` apart from step
    to step.
    """
    at_once = len(start) // len(parts)

    def multiply_part(first, address):
        def multiply(step, sums):
            at = builder.add(address, builder.mul(step, I64(step_bytes)))
            columns = [load(builder, at, vector(F32), 64 * i) for i in range(at_once)]
            offset = builder.mul(step, I64(4))
            values = [spread(builder, load(builder, row, F32, offset)) for row in rows]
            return [
                [fma(builder, c, x, s, path) for c, s in zip(columns, of_row, strict=True)]
                for x, of_row in zip(values, sums, strict=True)
            ]

        return run_sums(builder, [start[first : first + at_once]] * len(rows), n_steps, multiply)

    sums = [multiply_part(at_once * i, address) for i, address in enumerate(parts)]
    return [[v for part in sums for v in part[i]] for i in range(len(rows))]


def lanes_at_once(n_lanes: int, path: Path | None = None) -> int:
    """Return how many of a query's `n_lanes` lanes `make_dots` multiplies at a time; these are stored together."""
    return STEP * tile(path or _target.path(), n_lanes // STEP)[1]


def _keep_maxima(builder, cosines, tokens, columns, row):
    """Emit code that raises the maxima of report tokens (`row`) and of lanes (`columns`) to those of new cosines.

    `cosines` has a list of vectors for each of the `tokens`, which are indices; `row` is an address, and `columns` has
    a variable for each vector of lanes.
    """
    for token, values in zip(tokens, cosines, strict=True):
        most = values[0]
        for i, v in enumerate(values):
            builder.store(greater(builder, v, builder.load(columns[i])), columns[i])
            most = v if i == 0 else greater(builder, v, most)
        address = builder.mul(token, I64(4))
        greatest = fold(builder, most, greater)
        save(builder, greater(builder, greatest, load(builder, row, F32, address)), row, address)


def make_dots(path: Path | None = None) -> Any:
    """Return the function `dots(lanes, query, n_steps, pads, tokens, n_tokens, row, column)`.

    It multiplies the tokens of a report with those of a query in float32, and keeps the greatest product of each. It is
    compiled for the instruction set `path`, by default that of this process. Arrays are given by their addresses.

    lanes    one of `WIDTHS`
    query    float32[lanes / n, width, n], in parts of as many lanes, n, as `lanes_at_once` says
    n_steps  width
    pads     float32[lanes], 0 for a token of the query, a large negative number for an unused lane
    tokens   float32[n_tokens, width]
    row      float32[n_tokens], raised to the greatest product of each token
    column   float32[lanes], raised to the greatest product of each lane
    """

    def of_blocks(builder, blocks, query, n_steps, pads, tokens, n_tokens, row, column):
        chosen = path or _target.path()
        v16 = vector(F32)
        start = [load(builder, pads, v16, 64 * i) for i in range(blocks)]
        columns = [cgutils.alloca_once_value(builder, load(builder, column, v16, 64 * i)) for i in range(blocks)]
        width = builder.mul(n_steps, I64(4))
        n_rows, at_once = tile(chosen, blocks)
        step_bytes = 64 * at_once
        part_bytes = builder.mul(n_steps, I64(step_bytes))
        parts = [builder.add(query, builder.mul(part_bytes, I64(i))) for i in range(blocks // at_once)]
        for group in groups_of(builder, n_tokens, n_rows):
            at = [builder.add(tokens, builder.mul(t, width)) for t in group]
            sums = _float_products(builder, parts, step_bytes, at, n_steps, start, chosen)
            _keep_maxima(builder, sums, group, columns, row)
        for i in range(blocks):
            save(builder, builder.load(columns[i]), column, 64 * i)

    @intrinsic
    def dots(typingctx, lanes, query, n_steps, pads, tokens, n_tokens, row, column):
        def code(context, builder, signature, values):
            by_lanes(builder, "dots", values[0], values[1:], None, of_blocks)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 8), code

    return dots


@intrinsic
def exact_products(typingctx, query, n_steps, tokens, n_tokens, products):
    """Compute the inner products of a report's tokens with 16 of a query in float64, adding the terms in their order.

    query     float64[width, 16]
    n_steps   width
    tokens    float64[n_tokens, width]
    products  float64[n_tokens, 16], written
    """

    def code(context, builder, signature, values):
        query, n_steps, tokens, n_tokens, products = values
        wide, width = vector(F64), builder.mul(n_steps, I64(8))
        for group in groups_of(builder, n_tokens, rows_at_once(_target.path(), 2)):
            at = [builder.add(tokens, builder.mul(t, width)) for t in group]

            def multiply(step, sums, at=at):
                column = load(builder, query, wide, builder.mul(step, I64(8 * STEP)))
                offset = builder.mul(step, I64(8))
                numbers = [spread(builder, load(builder, a, F64, offset)) for a in at]
                return [[builder.fadd(s, builder.fmul(column, x))] for x, (s,) in zip(numbers, sums, strict=True)]

            start = [[ir.Constant(wide, [0.0] * STEP)]] * len(group)
            for token, (total,) in zip(group, run_sums(builder, start, n_steps, multiply), strict=True):
                save(builder, total, products, builder.mul(token, I64(8 * STEP)))
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5), code


@intrinsic
def exact_squares(typingctx, tokens, n_steps, n_tokens, squares):
    """Compute the squared length of each of a report's tokens in float64, adding the terms in their order.

    tokens   float64[n_tokens, width]
    n_steps  width
    squares  float64[n_tokens], written
    """

    def code(context, builder, signature, values):
        tokens, n_steps, n_tokens, squares = values
        for group in groups_of(builder, n_tokens, STEP // 2):
            at = [builder.add(tokens, builder.mul(t, builder.mul(n_steps, I64(8)))) for t in group]

            def multiply(step, sums, at=at):
                numbers = [load(builder, a, F64, builder.mul(step, I64(8))) for a in at]
                return [[builder.fadd(s, builder.fmul(x, x))] for x, (s,) in zip(numbers, sums, strict=True)]

            for token, (total,) in zip(
                group, run_sums(builder, [[F64(0.0)]] * len(group), n_steps, multiply), strict=True
            ):
                save(builder, total, squares, builder.mul(token, I64(8)))
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4), code


def dot_error(n: int, lengths: float = 1.0) -> float:
    """Bound the error of `dot` of n numbers; `lengths` bounds the product of both vectors' Euclidean lengths.

    A term is rounded as part of one chunk in float32, then in float64.
    """
    return gamma(_STEPS, FLOAT32) * lengths + product_error(n, 1.001 * lengths, FLOAT64) + underflow(2 * n)


_STEPS = 6  # of a chunk: 384 numbers


@intrinsic
def dot(typingctx, a, b, n):
    """Return the inner product of two float32[n], `a` and `b`: sums of a few terms each in float32, added in float64.

    As all arrays here, they are addresses.
    """

    def code(context, builder, signature, values):
        a, b, n = values
        chosen = _target.path()
        nothing, wide = ir.Constant(vector(F32), [0.0] * STEP), vector(F64)
        whole = cgutils.alloca_once_value(builder, ir.Constant(wide, [0.0] * STEP))
        steps = builder.udiv(n, I64(4 * STEP))
        chunks = builder.udiv(builder.add(steps, I64(_STEPS - 1)), I64(_STEPS))
        with cgutils.for_range(builder, chunks) as chunk:
            first = builder.mul(chunk.index, I64(_STEPS))
            left = builder.sub(steps, first)
            size = builder.select(builder.icmp_unsigned("<", left, I64(_STEPS)), left, I64(_STEPS))

            def multiply(step, sums, first=first):
                start = builder.mul(builder.add(first, step), I64(16 * STEP))
                x, y = (
                    [load(builder, v, vector(F32), builder.add(start, I64(4 * STEP * i))) for i in range(4)]
                    for v in (a, b)
                )
                return [[fma(builder, x[i], y[i], s, chosen) for i, s in enumerate(sums[0])]]

            for total in run_sums(builder, [[nothing] * 4], size, multiply)[0]:
                builder.store(builder.fadd(builder.load(whole), builder.fpext(total, wide)), whole)
        tail = cgutils.alloca_once_value(builder, fold(builder, builder.load(whole), lambda b, x, y: b.fadd(x, y)))
        with cgutils.for_range_slice(builder, builder.mul(steps, I64(4 * STEP)), n, I64(1)) as (position, _):
            offset = builder.mul(position, I64(4))
            x, y = (builder.fpext(load(builder, v, F32, offset), F64) for v in (a, b))
            builder.store(builder.fadd(builder.load(tail), builder.fmul(x, y)), tail)
        return builder.load(tail)

    return types.float64(types.intp, types.intp, types.intp), code


def make_products(blocks: int, path: Path | None = None) -> Any:
    """Return the function `products(codes, n_steps, queries, n_queries, out, stride, greatest)`.

    It writes all products of the codes of documents with those of queries, and the greatest product of each query. It
    is compiled for the instruction set `path`, by default that of this process.

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
            chosen = path or _target.path()
            start = [ir.Constant(vector(F32), [0.0] * STEP)] * blocks
            width = builder.mul(n_steps, I64(4))
            n_rows, at_once = tile(chosen, blocks)
            parts = [builder.add(codes, I64(64 * i)) for i in range(0, blocks, at_once)]
            for group in groups_of(builder, n_queries, n_rows):
                at = [builder.add(queries, builder.mul(q, width)) for q in group]
                sums = _float_products(builder, parts, 64 * blocks, at, n_steps, start, chosen)
                for q, row in zip(group, sums, strict=True):
                    address = builder.add(out, builder.mul(q, stride))
                    most = row[0]
                    for i, values in enumerate(row):
                        save(builder, values, address, 64 * i)
                        most = greater(builder, values, most) if i else most
                    save(builder, fold(builder, most, greater), greatest, builder.mul(q, I64(4)))
            return context.get_dummy_value()

        return types.void(*[types.intp] * 7), code

    return products


def _to_float(builder, bits, path):
    """Emit the conversion of float16, a number or a vector whose `bits` are integers, to float32."""
    n = bits.type.count if isinstance(bits.type, ir.VectorType) else 1

    def typed(element):
        return element if n == 1 else vector(element, n)

    def constant(element, value):
        return ir.Constant(typed(element), value if n == 1 else [value] * n)

    if "f16c" in path.needs or "neon" in path.needs:
        return builder.fpext(builder.bitcast(bits, typed(F16)), typed(F32))
    wide = builder.zext(bits, typed(I32))
    exponent = builder.and_(wide, constant(I32, 0x7C00))
    shifted = builder.shl(builder.and_(wide, constant(I32, 0x7FFF)), constant(I32, 13))
    normal = builder.bitcast(builder.add(shifted, constant(I32, 112 << 23)), typed(F32))
    # Below 2^-14 it is a whole number of 2^-24; infinity keeps the greatest exponent.
    small = builder.fmul(builder.uitofp(builder.and_(wide, constant(I32, 0x3FF)), typed(F32)), constant(F32, 2.0**-24))
    infinite = builder.bitcast(builder.or_(shifted, constant(I32, 0x7F800000)), typed(F32))
    value = builder.select(builder.icmp_unsigned("==", exponent, constant(I32, 0)), small, normal)
    value = builder.select(builder.icmp_unsigned("==", exponent, constant(I32, 0x7C00)), infinite, value)
    sign = builder.shl(builder.and_(wide, constant(I32, 0x8000)), constant(I32, 16))
    return builder.bitcast(builder.or_(builder.bitcast(value, typed(I32)), sign), typed(F32))


def make_widen(path: Path | None = None) -> Any:
    """Return `widen(source, target, n)`, which converts `n` float16 numbers to float32; Numba has no float16.

    `source` and `target` are addresses. `path` is the instruction set to use, by default that of this process.
    """

    @intrinsic
    def widen(typingctx, source, target, n):
        def code(context, builder, signature, values):
            source, target, n = values
            chosen = path or _target.path()
            blocks = builder.udiv(n, I64(STEP))
            with cgutils.for_range(builder, blocks) as block:
                half = load(builder, source, vector(I16), builder.mul(block.index, I64(2 * STEP)))
                save(builder, _to_float(builder, half, chosen), target, builder.mul(block.index, I64(4 * STEP)))
            rest = builder.mul(blocks, I64(STEP))
            with cgutils.for_range(builder, builder.sub(n, rest)) as loop:
                i = builder.add(rest, loop.index)
                half = load(builder, source, I16, builder.mul(i, I64(2)))
                save(builder, _to_float(builder, half, chosen), target, builder.mul(i, I64(4)))
            return context.get_dummy_value()

        return types.void(*[types.intp] * 3), code

    return widen


widen = make_widen()


@intrinsic
def prefetch(typingctx: Any, address: Any, n_bytes: Any) -> Any:
    """Prefetch the cache lines that hold the `n_bytes` from an address on."""

    def code(context, builder, signature, values):
        address, n_bytes = values
        end = builder.add(builder.add(builder.and_(address, I64(63)), n_bytes), I64(63))
        lines = builder.udiv(end, I64(64))
        with cgutils.for_range(builder, lines) as line:
            ask_for(builder, builder.add(address, builder.mul(line.index, I64(64))))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), code


@intrinsic
def add_bits(typingctx: Any, address: Any, bits: Any) -> Any:
    """Add 1 to the i-th of the 64 bytes from an address on for each bit i of the uint64 `bits` that is 1."""

    def code(context, builder, signature, values):
        address, bits = values
        ones = builder.zext(builder.bitcast(bits, vector(ir.IntType(1), 64)), vector(I8, 64))
        save(builder, builder.add(load(builder, address, vector(I8, 64)), ones), address)
        return context.get_dummy_value()

    return types.void(types.intp, types.uint64), code


@intrinsic
def bits_at_least(typingctx: Any, address: Any, least: Any) -> Any:
    """Return a uint64 whose bit i is 1 if the i-th of the 64 bytes from an address on is at least the uint8 `least`."""

    def code(context, builder, signature, values):
        address, least = values
        is_enough = builder.icmp_unsigned(">=", load(builder, address, vector(I8, 64)), spread(builder, least, 64))
        return builder.bitcast(is_enough, I64)

    return types.uint64(types.intp, types.uint8), code


@intrinsic
def count_ones(typingctx: Any, bits: Any) -> Any:
    """Return how many bits of a uint64 are 1."""

    def code(context, builder, signature, values):
        return builder.ctpop(values[0])

    return types.int64(types.uint64), code


@intrinsic
def first_one(typingctx: Any, bits: Any) -> Any:
    """Return the index of the lowest bit of a uint64 that is 1; 64 if the number is 0."""

    def code(context, builder, signature, values):
        return builder.cttz(values[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), code
