"""Process groups, and the caches that belong to one default process group."""

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

# The size of local caches, which are used without communication.
MOST_REMEMBERED = 4096
# On a CPU, where torch does not cache freed memory, up to this size is kept for the next call.
_KEPT_BYTES = 1 << 27

Room = Sequence[torch.Tensor]


class World:
    """The groups and caches of one call of init_process_group.

    Groups are keyed by their ascending ranks. A mesh's own group of one dim is reused if its ranks
    ascend. A World's meshes may keep the default group alive. current_world() drops the worlds of
    destroyed groups when it makes a new one.
    """

    def __init__(self, default: dist.ProcessGroup) -> None:
        self.timeout = timeout_of(default)
        self.thread = threading.get_ident()
        # By mesh: the state of _redistribute.py. By ranks and shape: the Agreement.
        self.meshes: dict[DeviceMesh, Any] = {}
        self.agreements: dict[Any, Any] = {}
        # Redistributions that run without comparing plans through the store.
        self.settled: dict[Any, Any] = {}
        # For calls of redistribute(): the target spec, the settings, and the entry of `settled`.
        self.asked: dict[Any, Any] = {}
        # By pair of specs: the part of DTensor's own redistribution that Meshift does (_use.py).
        self.routes: dict[Any, Any] = {}
        # By number: the specs and settings of traced calls of redistribute().
        self.traced: dict[int, Any] = {}
        self._all_ranks = tuple(sorted(dist.get_process_group_ranks(default)))
        # Weak references: torch keeps groups that are not destroyed.
        self._groups: weakref.WeakValueDictionary[tuple[int, ...], dist.ProcessGroup] = (
            weakref.WeakValueDictionary()
        )
        self._twins: weakref.WeakValueDictionary[tuple[int, ...], dist.ProcessGroup] = (
            weakref.WeakValueDictionary()
        )
        self._kept = _Kept()

    def room(self, sizes: tuple[int, int], like: torch.Tensor) -> Room:
        """Memory for workspace and scratch, of these numbers of elements. The next call reuses
        it."""
        kept, dtype = self._kept, like.dtype
        room = kept.rooms.get((sizes, dtype)) if like.is_cpu else None
        if room is None:
            count = sizes[0] + sizes[1]
            num_bytes = count * like.element_size()
            if not like.is_cpu or num_bytes > _KEPT_BYTES:
                fresh: Room = like.new_empty(count).split(sizes)
                return fresh
            if len(kept.rooms) >= MOST_REMEMBERED:
                kept.rooms = {}
            if kept.memory.nbytes < num_bytes:
                kept.memory = _new_memory(-(-num_bytes // 16) * 16)
                kept.rooms = {}
            with torch.inference_mode(False):  # later calls may be outside
                room = kept.memory.narrow(0, 0, num_bytes).view(dtype).split(sizes)
            kept.rooms[sizes, dtype] = room
        return room

    def forget_room(self) -> None:
        """Drops the memory after a failed call, whose messages may still arrive."""
        self._kept.memory = _new_memory(0)
        self._kept.rooms = {}

    def group(self, ranks: tuple[int, ...]) -> dist.ProcessGroup:
        """The group of these ranks. All members call this for their groups in the same order."""
        found = self._groups.get(ranks)
        if found is None and ranks == self._all_ranks:
            found = dist.group.WORLD
        if found is None:
            found = self._groups[ranks] = self._make(ranks, "", self.timeout)
        return found

    def twin(self, ranks: tuple[int, ...], group: dist.ProcessGroup) -> dist.ProcessGroup:
        """Another group of these ranks with its own connections; called like group()."""
        found = self._twins.get(ranks)
        if found is None:
            found = self._twins[ranks] = self._make(ranks, "twin", timeout_of(group))
        return found

    def take_groups_of(self, mesh: DeviceMesh) -> None:
        """Registers the mesh's own groups for reuse. All its ranks call this before group()."""
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
    """The memory for calls of one thread, and views of it by sizes and dtype."""

    def __init__(self) -> None:
        self.memory = _new_memory(0)
        self.rooms: dict[Any, Room] = {}


def _new_memory(num_bytes: int) -> torch.Tensor:
    """Memory of the CPU, also under torch.inference_mode() or another default device."""
    with torch.inference_mode(False):
        return torch.empty(num_bytes, dtype=torch.uint8, device="cpu")


_worlds: weakref.WeakKeyDictionary[dist.ProcessGroup, World] = weakref.WeakKeyDictionary()
_making_world = threading.Lock()


def current_world() -> World:
    """The World of the default process group. ValueError: no group is initialised."""
    default = dist.group.WORLD
    if default is None:
        raise ValueError("torch.distributed.init_process_group() has not been called")
    world = _worlds.get(default)
    if world is None:
        with _making_world:  # threads that begin together share one World
            world = _worlds.get(default)
            if world is None:
                _forget_destroyed()
                world = _worlds[default] = World(default)
    return world


def _forget_destroyed() -> None:
    # Removes worlds of destroyed groups: a mesh may keep the default group alive, and a world its
    # meshes. When torch simulates ranks by threads, a thread sees only its own groups.
    for group, world in list(_worlds.items()):
        if world.thread == threading.get_ident() and group not in distributed_c10d._world.pg_map:
            _worlds.pop(group, None)


def is_gloo(group: dist.ProcessGroup, device_type: str) -> bool:
    """Whether the group uses gloo for CPU tensors, even if its backend has no name."""
    if device_type != "cpu":
        return False
    try:
        return bool(group._get_backend(torch.device("cpu")).name() == "gloo")
    except (RuntimeError, AttributeError):  # a group that tests made
        return bool(dist.get_backend(group) == "gloo")


class _Names:
    """Replaces torch's function that names groups of some ranks: names are equal on all members,
    independent of each rank's number of groups. Threads that set no name get torch's."""

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
    """Groups that this thread makes get a name derived from `text`. torch's own count of groups is
    restored, because ranks outside do not increase theirs."""
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
    """The time-out of its calls, or None for torch's default."""
    for device in group._device_types:
        options = getattr(group._get_backend(device), "options", None)
        timeout = getattr(options, "_timeout", None)
        if timeout is not None:
            return timeout
    return None
