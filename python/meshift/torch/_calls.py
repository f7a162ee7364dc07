"""Collectives of a process group on flat tensors.

    call = all_gather(leave=False)
    call(group, target, source)        # returns None, or with leave=True the unfinished work

torch.distributed's functions of these names check their arguments before they call the same methods
of the group, which takes about 4 us of each call on a CPU. Here the caller guarantees that this
rank is a member, that the tensors are contiguous and not complex, and that their sizes fit.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    ReduceScatterOptions,
)

Collective = Callable[..., Optional[dist.Work]]


def all_gather(leave: bool) -> Collective:
    """Takes group, target, source."""
    return _calls("all_gather_single", "_allgather_base", AllgatherOptions(), leave)


def all_to_all(leave: bool) -> Collective:
    """Takes group, target, source, received counts, sent counts."""
    return _calls("all_to_all_single", "alltoall_base", AllToAllOptions(), leave)


def reduce_scatter(op: Any, leave: bool) -> Collective:
    """Takes group, target, source."""
    options = ReduceScatterOptions()
    options.reduceOp = op
    return _calls("reduce_scatter_single", "_reduce_scatter_base", options, leave)


def all_reduce(op: Any, leave: bool) -> Collective:
    """Takes group and [tensor], which is reduced in place."""
    options = AllreduceOptions()
    options.reduceOp = op
    return _calls("allreduce", "allreduce", options, leave)


def _calls(name: str, earlier_name: str, options: Any, leave: bool) -> Collective:
    """`earlier_name`: in earlier versions of PyTorch."""
    if not hasattr(dist.ProcessGroup, name):
        name = earlier_name
    if hasattr(options, "asyncOp"):
        options.asyncOp = leave

    def call(group: dist.ProcessGroup, *args: Any) -> dist.Work | None:
        work = getattr(group, name)(*args, options)
        if leave:
            return work  # type: ignore[no-any-return]
        if work is not None:
            work.wait()
        return None

    return call
