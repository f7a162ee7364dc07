"""Plans: steps that turn one sharding into another, the same on every rank.

Nothing here runs a plan: meshift.local and meshift.torch do. Plan.read() checks only the format of
a text; verify() proves the plan.
"""

from __future__ import annotations

from ctypes import byref, c_int32, c_void_p

from meshift import _c
from meshift._record import Immutable, Record, put
from meshift._tables import bytes_text, html_table, time_text
from meshift.errors import MeshiftError, VerificationError
from meshift.mesh import DeviceMesh, mesh_of
from meshift.options import options_handle
from meshift.program import Program, lower
from meshift.sharding import Sharding, sharding_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from typing_extensions import Unpack

    from meshift.options import Options


class Step(Record):
    """A step of a plan. Fields are those of meshift_step; None means "none".

    `mesh_dims` are indices of dims of the plan's mesh number `mesh`. Bytes are those of the worst
    rank. `text` has the form "all_reduce{dp,tp} -> R,R"; `after` is the sharding after the step.
    """

    __slots__ = (
        "op",
        "mesh",
        "mesh_dims",
        "reduce_op",
        "in_order",
        "divisor",
        "wire_dtype",
        "group_size",
        "groups",
        "bytes_in",
        "bytes_out",
        "bytes_sent",
        "est_ns",
        "after",
        "text",
    )

    op: str
    mesh: int
    mesh_dims: tuple[int, ...]
    reduce_op: str | None
    in_order: bool
    divisor: int
    wire_dtype: str | None
    group_size: int
    groups: int
    bytes_in: int
    bytes_out: int
    bytes_sent: int
    est_ns: int
    after: Sharding
    text: str

    def __str__(self) -> str:
        return self.text


class Plan(Immutable):
    """Steps that turn `source` into `target`. Immutable.

    Bytes are those of the worst rank; times are estimates in nanoseconds.
    """

    __slots__ = ("_handle", "_info", "_texts", "source", "target", "meshes", "steps")

    _handle: _c.Handle
    _info: _c.PlanInfo
    _texts: dict[str, str]
    source: Sharding
    target: Sharding
    meshes: tuple[DeviceMesh, ...]
    """The mesh of the source, and that of the target if it differs."""
    steps: tuple[Step, ...]

    def __init__(self) -> None:
        raise TypeError("plans are made by meshift.plan() and Plan.read()")

    @staticmethod
    def read(text: str) -> Plan:
        """Reads a plan's text or JSON. The plan may be wrong: see verify()."""
        return plan_of(_c.make("plan", "meshift_plan_read", _c.encode("text", text)))

    @property
    def text(self) -> str:
        """The plan as a text table, which Plan.read reads."""
        return self._text("text")

    def json(self, indent: int | None = None) -> str:
        """The plan as JSON, which Plan.read reads. `indent`: spaces per level; None: one line."""
        spaces = -1 if indent is None else _c.integer("indent", indent)
        if not -1 <= spaces <= 16:
            raise ValueError(f"indent is {spaces}; it must be -1 to 16")
        return _c.text("meshift_plan_json", self._handle, spaces)

    @property
    def fingerprint(self) -> str:
        """32 hex digits, equal on every rank."""
        return self._text("fingerprint")

    @property
    def promise(self) -> tuple[str, str]:
        """The promise about bits that the plan keeps, such as "replicas", and the reason."""
        kept, why = c_void_p(), c_void_p()
        _c.call("meshift_plan_promise", self._handle, byref(kept), byref(why))
        return _c.take(kept), _c.take(why)

    @property
    def collectives(self) -> int:
        """The number of collective calls."""
        return int(self._info.collectives)

    @property
    def bytes_sent(self) -> int:
        return int(self._info.bytes_sent)

    @property
    def est_ns(self) -> int:
        return int(self._info.est_ns)

    @property
    def setup_ns(self) -> int:
        """The time to create new groups."""
        return int(self._info.setup_ns)

    @property
    def peak_bytes(self) -> int:
        """Source, target and workspace together."""
        return int(self._info.peak_bytes)

    @property
    def workspace_bytes(self) -> int:
        return int(self._info.workspace_bytes)

    @property
    def lower_bound_bytes_sent(self) -> int:
        """A lower bound that holds for any plan."""
        return int(self._info.lower_bound_bytes_sent)

    @property
    def lower_bound_est_ns(self) -> int:
        """A lower bound that holds for any plan."""
        return int(self._info.lower_bound_est_ns)

    def program(
        self,
        rank: int,
        source_strides: Sequence[int] | None = None,
        target_strides: Sequence[int] | None = None,
        one_buffer: bool = False,
        consume_source: bool = False,
    ) -> Program:
        """The instructions of `rank` on its source, its target and a workspace.

        Strides are in elements, one per dim of the local tensor; None: row-major. `one_buffer`:
        source and target begin at the same address. `consume_source`: the source may be overwritten
        once it is read.
        """
        return lower(
            self._handle,
            _c.integer("rank", rank),
            self._strides("source_strides", source_strides, self.source, rank),
            self._strides("target_strides", target_strides, self.target, rank),
            one_buffer,
            consume_source,
        )

    @staticmethod
    def _strides(
        name: str, strides: Sequence[int] | None, sharding: Sharding, rank: int
    ) -> Sequence[int] | None:
        if strides is None:
            return None
        given = tuple(_c.int64s(name, strides))
        dims = len(sharding.local_box(rank).shape)
        if len(given) != dims:
            raise ValueError(f"{name} has length {len(given)}; expected {dims}, one for each dim")
        return given

    def _text(self, name: str) -> str:
        if name not in self._texts:
            self._texts[name] = _c.text(f"meshift_plan_{name}", self._handle)
        return self._texts[name]

    def _totals(self) -> str:
        count = self.collectives
        return (
            f"est {time_text(self.est_ns)}, sent {bytes_text(self.bytes_sent)}, "
            f"{count} collective{'' if count == 1 else 's'}"
        )

    def _repr_html_(self) -> str:
        kept, why = self.promise
        title = f"{self.source.text} to {self.target.text}"
        return self._table(
            title,
            [
                f"total: {self._totals()}, peak {bytes_text(self.peak_bytes)}, "
                f"workspace {bytes_text(self.workspace_bytes)}",
                f"lower bound: est {time_text(self.lower_bound_est_ns)}, "
                f"sent {bytes_text(self.lower_bound_bytes_sent)}",
                f"promise {kept}: {why}",
                f"fingerprint {self.fingerprint}",
            ],
        )

    def _table(self, caption: str, notes: Sequence[str]) -> str:
        """The steps as an HTML table."""
        headers = ("step", "op", "mesh dims", "groups", "after", ">in", ">out", ">sent", ">est")
        rows = [
            (
                str(number),
                step.op,
                ",".join(self.meshes[step.mesh].names[dim] for dim in step.mesh_dims),
                f"{step.groups} x {step.group_size}" if step.groups else "-",
                step.after.placements,
                bytes_text(step.bytes_in),
                bytes_text(step.bytes_out),
                bytes_text(step.bytes_sent),
                time_text(step.est_ns),
            )
            for number, step in enumerate(self.steps)
        ]
        return html_table(caption, headers, rows, notes)

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Plan) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        steps = "; ".join(step.text for step in self.steps) or "nothing to do"
        return f"<Plan {self.source.text} to {self.target.placements}: {steps}>"

    def __reduce__(self) -> tuple[object, ...]:
        return Plan.read, (self.json(),)


