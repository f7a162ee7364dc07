"""Plans for all parameters of a model, by the packaged command."""

from __future__ import annotations

from meshift._record import Immutable, Record, put
from meshift._tables import bytes_text, html_table, text_table, time_text
from meshift.errors import InvalidArgumentError, OtherError
from meshift.plans import Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Any, Mapping, Union

    from meshift.mesh import DeviceMesh
    from meshift.topology import Topology

    Source = Union[str, os.PathLike[str], Mapping[str, Any]]
    Flag = Union[str, int, bool, Topology, None]


class ModelRow(Record):
    """`count` parameters with the same plan; `first` is the name of the first one."""

    __slots__ = ("count", "first", "plan")

    count: int
    first: str
    plan: Plan


class ModelPlan(Immutable):
    """The plans of a model's parameters. Sums are over all parameters."""

    __slots__ = ("model", "rows", "json")

    model: str
    """The name of the model."""
    rows: tuple[ModelRow, ...]
    json: str
    """The complete output of the command."""

    def __init__(self, json: str) -> None:
        import json as parser

        parsed = parser.loads(json)
        rows = tuple(
            ModelRow(row["count"], row["first"], Plan.read(parser.dumps(row["plan"])))
            for row in parsed["rows"]
        )
        put(self, model=parsed["model"], rows=rows, json=json)

    @property
    def total(self) -> dict[str, int]:
        """`parameters`, `collectives`, `bytes_sent`, `est_ns`; `setup_ns` if it is not 0."""
        return dict(self._parsed()["total"])

    @property
    def traffic(self) -> dict[str, Any] | None:
        """The bytes that ranks send over each kind of link.

        None without `rules`, `to_mesh` and `relabel_ranks`.
        """
        traffic: dict[str, Any] | None = self._parsed().get("traffic")
        return traffic

    def _parsed(self) -> Any:
        import json

        return json.loads(self.json)

    @property
    def text(self) -> str:
        """A table with a line for each plan."""
        return text_table(_HEADERS, self._cells()) + self._sum() + "\n"

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                str(row.count),
                row.plan.source.text.split(" on ")[0],
                row.plan.source.placements,
                row.plan.target.placements,
                "; ".join(step.text.split(" -> ")[0] for step in row.plan.steps) or "-",
                bytes_text(row.plan.bytes_sent),
                time_text(row.plan.est_ns),
                row.first,
            )
            for row in self.rows
        ]

    def _sum(self) -> str:
        total = self.total
        return (
            f"total: {total['parameters']} parameters, {len(self.rows)} distinct plans, "
            f"{total['collectives']} collectives, sent {bytes_text(total['bytes_sent'])}, "
            f"est {time_text(total['est_ns'])}"
        )

    def _repr_html_(self) -> str:
        return html_table(self.model, _HEADERS, self._cells(), [self._sum()])

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<ModelPlan {self.model}: {len(self.rows)} distinct plans>"

    def __reduce__(self) -> tuple[object, ...]:
        return ModelPlan, (self.json,)


_HEADERS = ("count", "tensor", "from", "to", "plan", ">sent", ">est", "first parameter")
_SWITCHES = {"ordered_reductions": "--no-ordered-reductions", "new_groups": "--no-new-groups"}


def plan_model(
    model: Source,
    rules: Source | None = None,
    mesh: DeviceMesh | str | None = None,
    to_mesh: DeviceMesh | str | None = None,
    source: str | None = None,
    target: str | None = None,
    relabel_ranks: bool = False,
    **flags: Flag,
) -> ModelPlan:
    """Plans all parameters of a model, as `meshift plan --model` does.

        plan_model("llama3-8b.json", mesh="fsdp=2,tp=4", source="S(0),TP", target="R,TP")
        plan_model(model, rules="train-to-serve.json", mesh=..., to_mesh=..., topology="h100")

    `model` and `rules` are paths, or dicts with the content of such files
    (examples/models/README.md). `source` and `target` are placements of all parameters, instead of
    rules. `flags` are other options of the command: `dtype`, `to_dtype`, `filter`, and the options
    of meshift.plan() except `engine`.

    It runs the command in a process. InvalidArgumentError: the command refuses an option or a file,
    or this version cannot plan the model. OtherError, with code UNKNOWN: every other failure of the
    command. OSError: the command cannot be started.
    """
    import json
    import os
    import subprocess
    import tempfile

    from meshift.__main__ import command

    with tempfile.TemporaryDirectory() as folder:

        def path_of(name: str, given: Source) -> str:
            if isinstance(given, (str, os.PathLike)):
                return os.fspath(given)
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(dict(given), file)
            return path

        arguments = [f"--model={path_of('model.json', model)}"]
        if rules is not None:
            arguments.append(f"--rules={path_of('rules.json', rules)}")
        named = {"mesh": mesh, "to_mesh": to_mesh, "from": source, "to": target, **flags}
        arguments += [flag for name, value in named.items() for flag in _flags(name, value)]
        arguments += ["--relabel-ranks"] * bool(relabel_ranks)
        done = subprocess.run(
            [command(), "plan", *arguments, "--format=json"], capture_output=True, encoding="utf-8"
        )
    if done.returncode != 0:
        message = done.stderr.strip()
        message = message[len("meshift: ") :] if message.startswith("meshift: ") else message
        if done.returncode in (2, 3):
            raise InvalidArgumentError(message, "INVALID_ARGUMENT")
        raise OtherError(message, "UNKNOWN")
    return ModelPlan(done.stdout)


def _flags(name: str, value: Any) -> list[str]:
    if value is None:
        return []
    if name in _SWITCHES:
        if value in (True, "on"):
            return []
        if value in (False, "off"):
            return [_SWITCHES[name]]
        raise ValueError(f"option {name}: {value!r} is neither on nor off")
    if isinstance(value, bool) or not isinstance(value, (str, int)) and not hasattr(value, "text"):
        raise TypeError(f"{name} must be a str or an int, not {type(value).__name__}")
    return [f"--{name.replace('_', '-')}={getattr(value, 'text', value)}"]
