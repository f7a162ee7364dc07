"""Meshes: ranks in a grid with named dims."""

from __future__ import annotations

from ctypes import byref, c_int64, c_void_p

from meshift import _c
from meshift._record import Immutable, put

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable


class DeviceMesh(Immutable):
    """A grid of ranks with named dims.

        DeviceMesh("dp=2,tp=4")                      # ranks 0 to 7, row-major
        DeviceMesh("dp=2,tp=2@4-5,0-1")              # the ranks 4, 5, 0 and 1, row-major
        DeviceMesh((2, 4), ("dp", "tp"))
        DeviceMesh((2, 2), ("dp", "tp"), ranks=[4, 5, 0, 1])

    A mesh never changes. Equal meshes have equal dims and ranks. ValueError: a size below 1, a name
    that is given twice or is not an ASCII identifier, or a wrong list of ranks.
    """

    __slots__ = ("_handle", "text", "names", "shape", "_ranks")

    _handle: _c.Handle
    text: str
    """Text that the constructor reads: "dp=2,tp=4"."""
    names: tuple[str, ...]
    """The names of the dims, outermost first."""
    shape: tuple[int, ...]
    """The sizes of the dims."""
    _ranks: tuple[int, ...] | None

    def __init__(
        self,
        mesh: str | Iterable[int],
        names: Iterable[str] | None = None,
        ranks: Iterable[int] | None = None,
    ) -> None:
        if isinstance(mesh, str):
            if names is not None or ranks is not None:
                raise TypeError("a mesh that is given as text has its names and ranks in the text")
            text = mesh
        else:
            text = _mesh_text(mesh, names, ranks)
        _fill(self, _c.make("mesh", "meshift_mesh_parse", _c.encode("mesh", text)))

    @property
    def num_ranks(self) -> int:
        """The number of ranks, the product of the shape."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks in row-major order of the grid."""
        if self._ranks is None:
            put(self, _ranks=tuple(self._rank_at(i) for i in range(self.num_ranks)))
        assert self._ranks is not None
        return self._ranks

    def _rank_at(self, position: int) -> int:
        if "@" not in self.text:
            return position
        rank = c_int64()
        _c.call("meshift_mesh_rank_at", self._handle, position, byref(rank))
        return rank.value

    def coordinate(self, rank: int) -> tuple[int, ...]:
        """The coordinate of a rank. ValueError: the rank is not in the mesh."""
        room = (c_int64 * len(self.shape))()
        rank = _c.integer("rank", rank)
        _c.call("meshift_mesh_coordinate", self._handle, rank, room, len(self.shape))
        return tuple(room)

    def __contains__(self, rank: object) -> bool:
        try:
            self.coordinate(rank)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return False
        return True

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, DeviceMesh) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"DeviceMesh({self.text!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return DeviceMesh, (self.text,)


def mesh_of(handle: _c.Handle) -> DeviceMesh:
    """The DeviceMesh that owns a handle."""
    mesh = DeviceMesh.__new__(DeviceMesh)
    _fill(mesh, handle)
    return mesh


def _fill(mesh: DeviceMesh, handle: _c.Handle) -> None:
    info = _c.fill(_c.MeshInfo, "meshift_mesh_get_info", handle)
    names, shape = [], []
    for dim in range(info.num_dims):
        name, size = c_void_p(), c_int64()
        _c.call("meshift_mesh_dim", handle, dim, byref(name), byref(size))
        names.append(_c.take(name))
        shape.append(size.value)
    text = _c.text("meshift_mesh_text", handle)
    put(mesh, _handle=handle, text=text, names=tuple(names), shape=tuple(shape), _ranks=None)


def _mesh_text(
    shape: Iterable[int], names: Iterable[str] | None, ranks: Iterable[int] | None
) -> str:
    sizes = list(_c.int64s("shape", shape))
    if names is None or isinstance(names, str):
        raise TypeError("a mesh that is given by its shape needs a name for each dim")
    names = list(names)
    if len(names) != len(sizes):
        raise ValueError(f"the shape has length {len(sizes)}, but names has length {len(names)}")
    dims = []
    for name, size in zip(names, sizes):
        _c.encode("a name", name)
        if not (name.isascii() and name.isidentifier()):
            raise ValueError(f"{name!r} cannot be the name of a mesh dim: letters, digits and _")
        dims.append(f"{name}={size}")
    text = ",".join(dims)
    return text if ranks is None else text + "@" + ",".join(map(str, _c.int64s("ranks", ranks)))
