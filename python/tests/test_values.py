"""Properties of all values: they are immutable, can be copied and pickled, and free their
handles."""

import copy
import gc
import pickle
import threading

import meshift
import pytest
from meshift import DeviceMesh, Plan, Sharding, Topology, _c, plan

MESH = DeviceMesh("a=2,b=2@3,2,1,0")
A = Sharding("bf16[10,4]", MESH, "P,S(0)")
PLAN = plan(A, A.with_placements("R,R"), topology="h100")
VALUES = [
    MESH,
    A,
    A.local_box(0),
    PLAN,
    PLAN.steps[0],
    Topology("h200-efa"),
    PLAN.program(0).groups[0],
    PLAN.program(0).instructions,
    meshift.explain(A, A.with_placements("R,R"))[0],
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_pickle_and_copy(value):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(value, protocol))
        assert type(again) is type(value)
        assert again == value
        assert hash(again) == hash(value)
    assert copy.copy(value) == value
    assert copy.deepcopy(value) == value
    assert copy.deepcopy([value, value])[0] is copy.copy(value)


def test_programs_are_not_pickled():
    program = PLAN.program(0)
    with pytest.raises(TypeError, match="pickle its plan"):
        pickle.dumps(program)
    assert copy.deepcopy(program) is program


@pytest.mark.parametrize(
    "error",
    [
        meshift.VerificationError("it is wrong", "target", None),
        meshift.VerificationError("it is wrong", "bytes", 3),
        meshift.errors.make_error("UNIMPLEMENTED", "not yet"),
        meshift.errors.make_error("DEADLINE_EXCEEDED", "too late"),
        meshift.errors.make_error("INTERNAL", "a bug"),
    ],
)
def test_errors_are_pickled(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert vars(again) == vars(error)
    assert str(again) == str(error)


def test_kinds_of_errors():
    for code, kind in [
        ("INVALID_ARGUMENT", ValueError),
        ("OUT_OF_RANGE", ValueError),
        ("NOT_FOUND", ValueError),
        ("UNIMPLEMENTED", NotImplementedError),
        ("DEADLINE_EXCEEDED", TimeoutError),
        ("RESOURCE_EXHAUSTED", RuntimeError),
        ("FAILED_PRECONDITION", RuntimeError),
    ]:
        error = meshift.errors.make_error(code, "text with 'quotes'")
        assert isinstance(error, kind)
        assert isinstance(error, meshift.MeshiftError)
        assert (error.code, str(error)) == (code, "text with 'quotes'")


@pytest.mark.parametrize(
    "value, name",
    [
        (MESH, "text"),
        (A, "mesh"),
        (PLAN, "steps"),
        (PLAN.steps[0], "op"),
        (A.local_box(0), "shape"),
    ],
)
def test_nothing_changes(value, name):
    with pytest.raises(AttributeError, match="cannot be changed"):
        setattr(value, name, None)
    with pytest.raises(AttributeError, match="cannot be changed"):
        delattr(value, name)
    with pytest.raises(AttributeError):
        value.something_new = 1


def test_fields_of_records():
    with pytest.raises(TypeError, match="Box has 5 fields, not 1"):
        meshift.Box("f32")
    assert A.local_box(0) != PLAN.steps[0]
    assert repr(A.local_box(3)).startswith("Box(dtype='bf16', offset=(0, 0), shape=(5, 4)")


def test_handles_are_destroyed(monkeypatch):
    kinds = ("mesh", "sharding", "options", "plan", "program", "explanation")
    made, ended = dict.fromkeys(kinds, 0), dict.fromkeys(kinds, 0)
    for kind in kinds:
        destroy = getattr(_c.lib, f"meshift_{kind}_destroy")

        def counting(handle, kind=kind, destroy=destroy):
            ended[kind] += 1
            destroy(handle)

        monkeypatch.setattr(_c.lib, f"meshift_{kind}_destroy", counting)
    init = _c.Handle.__init__

    def count(self, kind, address):
        made[kind] += 1
        init(self, kind, address)

    monkeypatch.setattr(_c.Handle, "__init__", count)

    def work():
        mesh = DeviceMesh("a=2,b=2")
        a = Sharding("f32[8]", mesh, "P,P")
        p = plan(a, a.with_placements("R,R"), topology="h100")
        p.program(1)
        meshift.verify(p)
        meshift.explain(a, p.target)
        with pytest.raises(ValueError):
            plan(a, a.with_placements("P(max),R"))
        with pytest.raises(ValueError):
            Plan.read("nonsense")

    work()
    gc.collect()
    assert all(made.values()), made
    assert ended == made


def test_threads_share_values():
    expected = PLAN.text
    failures = []

    def work():
        try:
            for _ in range(30):
                assert plan(A, A.with_placements("R,R"), topology="h100").text == expected
                meshift.verify(PLAN)
                assert PLAN.program(0).groups
                assert A.local_box(0).shape == (5, 4)
                with pytest.raises(ValueError, match="unknown option"):
                    plan(A, A, nope="1")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