def plan(source: Sharding, target: Sharding, **options: Unpack[Options]) -> Plan:
    """Makes the best plan from `source` to `target`.

        plan(a, b, topology="h100", reproducibility="ordered", max_memory="1GiB")

    An option has the name that it has in a plan's text: `reproducibility` is --promise of the
    command line, `new_groups=False` is --no-new-groups. A switch is True or False; None is the
    default. The plan depends on the arguments only and is the same on every rank. ValueError: an
    unknown option or a wrong value. docs/errors.md has the other errors.
    """
    _c.instance("source", source, Sharding)
    _c.instance("target", target, Sharding)
    handle = options_handle(options)
    return plan_of(_c.make("plan", "meshift_plan_make", source._handle, target._handle, handle))


def verify(plan: Plan, max_work: int = 0) -> None:
    """Proves a plan. VerificationError: names the broken rule.

    `max_work` limits the work, in units of about 10 ns; 0: a few seconds and about 1 GiB.
    """
    _c.instance("plan", plan, Plan)
    rule, step = c_void_p(), c_int32()
    work = _c.integer("max_work", max_work)
    try:
        _c.call("meshift_plan_verify", plan._handle, work, byref(rule), byref(step))
    except MeshiftError as error:
        name = _c.take(rule)
        if not name:
            raise
        number = step.value if step.value >= 0 else None
        raise VerificationError(str(error), name, number) from None


def plan_of(handle: _c.Handle) -> Plan:
    """The Plan that owns a handle."""
    made = Plan.__new__(Plan)
    info = _c.fill(_c.PlanInfo, "meshift_plan_get_info", handle)
    meshes = tuple(
        mesh_of(_c.make("mesh", "meshift_plan_mesh", handle, i)) for i in range(info.num_meshes)
    )
    put(
        made,
        _handle=handle,
        _info=info,
        _texts={},
        source=sharding_of(_c.make("sharding", "meshift_plan_from", handle), None),
        target=sharding_of(_c.make("sharding", "meshift_plan_to", handle), None),
        meshes=meshes,
        steps=tuple(_step(handle, i, meshes) for i in range(info.num_steps)),
    )
    return made


def _step(handle: _c.Handle, number: int, meshes: tuple[DeviceMesh, ...]) -> Step:
    step = _c.fill(_c.Step, "meshift_plan_step", handle, number)
    return Step(
        _c.name_of("step_op", step.op),
        step.mesh,
        tuple(step.mesh_dims[: step.num_mesh_dims]),
        _c.name_of("op", step.reduce_op),
        bool(step.in_order),
        step.divisor,
        _c.name_of("dtype", step.wire_dtype),
        step.group_size,
        step.groups,
        step.bytes_in,
        step.bytes_out,
        step.bytes_sent,
        step.est_ns,
        sharding_of(_c.make("sharding", "meshift_plan_step_after", handle, number), None),
        _c.text("meshift_plan_step_text", handle, number),
    )
