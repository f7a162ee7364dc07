"""Reductions in a fixed order by torch operations, with the bits that docs/dtypes.md defines.

    out = torch.empty(3)
    reduce("sum", [torch.ones(3), torch.ones(3)], out)     # out: 2, 2, 2

Tensors are flat, contiguous, of one dtype and on one device. Nothing is checked: the caller passes
only ops that docs/dtypes.md allows for the dtype, and at least one input. Products and sums are
separate operations, so nothing is fused. combine() may give other NaN bits.
"""

from __future__ import annotations

from typing import Any

import torch

_SMALL_FLOATS = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
# Half-way between the largest number and the next larger one, if it existed.
_BEYOND_E4M3 = 464.0
# The canonical NaN: positive, quiet, without payload.
_CANONICAL_NAN = {
    torch.float8_e4m3fn: 0x7F,
    torch.float8_e5m2: 0x7E,
    torch.float16: 0x7E00,
    torch.bfloat16: 0x7FC0,
    torch.float32: 0x7FC00000,
    torch.float64: 0x7FF8000000000000,
}


def reduce(
    op: str,
    inputs: list[torch.Tensor],
    out: torch.Tensor,
    divisor: int = 1,
    op_block: int = 0,
) -> None:
    """Sets `out` to the op over the inputs, combined in order and rounded once.

    If op_block > 0, op_block consecutive inputs are combined first, then the results in order.
    `out` may be one of the inputs. `divisor`: for an average.
    """
    dtype = out.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        _reduce_integers(op, inputs, out, divisor)
    elif op in ("min", "max"):
        _reduce_extremes(op, inputs, out)
    else:
        _reduce_floats(op, inputs, out, divisor, op_block)


def combine(op: str, inputs: list[torch.Tensor], out: torch.Tensor, divisor: int = 1) -> None:
    """As reduce() without op_block, but NaNs in sums of f32 and f64 may not be canonical. It
    takes fewer passes over memory."""
    if (
        op == "sum"
        and out.dtype in (torch.float32, torch.float64)
        and len(inputs) > 1
        and all(tensor.data_ptr() != out.data_ptr() for tensor in inputs[2:])
    ):
        torch.add(inputs[0], inputs[1], out=out)
        for tensor in inputs[2:]:
            out.add_(tensor)
    else:
        reduce(op, inputs, out, divisor)


def identity(op: str, dtype: torch.dtype) -> float | int | bool:
    """The neutral value of the op: -0.0 for a float sum."""
    if dtype == torch.bool:
        return op in ("and", "min")
    is_integer = not (dtype.is_floating_point or dtype.is_complex)
    if op == "sum":
        return 0 if is_integer else -0.0
    if op == "product":
        return 1
    if op == "and":
        return -1 if dtype in _SIGNED.values() else torch.iinfo(dtype).max
    if op in ("or", "xor"):
        return 0
    if is_integer:
        return torch.iinfo(dtype).max if op == "min" else torch.iinfo(dtype).min
    if dtype == torch.float8_e4m3fn:
        return torch.finfo(dtype).max if op == "min" else torch.finfo(dtype).min
    return float("inf") if op == "min" else float("-inf")


def fill_identity(op: str, out: torch.Tensor) -> None:
    """Sets every element of `out` to the identity of the op."""
    dtype = out.dtype
    value = identity(op, dtype)
    if op == "sum" and dtype.is_complex:  # both parts are -0.0
        torch.view_as_real(out).fill_(-0.0)
    elif dtype in _UNSIGNED[1:]:  # dtypes that torch cannot fill
        bits = out.view(_SIGNED[out.element_size()])
        bits.fill_(value if value < 2 ** (8 * out.element_size() - 1) else -1)
    else:
        out.fill_(value)


