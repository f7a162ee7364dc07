"""Plans, steps, proofs."""

import json
import re

import meshift
import pytest
from meshift import DeviceMesh, Plan, Sharding, Topology, VerificationError, plan, verify

MESH = DeviceMesh("dp=2,tp=4")
A = Sharding("bf16[64,16]", MESH, "P,P")
B = A.with_placements("R,R")


def test_what_a_plan_has():
    made = plan(A, B)
    assert made.source == A
    assert made.target == B
    assert made.meshes == (MESH,)
    assert made.collectives == 1
    assert made.bytes_sent == 3584
    assert made.peak_bytes == 2 * 2048 + made.workspace_bytes
    assert made.est_ns > 0
    assert made.setup_ns == 0
    assert 0 < made.lower_bound_bytes_sent <= made.bytes_sent
    assert 0 < made.lower_bound_est_ns <= made.est_ns
    assert len(made.fingerprint) == 32
    kept, why = made.promise
    assert kept == "replicas"
    assert "one group" in why
    assert made.text.startswith("# meshift plan: bf16[64,16], P,P -> R,R\n")
    assert str(made) == made.text
    assert "all_reduce{dp,tp} -> R,R" in repr(made)


def test_what_a_step_has():
    (step,) = plan(A, B).steps
    assert step.op == "all_reduce"
    assert step.mesh == 0
    assert step.mesh_dims == (0, 1)
    assert step.reduce_op == "sum"
    assert step.in_order is False
    assert step.divisor == 0
    assert step.wire_dtype == "bf16"
    assert (step.group_size, step.groups) == (8, 1)
    assert (step.bytes_in, step.bytes_out, step.bytes_sent) == (2048, 2048, 3584)
    assert step.est_ns > 0
    assert step.after == B
    assert step.text == "all_reduce{dp,tp} -> R,R" == str(step)


def test_steps_that_are_local_or_averages():
    mesh = DeviceMesh("a=2")
    (step,) = plan(Sharding("f32[8]", mesh, "R"), Sharding("f32[8]", mesh, "S(0)")).steps
    assert (step.op, step.wire_dtype, step.reduce_op, step.group_size) == ("slice", None, None, 0)
    (step,) = plan(Sharding("f32[8]", mesh, "P(avg)"), Sharding("f32[8]", mesh, "R")).steps
    assert (step.reduce_op, step.divisor) == ("avg", 2)


def test_text_and_json_are_read_again():
    made = plan(A, B, topology="h100")
    for text in (made.text, made.json(), made.json(indent=2)):
        again = Plan.read(text)
        assert again == made
        assert hash(again) == hash(made)
    assert "\n" not in made.json()
    assert json.loads(made.json(4))["fingerprint"] == made.fingerprint
    assert made != plan(A, B)
    assert made != made.text


def test_options():
    made = plan(A, B, topology="h100", engine="nccl", reproducibility="ordered", max_memory="1GiB")
    assert "topology h100, engine nccl" in made.text
    assert made.promise[0] == "ordered"
    assert all(step.in_order for step in made.steps if step.reduce_op)
    assert plan(A, B, topology=Topology("h100")) == plan(A, B, topology="h100")
    assert plan(A, B, max_memory=1 << 30) == plan(A, B, max_memory="1GiB")
    assert plan(A, B, topology=None, planner=None) == plan(A, B)
    chained = plan(A, B, planner="per-dim", reproducibility="none")
    assert [step.mesh_dims for step in chained.steps] == [(0,), (1,)]
    assert "new_groups off" in plan(A, A.with_placements("R,P"), new_groups=False).text
    assert plan(A, B, ordered_reductions=True, new_groups=True) == plan(A, B)
    assert "existing_groups" in plan(A, B, existing_groups="dp,tp", new_groups=False).text


def test_every_option_of_the_library_is_known_by_name():
    from ctypes import byref, c_char_p, c_size_t

    from meshift import _c, options

    class OptionInfo(_c.Struct):
        _fields_ = [("size", c_size_t), *((name, c_char_p) for name in ("name", "value", "help"))]

    names = set()
    _c.lib.meshift_option_count.restype = c_size_t
    for i in range(_c.lib.meshift_option_count()):
        info = OptionInfo.make()
        assert _c.lib.meshift_option_get_info(c_size_t(i), byref(info), None) == 0
        names.add(info.name.decode())
    # The signatures that type checkers see.
    with open(options.__file__, encoding="utf-8") as file:
        fields = file.read().split("class Options(")[1].split("\n\n\n")[0]
    assert set(re.findall(r"^ {8}(\w+): ", fields, re.M)) == names


