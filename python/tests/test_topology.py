"""Topologies."""

import json

import pytest
from meshift import Topology


def test_presets():
    names = Topology.presets()
    assert "h100-efa" in names
    for name in names:
        assert Topology(name).levels


def test_what_it_has():
    topology = Topology("h100-ndr")
    assert topology.text == "h100" == str(topology)
    nvlink, net = topology.levels
    assert (nvlink["name"], nvlink["domain_size"]) == ("nvlink", 8)
    assert (net["name"], net["domain_size"]) == ("net", 0)
    assert [one["name"] for one in topology.protocols] == ["LL", "LL128", "Simple"]
    assert topology.constants["copy_latency_ns"] > 0
    assert repr(topology) == "Topology('h100')"


def test_forms():
    h100 = Topology("h100")
    assert Topology(h100.json) == h100
    assert Topology(json.loads(h100.json)) == h100
    assert len({h100, Topology("h100-ndr"), Topology("h200")}) == 2
    assert h100 != "h100"
    assert Topology("nvlink=4").levels[0]["domain_size"] == 4
    own = {
        "levels": [{"name": "x", "domain_size": 0, "bandwidth_bytes_per_us": 10, "latency_ns": 1}]
    }
    assert Topology(own).levels[0]["name"] == "x"
    assert Topology("flat").protocols == ()


@pytest.mark.parametrize("wrong", ["h90", "", "{", "nvlink=x", {"levels": []}, {"other": 1}, "a\0"])
def test_wrong_values(wrong):
    with pytest.raises(ValueError):
        Topology(wrong)


@pytest.mark.parametrize("wrong", [b"h100", 3.5, {1, 2}])
def test_wrong_types(wrong):
    with pytest.raises((TypeError, ValueError)):
        Topology(wrong)
