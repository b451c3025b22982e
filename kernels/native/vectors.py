# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""Loops over vectors of 16 float32, written in LLVM's own terms: what the compiler doesn't find by itself.

On a CPU whose vectors are shorter LLVM takes several for one.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
PANEL = 2 * LANES

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
        """One number in all lanes."""
        nothing = ir.Constant(_VECTOR, ir.Undefined)
        first = self.ir.insert_element(nothing, self.ir.load(pointer), ir.Constant(ir.IntType(32), 0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return self.ir.shuffle_vector(first, nothing, lanes)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.ir.call(self._fused, [a, b, c])

    def total(self, vector: Any) -> Any:
        """Sum of the lanes, pair by pair."""
        add = ir.FunctionType(_FLOAT, [_FLOAT, _VECTOR])
        function = cgutils.get_or_insert_function(self.ir.module, add, f"llvm.vector.reduce.fadd.v{LANES}f32")
        return self.ir.call(function, [ir.Constant(_FLOAT, 0.0), vector], fastmath=("reassoc",))

    def accumulate(self, count: Any, sums: list[Any], step: Any) -> list[Any]:
        """sums = step(i, sums) for i in 0 .. count - 1, count >= 1; the sums stay in registers."""
        before = self.ir.block
        body, end = self.ir.append_basic_block("body"), self.ir.append_basic_block("end")
        self.ir.branch(body)
        self.ir.position_at_end(body)
        i = self.ir.phi(_INDEX)
        i.add_incoming(index(0), before)
        held = [self.ir.phi(s.type) for s in sums]
        for phi, first in zip(held, sums, strict=True):
            phi.add_incoming(first, before)
        new = step(i, held)
        following = self.ir.add(i, index(1))
        here = self.ir.block
        i.add_incoming(following, here)
        for phi, value in zip(held, new, strict=True):
            phi.add_incoming(value, here)
        self.ir.cbranch(self.ir.icmp_signed("<", following, count), body, end)
        self.ir.position_at_end(end)
        return new


def index(n: int) -> Any:
    return ir.Constant(_INDEX, n)


def _zero() -> Any:
    return ir.Constant(_VECTOR, [0.0] * LANES)


def _product_tile(rows: int):
    """y[r, :32] = bias[:32] + x[r, :depth] @ w[:depth, :32] for `rows` rows, with all sums in registers."""

    @intrinsic
    def tile(typing, x, x_at, x_step, w, w_at, depth, bias, bias_at, y, y_at, y_step):
        signature = types.void(x, x_at, x_step, w, w_at, depth, bias, bias_at, y, y_at, y_step)

        def generate(context, builder, signature, arguments):
            b, kinds = _Builder(context, builder), signature.args
            x, x_at, x_step, w, w_at, depth, bias, bias_at, y, y_at, y_step = arguments
            w_start, bias_start = b.start(kinds[3], w, w_at), b.start(kinds[6], bias, bias_at)
            x_rows = [b.start(kinds[0], x, builder.add(x_at, builder.mul(x_step, index(r)))) for r in range(rows)]
            first = [b.load(bias_start), b.load(b.at(bias_start, index(LANES)))]

            def step(k, sums):
                start = b.at(w_start, builder.mul(k, index(PANEL)))
                columns = [b.load(start), b.load(b.at(start, index(LANES)))]
                new = []
                for r, row in enumerate(x_rows):
                    number = b.spread(b.at(row, k))
                    new += [b.fma(number, columns[0], sums[2 * r]), b.fma(number, columns[1], sums[2 * r + 1])]
                return new

            sums = b.accumulate(depth, first * rows, step)
            for r in range(rows):
                row = b.start(kinds[8], y, builder.add(y_at, builder.mul(y_step, index(r))))
                b.store(sums[2 * r], row)
                b.store(sums[2 * r + 1], b.at(row, index(LANES)))
            return context.get_dummy_value()

        return signature, generate

    return tile


PRODUCT_TILES = tuple(_product_tile(rows) for rows in range(1, 9))


def _dots_with_columns(width: int):
    """out[s] = sum over d < depth of q[d] keys[d, s], for s < 16 `width` `times`."""

    @intrinsic
    def dots(typing, q, q_at, keys, keys_at, keys_step, depth, out, out_at, times):
        signature = types.void(q, q_at, keys, keys_at, keys_step, depth, out, out_at, times)

        def generate(context, builder, signature, arguments):
            b, kinds = _Builder(context, builder), signature.args
            q, q_at, keys, keys_at, keys_step, depth, out, out_at, times = arguments
            q_start, keys_start = b.start(kinds[0], q, q_at), b.start(kinds[2], keys, keys_at)
            out_start = b.start(kinds[6], out, out_at)

            def columns(i, _):
                offset = builder.mul(i, index(width * LANES))
                here = b.at(keys_start, offset)

                def step(d, sums):
                    number, row = b.spread(b.at(q_start, d)), b.at(here, builder.mul(d, keys_step))
                    return [b.fma(number, b.load(b.at(row, index(v * LANES))), sums[v]) for v in range(width)]

                for v, total in enumerate(b.accumulate(depth, [_zero()] * width, step)):
                    b.store(total, b.at(out_start, builder.add(offset, index(v * LANES))))
                return []

            b.accumulate(times, [], columns)
            return context.get_dummy_value()

        return signature, generate

    return dots


def _add_dots_with_rows(width: int):
    """out[d] += sum over s < 16 `vectors` of weights[s] values[d, s], for d < `width` `times`."""

    @intrinsic
    def add_dots(typing, weights, weights_at, values, values_at, values_step, times, out, out_at, vectors):
        signature = types.void(weights, weights_at, values, values_at, values_step, times, out, out_at, vectors)

        def generate(context, builder, signature, arguments):
            b, kinds = _Builder(context, builder), signature.args
            weights, weights_at, values, values_at, values_step, times, out, out_at, vectors = arguments
            weights_start, values_start = b.start(kinds[0], weights, weights_at), b.start(kinds[2], values, values_at)
            out_start = b.start(kinds[6], out, out_at)

            def rows(i, _):
                first = builder.mul(i, index(width))
                here = [b.at(values_start, builder.mul(builder.add(first, index(r)), values_step)) for r in range(width)]

                def step(v, sums):
                    offset = builder.mul(v, index(LANES))
                    some = b.load(b.at(weights_start, offset))
                    return [b.fma(some, b.load(b.at(row, offset)), total) for row, total in zip(here, sums, strict=True)]

                for r, total in enumerate(b.accumulate(vectors, [_zero()] * width, step)):
                    place = b.at(out_start, builder.add(first, index(r)))
                    builder.store(builder.fadd(builder.load(place), b.total(total)), place)
                return []

            b.accumulate(times, [], rows)
            return context.get_dummy_value()

        return signature, generate

    return add_dots


ONE_COLUMN, FOUR_COLUMNS = _dots_with_columns(1), _dots_with_columns(4)
ONE_ROW, FOUR_ROWS = _add_dots_with_rows(1), _add_dots_with_rows(4)


@intrinsic
def largest(typing, values, vectors):
    """The largest of values[: 16 vectors], vectors >= 1; of numbers among which is a NaN, any."""

    def generate(context, builder, signature, arguments):
        b = _Builder(context, builder)
        start = b.start(signature.args[0], arguments[0], index(0))

        def step(v, tops):
            new = b.load(b.at(start, builder.mul(v, index(LANES))))
            return [builder.select(builder.fcmp_ordered(">", new, tops[0]), new, tops[0])]

        top = b.accumulate(arguments[1], [b.load(start)], step)[0]
        kind = ir.FunctionType(_FLOAT, [_VECTOR])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fmax.v{LANES}f32")
        return builder.call(function, [top], fastmath=("nnan",))

    return types.float32(values, vectors), generate


@intrinsic
def power_of_two(typing, shifted):
    """2^n, float32, from n + 1.5 2^23: the sum's last bits are n."""

    def generate(context, builder, signature, arguments):
        bits = builder.bitcast(arguments[0], ir.IntType(32))
        biased = builder.shl(builder.add(bits, ir.Constant(ir.IntType(32), 127)), ir.Constant(ir.IntType(32), 23))
        return builder.bitcast(biased, _FLOAT)

    return types.float32(types.float32), generate
