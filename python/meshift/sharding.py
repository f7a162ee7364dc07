"""Shardings: a tensor on a mesh, and the part that each rank holds.

An impossible sharding, or text of another form, raises InvalidArgumentError (a ValueError). A
sharding holds no data.
"""

from __future__ import annotations

from meshift import _c
from meshift._record import Immutable, Record, put
from meshift.mesh import DeviceMesh, mesh_of


class Box(Record):
    """The part that a rank holds: `shape` indices from `offset` in each tensor dim."""

    __slots__ = ("dtype", "offset", "shape", "num_elements", "num_bytes")

    dtype: str
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    num_elements: int
    num_bytes: int


class Sharding(Immutable):
    """A tensor on a mesh, with a placement for each mesh dim.

        mesh = DeviceMesh("dp=2,tp=4")
        Sharding("bf16[64,16]", mesh, "P,S(0)")
        Sharding.parse("bf16[64,16] on dp=2,tp=4 as P,S(0)")

    Placements are those of PyTorch's DTensor: R (replicate), S(dim) (shard), P (partial sum),
    P(max), ... A sharding never changes.
    """

    __slots__ = ("_handle", "text", "placements", "mesh", "dtype", "shape")

    _handle: _c.Handle
    text: str
    """Text that Sharding.parse reads."""
    placements: str
    """One per mesh dim: "P,S(0)"."""
    mesh: DeviceMesh
    dtype: str
    """The short name: "bf16"."""
    shape: tuple[int, ...]
    """The global shape."""

    def __init__(self, tensor: str, mesh: DeviceMesh, placements: str) -> None:
        _c.instance("mesh", mesh, DeviceMesh)
        tensor_text = _c.encode("tensor", tensor)
        placements_text = _c.encode("placements", placements)
        _fill(
            self,
            _c.make(
                "sharding", "meshift_sharding_create", tensor_text, mesh._handle, placements_text
            ),
            mesh,
        )

    @staticmethod
    def parse(text: str) -> Sharding:
        """Reads "bf16[64,16] on dp=2,tp=4 as P,S(0)"."""
        return sharding_of(
            _c.make("sharding", "meshift_sharding_parse", _c.encode("text", text)), None
        )

    def with_placements(self, placements: str) -> Sharding:
        """The same tensor on the same mesh with other placements."""
        placements_text = _c.encode("placements", placements)
        name = "meshift_sharding_with_placements"
        return sharding_of(_c.make("sharding", name, self._handle, placements_text), self.mesh)

    def with_dtype(self, dtype: str) -> Sharding:
        """The same shape, mesh and placements with another dtype: "f32"."""
        number = _c.dtype_number(dtype)
        name = "meshift_sharding_with_dtype"
        return sharding_of(_c.make("sharding", name, self._handle, number), self.mesh)

    def local_box(self, rank: int) -> Box:
        """The box of a rank. A rank outside the mesh has a box of one dim, without elements."""
        name = "meshift_sharding_local_box"
        return _box(_c.fill(_c.Box, name, self._handle, _c.integer("rank", rank)))

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Sharding) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Sharding.parse({self.text!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return Sharding.parse, (self.text,)


def shards(sharding: Sharding) -> tuple[Box, ...]:
    """The box of each rank, in row-major order of the mesh."""
    _c.instance("sharding", sharding, Sharding)
    return tuple(sharding.local_box(rank) for rank in sharding.mesh.ranks)


def sharding_of(handle: _c.Handle, mesh: DeviceMesh | None) -> Sharding:
    """The Sharding that owns a handle. `mesh` None: taken from the handle."""
    sharding = Sharding.__new__(Sharding)
    _fill(sharding, handle, mesh)
    return sharding


def _fill(sharding: Sharding, handle: _c.Handle, mesh: DeviceMesh | None) -> None:
    tensor = _box(_c.fill(_c.Box, "meshift_sharding_tensor", handle))
    put(
        sharding,
        _handle=handle,
        text=_c.text("meshift_sharding_text", handle),
        placements=_c.text("meshift_sharding_placements", handle),
        mesh=mesh or mesh_of(_c.make("mesh", "meshift_sharding_mesh", handle)),
        dtype=tensor.dtype,
        shape=tensor.shape,
    )


def _box(box: _c.Box) -> Box:
    return Box(
        _c.name_of("dtype", box.dtype),
        tuple(box.offset[: box.num_dims]),
        tuple(box.shape[: box.num_dims]),
        box.num_elements,
        box.num_bytes,
    )
