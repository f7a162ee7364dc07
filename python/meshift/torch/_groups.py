"""Process groups, and what is kept for one default process group."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import weakref
from typing import Any, Iterator, Sequence

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh

# Answers that are found again without talking to other ranks.
MOST_REMEMBERED = 4096
# On a CPU, where torch keeps no freed memory, so much stays for the next call.
_KEPT_BYTES = 1 << 27

Room = Sequence[torch.Tensor]


class World:
    """What belongs to one call of init_process_group: groups, and what others remember.

    Groups are found by their ranks, ascending. A group of a mesh dim is the mesh's own. It ends with
    the default group, which it does not keep.
    """

    def __init__(self, default: dist.ProcessGroup) -> None:
        self.timeout = timeout_of(default)
        self.thread = threading.get_ident()
        # By mesh: what _redistribute.py keeps for it.
        self.meshes: dict[DeviceMesh, Any] = {}
        # Of what meshes keep, the redistributions whose ranks agree no more before they run.
        self.settled: dict[Any, Any] = {}
        # What redistribute() was asked for: the target's spec, and the settings.
        self.asked: dict[Any, Any] = {}
        # By a pair of specs: how far Meshift takes a redistribution of DTensor's own.
        self.routes: dict[Any, Any] = {}
        # By number: what redistribute() was asked for while something was traced.
        self.traced: dict[int, Any] = {}
        self._all_ranks = tuple(sorted(dist.get_process_group_ranks(default)))
        # Not kept either: torch keeps what is not destroyed.
        self._groups: weakref.WeakValueDictionary[tuple[int, ...], dist.ProcessGroup] = (
            weakref.WeakValueDictionary()
        )
        self._twins: weakref.WeakValueDictionary[tuple[int, ...], dist.ProcessGroup] = (
            weakref.WeakValueDictionary()
        )
        self._seen: set[DeviceMesh] = set()
        self._kept = torch.empty(0, dtype=torch.uint8)
        # Its parts, by sizes and dtype.
        self._kept_rooms: dict[Any, Room] = {}

    def room(self, sizes: tuple[int, int], like: torch.Tensor) -> Room:
        """Memory for so many elements: workspace and scratch. It is the next caller's afterwards."""
        count = sizes[0] + sizes[1]
        dtype, num_bytes = like.dtype, count * like.element_size()
        if like.device.type != "cpu" or num_bytes > _KEPT_BYTES:
            fresh: Room = torch.empty(count, dtype=dtype, device=like.device).split(sizes)
            return fresh
        room = self._kept_rooms.get((sizes, dtype))
        if room is None:
            if len(self._kept_rooms) >= MOST_REMEMBERED:
                self._kept_rooms = {}
            if self._kept.nbytes < num_bytes:
                self._kept = torch.empty(-(-num_bytes // 16) * 16, dtype=torch.uint8)
                self._kept_rooms = {}
            room = self._kept.narrow(0, 0, num_bytes).view(dtype).split(sizes)
            self._kept_rooms[sizes, dtype] = room
        return room

    def group(self, ranks: tuple[int, ...], mesh: DeviceMesh) -> dist.ProcessGroup:
        """The group of these ranks. All members call this in the same order of groups."""
        if ranks == self._all_ranks and dist.group.WORLD is not None:
            return dist.group.WORLD
        found = self._groups.get(ranks)
        if found is None and mesh not in self._seen:
            self._take_groups_of(mesh)
            found = self._groups.get(ranks)
        if found is None:
            found = self._groups[ranks] = self._make(ranks, "")
        return found

    def twin(self, ranks: tuple[int, ...]) -> dist.ProcessGroup:
        """Another group of these ranks, with connections of its own; as group() is called."""
        found = self._twins.get(ranks)
        if found is None:
            found = self._twins[ranks] = self._make(ranks, "twin")
        return found

    def _make(self, ranks: tuple[int, ...], which: str) -> dist.ProcessGroup:
        with _named(f"meshift {ranks} {which}"):
            made: Any = dist.new_group(
                list(ranks), timeout=self.timeout, use_local_synchronization=True
            )
        assert made is not None
        return made  # type: ignore[no-any-return]

    def _take_groups_of(self, mesh: DeviceMesh) -> None:
        self._seen.add(mesh)
        for dim in range(mesh.ndim):
            try:
                group = mesh.get_group(dim)
            except RuntimeError:  # the mesh was made without groups
                continue
            ranks = tuple(dist.get_process_group_ranks(group))
            if list(ranks) == sorted(ranks) and ranks != self._all_ranks:
                self._groups.setdefault(ranks, group)


_worlds: weakref.WeakKeyDictionary[dist.ProcessGroup, World] = weakref.WeakKeyDictionary()


def current_world() -> World:
    """That of the default process group. ValueError where there is none."""
    default = dist.group.WORLD
    if default is None:
        raise ValueError("torch.distributed.init_process_group() has not been called")
    world = _worlds.get(default)
    if world is None:
        _forget_destroyed()
        world = _worlds[default] = World(default)
    return world


def _forget_destroyed() -> None:
    # A mesh may keep the default group, and a world its meshes. A thread sees only its own groups
    # where torch simulates ranks by threads.
    for group, world in list(_worlds.items()):
        if world.thread == threading.get_ident() and group not in distributed_c10d._world.pg_map:
            _worlds.pop(group, None)


@contextlib.contextmanager
def _named(text: str) -> Iterator[None]:
    """The name of a group that is made of some ranks: equal on all members, however many groups
    each has. torch's own count of groups stays as it was: ranks outside do not count along."""
    count, torchs = distributed_c10d._world.group_count, distributed_c10d._hash_ranks_to_str
    distributed_c10d._hash_ranks_to_str = lambda ranks: hashlib.sha1(text.encode()).hexdigest()
    try:
        yield
    finally:
        distributed_c10d._hash_ranks_to_str = torchs
        distributed_c10d._world.group_count = count


def timeout_of(group: dist.ProcessGroup) -> Any:
    """How long its calls may take, or None for what torch takes."""
    for device in group._device_types:
        options = getattr(group._get_backend(device), "options", None)
        timeout = getattr(options, "_timeout", None)
        if timeout is not None:
            return timeout
    return None
