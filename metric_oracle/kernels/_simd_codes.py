"""Vectorised inner loops over codes, which store the components of tokens in bytes; see `_simd.py`."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from metric_oracle.kernels import _target
from metric_oracle.kernels._llvm import (
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STEP,
    add_products,
    ask_for,
    by_lanes,
    call,
    fma,
    fold,
    greater,
    groups_of,
    load,
    rows_at_once,
    run_sums,
    save,
    spread,
    vector,
)
from metric_oracle.kernels._simd import intrinsic
from metric_oracle.kernels._target import Path


def make_bounds(path: Path | None = None) -> Any:
    """Return a function that bounds the cosines of a report's tokens with those of a query.

    It is `bounds(lanes, query, n_steps, heads, unit, slack, table, codes, cell, terms, weights, n_tokens, fresh, row,
    column)`, and writes, for each token of either text, the greatest upper bound on a cosine. With `sum` the product of
    the codes, the bound is

        table[cell] * terms[0] + sum * unit * terms[1] + rest * terms[2] + terms[3] + slack * terms[4].

    It is compiled for the instruction set `path`, by default that of this process.

    lanes    one of `WIDTHS`
    query    int8[width / 4, lanes, 4]
    n_steps  width / 4
    heads    int32[lanes], minus 128 times the sum of a lane's codes, or 0 where the path's products are of signed
             bytes; then float32[lanes], rest of each lane
    unit, slack  float32
    table    int16[cells, lanes]
    codes    uint8[n_tokens, width], 128 added
    cell     uint16[n_tokens]
    terms    float32[n_tokens, 5]
    weights  float32[n_tokens], and 16 readable numbers more
    fresh    1 where `row` holds nothing yet, 0 where it is raised
    row      float32[1 + n_tokens + 16]
        The greatest bound of each token from place 1 on, noise after the last; place 0 is their weighted sum.
        Whole vectors are written, and summed here: narrow stores that are read back as vectors would stall.
    column   as for `make_dots`
    """

    def emit(builder, blocks, *values):
        _emit_bounds(builder, blocks, path or _target.path(), values)

    @intrinsic
    def bounds(
        typingctx,
        lanes,
        query,
        n_steps,
        heads,
        unit,
        slack,
        table,
        codes,
        cell,
        terms,
        weights,
        n_tokens,
        fresh,
        row,
        column,
    ):
        def code(context, builder, signature, values):
            by_lanes(builder, "bounds", values[0], values[1:], None, emit)
            return context.get_dummy_value()

        arguments: list[Any] = [types.intp] * 15
        arguments[4] = arguments[5] = types.float32
        return types.void(*arguments), code

    return bounds


def _emit_bounds(builder, blocks, path, values):
    """Emit what `make_bounds` compiles for 16 * blocks lanes; `values` are the arguments after `lanes`."""
    query, n_steps, heads, unit, slack, table, codes, cell, terms, weights, n_tokens, fresh, row, column = values
    is_old = builder.icmp_unsigned("==", fresh, I64(0))
    total = cgutils.alloca_once_value(builder, ir.Constant(vector(F32), [0.0] * STEP))
    v16 = vector(F32)
    start = [load(builder, heads, vector(I32), 64 * i) for i in range(blocks)]
    rest = [load(builder, heads, v16, 64 * (blocks + i)) for i in range(blocks)]
    columns = [cgutils.alloca_once_value(builder, load(builder, column, v16, 64 * i)) for i in range(blocks)]
    for group in groups_of(builder, n_tokens, rows_at_once(path, blocks)):
        lines = [_line_of(builder, table, cell, token, 32 * blocks) for token in group]
        for line in lines:  # they come while the codes are multiplied
            for i in range(0, 32 * blocks, 64):
                ask_for(builder, builder.add(line, I64(i)), level=3)
        sums = _byte_products(builder, query, codes, group, n_steps, start, path)
        greatest = ir.Constant(v16, [-1e30] * STEP)  # lanes beyond the group lower nothing that is there
        for position, (token, integers) in enumerate(zip(group, sums, strict=True)):
            base = builder.add(terms, builder.mul(token, I64(20)))
            t = [load(builder, base, F32, 4 * i) for i in range(5)]
            along, scale, tail = (spread(builder, x) for x in (t[0], builder.fmul(unit, t[1]), t[2]))
            constant = spread(builder, builder.fadd(t[3], builder.fmul(slack, t[4])))
            line = lines[position]
            most = None
            for i, s in enumerate(integers):
                entry = builder.sitofp(load(builder, line, vector(I16), 32 * i), v16)
                bound = fma(builder, entry, along, constant, path)
                bound = fma(builder, rest[i], tail, bound, path)
                bound = fma(builder, builder.sitofp(s, v16), scale, bound, path)
                builder.store(greater(builder, bound, builder.load(columns[i])), columns[i])
                most = bound if most is None else greater(builder, bound, most)
            greatest = builder.insert_element(greatest, fold(builder, most, greater), I32(position))
        at_row = builder.add(row, builder.add(builder.mul(group[0], I64(4)), I64(4)))
        merged = cgutils.alloca_once_value(builder, greatest)
        with builder.if_then(is_old):  # a load of what was just stored in other pieces would stall
            builder.store(greater(builder, greatest, load(builder, at_row, v16)), merged)
        greatest = builder.load(merged)
        save(builder, greatest, at_row)
        # Lanes of repeated tokens, and those beyond the group, weigh nothing.
        left = spread(builder, builder.trunc(builder.sub(n_tokens, group[0]), I32))
        counted = ir.Constant(vector(I32), [i if i < len(group) else 1 << 30 for i in range(STEP)])
        weight = load(builder, weights, v16, builder.mul(group[0], I64(4)))
        weight = builder.select(builder.icmp_signed("<", counted, left), weight, ir.Constant(v16, [0.0] * STEP))
        builder.store(fma(builder, greatest, weight, builder.load(total), path), total)
    for i in range(blocks):
        save(builder, builder.load(columns[i]), column, 64 * i)
    save(builder, fold(builder, builder.load(total), lambda b, x, y: b.fadd(x, y)), row)


# Of a sine in `add_sines` or `mean_recall`: the rest of the series is less than 6e-8, and seven roundings.
SINE_ERROR = 1e-6
_SERIES = (-1 / 39916800, 1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0)
_RADIUS = 3.14159265358979 / 360 * (1 + 1e-6)  # of a radius byte, and never less
_LEAST_STEP = 3.14159265358979 / 360 * (1 - 1e-6)  # of an angle byte, and never more


def _sine(builder, y, path):
    """Emit the sines of 16 angles of at most pi / 2 in absolute value."""
    square = builder.fmul(y, y)
    value = ir.Constant(vector(F32), [_SERIES[0]] * STEP)
    for factor in _SERIES[1:]:
        value = fma(builder, value, square, ir.Constant(vector(F32), [factor] * STEP), path)
    return builder.fmul(value, y)


@intrinsic
def add_sines(typingctx: Any, table: Any, cell: Any, radius: Any, weights: Any, n_tokens: Any, out: Any):
    """Sum sin(table[cell, 0] + radius) and sin(table[cell, 1] - radius) over tokens with weights, eight at a time.

    Angles beyond pi / 2 in either direction count as pi / 2.

    table    float32[cells, 2]
    cell     uint16[n_tokens]
    radius   uint8[n_tokens], half degrees; 255 also stands for all greater angles
    weights  float32[n_tokens], and 8 readable numbers more
    out      float32[2], written
    """

    def code(context, builder, signature, values):
        table, cell, radius, weights, n_tokens, out = values
        chosen, v16, half = _target.path(), vector(F32), STEP // 2
        v8, bytes8 = vector(F32, half), vector(I8, half)
        pairs = ir.Constant(vector(I32), [i // 2 for i in range(STEP)])
        signs = ir.Constant(v16, [1.0, -1.0] * half)

        def constant(x, element=v16):
            return ir.Constant(element, [x] * element.count)

        def doubled(v):
            """Emit a vector of 16 lanes in which each of the 8 lanes of `v` occurs twice, side by side."""
            return builder.shuffle_vector(v, ir.Constant(v.type, ir.Undefined), pairs)

        total = cgutils.alloca_once_value(builder, constant(0.0))
        builder.store(constant(0.0), total)

        def add(group, steps, weight):
            line = ir.Constant(vector(F64, half), ir.Undefined)
            for position, token in enumerate(group):
                pair = load(builder, _line_of(builder, table, cell, token, 8), F64)
                line = builder.insert_element(line, pair, I32(position))
            angle = builder.fmul(builder.uitofp(steps, v8), constant(_RADIUS, v8))
            angle = builder.select(builder.icmp_unsigned("==", steps, constant(255, bytes8)), constant(4.0, v8), angle)
            y = fma(builder, doubled(angle), signs, builder.bitcast(line, v16), chosen)
            y = greater(builder, y, constant(-1.5707964))
            y = builder.select(builder.fcmp_ordered("<", y, constant(1.5707964)), y, constant(1.5707964))
            value = _sine(builder, y, chosen)
            builder.store(fma(builder, value, doubled(weight), builder.load(total), chosen), total)

        whole = builder.and_(n_tokens, I64(-half))
        with cgutils.for_range_slice(builder, I64(0), whole, I64(half)) as (first, _):
            weight = load(builder, weights, v8, builder.mul(first, I64(4)))
            add([builder.add(first, I64(i)) for i in range(half)], load(builder, radius, bytes8, first), weight)
        with builder.if_then(builder.icmp_unsigned("<", whole, n_tokens)):  # the last token again, without weight
            last = builder.sub(n_tokens, I64(1))
            places = [builder.add(whole, I64(i)) for i in range(half)]
            group = [builder.select(builder.icmp_unsigned("<", t, last), t, last) for t in places]
            steps = constant(0, bytes8)
            for position, token in enumerate(group):
                steps = builder.insert_element(steps, load(builder, radius, I8, token), I32(position))
            left = spread(builder, builder.trunc(builder.sub(n_tokens, whole), I32), half)
            counted = builder.icmp_signed("<", ir.Constant(vector(I32, half), list(range(half))), left)
            weight = load(builder, weights, v8, builder.mul(whole, I64(4)))
            add(group, steps, builder.select(counted, weight, constant(0.0, v8)))
        both = builder.load(total)
        for n in (8, 4, 2):
            moved = ir.Constant(vector(I32), [(i + n) % STEP for i in range(STEP)])
            both = builder.fadd(both, builder.shuffle_vector(both, both, moved))
        for i in range(2):
            save(builder, builder.extract_element(both, I32(i)), out, 4 * i)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 6), code


@intrinsic
def mean_recall(
    typingctx: Any, lanes: Any, table: Any, cell: Any, radius: Any, n_tokens: Any, column: Any, shares: Any
):
    """Sum, over lanes with shares, the greater of `column` and the cosine of the minimum of `table[cell] - radius`.

    The minimum is that over tokens, and at least 0.

    lanes    one of `WIDTHS`
    table    uint8[cells, lanes], half degrees; 255 also stands for all greater angles
    cell     uint16[n_tokens]; radius uint8[n_tokens], half degrees
    column   float32[lanes]; shares float32[lanes]
    """

    def of_blocks(builder, blocks, table, cell, radius, n_tokens, column, shares):
        chosen, v16 = _target.path(), vector(F32)
        # Of 48 lanes, 32 are one vector and 16 another, because no register has 48 bytes.
        sizes = [STEP * n for n in (4, 2, 1) if blocks & n]
        firsts = [sum(sizes[:i]) for i in range(len(sizes))]
        least = [cgutils.alloca_once_value(builder, ir.Constant(vector(I8, n), [255] * n)) for n in sizes]
        with cgutils.for_range(builder, n_tokens) as token:
            address = _line_of(builder, table, cell, token.index, STEP * blocks)
            byte = load(builder, radius, I8, token.index)
            for n, first, variable in zip(sizes, firsts, least, strict=True):
                line = load(builder, address, vector(I8, n), first)
                angle = call(builder, f"llvm.usub.sat.v{n}i8", vector(I8, n), line, spread(builder, byte, n))
                builder.store(
                    call(builder, f"llvm.umin.v{n}i8", vector(I8, n), builder.load(variable), angle), variable
                )
        total = ir.Constant(v16, [0.0] * STEP)
        step, quarter = (ir.Constant(v16, [x] * STEP) for x in (-_LEAST_STEP, 1.5707964))
        for n, first, variable in zip(sizes, firsts, least, strict=True):
            lowest = builder.load(variable)
            for i in range(0, n, STEP):
                places = ir.Constant(vector(I32), list(range(i, i + STEP)))
                steps = builder.uitofp(builder.shuffle_vector(lowest, lowest, places), v16)
                cosine = _sine(builder, fma(builder, steps, step, quarter, chosen), chosen)
                best = greater(builder, cosine, load(builder, column, v16, 4 * (first + i)))
                total = fma(builder, best, load(builder, shares, v16, 4 * (first + i)), total, chosen)
        return fold(builder, total, lambda b, x, y: b.fadd(x, y))

    def code(context, builder, signature, values):
        return by_lanes(builder, "mean_recall", values[0], values[1:], F32, of_blocks)

    return types.float32(*[types.intp] * 7), code


def make_near(path: Path | None = None) -> Any:
    """Return the function `near(lanes, query, n_steps, heads, codes, terms, n_tokens, out, row, column)`.

    It multiplies the codes of a report's tokens with those of a query's, and keeps the greatest product of each token.
    It is compiled for the instruction set `path`, by default that of this process.

    lanes    one of `WIDTHS`
    query    int8[width / 4, lanes, 4]
    n_steps  width / 4
    heads    int32[lanes], as for `make_bounds`; then float32[lanes], step of each lane
    codes    uint8[n_tokens, width], 128 added
    terms    float32[n_tokens, 2], step and margin of each token
    out      float32[n_tokens, lanes], products of the codes times both steps
    row      float32[n_tokens], raised to the greatest product of each token
    column   float32[lanes], raised to the greatest product less the token's margin
    """

    def of_blocks(builder, blocks, query, n_steps, heads, codes, terms, n_tokens, out, row, column):
        chosen = path or _target.path()
        v16 = vector(F32)
        start = [load(builder, heads, vector(I32), 64 * i) for i in range(blocks)]
        size = [load(builder, heads, v16, 64 * (blocks + i)) for i in range(blocks)]
        columns = [cgutils.alloca_once_value(builder, load(builder, column, v16, 64 * i)) for i in range(blocks)]
        for group in groups_of(builder, n_tokens, rows_at_once(chosen, blocks)):
            sums = _byte_products(builder, query, codes, group, n_steps, start, chosen)
            for token, integers in zip(group, sums, strict=True):
                base = builder.add(terms, builder.mul(token, I64(8)))
                scale, margin = (spread(builder, load(builder, base, F32, 4 * i)) for i in range(2))
                address = builder.add(out, builder.mul(token, I64(64 * blocks)))
                most = None
                for i, s in enumerate(integers):
                    value = builder.fmul(builder.sitofp(s, v16), builder.fmul(scale, size[i]))
                    save(builder, value, address, 64 * i)
                    low = builder.fsub(value, margin)
                    builder.store(greater(builder, low, builder.load(columns[i])), columns[i])
                    most = value if most is None else greater(builder, value, most)
                at = builder.mul(token, I64(4))
                greatest = greater(builder, fold(builder, most, greater), load(builder, row, F32, at))
                save(builder, greatest, row, at)
        for i in range(blocks):
            save(builder, builder.load(columns[i]), column, 64 * i)

    @intrinsic
    def near(typingctx, lanes, query, n_steps, heads, codes, terms, n_tokens, out, row, column):
        def code(context, builder, signature, values):
            by_lanes(builder, "near", values[0], values[1:], None, of_blocks)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 10), code

    return near


@intrinsic
def candidates(typingctx: Any, lanes: Any, products: Any, low: Any, margin: Any, column: Any, out: Any):
    """Write the numbers of the lanes that may hold a maximum, in order, and return how many there are.

    lanes     one of `WIDTHS`
    products  float32[lanes], of one token with all lanes
    low       float32, what a product must reach to be the token's maximum
    margin    float32
    column    float32[lanes], what a product plus `margin` must reach to be its lane's maximum
    out       int64[lanes], numbers of lanes
    """

    def of_blocks(builder, blocks, products, low, margin, column, out):
        least, less = spread(builder, low), spread(builder, margin)
        mask = I64(0)
        for i in range(blocks):
            of_lane = builder.fsub(load(builder, column, vector(F32), 64 * i), less)
            needed = builder.select(builder.fcmp_ordered("<", of_lane, least), of_lane, least)
            reached = builder.fcmp_ordered(">=", load(builder, products, vector(F32), 64 * i), needed)
            bits = builder.zext(builder.bitcast(reached, ir.IntType(STEP)), I64)
            mask = builder.or_(mask, builder.shl(bits, I64(STEP * i)))
        left, n = cgutils.alloca_once_value(builder, mask), builder.ctpop(mask)
        with cgutils.for_range(builder, n) as candidate:
            bits = builder.load(left)
            lane = builder.cttz(bits, ir.Constant(ir.IntType(1), 1))
            save(builder, lane, out, builder.mul(candidate.index, I64(8)))
            builder.store(builder.and_(bits, builder.sub(bits, I64(1))), left)
        return n

    def code(context, builder, signature, values):
        return by_lanes(builder, "candidates", values[0], values[1:], I64, of_blocks)

    arguments: list[Any] = [types.intp] * 6
    arguments[2] = arguments[3] = types.float32
    return types.intp(*arguments), code


@intrinsic
def code_tokens(typingctx: Any, tokens: Any, n_groups: Any, n_turned: Any, n_tokens: Any, codes: Any, measured: Any):
    """Multiply vectors by a Hadamard matrix and write their codes: bytes, a step and the length of the remainder.

    tokens    float32[n_tokens, n_groups, 16], turned in place: the numbers of every `n_turned` groups (a power of two
              that divides `n_groups`) give way to sums of all of them with signs, so vectors get longer: the square
              root of 16 `n_turned` times
    codes     uint8[n_tokens, 16 * n_groups], 128 added
    measured  float64[n_tokens, 3], squared length before; step; squared length of what the codes leave out
    """

    def code(context, builder, signature, values):
        tokens, n_groups, n_turned, n_tokens, codes, measured = values
        chosen, v16 = _target.path(), vector(F32)
        magnitude = ir.Constant(vector(I32), [0x7FFFFFFF] * STEP)

        def over_groups(visit, element, start=0.0):
            """Emit a loop over the groups of 16 numbers of a token, and return the vector after the last.

            `visit` takes the index of a group and the vector so far, which begins as 16 times `start`, and returns the
            next.
            """
            so_far = cgutils.alloca_once_value(builder, ir.Constant(vector(element), [start] * STEP))
            builder.store(ir.Constant(vector(element), [start] * STEP), so_far)
            with cgutils.for_range(builder, n_groups) as group:
                builder.store(visit(group.index, builder.load(so_far)), so_far)
            return builder.load(so_far)

        def plus(builder, x, y):
            """Emit the sum of two vectors."""
            return builder.fadd(x, y)

        with cgutils.for_range(builder, n_tokens) as token:
            numbers = builder.mul(token.index, n_groups)
            at, coded = (builder.add(x, builder.mul(numbers, I64(n))) for x, n in ((tokens, 4 * STEP), (codes, STEP)))
            facts = builder.add(measured, builder.mul(token.index, I64(24)))

            def group_at(index, at=at):
                return load(builder, at, v16, builder.mul(index, I64(4 * STEP)))

            def add_square(index, total):
                """Rotate the 16 numbers of one group in place, and add the squares of the former ones to `total`.

                It is the step of the Hadamard transform within a group.
                """
                x = group_at(index)
                turned = x
                for h in (1, 2, 4, 8):
                    other = builder.shuffle_vector(
                        turned, turned, ir.Constant(vector(I32), [i ^ h for i in range(STEP)])
                    )
                    signs = ir.Constant(v16, [-1.0 if i & h else 1.0 for i in range(STEP)])
                    turned = builder.fadd(builder.fmul(turned, signs), other)
                save(builder, turned, at, builder.mul(index, I64(4 * STEP)))
                x = builder.fpext(x, vector(F64))
                return builder.fadd(builder.fmul(x, x), total)

            save(builder, fold(builder, over_groups(add_square, F64), plus), facts)
            stages = builder.cttz(n_turned, ir.Constant(ir.IntType(1), 1))
            with cgutils.for_range(builder, stages) as stage:
                h = builder.shl(I64(1), stage.index)
                with cgutils.for_range(builder, builder.lshr(n_groups, I64(1))) as pair:
                    low = builder.and_(pair.index, builder.sub(h, I64(1)))
                    first = builder.add(builder.shl(builder.sub(pair.index, low), I64(1)), low)
                    second = builder.add(first, h)
                    x, y = group_at(first), group_at(second)
                    for value, index in ((builder.fadd(x, y), first), (builder.fsub(x, y), second)):
                        save(builder, value, at, builder.mul(index, I64(4 * STEP)))

            def farther(index, most):
                bits = builder.and_(builder.bitcast(group_at(index), vector(I32)), magnitude)
                return greater(builder, builder.bitcast(bits, v16), most)

            step = builder.fdiv(fold(builder, over_groups(farther, F32, 1e-30), greater), F32(127.0))
            size, inverse = spread(builder, step), spread(builder, builder.fdiv(F32(1.0), step))
            middle, half = (ir.Constant(v16, [x] * STEP) for x in (128.0, 128.5))

            def write(index, total, coded=coded):
                x = group_at(index)
                whole = builder.fptosi(builder.fadd(builder.fmul(x, inverse), half), vector(I32))
                save(builder, builder.trunc(whole, vector(I8)), coded, builder.mul(index, I64(STEP)))
                back = builder.fmul(builder.fsub(builder.sitofp(whole, v16), middle), size)
                rest = builder.fsub(x, back)
                return fma(builder, rest, rest, total, chosen)

            rest = fold(builder, over_groups(write, F32), plus)
            save(builder, builder.fpext(step, F64), facts, 8)
            save(builder, builder.fpext(rest, F64), facts, 16)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 6), code


def _line_of(builder, table, cell, token, size):
    """Emit the address of the row of `table`, whose rows have `size` bytes, for the cell of a token, and return it.

    `cell` is the address of the tokens' cells, uint16, and `token` an index.
    """
    number = builder.zext(load(builder, cell, I16, builder.mul(token, I64(2))), I64)
    return builder.add(table, builder.mul(number, I64(size)))


def _byte_products(builder, query, codes, tokens, n_steps, start, path):
    """Emit the sums `start` plus the products of the codes of some tokens with those of all lanes; return the sums.

    They are a list of vectors for each of the `tokens`, which are indices. `query` and `codes` are addresses of arrays
    as for `make_bounds`; `start` has one vector for each 16 lanes.
    """
    at = [builder.add(codes, builder.mul(t, builder.mul(n_steps, I64(4)))) for t in tokens]

    def multiply(step, sums):
        address = builder.add(query, builder.mul(step, I64(64 * len(start))))
        q = [load(builder, address, vector(I32), 64 * i) for i in range(len(start))]
        c = [spread(builder, load(builder, a, I32, builder.mul(step, I64(4)))) for a in at]
        return [[add_products(builder, s, c[t], q[i], path) for i, s in enumerate(r)] for t, r in enumerate(sums)]

    return run_sums(builder, [start] * len(tokens), n_steps, multiply)
