"""One redistribution of this rank's tensor: plan, agree, make groups, compile; then run.

Planning, making groups and compiling are done once for each source spec, target spec and settings.
The results are cached with the default process group: at most 2,048 per mesh, the oldest goes
first. The first calls of a mesh compare plans again, also cached ones (_agreement.py).
NotImplementedError: source and target are on two meshes.
"""

from __future__ import annotations

import hashlib
from typing import Any, Union

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor._dtensor_spec import DTensorSpec

import meshift
from meshift.torch._agreement import Agreement
from meshift.torch._groups import World, current_world, is_gloo
from meshift.torch._program import Connections, Executable
from meshift.torch._specs import ranks_of, sharding_of
from meshift.torch._version import TORCH_VERSION

Topology = Union[str, "meshift.Topology", None]
# A topology for gloo's messages over TCP between processes of one machine, measured by
# python/bench/torch_live.py: about 1 ms for a round of small messages, 1 GB/s for large ones.
_GLOO = (
    '{"levels": [{"name": "tcp", "domain_size": 0, "bandwidth_bytes_per_us": 1000,'
    ' "latency_ns": 50000}], "constants": {"collective_latency_ns": 910000,'
    ' "message_latency_ns": 30000, "copy_latency_ns": 80000, "copy_bandwidth_bytes_per_us": 4000}}'
)
# The number of cached redistributions per mesh; the oldest is evicted first.
_MOST_KEPT = 2048
# PyTorch 2.6 crashes where an unfinished work is registered from Python. Later versions up to this
# one were not tried.
_REGISTERS_WORK = TORCH_VERSION >= (2, 15)
PROMISES = ("none", "replicas", "batch-invariant", "ordered")


class Settings:
    """The options of a plan. Equal settings give equal plans."""

    __slots__ = ("promise", "topology", "_hash")

    def __init__(self, promise: str = "replicas", topology: Topology = None) -> None:
        """ValueError: unknown promise or topology."""
        if promise not in PROMISES:
            raise ValueError(f"unknown promise {promise!r}; expected {', '.join(PROMISES)}")
        self.promise = promise
        if isinstance(topology, str):
            topology = meshift.Topology(topology)
        self.topology = None if topology is None else topology.text
        self._hash = hash((self.promise, self.topology))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Settings)
            and self.promise == other.promise
            and self.topology == other.topology
        )

    def __hash__(self) -> int:
        return self._hash

    def plan(self, source: meshift.Sharding, target: meshift.Sharding, engine: str) -> meshift.Plan:
        options: dict[str, Any] = {"engine": engine, "reproducibility": self.promise}
        topology = _GLOO if self.topology is None and engine == "local" else self.topology
        if topology is not None:
            options["topology"] = topology
        return meshift.plan(source, target, **options)


def make_plan(source: DTensorSpec, target: DTensorSpec, settings: Settings) -> meshift.Plan:
    """The plan for a redistribution between the specs."""
    return settings.plan(sharding_of(source), sharding_of(target), _engine_of(source.mesh))


def _engine_of(mesh: DeviceMesh) -> str:
    """The Meshift engine with the same reductions as the backend.

    On gloo this package adds in rank order, as the local engine does.
    """
    return "local" if is_gloo(mesh.get_group(0), mesh.device_type) else "nccl"


def _connect(world: World, ranks: tuple[int, ...], mesh: DeviceMesh) -> Connections:
    group = world.group(ranks)
    by_gloo = is_gloo(group, mesh.device_type)
    return Connections(group, world.twin(ranks, group) if by_gloo else None)


class Redistribution:
    """A compiled pair of specs. `run` takes local tensors of the source's shape."""

    def __init__(
        self,
        source: DTensorSpec,
        plan: meshift.Plan,
        world: World,
        settings: Settings,
        agreement: Agreement,
    ) -> None:
        exact = settings.promise in ("batch-invariant", "ordered")
        rank = dist.get_rank()
        program = plan.program(rank)
        self._world = world
        self.plan = plan
        self.dtype = source.tensor_meta.dtype  # type: ignore[union-attr]
        self.source_shape = local_shape(plan.source, rank)
        target_shape = local_shape(plan.target, rank)
        self._is_copy = (
            self.source_shape == target_shape
            and all(at.kind == "copy" for at in program.instructions)
            and not plan.bytes_sent
            and _same_box(plan, rank)
        )
        groups = [
            _connect(world, group.ranks, source.mesh) if group.member >= 0 else None
            for group in program.groups
        ]
        self._agreement = agreement
        # The tag of the last call's messages, so that no call receives leftovers of a failed one.
        self._tag = int(plan.fingerprint[:7], 16)
        self._executable = Executable(
            program, groups, self.dtype, (self.source_shape, target_shape), exact
        )

    def run(self, local: torch.Tensor, async_op: bool = False) -> torch.Tensor:
        """Returns the target's local tensor; `local` itself if nothing changes.

        ValueError: `local` has another shape or dtype. Disagreement: the call failed, and another
        rank failed in a call with another plan.
        """
        tag = self._tag = (self._tag + 1) & 0x7FFFFFFF
        if local.shape != self.source_shape or local.dtype != self.dtype:
            raise ValueError(_mismatch(local, self.source_shape, self.dtype, self.plan))
        if self._is_copy:
            return local
        if type(local) is not torch.Tensor and isinstance(local, AsyncCollectiveTensor):
            local = local.wait()
        if local.requires_grad:
            local = local.detach()
        if not local.is_contiguous():
            local = local.contiguous()
        if local.is_conj() or local.is_neg():
            local = local.resolve_conj().resolve_neg()
        run = self._executable
        try:
            if async_op and _REGISTERS_WORK:
                return self._start(local, tag)
            return run(local, None if run.room is None else self._world.room(run.room, local), tag)
        except BaseException as error:
            self._world.forget_room()
            if not isinstance(error, RuntimeError):
                raise
            disagreement = self._agreement.after_failure(_name(self.plan))
            if disagreement is None:
                raise
            raise disagreement from error

    def _start(self, local: torch.Tensor, tag: int) -> torch.Tensor:
        run = self._executable
        own: Any = None
        if run.room is not None:
            own = torch.empty(sum(run.room), dtype=self.dtype, device=local.device).split(run.room)
        target, work, pieces = run.start(local, own, tag)
        if work is None:
            return target
        torch._C._distributed_c10d._register_work(target, work)
        pending = AsyncCollectiveTensor(target)
        # Keep them alive until the work is done.
        pending._meshift_pieces = pieces  # type: ignore[attr-defined]
        return pending


