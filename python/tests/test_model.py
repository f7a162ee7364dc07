"""Plans of whole models, and the packaged command."""

import json
import os
import pathlib
import pickle
import subprocess
import sys

import meshift
import pytest
from meshift import DeviceMesh, Topology, plan_model
from meshift.__main__ import command

MODELS = pathlib.Path(__file__).parents[2] / "examples" / "models"
MODEL = {
    "model": "tiny",
    "source": "a test",
    "dtype": "bf16",
    "parameters": [
        {"name": "w.0", "shape": [64, 16], "tp_dim": 0},
        {"name": "w.1", "shape": [64, 16], "tp_dim": 0},
        {"name": "norm", "shape": [64], "tp_dim": None},
    ],
}
RULES = {
    "rules": [
        {"match": "w.*", "from": "S(0),TP", "to": "R,TP"},
        {"match": "*", "from": "S(0),R", "to": "R,R"},
    ]
}

pytestmark = pytest.mark.skipif(not os.path.exists(command()), reason="the command is not there")


def test_a_file():
    made = plan_model(
        MODELS / "llama3-8b.json", mesh="fsdp=2,tp=4", source="S(0),TP", target="R,TP"
    )
    assert made.model == "llama3-8b"
    assert made.total["parameters"] == 291 == sum(row.count for row in made.rows)
    assert made.traffic is None
    assert made.rows[0].first == "model.embed_tokens.weight"
    for row in made.rows:
        meshift.verify(row.plan)
    assert made.text.splitlines()[-1].startswith("total: 291 parameters, 7 distinct plans")
    assert str(made) == made.text
    assert repr(made) == "<ModelPlan llama3-8b: 7 distinct plans>"
    assert made._repr_html_().count("<tr>") == 8
    assert pickle.loads(pickle.dumps(made)).json == made.json


def test_dicts_and_rules():
    made = plan_model(MODEL, rules=RULES, mesh=DeviceMesh("dp=2,tp=2"))
    assert [row.count for row in made.rows] == [2, 1]
    assert made.traffic["ranks"] == 4
    assert json.loads(made.json)["format"] == "meshift.model_plan"


def test_flags():
    made = plan_model(
        MODEL,
        mesh="dp=2,tp=2",
        source="P,TP",
        target="S(0),TP",
        filter="w.*",
        dtype="f32",
        to_dtype="bf16",
        topology=Topology("h100"),
        reproducibility="ordered",
        max_work=1 << 24,
        new_groups=False,
        ordered_reductions=True,
    )
    (row,) = made.rows
    assert row.count == 2
    assert (row.plan.source.dtype, row.plan.target.dtype) == ("f32", "bf16")
    assert row.plan.promise[0] == "ordered"
    assert "topology h100" in row.plan.text
    assert "new_groups off" in row.plan.text


def test_another_mesh():
    made = plan_model(
        MODEL,
        rules={"rules": [{"match": "*", "from": "S(0)", "to": "R"}]},
        mesh="dp=4",
        to_mesh="x=2@2-3",
        relabel_ranks=True,
    )
    assert len(made.rows[0].plan.meshes) == 2


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mesh": "a=2"}, "--from is missing"),
        ({"source": "R", "target": "R"}, "--mesh is missing"),
        ({"mesh": "a=2", "source": "X", "target": "R"}, "X"),
        ({"mesh": "a=2", "source": "R", "target": "R", "color": "red"}, "color"),
        ({"mesh": "a=2", "source": "R", "target": "R", "new_groups": "no"}, "neither on nor off"),
        ({"mesh": "a=2", "rules": "/does/not/exist"}, "/does/not/exist"),
        ({"mesh": "a=2", "rules": {"rules": 1}}, "rules"),
    ],
)
def test_wrong_values(options, message):
    with pytest.raises(ValueError, match=message):
        plan_model(MODEL, **options)


def test_other_errors():
    with pytest.raises(RuntimeError, match="max_memory") as caught:
        plan_model(MODEL, mesh="a=2,b=2", source="R,R", target="R,R", max_memory=1)
    assert isinstance(caught.value, meshift.MeshiftError)
    with pytest.raises(TypeError, match="max_memory must be"):
        plan_model(MODEL, mesh="a=2,b=2", source="R,R", target="R,R", max_memory=1.5)
    with pytest.raises(TypeError):
        plan_model(None, mesh="a=2,b=2", source="R,R", target="R,R")


def test_html_is_escaped():
    model = {**MODEL, "parameters": [{"name": "<b>&", "shape": [4], "tp_dim": None}]}
    html = plan_model(model, mesh="a=2", source="R", target="S(0)")._repr_html_()
    assert "&lt;b&gt;&amp;" in html
    assert "<b>" not in html


def test_python_m_meshift():
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "meshift", *arguments], capture_output=True, text=True
        )

    done = run("--version")
    assert (done.returncode, meshift.__version__ in done.stdout) == (0, True)
    done = run("plan", "--mesh", "a=2", "--tensor", "f32[8]", "--from", "P", "--to", "R")
    assert done.returncode == 0
    mesh = DeviceMesh("a=2")
    source = meshift.Sharding("f32[8]", mesh, "P")
    assert done.stdout == meshift.plan(source, source.with_placements("R")).text
    assert run("plan").returncode == 2
    assert run("nonsense").returncode == 2


def test_a_command_that_is_not_there(monkeypatch):
    monkeypatch.setenv("MESHIFT_COMMAND", "/does/not/exist")
    done = subprocess.run(
        [sys.executable, "-m", "meshift", "--version"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "/does/not/exist" in done.stderr
