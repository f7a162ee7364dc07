"""Converts DTensor's meshes, dtypes and placements to Meshift's, and checks target placements.

    sharding_of(dtensor._spec)  # meshift.Sharding("f32[8,6]", DeviceMesh("dp=2,tp=2"), "S(0),R")

Raises Unsupported for a dtype or placement without a counterpart in Meshift, for a spec without
tensor_meta, and for strided shards that the spec declares not to be a shard order. Raises
ValueError if the split factor of a strided shard fits no shard order. Moves no data.
"""

from __future__ import annotations

import math
import re
from typing import Mapping, Sequence

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor.placement_types import Placement, _StridedShard
from torch.utils._mode_utils import no_dispatch

import meshift

DTYPES = {
    torch.bool: "bool",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
    torch.complex64: "c64",
    torch.complex128: "c128",
}
TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}

# The dtypes that every backend can send and reduce.
NATIVE_DTYPES = {
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
}

_OPS = {
    "sum": "P",
    "avg": "P(avg)",
    "min": "P(min)",
    "max": "P(max)",
    "product": "P(product)",
    "band": "P(and)",
    "bor": "P(or)",
    "bxor": "P(xor)",
}


class Unsupported(NotImplementedError):
    """Meshift cannot express the dtype, a placement or the spec."""


def mesh_of(mesh: DeviceMesh) -> meshift.DeviceMesh:
    """The mesh with its names, or d0, d1, ... if they are not identifiers."""
    names = mesh.mesh_dim_names
    if names is None or not all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) for name in names):
        names = tuple(f"d{i}" for i in range(mesh.ndim))
    return meshift.DeviceMesh(tuple(mesh.shape), tuple(names), ranks_of(mesh))


def ranks_of(mesh: DeviceMesh) -> tuple[int, ...]:
    """The ranks in row-major order. Works during tracing too, when tensors have no values."""
    with no_dispatch():
        return tuple(mesh.mesh.flatten().tolist())


def sharding_of(spec: DTensorSpec) -> meshift.Sharding:
    """The sharding of a DTensor with this spec. Raises Unsupported and ValueError, as above."""
    meta = spec.tensor_meta
    if meta is None:
        raise Unsupported("a DTensorSpec without tensor_meta")
    dtype = DTYPES.get(meta.dtype)
    if dtype is None:
        raise Unsupported(f"Meshift has no dtype for {meta.dtype}")
    shape = ",".join(str(int(size)) for size in meta.shape)
    return meshift.Sharding(f"{dtype}[{shape}]", mesh_of(spec.mesh), placements_text(spec))


def placements_text(spec: DTensorSpec) -> str:
    """ "S(0)[1],S(0)[0],R": the shard order is written if it is not mesh order."""
    order = shard_order(spec)
    words = []
    for dim, placement in enumerate(spec.placements):
        if isinstance(placement, (Shard, _StridedShard)):
            dims = order[placement.dim]
            place = f"[{dims.index(dim)}]" if list(dims) != sorted(dims) else ""
            words.append(f"S({placement.dim}){place}")
        elif type(placement) is Partial and placement.reduce_op in _OPS:
            words.append(_OPS[placement.reduce_op])
        elif isinstance(placement, Replicate):
            words.append("R")
        else:
            raise Unsupported(f"Meshift has no placement for {placement!r}")
    return ",".join(words)


def shard_order(spec: DTensorSpec) -> Mapping[int, Sequence[int]]:
    """The mesh dims that cut each tensor dim, outermost first."""
    placements = spec.placements
    strided = any(isinstance(placement, _StridedShard) for placement in placements)
    declared = getattr(spec, "shard_order", None)
    if not strided and declared is not None:
        return {entry.tensor_dim: entry.mesh_dims for entry in declared}
    if strided and getattr(spec, "use_strided_shard_as_shard_order", True) is False:
        raise Unsupported(f"{placements}: strided shards that are not an order of shards")
    order: dict[int, list[int]] = {}
    # The split factor of a shard is the product of the sizes of later mesh dims that cut before it.
    for dim in reversed(range(len(placements))):
        placement = placements[dim]
        if not isinstance(placement, (Shard, _StridedShard)):
            continue
        dims = order.setdefault(placement.dim, [])
        factor = getattr(placement, "split_factor", 1)
        for place in range(len(dims) + 1):
            if math.prod(spec.mesh.size(i) for i in dims[:place]) == factor:
                dims.insert(place, dim)
                break
        else:
            raise ValueError(
                f"{placement!r} on mesh dim {dim} of {placements}: its split_factor {factor} is "
                f"not the number of shards of the mesh dims {dims} that cut tensor dim "
                f"{placement.dim} before it, so it is not an order of shards"
            )
    return order


def require_placements(
    placements: Sequence[Placement], mesh: DeviceMesh, ndim: int
) -> tuple[Placement, ...]:
    """Checks the placements: one per mesh dim; makes tensor dims non-negative."""
    placements = tuple(placements)
    for placement in placements:
        if not isinstance(placement, Placement):
            raise TypeError(f"{placement!r} is a {type(placement).__name__}, not a Placement")
    if len(placements) != mesh.ndim:
        raise ValueError(
            f"{placements}: the number of placements is {len(placements)}; expected {mesh.ndim}, "
            f"one for each mesh dim"
        )
    return tuple(_from_the_front(placement, ndim) for placement in placements)


def _from_the_front(placement: Placement, ndim: int) -> Placement:
    if not isinstance(placement, (Shard, _StridedShard)):
        return placement
    if not -ndim <= placement.dim < ndim:
        raise ValueError(f"{placement!r}: a tensor of {ndim} dims has no dim {placement.dim}")
    if placement.dim >= 0:
        return placement
    if isinstance(placement, _StridedShard):
        return _StridedShard(placement.dim + ndim, split_factor=placement.split_factor)
    return Shard(placement.dim + ndim)
