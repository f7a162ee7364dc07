"""Explanations: alternatives to the best plan, and why each was not chosen."""

from __future__ import annotations

from meshift import _c
from meshift._record import Immutable, Record, put
from meshift.options import options_handle
from meshift.plans import Plan, plan_of
from meshift.sharding import Sharding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from typing_extensions import Unpack

    from meshift.options import Options


class TimeParts(Record):
    """The terms of a step's time (docs/cost_model.md).

    `algorithm` is None if the step makes no call. `slowest_links` is None if it sends nothing.
    `protocol` is None if it sends nothing, or the topology has no protocols ("flat").
    """

    __slots__ = (
        "starts_ns",
        "hops_ns",
        "messages_ns",
        "links_ns",
        "copies_ns",
        "algorithm",
        "protocol",
        "slowest_links",
        "links_per_domain",
    )

    starts_ns: int
    hops_ns: int
    messages_ns: int
    links_ns: int
    copies_ns: int
    algorithm: str | None
    protocol: str | None
    slowest_links: str | None
    links_per_domain: int


class Alternative(Record):
    """A plan, its verdict ("best", "costs more", "breaks promise", ...), and the reason.

    `parts` has the time of each step.
    """

    __slots__ = ("verdict", "reason", "plan", "parts")

    verdict: str
    reason: str
    plan: Plan
    parts: tuple[TimeParts, ...]


class Explanation(Immutable):
    """A sequence of alternatives, the best plan first."""

    __slots__ = ("alternatives",)

    alternatives: tuple[Alternative, ...]

    def __init__(self) -> None:
        raise TypeError("explanations are made by meshift.explain()")

    def __len__(self) -> int:
        return len(self.alternatives)

    def __getitem__(self, index: int) -> Alternative:
        return self.alternatives[index]

    def __iter__(self) -> Iterator[Alternative]:
        return iter(self.alternatives)

    @property
    def text(self) -> str:
        """All alternatives, each with its steps."""
        return "\n".join(
            f"[{number}] {_title(one)}\n" + "".join(line + "\n" for line in _details(one))
            for number, one in enumerate(self, 1)
        )

    def _repr_html_(self) -> str:
        return "".join(one.plan._table(_title(one), [one.reason]) for one in self)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Explanation: {', '.join(one.verdict for one in self)}>"


def _title(one: Alternative) -> str:
    return f"{one.verdict}: {one.plan._totals()}"


def _details(one: Alternative) -> Iterator[str]:
    """The reason, and the lines of the plan's text that show its steps."""
    if one.reason:
        yield one.reason
    lines = one.plan.text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith("# step ")), len(lines))
    yield from lines[begin : begin + 1 + len(one.plan.steps)]


def explain(
    source: Sharding, target: Sharding, most: int = 8, **options: Unpack[Options]
) -> Explanation:
    """Lists the best plan, at most `most` others that keep the promise, and some that break a rule.

    The list may be incomplete, above all on meshes of four dims or more. Options are those of
    meshift.plan(). ValueError: `most` is below 1. Other errors are those of meshift.plan().
    """
    _c.instance("source", source, Sharding)
    _c.instance("target", target, Sharding)
    number = _c.integer("most", most)
    if not 1 <= number < 2**31:
        raise ValueError(f"most is {number}; it must be 1 or more")
    handle = _c.make(
        "explanation",
        "meshift_explanation_create",
        source._handle,
        target._handle,
        options_handle(options),
        number,
    )
    count = _c.lib.meshift_explanation_count(handle)
    explanation = Explanation.__new__(Explanation)
    put(explanation, alternatives=tuple(_alternative(handle, i) for i in range(count)))
    return explanation


def _alternative(handle: _c.Handle, index: int) -> Alternative:
    one = _c.fill(_c.Alternative, "meshift_explanation_get", handle, index)
    return Alternative(
        one.verdict.decode(),
        one.reason.decode(),
        plan_of(_c.make("plan", "meshift_explanation_plan", handle, index)),
        tuple(_parts(handle, index, step) for step in range(one.num_steps)),
    )


def _parts(handle: _c.Handle, index: int, step: int) -> TimeParts:
    time = _c.fill(_c.StepTime, "meshift_explanation_step_time", handle, index, step)
    names = (time.algorithm, time.protocol, time.slowest_links)
    return TimeParts(
        time.starts_ns,
        time.hops_ns,
        time.messages_ns,
        time.links_ns,
        time.copies_ns,
        *(name.decode() if name is not None else None for name in names),
        time.links_per_domain,
    )
