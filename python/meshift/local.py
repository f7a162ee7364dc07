"""Runs plans on NumPy arrays, one per rank. All ranks run in this process.

    import meshift
    from meshift import local

    p = meshift.plan(a, b)                      # bf16[64,16] on dp=2,tp=4, S(0),R -> R,S(1)
    sources = local.shard(array, a)             # the array of each rank
    targets = local.run(p, sources)
    array = local.unshard(targets, b)

The library's local engine runs the plan with real buffers and collectives. Other engines may give
floats other last bits, unless the plan has the promise `ordered` (docs/reproducibility.md). `shard`
and `unshard` refuse shardings with partial values.

NumPy has no bf16 and no 8-bit floats. If the package ml_dtypes is installed, arrays have its
bfloat16, float8_e4m3fn and float8_e5m2; otherwise they hold the bits, as uint16 and uint8. Input
may always hold bits. An array of f4e2m1 has dtype uint8 with two elements per byte, so its last dim
is half as long.
"""

from __future__ import annotations

from contextlib import suppress
from ctypes import byref
from typing import TYPE_CHECKING, Any, Mapping, Sequence, overload

from meshift import _c
from meshift.errors import MeshiftError
from meshift.plans import Plan
from meshift.sharding import Box, Sharding

try:
    import numpy as np
