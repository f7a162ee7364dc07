"""redistribute() under torch.compile: one custom operator, into which torch does not trace.

The operator's `number` stands for the specs and settings of a traced redistribute() call. Numbers
are local to a rank. Before PyTorch 2.15 the graph breaks instead. The operator ignores `async_op`.
RuntimeError: the process group of the trace has been destroyed.
"""

from __future__ import annotations

import itertools
from typing import Callable

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from meshift.torch._groups import current_world
from meshift.torch._redistribute import Settings, local_shape, make_plan, redistribute_local
from meshift.torch._version import TORCH_VERSION

# From this version on, a graph takes placements as arguments; earlier ones break it here.
_OPAQUE_FROM = (2, 15)

_numbers = itertools.count()


def is_traced(local: torch.Tensor) -> bool:
    """Whether the tensor is symbolic: a graph will compute its values."""
    return isinstance(local, (FakeTensor, FunctionalTensor))


def redistribute_traced(
    local: torch.Tensor, source: DTensorSpec, target: DTensorSpec, settings: Settings
) -> torch.Tensor:
    """Adds an operator to the graph that runs redistribute_local()."""
    traced = current_world().traced
    asked = (source, target, settings)
    number = next((number for number, other in traced.items() if other == asked), None)
    if number is None:
        number = next(_numbers)
        traced[number] = asked
    return _operator(local, number)  # type: ignore[no-any-return]


def _asked(number: int) -> tuple[DTensorSpec, DTensorSpec, Settings]:
    found = current_world().traced.get(number)
    if found is None:
        raise RuntimeError(
            "this graph was made for a process group that has been destroyed; call "
            "torch._dynamo.reset() to make torch.compile trace again"
        )
    return found  # type: ignore[no-any-return]


@torch.library.custom_op("meshift::redistribute", mutates_args=())
def _operator(local: torch.Tensor, number: int) -> torch.Tensor:
    result = redistribute_local(local, *_asked(number))
    return result.clone() if result is local else result


@_operator.register_fake
def _(local: torch.Tensor, number: int) -> torch.Tensor:
    source, target, settings = _asked(number)
    plan = make_plan(source, target, settings)
    return local.new_empty(local_shape(plan.target, dist.get_rank()))


def keep_in_graphs(function: Callable[..., object]) -> None:
    """Makes torch.compile call the function without tracing it, if its arguments can be in a
    graph."""
    if TORCH_VERSION >= _OPAQUE_FROM:
        torch.compiler.allow_in_graph(function)
    else:  # raises an error if fullgraph=True forbids the break
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
