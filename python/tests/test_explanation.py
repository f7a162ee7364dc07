"""Explanations."""

import meshift
import pytest
from meshift import Explanation, Sharding, explain, plan, verify

P = Sharding.parse("f32[16777216] on a=16 as P")
R = P.with_placements("R")


def test_alternatives():
    explanation = explain(P, R, topology="b200-ndr")
    assert [one.verdict for one in explanation] == ["best", "costs more", "per-dim"]
    assert len(explanation) == 3
    best, worse, _ = explanation
    assert best.plan == plan(P, R, topology="b200-ndr")
    assert best.reason == ""
    assert "1 more collective" in worse.reason
    assert explanation[-1].verdict == "per-dim"
    for one in explanation:
        verify(one.plan)
        assert len(one.parts) == len(one.plan.steps)
        for parts, step in zip(one.parts, one.plan.steps):
            assert sum(tuple(parts)[:5]) == step.est_ns
    assert best.parts[0].algorithm == "tree"
    assert best.parts[0].protocol == "LL128"
    assert best.parts[0].slowest_links == "nvlink"
    assert worse.parts[0].links_per_domain == 8


def test_text():
    text = explain(P, R, topology="b200-ndr").text
    assert text.startswith("[1] best: est ")
    assert "\n[2] costs more: est " in text
    assert text.count("# step") == 3
    assert "all_gather" in text


def test_repr_and_html():
    explanation = explain(P, R)
    assert repr(explanation).startswith("<Explanation: best, ")
    html = explanation._repr_html_()
    assert html.count("<table>") == len(explanation)
    assert str(explanation) == explanation.text


def test_nothing_to_do():
    explanation = explain(R, R)
    assert explanation[0].plan.steps == ()
    assert explanation[0].parts == ()
    assert explanation.text.startswith("[1] best: ")


def test_most():
    source = Sharding.parse("f32[64,64] on a=2,b=2,c=2 as P,P,P")
    target = source.with_placements("R,R,R")
    few, many = (explain(source, target, most=most) for most in (1, 8))
    assert len(few) < len(many)


def test_rules_that_are_broken():
    source = Sharding.parse("f32[64] on a=2,b=2 as P,P")
    explanation = explain(source, source.with_placements("R,R"))
    assert "keeps no promise" in explanation[-1].reason


def test_wrong_arguments():
    with pytest.raises(TypeError, match="target must be a Sharding"):
        explain(P, R.mesh)
    with pytest.raises(TypeError, match="source must be a Sharding"):
        explain(None, R)
    for most in (0, -1, 1 << 31):
        with pytest.raises(ValueError, match="most is"):
            explain(P, R, most=most)
    with pytest.raises(TypeError, match="most"):
        explain(P, R, most="2")
    with pytest.raises(ValueError, match="unknown option 'color'"):
        explain(P, R, color="red")
    with pytest.raises(meshift.MeshiftError):
        explain(P, Sharding.parse("f32[8] on a=16 as R"))
    with pytest.raises(TypeError, match="meshift.explain"):
        Explanation()