def _reduce_integers(op: str, inputs: list[torch.Tensor], out: torch.Tensor, divisor: int) -> None:
    dtype = out.dtype
    signed = _SIGNED[out.element_size()]
    bits = [tensor.view(signed) for tensor in inputs]
    if dtype == torch.bool:  # 0 or 1
        op = {"min": "and", "max": "or"}.get(op, op)
    # Map unsigned numbers to signed ones of the same order.
    flips = op in ("min", "max") and dtype in _UNSIGNED
    if flips:
        bits = [tensor ^ torch.iinfo(signed).min for tensor in bits]
    operations: dict[str, Any] = {
        "sum": torch.add,
        "avg": torch.add,
        "product": torch.mul,
        "min": torch.minimum,
        "max": torch.maximum,
        "and": torch.bitwise_and,
        "or": torch.bitwise_or,
        "xor": torch.bitwise_xor,
    }
    total = bits[0]
    for tensor in bits[1:]:
        total = operations[op](total, tensor)
    if flips:
        total = total ^ torch.iinfo(signed).min
    if op == "avg" and divisor > 1:
        if dtype in _UNSIGNED:
            # Half of an unsigned number fits into a signed one.
            half = (total >> 1) & torch.iinfo(signed).max
            quotient = torch.div(half, divisor, rounding_mode="trunc") * 2
            total = quotient + ((total - quotient * divisor) >= divisor).to(signed)
        else:
            total = torch.div(total, divisor, rounding_mode="trunc")
    out.view(signed).copy_(total)


def _reduce_extremes(op: str, inputs: list[torch.Tensor], out: torch.Tensor) -> None:
    """-0 is less than +0, and a NaN wins."""
    signed = _SIGNED[out.element_size()]
    combine = torch.minimum if op == "min" else torch.maximum
    total = is_nan = None
    for tensor in inputs:
        key = _order_key(tensor.view(signed))
        nan = _is_nan(tensor)
        total = key if total is None else combine(total, key)
        is_nan = nan if is_nan is None else is_nan | nan
    assert total is not None and is_nan is not None
    out.view(signed).copy_(_order_key(total).masked_fill_(is_nan, _CANONICAL_NAN[out.dtype]))


def _order_key(bits: torch.Tensor) -> torch.Tensor:
    """Maps the bits of floats to integers of the same order, and back."""
    all_but_sign = torch.iinfo(bits.dtype).max
    return bits ^ ((bits >> (8 * bits.element_size() - 1)) & all_but_sign)


def _reduce_floats(
    op: str, inputs: list[torch.Tensor], out: torch.Tensor, divisor: int, op_block: int
) -> None:
    if out.dtype.is_complex and op != "product":
        # By parts: torch adds complex numbers through a product, which spreads a NaN to both parts.
        inputs = [torch.view_as_real(tensor) for tensor in inputs]
        out = torch.view_as_real(out)
    dtype = out.dtype
    wide = torch.float32 if dtype in _SMALL_FLOATS else dtype
    combine_two = _product if op == "product" else torch.add

    def combined(tensors: list[torch.Tensor]) -> torch.Tensor:
        total = tensors[0].to(wide)
        for tensor in tensors[1:]:
            total = combine_two(total, tensor.to(wide))
        return total

    if 0 < op_block < len(inputs):
        inputs = [combined(inputs[i : i + op_block]) for i in range(0, len(inputs), op_block)]
    total = combined(inputs)
    if op == "avg":
        total = total / divisor
    if dtype == torch.float8_e4m3fn:  # it has no infinity; and torch may take the largest number
        total = total.masked_fill(total.abs() > _BEYOND_E4M3, float("nan"))
    out.copy_(total)
    parts = torch.view_as_real(out) if dtype.is_complex else out
    bits = parts.view(_SIGNED[parts.element_size()])
    bits.masked_fill_(_is_nan(parts), _CANONICAL_NAN[parts.dtype])


def _is_nan(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.to(torch.float32) if tensor.element_size() == 1 else tensor).isnan()


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """(ac - bd, ad + bc) of complex numbers, with each operation rounded."""
    if not a.dtype.is_complex:
        return a * b
    re = a.real * b.real - a.imag * b.imag
    im = a.real * b.imag + a.imag * b.real
    return torch.complex(re, im)
