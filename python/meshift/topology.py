"""Topologies: the speeds of the links between ranks."""

from __future__ import annotations

from meshift import _c
from meshift._record import Immutable, put

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping


class Topology(Immutable):
    """Link speeds: a preset ("h100", "h200-efa"), "nvlink=8", or JSON, as text or a dict.

    docs/cost_model.md defines the numbers. The option `topology` takes a Topology or the same text.
    Files are not read: pass a file's content. Immutable. ValueError: an unknown preset, malformed
    JSON, or a number out of range.
    """

    __slots__ = ("text", "json")

    text: str
    """The shortest equal text."""
    json: str
    """The JSON form, which Topology reads. It omits optional numbers of a level that are 0."""

    def __init__(self, topology: str | Mapping[str, Any]) -> None:
        if not isinstance(topology, str):
            import json

            topology = json.dumps(topology)
        given = _c.encode("topology", topology)
        text = _c.text("meshift_topology_text", given)
        put(self, text=text, json=_c.text("meshift_topology_json", given))

    @staticmethod
    def presets() -> tuple[str, ...]:
        """The names of the presets. A GPU name alone means its first preset."""
        count = _c.lib.meshift_topology_preset_count()
        return tuple(_c.text("meshift_topology_preset", i) for i in range(count))

    @property
    def levels(self) -> tuple[dict[str, Any], ...]:
        """The levels of links, the fastest first. `domain_size` 0: all ranks."""
        return tuple(self._parsed()["levels"])

    @property
    def constants(self) -> dict[str, int]:
        """The constants that do not depend on the level."""
        return dict(self._parsed().get("constants", {}))

    @property
    def protocols(self) -> tuple[dict[str, Any], ...]:
        """The protocols of the collective library."""
        return tuple(self._parsed().get("protocols", ()))

    def _parsed(self) -> Any:
        import json

        return json.loads(self.json)

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Topology) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Topology({self.text!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return Topology, (self.text,)
