"""A context in which DTensor's own redistributions run Meshift's plans."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from typing import Any, Callable, Iterator

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import Partial
from torch.distributed.tensor import _redistribute as torch_redistribute
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from meshift.torch._api import gradient_placements, settings_of
from meshift.torch._groups import MOST_REMEMBERED, current_world
from meshift.torch._redistribute import Settings, Topology, redistribute_local
from meshift.torch._specs import Unsupported, sharding_of

try:
    from torch.utils._debug_mode import get_active_debug_mode
except ImportError:  # older PyTorch

    def get_active_debug_mode() -> Any:  # type: ignore[misc]
        return None


_NAME = "redistribute_local_tensor"
# The first and the last minor version of PyTorch for which replacing the function was tested.
_FIRST, _LAST = (2, 6), (2, 15)


class _Context:
    """An open context. Contexts with equal settings differ."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings


_lock = threading.RLock()
# The open contexts, the innermost last, and the replaced functions.
_open: list[_Context] = []
_replaced: list[tuple[Any, str, Callable[..., torch.Tensor]]] = []


@contextlib.contextmanager
def use(promise: str = "replicas", topology: Topology = None) -> Iterator[None]:
    """Runs DTensor's explicit and implicit redistributions by Meshift's plans within this context.

    It replaces one function in every loaded module that has it, for all threads, and restores it at
    the end. All ranks open and close the context at the same places of the program. Contexts may
    nest; the settings of the innermost one apply. PyTorch's own code still runs for dtypes and
    placements that Meshift does not have, for two meshes, for the last step if a value becomes
    partial, for meta tensors and most tensor subclasses, during tracing, and while a DebugMode
    records PyTorch's steps. RuntimeError: this version of PyTorch was not tested.
    """
    _require_known_torch()
    context = _Context(settings_of(promise, topology))
    with _lock:
        if not _open:
            _replace()
        _open.append(context)
    try:
        yield
    finally:
        with _lock:
            _open.remove(context)
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
            f"meshift.torch.use() does not support PyTorch {torch.__version__}, only "
            f"{_FIRST[0]}.{_FIRST[1]} to {_LAST[0]}.{_LAST[1]}; "
            "meshift.torch.redistribute() works with newer versions too"
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

        if more.get("is_backward"):
            # PyTorch up to 2.6 passes the input's placements.
            target_spec = DTensorSpec(
                target_spec.mesh,
                gradient_placements(current_spec.placements, target_spec.placements),
                tensor_meta=target_spec.tensor_meta,
            )
        settings = _innermost()
        if settings is None:
            return as_torch(local_tensor, current_spec)
        routes = current_world().routes
        if not _is_plain(local_tensor):
            return as_torch(local_tensor, current_spec)
        route = routes.get((current_spec, target_spec))
        if route is None:
            if len(routes) >= MOST_REMEMBERED:
                routes.clear()
            route = routes[current_spec, target_spec] = _route(current_spec, target_spec)
        if route is _ALL:
            return redistribute_local(local_tensor, current_spec, target_spec, settings, async_op)
        if route is _NOTHING:
            return as_torch(local_tensor, current_spec)
        local_tensor = redistribute_local(local_tensor, current_spec, route, settings)
        return as_torch(local_tensor, route)

    return redistribute_local_tensor


def _innermost() -> Settings | None:
    # Another thread may close the last context at any moment.
    try:
        return _open[-1].settings
    except IndexError:
        return None


def _is_plain(local: torch.Tensor) -> bool:
    """Whether the tensor has values and is not being traced."""
    kind = type(local)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        if kind is not AsyncCollectiveTensor:
            return False
    if local.is_meta or torch.compiler.is_compiling():
        return False
    # A DebugMode records the steps of PyTorch's plans.
    return get_active_debug_mode() is None


# The part that Meshift does: all, nothing, or the way to a spec between the two.
_ALL, _NOTHING = "all", "nothing"


def _route(source: DTensorSpec, target: DTensorSpec) -> Any:
    """The part of a redistribution that Meshift does; PyTorch does the rest.

    PyTorch does those with dtypes or placements that Meshift does not have, and the last step if a
    value becomes partial. That step is local; PyTorch's version gives ranks other contributions
    than ours, and programs may rely on them. The result depends on the specs only, so it is equal
    on all ranks.
    """
    if source.mesh != target.mesh or source.mesh.get_coordinate() is None:
        return _NOTHING
    try:
        sharding_of(source)
        sharding_of(target)
    except (Unsupported, ValueError):
        return _NOTHING
    placements = tuple(
        now if isinstance(wanted, Partial) and now != wanted else wanted
        for now, wanted in zip(source.placements, target.placements)
    )
    if placements == target.placements:
        return _ALL
    if placements == source.placements:
        return _NOTHING
    return DTensorSpec(source.mesh, placements, tensor_meta=source.tensor_meta)
