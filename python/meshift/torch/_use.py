"""DTensor's own redistributions through Meshift, for as long as a context is open."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from typing import Any, Callable, Iterator

import torch
from torch.distributed.tensor import Partial
from torch.distributed.tensor import _redistribute as torch_redistribute
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from meshift.torch._api import _settings
from meshift.torch._redistribute import Settings, Topology, redistribute_local
from meshift.torch._specs import Unsupported, sharding_of

_NAME = "redistribute_local_tensor"
# The first and the last minor version whose function this module has been tested to stand in for.
_FIRST, _LAST = (2, 6), (2, 15)

_lock = threading.RLock()
# The settings of the open contexts, the innermost last, and what was replaced where.
_open: list[Settings] = []
_replaced: list[tuple[Any, str, Callable[..., torch.Tensor]]] = []


@contextlib.contextmanager
def use(promise: str = "replicas", topology: Topology = None) -> Iterator[None]:
    """DTensor's explicit and implicit redistributions run Meshift's plans within this context.

    It replaces one function in every module of torch that has it, for all threads, and puts it back
    at the end. All ranks open and close it at the same places of the program. Contexts may nest;
    the innermost one's settings count. What Meshift has no notation for, and what is traced, goes
    PyTorch's way. RuntimeError: a PyTorch that this has not been tested with.
    """
    _require_known_torch()
    settings = _settings(promise, topology)
    with _lock:
        if not _open:
            _replace()
        _open.append(settings)
    try:
        yield
    finally:
        with _lock:
            _open.remove(settings)
            if not _open:
                _put_back()


def _require_known_torch() -> None:
    numbers = torch.__version__.split("+")[0].split(".")[:2]
    try:
        version = tuple(int(number) for number in numbers)
    except ValueError:
        version = ()
    if len(version) != 2 or not _FIRST <= version <= _LAST:
        raise RuntimeError(
            f"PyTorch {torch.__version__} is not known: meshift.torch.use() takes "
            f"{_FIRST[0]}.{_FIRST[1]} to {_LAST[0]}.{_LAST[1]}. "
            "meshift.torch.redistribute() needs no such knowledge"
        )


def _replace() -> None:
    original = getattr(torch_redistribute, _NAME)
    ours = _standing_in_for(original)
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict):
            continue
        for name, value in list(names.items()):
            if value is original:
                names[name] = ours
                _replaced.append((names, name, original))


def _put_back() -> None:
    while _replaced:
        names, name, original = _replaced.pop()
        names[name] = original


def _standing_in_for(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(original)
    def redistribute_local_tensor(
        local_tensor: torch.Tensor,
        current_spec: DTensorSpec,
        target_spec: DTensorSpec,
        *,
        async_op: bool = False,
        **more: Any,
    ) -> torch.Tensor:
        def as_torch(local: torch.Tensor, source: DTensorSpec) -> torch.Tensor:
            return original(local, source, target_spec, async_op=async_op, **more)

        if not _open or not _is_ours(local_tensor, current_spec, target_spec):
            return as_torch(local_tensor, current_spec)
        between = _before_partial(current_spec, target_spec)
        if between is target_spec:
            return redistribute_local(local_tensor, current_spec, target_spec, _open[-1], async_op)
        if between.placements != current_spec.placements:
            local_tensor = redistribute_local(local_tensor, current_spec, between, _open[-1])
        return as_torch(local_tensor, between)

    return redistribute_local_tensor


def _is_ours(local: torch.Tensor, source: DTensorSpec, target: DTensorSpec) -> bool:
    """Whether Meshift can run it. Equal on all ranks."""
    if source.mesh != target.mesh or source.mesh.get_coordinate() is None:
        return False
    if torch.compiler.is_compiling() or torch._C._get_dispatch_mode(
        torch._C._TorchDispatchModeKey.FAKE
    ) is not None:
        return False
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    if type(local) is not AsyncCollectiveTensor and is_traceable_wrapper_subclass(local):
        return False
    if local.device.type == "meta":
        return False
    return _has_notation(source) and _has_notation(target)


@functools.lru_cache(maxsize=4096)
def _has_notation(spec: DTensorSpec) -> bool:
    try:
        sharding_of(spec)
    except (Unsupported, ValueError):
        return False
    return True


def _before_partial(source: DTensorSpec, target: DTensorSpec) -> DTensorSpec:
    """The target, with what it makes partial still as the source has it.

    A value becomes partial locally. PyTorch's way of doing so differs from ours in what each rank
    holds, and programs may count on it.
    """
    placements = tuple(
        now if isinstance(wanted, Partial) and now != wanted else wanted
        for now, wanted in zip(source.placements, target.placements)
    )
    if placements == target.placements:
        return target
    return DTensorSpec(source.mesh, placements, tensor_meta=source.tensor_meta)