@pytest.mark.parametrize(
    "options, message",
    [
        ({"nope": 1}, "unknown option 'nope'"),
        ({"topology": "h90"}, "option topology"),
        ({"engine": "tcp"}, "unknown engine 'tcp'"),
        ({"max_memory": "much"}, "option max_memory"),
        ({"max_memory": -1}, "option max_memory"),
        ({"max_memory": True}, "option max_memory"),
        ({"reproducibility": "perfect"}, "perfect"),
        ({"new_groups": 1}, "neither on nor off"),
        ({"existing_groups": "x"}, "existing_groups"),
        ({"planner": "best\0"}, "zero byte"),
        ({"max_work": 1 << 63}, "64 bits"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        plan(A, B, **options)


@pytest.mark.parametrize(
    "options", [{"max_memory": 1.5}, {"topology": b"h100"}, {"planner": ["best"]}, {"engine": A}]
)
def test_options_of_wrong_types(options):
    with pytest.raises(TypeError, match="must be a str, an int or a bool"):
        plan(A, B, **options)


def test_wrong_arguments():
    with pytest.raises(TypeError, match="target must be a Sharding, not DeviceMesh"):
        plan(A, MESH)
    with pytest.raises(TypeError, match="source must be a Sharding, not str"):
        plan("P,P", B)
    with pytest.raises(TypeError, match="plan must be a Plan, not str"):
        verify(plan(A, B).text)
    with pytest.raises(TypeError, match="max_work"):
        verify(plan(A, B), max_work="1")
    with pytest.raises(TypeError, match="meshift.plan"):
        Plan()
    with pytest.raises(TypeError):
        Plan.read(plan(A, B))
    with pytest.raises(ValueError):
        Plan.read("")
    with pytest.raises(ValueError):
        Plan.read("{}")
    for indent in (-2, 17):
        with pytest.raises(ValueError, match="indent"):
            plan(A, B).json(indent)
    with pytest.raises(TypeError, match="indent"):
        plan(A, B).json("2")


def test_errors_are_those_of_python():
    with pytest.raises(RuntimeError, match="max_memory is 10 bytes") as caught:
        plan(A, B, max_memory=10)
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert isinstance(caught.value, meshift.MeshiftError)
    with pytest.raises(ValueError, match="P\\(max\\)"):
        plan(A, A.with_placements("P(max),R"))
    other = Sharding("bf16[64,16]", DeviceMesh("x=8"), "S(0)")
    with pytest.raises(NotImplementedError) as caught:
        plan(A, other, planner="per-dim")
    assert caught.value.code == "UNIMPLEMENTED"


def test_from_mesh_to_mesh():
    target = Sharding.parse("bf16[64,16] on x=3@9,1,4 as S(0)")
    made = plan(A, target)
    assert made.meshes == (MESH, target.mesh)
    assert made.target == target
    verify(made)


def test_nothing_to_do():
    made = plan(B, B)
    assert made.steps == ()
    assert "nothing to do" in repr(made)
    verify(made)


def test_verify_names_the_broken_rule():
    made = plan(A, B)
    verify(made)
    verify(made, max_work=1 << 20)
    wrong = Plan.read(made.text.replace("P,P -> R,R", "P,P -> R,S(0)"))
    with pytest.raises(VerificationError) as caught:
        verify(wrong)
    assert caught.value.rule == "target"
    assert caught.value.step is None
    assert caught.value.code == "FAILED_PRECONDITION"
    assert isinstance(caught.value, RuntimeError)
    wrong = Plan.read(made.text.replace("3.5 KiB", "3 KiB", 1))
    with pytest.raises(VerificationError, match="bytes_sent is 3072; it should be 3584") as caught:
        verify(wrong)
    assert (caught.value.rule, caught.value.step) == ("bytes", 0)
    with pytest.raises(VerificationError) as caught:
        verify(made, max_work=1)
    assert caught.value.rule == "scale"
    with pytest.raises(ValueError, match="max_work is -1"):
        verify(made, max_work=-1)


def test_html_is_a_table():
    html = plan(A, B)._repr_html_()
    assert html.count("<table>") == 1
    assert html.count("<tr>") == 2
    for cell in ("all_reduce", "dp,tp", "1 x 8", "R,R", "2 KiB", "3.5 KiB"):
        assert f">{cell}</td>" in html
    assert "fingerprint" in html


def test_html_is_escaped():
    made = plan(A, B)
    # A plan that was read may have any text.
    wrong = Plan.read(made.json().replace(made.promise[1], "<script>alert(1)</script>"))
    html = wrong._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
