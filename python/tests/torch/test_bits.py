"""The promise "ordered": the bits of the library's own engine, in every dtype and operation."""

import itertools

import meshift
import numpy as np
import pytest
from meshift import local

from harness import threads

import torch
import meshift.torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

FLOATS = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
}
INTEGERS = {
    "bool": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
}
COMPLEX = {"c64": torch.complex64, "c128": torch.complex128}
DTYPES = {**FLOATS, **INTEGERS, **COMPLEX}
CASES = [
    *itertools.product(FLOATS, ["sum", "avg", "min", "max", "product"]),
    *itertools.product(COMPLEX, ["sum", "avg", "product"]),
    *itertools.product(set(INTEGERS) - {"bool"}, ["sum", "avg", "min", "max", "product"]),
    *itertools.product(INTEGERS, ["band", "bor", "bxor"]),
    ("bool", "min"),
    ("bool", "max"),
]
SIZE = 1000


def bits_of(dtype, seed):
    """Random bits of a rank: numbers of all sizes, subnormals, infinities and NaNs among them."""
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.integers(0, 2, SIZE, dtype=np.uint8)
    width = DTYPES[dtype].itemsize
    bits = generator.integers(0, 256, SIZE * width, dtype=np.uint8)
    if dtype in FLOATS or dtype in COMPLEX:
        # Half of them near one, so that sums round.
        plain = torch.from_numpy(generator.standard_normal(SIZE)).to(DTYPES[dtype])
        plain = plain.view(torch.uint8).numpy().reshape(SIZE, width)
        bits = bits.reshape(SIZE, width)
        bits[::2] = plain[::2]
    return bits.reshape(-1)


def body(rank, target):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    found = []
    for dtype, op in CASES:
        part = torch.from_numpy(bits_of(dtype, rank)).view(DTYPES[dtype])
        before = DTensor.from_local(part, mesh, [Partial(op), Partial(op)], run_check=False)
        after = meshift.torch.redistribute(before, target, promise="ordered")
        found.append(after.to_local().view(torch.uint8).numpy().tobytes())
    return found


@pytest.mark.parametrize(
    "target, text", [([Replicate(), Replicate()], "R,R"), ([Shard(0), Shard(0)], "S(0),S(0)")]
)
def test_bits_are_those_of_the_library(target, text):
    ours = threads(4, body, target)
    letters = {"sum": "P", "band": "P(and)", "bor": "P(or)", "bxor": "P(xor)"}
    wrong = []
    for number, (dtype, op) in enumerate(CASES):
        letter = letters.get(op, f"P({op})")
        source = meshift.Sharding.parse(f"{dtype}[{SIZE}] on a=2,b=2 as {letter},{letter}")
        plan = meshift.plan(source, source.with_placements(text), reproducibility="ordered")
        parts = [as_numpy(dtype, bits_of(dtype, rank)) for rank in range(4)]
        expected = [part.tobytes() for part in local.run(plan, parts)]
        if [of_rank[number] for of_rank in ours] != expected:
            wrong.append((dtype, op))
    assert wrong == [], wrong


def as_numpy(dtype, bits):
    kinds = {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64}
    kinds.update(c64=np.complex64, c128=np.complex128, bool=np.bool_)
    if dtype in kinds:
        return bits.view(kinds[dtype])
    return bits.view(f"{dtype[0]}{int(dtype[1:]) // 8}") if dtype[0] in "iu" else bits
