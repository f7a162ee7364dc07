"""Counts for CommDebugMode: each collective instruction counts once, as PyTorch's functional
collective of that kind. send_recv counts as all_to_all_single.

    call = counted(call, "all_reduce")
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from meshift.torch._pieces import Call, Pieces

_NAMES = {
    "all_gather": "all_gather_into_tensor",
    "all_reduce": "all_reduce",
    "reduce_scatter": "reduce_scatter_tensor",
    "send_recv": "all_to_all_single",
}


def counted(call: Call, kind: str) -> Call:
    """Wraps the call of a collective instruction. (CommDebugMode does not count messages, and one
    instruction may make several calls.)"""
    packet = getattr(torch.ops.c10d_functional, _NAMES[kind])

    def run(pieces: Pieces, leave: bool) -> dist.Work | None:
        if torch._C._len_torch_dispatch_stack() == 0:
            return call(pieces, leave)
        modes = _debug_modes()
        before = [dict(mode.comm_counts) for mode in modes]
        work = call(pieces, leave)
        for mode, counts in zip(modes, before):
            mode.comm_counts.clear()
            mode.comm_counts.update(counts)
            mode.comm_counts[packet] += 1
        return work

    return run


def _debug_modes() -> list[Any]:
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    return [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, CommDebugMode)]
