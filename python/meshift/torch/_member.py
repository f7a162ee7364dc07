"""Base class of the compilers of collectives: the data of one member of a process group.

It compiles nothing itself. _collectives.py and _messages.py do.
"""

from __future__ import annotations

import weakref

import torch
import torch.distributed as dist

from meshift.torch._pieces import Memory
from meshift.torch._specs import NATIVE_DTYPES


class Member:
    """The member `me` of a group of `size`, on tensors of one dtype."""

    def __init__(
        self, group: dist.ProcessGroup, me: int, size: int, dtype: torch.dtype, memory: Memory
    ) -> None:
        # A weak reference, so that a destroyed group is freed.
        self._group = weakref.ref(group)
        self._me = me
        self._size = size
        self._dtype = dtype
        self._width = dtype.itemsize
        # Bytes are sent if the backend may not support the dtype.
        self._as_bytes = dtype not in NATIVE_DTYPES
        self._memory = memory

    def _alive(self) -> dist.ProcessGroup:
        return alive(self._group)


def alive(reference: weakref.ref[dist.ProcessGroup]) -> dist.ProcessGroup:
    """ValueError where the group has been destroyed."""
    group = reference()
    if group is None:
        raise ValueError("the process group has been destroyed")
    return group