except ImportError:
    raise ImportError("meshift.local needs NumPy: pip install meshift[numpy]") from None

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_DTYPES = {
    "bool": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "f4e2m1": "uint8",
    "c64": "complex64",
    "c128": "complex128",
}
# The type in ml_dtypes, and the type of the bits.
_MORE_DTYPES = {
    "bf16": ("bfloat16", "uint16"),
    "f8e4m3": ("float8_e4m3fn", "uint8"),
    "f8e5m2": ("float8_e5m2", "uint8"),
}
_ORDERS = {"ranks": 0, "topology": 1, "adversarial": 2}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype for a Meshift dtype: for "bf16" that of ml_dtypes, if installed."""
    if name in _DTYPES:
        return np.dtype(_DTYPES[name])
    if name not in _MORE_DTYPES:
        _c.dtype_number(name)  # raises the library's error
    theirs, bits = _MORE_DTYPES[name]
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(bits)
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, theirs))
    return dtype


@overload
def run(
    plan: Plan,
    arrays: Mapping[int, Any],
    *,
    reduction_order: str = ...,
    domain_size: int = ...,
) -> dict[int, Array]: ...
@overload
def run(
    plan: Plan,
    arrays: Sequence[Any],
    *,
    reduction_order: str = ...,
    domain_size: int = ...,
) -> list[Array]: ...
def run(
    plan: Plan,
    arrays: Mapping[int, Any] | Sequence[Any],
    *,
    reduction_order: str = "ranks",
    domain_size: int = 8,
) -> dict[int, Array] | list[Array]:
    """Runs a plan on the sources of all ranks, and returns the targets.

    `arrays` is a sequence in row-major order of the mesh, or a mapping by rank; the result has the
    same kind. Sources are only read.

    `reduction_order` is the order in which collectives add floats: "ranks": ascending; "topology":
    first in each domain of `domain_size` ranks; "adversarial": different in each group, which
    reveals replicas that were summed by several groups.

    TypeError: an array has another dtype. ValueError: it has another shape, a rank's array is
    missing, or `reduction_order` is unknown. Errors of the run are MeshiftErrors.
    """
    _c.instance("plan", plan, Plan)
    if reduction_order not in _ORDERS:
        raise ValueError(f"unknown reduction_order {reduction_order!r}; expected {list(_ORDERS)}")
    size = _c.integer("domain_size", domain_size)
    by_rank = isinstance(arrays, Mapping)
    sources = _by_rank("arrays", arrays, plan.source)
    targets = {
        rank: np.empty(_shape(plan.target.local_box(rank)), numpy_dtype(plan.target.dtype))
        for rank in plan.target.mesh.ranks
    }
    _run(plan, sources, targets, _ORDERS[reduction_order], size)
    return targets if by_rank else list(targets.values())


def _run(
    plan: Plan, sources: dict[int, Array], targets: dict[int, Array], order: int, domain_size: int
) -> None:
    ranks = list(dict.fromkeys([*sources, *targets]))
    world = _c.make(
        "local_world",
        "meshift_local_world_create",
        byref(_c.LocalOptions.make(num_ranks=max(ranks) + 1)),
    )
    _c.call("meshift_local_world_set_reduction_order", world, order, domain_size)
    mesh = _c.make("mesh", "meshift_mesh_union", plan.source.mesh._handle, plan.target.mesh._handle)
    redistributors = []
    for rank in ranks:
        engine = _c.make("engine", "meshift_local_world_engine", world, rank)
        name = "meshift_redistributor_create"
        redistributors.append(_c.make("redistributor", name, mesh, engine, None))
    runs = []
    try:
        for rank, redistributor in zip(ranks, redistributors):
            what = _c.Redistribution.make(
                source=_address(sources.get(rank)), target=_address(targets.get(rank))
            )
            name = "meshift_redistribute_plan"
            runs.append(_c.make("run", name, redistributor, plan._handle, byref(what)))
        for one in runs:
            _c.call("meshift_run_wait", one)
    except BaseException:
        # Waits until no work uses the arrays.
        for redistributor in redistributors:
            _c.call("meshift_redistributor_abort", redistributor)
        for one in runs:
            with suppress(MeshiftError):
                _c.call("meshift_run_wait", one)
        raise


def _address(array: Array | None) -> int | None:
    return None if array is None else int(array.__array_interface__["data"][0])


def shard(array: Any, sharding: Sharding) -> list[Array]:
    """Cuts the array of the whole tensor into the arrays of the ranks, in row-major order of the
    mesh.

    A sharding with partial values is refused: the contributions would not be unique.
    """
    whole = _whole(array, sharding)
    return [_part(whole, sharding.local_box(rank)) for rank in sharding.mesh.ranks]


def _part(whole: Array, box: Box) -> Array:
    # An empty box of a tensor without dims has one dim.
    if box.num_elements == 0:
        return np.empty(_shape(box), whole.dtype)
    return whole[_slices(box)].copy(order="C")


def unshard(arrays: Mapping[int, Any] | Sequence[Any], sharding: Sharding) -> Array:
    """Assembles the whole tensor from the arrays of the ranks.

    ValueError: replicas have different bits, or the sharding has partial values.
    """
    _refuse_partial(sharding)
    parts = _by_rank("arrays", arrays, sharding)
    whole = np.empty(_halved(sharding.shape, sharding.dtype), numpy_dtype(sharding.dtype))
    first: dict[Box, int] = {}
    for rank, part in parts.items():
        box = sharding.local_box(rank)
        other = first.setdefault(box, rank)
        if part.tobytes() != parts[other].tobytes():
            raise ValueError(f"ranks {other} and {rank} hold replicas with different bits")
        if part.size > 0:
            whole[_slices(box)] = part
    return whole


def _refuse_partial(sharding: Sharding) -> None:
    _c.instance("sharding", sharding, Sharding)
    if "P" in sharding.placements:
        raise ValueError(f"the sharding has partial values: {sharding.placements}")


def _whole(array: Any, sharding: Sharding) -> Array:
    _refuse_partial(sharding)
    shape = _halved(sharding.shape, sharding.dtype)
    return _checked("array", array, sharding.dtype, shape)


def _by_rank(
    name: str, arrays: Mapping[int, Any] | Sequence[Any], sharding: Sharding
) -> dict[int, Array]:
    """The arrays in row-major order of the mesh, checked and contiguous."""
    ranks = sharding.mesh.ranks
    if isinstance(arrays, Mapping):
        given = {_c.integer(f"a rank of {name}", rank): array for rank, array in arrays.items()}
        for rank in ranks:
            if rank not in given:
                raise ValueError(f"{name} has no array for rank {rank}")
        for rank in given:
            sharding.mesh.coordinate(rank)  # raises the library's error
    else:
        if len(arrays) != len(ranks):
            raise ValueError(
                f"{name} has length {len(arrays)}; expected {len(ranks)}, one for each rank"
            )
        given = dict(zip(ranks, arrays))
    return {
        rank: _checked(
            f"the array of rank {rank}",
            given[rank],
            sharding.dtype,
            _shape(sharding.local_box(rank)),
        )
        for rank in ranks
    }


def _checked(name: str, array: Any, dtype: str, shape: tuple[int, ...]) -> Array:
    """A contiguous array of that dtype and shape. Dtypes that NumPy does not have are given as
    bits."""
    made = np.asarray(array)
    right = numpy_dtype(dtype)
    bits = np.dtype(_MORE_DTYPES[dtype][1]) if dtype in _MORE_DTYPES else right
    if made.dtype not in (right, bits):
        raise TypeError(f"{name} is of dtype {made.dtype}, but {dtype} needs {right}")
    if made.shape != shape:
        raise ValueError(f"{name} has shape {made.shape}, but it should be {shape}")
    return np.ascontiguousarray(made).reshape(shape).view(right)


def _shape(box: Box) -> tuple[int, ...]:
    return _halved(box.shape, box.dtype)


def _halved(shape: tuple[int, ...], dtype: str) -> tuple[int, ...]:
    """The shape of the array: for f4e2m1 with two elements per byte; tensors have whole bytes."""
    if dtype != "f4e2m1" or not shape:
        return shape
    return (*shape[:-1], shape[-1] // 2)


def _slices(box: Box) -> tuple[slice, ...]:
    offset = _halved(box.offset, box.dtype)
    shape = _shape(box)
    return tuple(slice(at, at + size) for at, size in zip(offset, shape))