def local_shape(sharding: meshift.Sharding, rank: int) -> tuple[int, ...]:
    """The shape of the rank's local tensor. A tensor without dims has one element on each rank."""
    return tuple(sharding.local_box(rank).shape) if sharding.shape else ()


def _same_box(plan: meshift.Plan, rank: int) -> bool:
    source, target = plan.source.local_box(rank), plan.target.local_box(rank)
    return tuple(source.offset) == tuple(target.offset)


def redistribute_local(
    local: torch.Tensor,
    source: DTensorSpec,
    target: DTensorSpec,
    settings: Settings,
    async_op: bool = False,
) -> torch.Tensor:
    """Returns this rank's local tensor of the target. A rank outside the mesh gets `local` back.

    ValueError: `local` does not have the shape or dtype of its part of the source.
    """
    world = current_world()
    key = (source, target, settings)
    redistribution = world.settled.get(key)
    if redistribution is None:
        redistribution = _prepare(world, key, local)
        if redistribution is None:
            return local
    return redistribution.run(local, async_op)


def _prepare(world: World, key: Any, local: torch.Tensor) -> Redistribution | None:
    """Compares the plan with the other ranks of the mesh, and creates missing groups and
    programs."""
    source, target, settings = key
    mesh = source.mesh
    if target.mesh != mesh:
        raise NotImplementedError(
            f"cannot redistribute a DTensor from {mesh} to {target.mesh}: source and target must "
            "be on one mesh"
        )
    if mesh.get_coordinate() is None:
        return None
    state = world.meshes.get(mesh)
    if state is None:
        state = world.meshes[mesh] = _MeshState(mesh, world)
    known: Redistribution | None = state.redistributions.get(key)
    plan = make_plan(source, target, settings) if known is None else known.plan
    shape = local_shape(plan.source, dist.get_rank())
    complaint = _mismatch(local, shape, source.tensor_meta.dtype, plan)
    state.agreement.meet(_name(plan), complaint)
    if known is None:
        known = Redistribution(source, plan, world, settings, state.agreement)
        state.keep(key, known, world)
    if not state.agreement.wants:
        world.settled[key] = known
    return known


class _MeshState:
    """The cache of a mesh. All its ranks add and evict the same entries at the same calls."""

    def __init__(self, mesh: DeviceMesh, world: World) -> None:
        ranks = ranks_of(mesh)
        # Meshes that differ only in names share the Agreement.
        key = (ranks, tuple(mesh.shape))
        agreement = world.agreements.get(key)
        if agreement is None:
            name = hashlib.sha1(repr(key).encode()).hexdigest()[:16]
            agreement = world.agreements[key] = Agreement(name, ranks, world.timeout)
        self.agreement: Agreement = agreement
        world.take_groups_of(mesh)
        self.redistributions: dict[Any, Redistribution] = {}

    def keep(self, key: Any, redistribution: Redistribution, world: World) -> None:
        if len(self.redistributions) >= _MOST_KEPT:
            oldest = next(iter(self.redistributions))
            del self.redistributions[oldest]
            world.settled.pop(oldest, None)
            world.asked.clear()
        self.redistributions[key] = redistribution


def _name(plan: meshift.Plan) -> str:
    steps = "; ".join(step.text for step in plan.steps) or "nothing to do"
    return f"plan {plan.fingerprint} of {plan.source.text} to {plan.target.placements} ({steps})"


def _mismatch(
    local: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype, plan: meshift.Plan
) -> str:
    """Describes how the tensor differs from this rank's part of the sharding; "" if it does not."""
    if local.shape == shape and local.dtype == dtype:
        return ""
    return (
        f"the local tensor is {local.dtype} of shape {tuple(local.shape)}, but "
        f"{plan.source.text} gives this rank {dtype} of shape {shape}"
    )
