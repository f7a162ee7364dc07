"""The options of planning, with the names of meshift/c.h, as a handle of the C library.

ValueError: an unknown name, or a value that the library refuses. The library checks existing_groups
only when a plan is made. TypeError: not a str, int, bool or Topology.
"""

from __future__ import annotations

from meshift import _c
from meshift.topology import Topology

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class Options(TypedDict, total=False):
        """The keyword options of plan(), explain() and others. A str has the syntax of the command
        line."""

        topology: str | Topology | None
        engine: str | None
        planner: str | None
        reproducibility: str | None
        reduce_dtype: str | None
        ragged_sizes: str | None
        ordered_reductions: bool | str | None
        reduce_block: int | str | None
        max_memory: int | str | None
        max_value: int | str | None
        buffers: str | None
        new_groups: bool | str | None
        existing_groups: str | None
        max_communicators: int | str | None
        expected_uses: int | str | None
        max_work: int | str | None
        native_invariance: str | None


def options_handle(options: Options) -> _c.Handle | None:
    """The options as a handle. None if all have their defaults."""
    texts = {name: _text(name, value) for name, value in options.items() if value is not None}
    if not texts:
        return None
    handle = _c.make("options", "meshift_options_create")
    for name, text in texts.items():
        _c.call(
            "meshift_options_set",
            handle,
            _c.encode("the name of an option", name),
            _c.encode(name, text),
        )
    return handle


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return value
    if isinstance(value, Topology):
        return value.text
    if hasattr(value, "__index__"):
        return str(_c.integer(name, value))
    raise TypeError(f"{name} must be a str, an int or a bool, not {type(value).__name__}")
