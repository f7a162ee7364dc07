"""The public functions redistribute(), with its gradient, and plan_of()."""

from __future__ import annotations

from typing import Any, Sequence

import torch
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor.placement_types import Placement

import meshift
from meshift.torch._compiled import is_traced, keep_in_graphs, redistribute_traced
from meshift.torch._groups import MOST_REMEMBERED, current_world
from meshift.torch._redistribute import Settings, Topology, make_plan, redistribute_local
from meshift.torch._specs import require_placements


def redistribute(
    dtensor: DTensor,
    placements: Sequence[Placement],
    *,
    promise: str = "replicas",
    topology: Topology = None,
    async_op: bool = False,
) -> DTensor:
    """Redistributes to other placements on the same mesh, by the cheapest plan that keeps the
    promise.

    `promise`: "none", "replicas", "batch-invariant" or "ordered" (docs/reproducibility.md).
    `topology`: the machine, for instance "h100"; None: all links are equal. `async_op`: the last
    collective may still run when this returns; the first use of the local tensor waits for it. It
    has no effect on gloo, before PyTorch 2.15, and under torch.compile. There a call is one
    operator of the graph from PyTorch 2.15 on; earlier versions break the graph here.

    Differentiable, any number of times. As with DTensor, the gradient of a partial tensor is not
    made partial again. Collective: all ranks of the mesh call it, with equal arguments.

    TypeError: `dtensor` is not a DTensor, or one of `placements` not a Placement. ValueError:
    invalid placements, an unknown promise or topology, or this rank's local tensor does not match
    its placements. NotImplementedError: a dtype or placement that Meshift does not have.
    Disagreement: ranks asked for different plans, or another rank refused its arguments; the
    message says which. DeadlineExceededError: a rank is missing when the ranks compare their plans.
    """
    if not isinstance(dtensor, DTensor):
        raise TypeError(f"a {type(dtensor).__name__} is not a DTensor")
    source = dtensor._spec
    world = current_world()
    placements = tuple(placements)
    key = (source, *placements, promise, topology)
    try:
        found = world.asked.get(key)
    except TypeError:  # an argument cannot be hashed
        _target_spec(dtensor, placements)
        raise
    if found is None:
        if len(world.asked) >= MOST_REMEMBERED:
            world.asked.clear()
        settings = settings_of(promise, topology)
        found = world.asked[key] = [_target_spec(dtensor, placements), settings, None]
    target, settings, settled = found
    if dtensor.requires_grad and torch.is_grad_enabled():
        return _Redistribute.apply(dtensor, target, settings, async_op)  # type: ignore[no-any-return]
    local = dtensor._local_tensor
    if settled is not None and type(local) is torch.Tensor:
        local = settled.run(local, async_op)
    else:
        local = _local_of(dtensor, target, settings, async_op)
        found[2] = world.settled.get((source, target, settings))
    # Without DTensor.__init__, which only serves export, and takes as long as a small collective.
    return DTensor.__new__(DTensor, local, target, requires_grad=False)


def _local_of(
    dtensor: DTensor, target: DTensorSpec, settings: Settings, async_op: bool
) -> torch.Tensor:
    local = dtensor._local_tensor
    if type(local) is not torch.Tensor and is_traced(local):
        return redistribute_traced(local, dtensor._spec, target, settings)
    return redistribute_local(local, dtensor._spec, target, settings, async_op)


# With a PyTorch older than _compiled._OPAQUE_FROM, the graph breaks here and continues afterwards.
keep_in_graphs(redistribute)


def plan_of(
    dtensor: DTensor,
    placements: Sequence[Placement],
    *,
    promise: str = "replicas",
    topology: Topology = None,
) -> meshift.Plan:
    """The plan that redistribute() runs. Not collective."""
    if not isinstance(dtensor, DTensor):
        raise TypeError(f"a {type(dtensor).__name__} is not a DTensor")
    return make_plan(
        dtensor._spec, _target_spec(dtensor, placements), settings_of(promise, topology)
    )


_known_settings: dict[Any, Settings] = {}


def settings_of(promise: str, topology: Topology) -> Settings:
    """Returns the same object for equal settings."""
    key = (promise, topology)
    settings = _known_settings.get(key)
    if settings is None:
        settings = _known_settings[key] = Settings(promise, topology)
    return settings


def _target_spec(dtensor: DTensor, placements: Sequence[Placement]) -> DTensorSpec:
    spec = dtensor._spec
    checked = require_placements(placements, spec.mesh, dtensor.ndim)
    return DTensorSpec(spec.mesh, checked, tensor_meta=spec.tensor_meta)


class _Redistribute(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, dtensor: DTensor, target: DTensorSpec, settings: Settings, async_op: bool
    ) -> DTensor:
        ctx.source = dtensor._spec
        ctx.settings = settings
        ctx.async_op = async_op
        local = _local_of(dtensor, target, settings, async_op)
        return DTensor(local, target, requires_grad=dtensor.requires_grad)

    @staticmethod
    def backward(ctx: Any, grad: DTensor) -> Any:  # type: ignore[override]
        spec = grad._spec
        target = DTensorSpec(
            spec.mesh,
            gradient_placements(spec.placements, ctx.source.placements),
            tensor_meta=TensorMeta(grad.shape, grad.stride(), grad._local_tensor.dtype),
        )
        return _Redistribute.apply(grad, target, ctx.settings, ctx.async_op), None, None, None


def gradient_placements(
    gradient: Sequence[Placement], forward: Sequence[Placement]
) -> tuple[Placement, ...]:
    """The placements of the input, except that its partial dims stay replicated if the gradient is
    complete there."""
    return tuple(
        Replicate() if wanted.is_partial() and not now.is_partial() else wanted
        for now, wanted in zip(gradient, forward)
    )
