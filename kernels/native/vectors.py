# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""Loops over vectors of 16 float32, written in LLVM's own terms: what the compiler doesn't find by itself.

On a CPU whose vectors are shorter LLVM takes several for one.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
PANEL = 2 * LANES

# exp(x) = 2^n exp(r), |r| <= log(2) / 2 (Cephes, expf): log(2) in two parts, and the polynomial's coefficients.
LOG2_E, LN2_HIGH, LN2_LOW = 1.44269504, 0.693359375, -2.12194440e-4
EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
# 2^r, |r| <= 1/2: the polynomial of degree 5 with the least largest relative error, 1 at 0.
EXP2 = (1.326465280726552e-3, 9.671511128544807e-3, 5.550733953714371e-2, 0.24022242426872253, 0.6931470036506653, 1.0)
_ERF_P, _ERF = 0.3275911, (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)

_FLOAT = ir.FloatType()
_INDEX = ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)


class _Builder:
    """The few operations that the loops below are made of."""

    def __init__(self, context: Any, builder: Any) -> None:
        self.context, self.ir = context, builder
        fused = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        self._fused = cgutils.get_or_insert_function(builder.module, fused, f"llvm.fma.v{LANES}f32")

    def start(self, array_type: Any, array: Any, at: Any) -> Any:
        """A pointer to element `at` of a contiguous array."""
        return self.ir.gep(self.context.make_array(array_type)(self.context, self.ir, array).data, [at])

    def at(self, pointer: Any, offset: Any) -> Any:
        return self.ir.gep(pointer, [offset])

    def load(self, pointer: Any) -> Any:
        return self.ir.load(self.ir.bitcast(pointer, _VECTOR.as_pointer()), align=4)

    def store(self, vector: Any, pointer: Any) -> None:
        self.ir.store(vector, self.ir.bitcast(pointer, _VECTOR.as_pointer()), align=4)

    def spread(self, pointer: Any) -> Any:
        """The number there in all lanes."""
        return self.spread_value(self.ir.load(pointer))

    def spread_value(self, number: Any) -> Any:
        nothing = ir.Constant(_VECTOR, ir.Undefined)
        first = self.ir.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
        return self.ir.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))

    def constant(self, number: float) -> Any:
        return ir.Constant(_VECTOR, [float(np.float32(number))] * LANES)

    def power_of_two(self, shifted: Any) -> Any:
        """2^n in each lane, from n + 1.5 2^23: the sum's last bits are n."""
        whole = ir.VectorType(ir.IntType(32), LANES)
        bits = self.ir.add(self.ir.bitcast(shifted, whole), ir.Constant(whole, [127] * LANES))
        return self.ir.bitcast(self.ir.shl(bits, ir.Constant(whole, [23] * LANES)), _VECTOR)

    def exp(self, x: Any) -> Any:
        """e^x for x <= 88; what is below -87 counts as that."""
        lowest, shift = self.constant(-87.0), self.constant(1.5 * 2**23)
        x = self.ir.select(self.ir.fcmp_ordered("<", x, lowest), lowest, x)
        shifted = self.fma(x, self.constant(LOG2_E), shift)
        n = self.ir.fsub(shifted, shift)
        r = self.fma(n, self.constant(-LN2_LOW), self.fma(n, self.constant(-LN2_HIGH), x))
        p = self.constant(EXP[0])
        for coefficient in EXP[1:]:
            p = self.fma(p, r, self.constant(coefficient))
        p = self.fma(self.ir.fmul(p, r), r, self.ir.fadd(r, self.constant(1.0)))
        return self.ir.fmul(p, self.power_of_two(shifted))

    def exp2(self, x: Any) -> Any:
        """2^x for x <= 0, to 1.7e-7; what is below -125 counts as that."""
        lowest, shift = self.constant(-125.0), self.constant(1.5 * 2**23)
        x = self.ir.select(self.ir.fcmp_ordered("<", x, lowest), lowest, x)
        shifted = self.ir.fadd(x, shift)
        rest = self.ir.fsub(x, self.ir.fsub(shifted, shift))
        p = self.constant(EXP2[0])
        for coefficient in EXP2[1:]:
            p = self.fma(p, rest, self.constant(coefficient))
        whole = ir.VectorType(ir.IntType(32), LANES)
        n = self.ir.shl(self.ir.bitcast(shifted, whole), ir.Constant(whole, [23] * LANES))
        return self.ir.bitcast(self.ir.add(self.ir.bitcast(p, whole), n), _VECTOR)

    def vectors(self, count: Any) -> Any:
        """How many vectors hold `count` numbers."""
        return self.ir.sdiv(self.ir.add(count, index(LANES - 1)), index(LANES))

    def below(self, v: Any, count: Any) -> Any:
        """Which lanes of vector v are among the first `count` numbers."""
        kind = ir.IntType(32)
        left = self.ir.trunc(self.ir.sub(count, self.ir.mul(v, index(LANES))), kind)
        vector = ir.VectorType(kind, LANES)
        nothing = ir.Constant(vector, ir.Undefined)
        spread = self.ir.insert_element(nothing, left, ir.Constant(kind, 0))
        spread = self.ir.shuffle_vector(spread, nothing, ir.Constant(vector, [0] * LANES))
        return self.ir.icmp_signed(">", spread, ir.Constant(vector, list(range(LANES))))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.ir.call(self._fused, [a, b, c])

    def total(self, vector: Any) -> Any:
        """Sum of the lanes, pair by pair."""
        add = ir.FunctionType(_FLOAT, [_FLOAT, _VECTOR])
        function = cgutils.get_or_insert_function(self.ir.module, add, f"llvm.vector.reduce.fadd.v{LANES}f32")
        return self.ir.call(function, [ir.Constant(_FLOAT, 0.0), vector], fastmath=("reassoc",))

    def totals(self, vectors: list[Any]) -> Any:
        """The sums of the lanes of up to 16 vectors, in the first lanes of one; each is summed in the same order.

        Four steps add halves: of four neighbouring lanes, of two of those, and of the four quarters of a vector likewise.
        """
        for first, second in _HALVES:
            pairs = [(vectors[i], vectors[min(i + 1, len(vectors) - 1)]) for i in range(0, len(vectors), 2)]
            vectors = [self.ir.fadd(self.shuffle(a, b, first), self.shuffle(a, b, second)) for a, b in pairs]
        return vectors[0]

    def shuffle(self, a: Any, b: Any, lanes: list[int]) -> Any:
        """The lanes so numbered of a (from 0) and b (from 16)."""
        return self.ir.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes))

    def store_part(self, vector: Any, first: int, count: int, pointer: Any) -> None:
        """Store `count` lanes from `first` on."""
        part = self.shuffle(vector, vector, list(range(first, first + count)))
        self.ir.store(part, self.ir.bitcast(pointer, part.type.as_pointer()), align=4)

    def accumulate(self, count: Any, sums: list[Any], step: Any) -> list[Any]:
        """sums = step(i, sums) for i in 0 .. count - 1; the sums stay in registers."""
        before = self.ir.block
        body, end = self.ir.append_basic_block("body"), self.ir.append_basic_block("end")
        self.ir.cbranch(self.ir.icmp_signed("<", index(0), count), body, end)
        self.ir.position_at_end(body)
        i = self.ir.phi(_INDEX)
        i.add_incoming(index(0), before)
        held = [self.ir.phi(s.type) for s in sums]
        for phi, first in zip(held, sums, strict=True):
            phi.add_incoming(first, before)
        new: list[Any] = step(i, held)
        following = self.ir.add(i, index(1))
        here = self.ir.block
        i.add_incoming(following, here)
        for phi, value in zip(held, new, strict=True):
            phi.add_incoming(value, here)
        self.ir.cbranch(self.ir.icmp_signed("<", following, count), body, end)
        self.ir.position_at_end(end)
        results = [self.ir.phi(s.type) for s in sums]
        for phi, first, last in zip(results, sums, new, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(last, here)
        return results


def _in_quarters(first: list[int]) -> list[int]:
    """What is done to the first four lanes, done to each four."""
    return [4 * quarter + lane for quarter in range(4) for lane in first]


_B = LANES
_HALVES = (
    (_in_quarters([0, _B, 1, _B + 1]), _in_quarters([2, _B + 2, 3, _B + 3])),
    (_in_quarters([0, 1, _B, _B + 1]), _in_quarters([2, 3, _B + 2, _B + 3])),
    ([*range(4), *range(8, 12), *range(16, 20), *range(24, 28)], [*range(4, 8), *range(12, 16), *range(20, 24), *range(28, 32)]),
    ([*range(4), *range(8, 12), *range(16, 20), *range(24, 28)], [*range(4, 8), *range(12, 16), *range(20, 24), *range(28, 32)]),
)


def index(n: int) -> Any:
    return ir.Constant(_INDEX, n)


def _zero() -> Any:
    return ir.Constant(_VECTOR, [0.0] * LANES)


def _product_tile(rows: int, panels: int = 1):
    """y[r, :N] = bias[:N] + x[r, :depth] @ w[:depth, :N] for `rows` rows and N = 32 `panels`, with all sums in registers.

    x_at is where in x the first number lies, x_step the way from row to row, and so on; w_panel is the way from panel to panel.
    """

    @intrinsic
    def tile(typing, x, x_at, x_step, w, w_at, w_step, w_panel, depth, bias, bias_at, y, y_at, y_step):
        signature = types.void(x, x_at, x_step, w, w_at, w_step, w_panel, depth, bias, bias_at, y, y_at, y_step)

        def generate(context, builder, signature, arguments):
            b, kinds = _Builder(context, builder), signature.args
            x, x_at, x_step, w, w_at, w_step, w_panel, depth, bias, bias_at, y, y_at, y_step = arguments
            bias_start = b.start(kinds[8], bias, bias_at)
            w_starts = [b.start(kinds[3], w, builder.add(w_at, builder.mul(w_panel, index(i)))) for i in range(panels)]
            x_rows = [b.start(kinds[0], x, builder.add(x_at, builder.mul(x_step, index(r)))) for r in range(rows)]
            first = [b.load(b.at(bias_start, index(LANES * v))) for v in range(2 * panels)]

            def step(k, sums):
                starts = [b.at(start, builder.mul(k, w_step)) for start in w_starts]
                columns = [b.load(b.at(start, index(LANES * half))) for start in starts for half in (0, 1)]
                numbers = [b.spread(b.at(row, k)) for row in x_rows]
                return [b.fma(numbers[i // len(columns)], columns[i % len(columns)], s) for i, s in enumerate(sums)]

            for i, total in enumerate(b.accumulate(depth, first * rows, step)):
                row, column = divmod(i, len(first))
                at = builder.add(y_at, builder.add(builder.mul(y_step, index(row)), index(LANES * column)))
                b.store(total, b.start(kinds[10], y, at))
            return context.get_dummy_value()

        return signature, generate

    return tile


PRODUCT_TILES = tuple(_product_tile(rows) for rows in range(1, 9))
# One row has sums enough to hide how long each takes only in several panels at once.
PRODUCT_ROW_PANELS = 4
PRODUCT_ROW = _product_tile(1, PRODUCT_ROW_PANELS)


def _weighted_tile(rows: int, depth: int):
    """y[r, d] = factor[r] times the sum over s of x[r, s] w[d, s], for `rows` rows and `depth` columns of y.

    The sum goes over 16 `vectors` of x and w, then over 16 `more` from x[:, gap] and v[:, 0] on.
    """

    @intrinsic
    def tile(typing, x, x_at, x_step, w, w_at, w_step, vectors, gap, v, v_at, v_step, more, factor, factor_at, y, y_at, y_step):
        arguments = x, x_at, x_step, w, w_at, w_step, vectors, gap, v, v_at, v_step, more, factor, factor_at, y, y_at, y_step

        def generate(context, builder, signature, arguments):
            b, kinds = _Builder(context, builder), signature.args
            x, x_at, x_step, w, w_at, w_step, vectors, gap, v, v_at, v_step, more, factor, factor_at, y, y_at, y_step = arguments

            def lines(kind, array, at, step, count):
                return [b.start(kind, array, builder.add(at, builder.mul(step, index(i)))) for i in range(count)]

            def adding(x_rows, w_rows):
                def step(i, sums):
                    offset = builder.mul(i, index(LANES))
                    left = [b.load(b.at(row, offset)) for row in x_rows]
                    right = [b.load(b.at(row, offset)) for row in w_rows]
                    return [b.fma(left[i // depth], right[i % depth], total) for i, total in enumerate(sums)]

                return step

            x_rows = lines(kinds[0], x, x_at, x_step, rows)
            step = adding(x_rows, lines(kinds[3], w, w_at, w_step, depth))
            sums = b.accumulate(vectors, [_zero()] * (rows * depth), step)
            step = adding([b.at(row, gap) for row in x_rows], lines(kinds[8], v, v_at, v_step, depth))
            sums = b.accumulate(more, sums, step)
            factors = b.start(kinds[12], factor, factor_at)
            # Four sums at a time lie in a quarter of the vector, or two of them with what doesn't count.
            group = min(depth, 4)
            if group < 4:
                sums = [s for r in range(rows) for s in (sums[2 * r], sums[2 * r + 1], sums[2 * r + 1], sums[2 * r + 1])]
            totals = b.totals(sums)
            for i, row in enumerate(lines(kinds[14], y, y_at, y_step, rows)):
                scaled = builder.fmul(totals, b.spread(b.at(factors, index(i))))
                b.store_part(scaled, i * max(depth, 4), depth, row)
            return context.get_dummy_value()

        return types.void(*arguments), generate

    return tile


# Of one row eight columns are summed at a time, or four; of two to four rows, four; of any, two.
WEIGHTED_ROW = _weighted_tile(1, 8)
WEIGHTED_TILES = tuple(_weighted_tile(rows, 4) for rows in range(1, 5))
WEIGHTED_PAIRS = tuple(_weighted_tile(rows, 2) for rows in range(1, 5))


@intrinsic
def softmax(typing, logits, at, count, null):
    """Turn `count` >= 1 logits from `at` on into 2^(logit - largest), and into 0 those that fill the last vector up.

    Returns one over the sum, of which with `null` a logit 0 is part. Where a logit is no number, nor is all the rest.
    """

    def generate(context, builder, signature, arguments):
        b = _Builder(context, builder)
        start, count, null = b.start(signature.args[0], *arguments[:2]), arguments[2], arguments[3]
        last = builder.sub(b.vectors(count), index(1))
        inside, end = b.below(last, count), b.at(start, builder.mul(last, index(LANES)))

        def higher(new, top):
            return builder.select(builder.fcmp_ordered(">", new, top), new, top)

        def climb(v, tops):
            return [higher(b.load(b.at(start, builder.mul(v, index(LANES)))), tops[0])]

        least = builder.select(null, _zero(), b.constant(-np.inf))
        top = b.accumulate(last, [higher(builder.select(inside, b.load(end), least), least)], climb)[0]
        kind = ir.FunctionType(_FLOAT, [_VECTOR])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fmax.v{LANES}f32")
        top = b.spread_value(builder.call(function, [top], fastmath=("nnan",)))

        def weigh(v, sums):
            place = b.at(start, builder.mul(v, index(LANES)))
            weight = b.exp2(builder.fsub(b.load(place), top))
            b.store(weight, place)
            return [builder.fadd(sums[0], weight)]

        rest = builder.select(inside, b.exp2(builder.fsub(b.load(end), top)), _zero())
        b.store(rest, end)
        only = ir.Constant(_VECTOR, [1.0] + [0.0] * (LANES - 1))
        nothing = builder.select(null, builder.fmul(b.exp2(builder.fsub(_zero(), top)), only), _zero())
        total = b.total(b.accumulate(last, [builder.fadd(rest, nothing)], weigh)[0])
        return builder.fdiv(ir.Constant(_FLOAT, 1.0), total)

    return types.float32(logits, at, count, types.boolean), generate


@intrinsic
def gelu_row(typing, x, at, count):
    """GELU in place of `count` numbers from `at` on, and of those that fill the last vector up.

    The error function is Abramowitz and Stegun's (1964), 7.1.26, good to 1.5e-7.
    """

    def generate(context, builder, signature, arguments):
        b = _Builder(context, builder)
        start = b.start(signature.args[0], *arguments[:2])
        one = b.constant(1.0)

        def step(v, _):
            place = b.at(start, builder.mul(v, index(LANES)))
            value = b.load(place)
            z = builder.fmul(value, b.constant(math.sqrt(0.5)))
            negative = builder.fcmp_ordered("<", z, _zero())
            far = builder.select(negative, builder.fsub(_zero(), z), z)
            t = builder.fdiv(one, b.fma(far, b.constant(_ERF_P), one))
            series = b.constant(_ERF[0])
            for coefficient in _ERF[1:]:
                series = b.fma(series, t, b.constant(coefficient))
            tail = builder.fmul(builder.fmul(series, t), b.exp(builder.fmul(builder.fsub(_zero(), z), z)))
            twice = builder.select(negative, tail, builder.fsub(b.constant(2.0), tail))
            b.store(builder.fmul(builder.fmul(value, b.constant(0.5)), twice), place)
            return []

        b.accumulate(b.vectors(arguments[2]), [], step)
        return context.get_dummy_value()

    return types.void(x, at, count), generate


@intrinsic
def norm_row(typing, x, x_at, count, gain, shift, at, y, y_at):
    """y = (x - mean) / sqrt(variance + 1e-5) gain + shift over `count` numbers; y has room for a full last vector."""

    def generate(context, builder, signature, arguments):
        b, kinds = _Builder(context, builder), signature.args
        x, x_at, count, gain, shift, at, y, y_at = arguments
        source, target = b.start(kinds[0], x, x_at), b.start(kinds[6], y, y_at)
        gains, shifts = b.start(kinds[3], gain, at), b.start(kinds[4], shift, at)
        vectors, size = b.vectors(count), builder.sitofp(count, _FLOAT)

        def sum_up(v, sums):
            value = b.load(b.at(source, builder.mul(v, index(LANES))))
            return [builder.fadd(sums[0], builder.select(b.below(v, count), value, _zero()))]

        mean = b.spread_value(builder.fdiv(b.total(b.accumulate(vectors, [_zero()], sum_up)[0]), size))

        def square_up(v, sums):
            away = builder.fsub(b.load(b.at(source, builder.mul(v, index(LANES)))), mean)
            away = builder.select(b.below(v, count), away, _zero())
            return [b.fma(away, away, sums[0])]

        variance = builder.fdiv(b.total(b.accumulate(vectors, [_zero()], square_up)[0]), size)
        root = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_FLOAT, [_FLOAT]), "llvm.sqrt.f32")
        deviation = builder.call(root, [builder.fadd(variance, ir.Constant(_FLOAT, float(np.float32(1e-5))))])
        scale = b.spread_value(builder.fdiv(ir.Constant(_FLOAT, 1.0), deviation))

        def write(v, _):
            offset = builder.mul(v, index(LANES))
            away = builder.fmul(builder.fsub(b.load(b.at(source, offset)), mean), scale)
            b.store(b.fma(away, b.load(b.at(gains, offset)), b.load(b.at(shifts, offset))), b.at(target, offset))
            return []

        b.accumulate(vectors, [], write)
        return context.get_dummy_value()

    return types.void(x, x_at, count, gain, shift, at, y, y_at), generate


@intrinsic
def power_of_two(typing, shifted):
    """2^n, float32, from n + 1.5 2^23: the sum's last bits are n."""

    def generate(context, builder, signature, arguments):
        bits = builder.bitcast(arguments[0], ir.IntType(32))
        biased = builder.shl(builder.add(bits, ir.Constant(ir.IntType(32), 127)), ir.Constant(ir.IntType(32), 23))
        return builder.bitcast(biased, _FLOAT)

    return types.float32(types.float32), generate
