"""The options of planning, by the names of meshift/c.h."""

from __future__ import annotations

from meshift import _c
from meshift.topology import Topology

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict, Union

    class Options(TypedDict, total=False):
        """What plan(), explain() and others take by name. A str is as on the command line."""

        topology: Union[str, Topology, None]
        engine: Union[str, None]
        planner: Union[str, None]
        reproducibility: Union[str, None]
        reduce_dtype: Union[str, None]
        ragged_sizes: Union[str, None]
        ordered_reductions: Union[bool, str, None]
        reduce_block: Union[int, str, None]
        max_memory: Union[int, str, None]
        max_value: Union[int, str, None]
        buffers: Union[str, None]
        new_groups: Union[bool, str, None]
        existing_groups: Union[str, None]
        max_communicators: Union[int, str, None]
        expected_uses: Union[int, str, None]
        max_work: Union[int, str, None]
        native_invariance: Union[str, None]


def options_handle(options: Options) -> _c.Handle | None:
    """The options as the library takes them. None where all have their defaults."""
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
