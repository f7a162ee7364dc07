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

    Groups are found by their ranks, ascending. For one mesh dim the mesh's own group is used. A
    World holds no reference to the default group, and ends with it.
    """

    def __init__(self, default: dist.ProcessGroup) -> None:
        self.timeout = timeout_of(default)
        self.thread = threading.get_ident()
        # By mesh: what _redistribute.py keeps for it. By ranks and shape: what its ranks compare.
        self.meshes: dict[DeviceMesh, Any] = {}
        self.agreements: dict[Any, Any] = {}
        # Redistributions that run at once, without comparing plans through the store.
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
        self._kept = _Kept()

    def room(self, sizes: tuple[int, int], like: torch.Tensor) -> Room:
        """Memory for so many elements: workspace and scratch. It is the next caller's afterwards."""
        count = sizes[0] + sizes[1]
        dtype, num_bytes = like.dtype, count * like.element_size()
        if like.device.type != "cpu" or num_bytes > _KEPT_BYTES:
            fresh: Room = torch.empty(count, dtype=dtype, device=like.device).split(sizes)
            return fresh
        kept = self._kept
        room = kept.rooms.get((sizes, dtype))
        if room is None:
            if len(kept.rooms) >= MOST_REMEMBERED:
                kept.rooms = {}
            if kept.memory.nbytes < num_bytes:
                kept.memory = torch.empty(-(-num_bytes // 16) * 16, dtype=torch.uint8)
                kept.rooms = {}
            room = kept.memory.narrow(0, 0, num_bytes).view(dtype).split(sizes)
            kept.rooms[sizes, dtype] = room
        return room

    def forget_room(self) -> None:
        """After a call that failed: its messages may still come."""
        self._kept.memory = torch.empty(0, dtype=torch.uint8)
        self._kept.rooms = {}

    def group(self, ranks: tuple[int, ...]) -> dist.ProcessGroup:
        """The group of these ranks. All members call this in the same order of groups."""
        found = self._groups.get(ranks)
        if found is None and ranks == self._all_ranks:
            found = dist.group.WORLD
        if found is None:
            found = self._groups[ranks] = self._make(ranks, "", self.timeout)
        return found

    def twin(self, ranks: tuple[int, ...], group: dist.ProcessGroup) -> dist.ProcessGroup:
        """Another group of these ranks, with connections of its own; as group() is called."""
        found = self._twins.get(ranks)
        if found is None:
            found = self._twins[ranks] = self._make(ranks, "twin", timeout_of(group))
        return found

    def take_groups_of(self, mesh: DeviceMesh) -> None:
        """Groups that the mesh has are not made. All its ranks call this before group()."""
        for dim in range(mesh.ndim):
            try:
                group = mesh.get_group(dim)
            except RuntimeError:  # the mesh was made without groups
                continue
            ranks = tuple(dist.get_process_group_ranks(group))
            if list(ranks) == sorted(ranks):
                self._groups.setdefault(ranks, group)

    def _make(self, ranks: tuple[int, ...], which: str, timeout: Any) -> dist.ProcessGroup:
        with _named(f"meshift {ranks} {which}"):
            made: Any = dist.new_group(list(ranks), timeout=timeout, use_local_synchronization=True)
        assert made is not None
        return made  # type: ignore[no-any-return]


class _Kept(threading.local):
    """Memory for the calls of a thread, and parts of it by sizes and dtype."""

    def __init__(self) -> None:
        self.memory = torch.empty(0, dtype=torch.uint8)
        self.rooms: dict[Any, Room] = {}


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


def is_gloo(group: dist.ProcessGroup, device_type: str) -> bool:
    """Whether gloo moves the group's tensors on the CPU, also where its backend has no name."""
    if device_type != "cpu":
        return False
    try:
        return bool(group._get_backend(torch.device("cpu")).name() == "gloo")
    except (RuntimeError, AttributeError):  # a group that tests made
        return bool(dist.get_backend(group) == "gloo")


class _Names:
    """Names of groups that are made of some ranks: equal on all members, however many groups each
    has. Where it stands in for torch's function, threads that want no name get torch's."""

    def __init__(self) -> None:
        self.wanted = threading.local()
        self.lock = threading.Lock()
        self.users = 0
        self.torchs: Any = None

    def __call__(self, ranks: Any) -> str:
        text = getattr(self.wanted, "text", None)
        if text is None:
            return str(self.torchs(ranks))
        return hashlib.sha1(text.encode()).hexdigest()


_names = _Names()


@contextlib.contextmanager
def _named(text: str) -> Iterator[None]:
    """Groups that this thread makes have a name of this text. torch's own count of groups stays as
    it was: ranks outside do not count along."""
    with _names.lock:
        _names.users += 1
        if _names.users == 1:
            _names.torchs = distributed_c10d._hash_ranks_to_str
            distributed_c10d._hash_ranks_to_str = _names
    _names.wanted.text = text
    count = distributed_c10d._world.group_count
    try:
        yield
    finally:
        if distributed_c10d._world.group_count > count:
            distributed_c10d._world.group_count -= 1
        _names.wanted.text = None
        with _names.lock:
            _names.users -= 1
            if _names.users == 0:
                distributed_c10d._hash_ranks_to_str = _names.torchs


def timeout_of(group: dist.ProcessGroup) -> Any:
    """How long its calls may take, or None for what torch takes."""
    for device in group._device_types:
        options = getattr(group._get_backend(device), "options", None)
        timeout = getattr(options, "_timeout", None)
        if timeout is not None:
            return timeout
    return None
