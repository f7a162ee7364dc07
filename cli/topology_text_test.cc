#include "cli/topology_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/status.h"
#include "mesh/topology_presets.h"
#include "meshift/topology.h"
#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

// A node's file with these NICs; without `net` they have PCIe 4.0 x16, 252 Gb/s.
std::string Node(const std::string& name, int gpus, int nics, const std::string& net = "") {
  std::string xml = "<system version=\"1\"><cpu>";
  for (int i = 0; i < gpus; ++i) {
    xml += fmt::format("<pci busid=\"0000:{:02x}:00.0\" class=\"0x030200\"/>", i);
  }
  for (int i = 0; i < nics; ++i) {
    xml += fmt::format(
        "<pci busid=\"0000:{:02x}:00.0\" class=\"0x020700\" link_speed=\"16 GT/s\" "
        "link_width=\"16\"{}",
        64 + i, net.empty() ? "/>" : "><nic>" + net + "</nic></pci>");
  }
  return WriteFile(name, xml + "</cpu></system>");
}

std::string Error(const std::string& text) {
  const auto read = ReadTopology(text);
  return read.ok() ? "" : Message(read.status());
}

TEST(TopologyText, AFileSaysWhatANodeHas) {
  const std::string net = "<net name=\"mlx5_0\" dev=\"0\" speed=\"400000\"/>";
  const TopologyText read = *ReadTopology("h100," + Node("a.xml", 8, 8, net));
  EXPECT_EQ(read.topology, *Topology::Parse("h100"));
  EXPECT_EQ(read.note, "");
  const TopologyText half = *ReadTopology("h100-efa," + Node("b.xml", 4, 2, net));
  EXPECT_EQ(half.topology, *PresetTopology("h100-efa", {.gpus = 4, .nics_gbps = 800}));
  EXPECT_EQ(half.topology.level(0).domain_size, 4);
  // The preset's domains span nodes.
  EXPECT_EQ(ReadTopology("gb200," + Node("c.xml", 4, 4, net))->topology.level(0).domain_size, 72);
}

TEST(TopologyText, NicsOfTheTextComeBeforeThoseOfTheFile) {
  const std::string path = Node("d.xml", 8, 2);
  const TopologyText read = *ReadTopology("h100,nics=8x400," + path);
  EXPECT_EQ(read.topology, *Topology::Parse("h100"));
  EXPECT_EQ(read.note, "");
  EXPECT_EQ(ReadTopology(fmt::format("h100,{},nics=8x400", path))->topology, read.topology);
}

TEST(TopologyText, BoundsAreToldOf) {
  const std::string path = Node("e.xml", 8, 4);
  const TopologyText read = *ReadTopology("a100," + path);
  EXPECT_EQ(read.topology, *PresetTopology("a100", {.gpus = 8, .nics_gbps = 4 * 252}));
  EXPECT_EQ(read.note, path +
                           " does not give the speed of 4 of 4 NICs; using the PCIe limit; "
                           "to set it, write nics=COUNTxGBPS before the file");
  EXPECT_EQ(ReadTopology("a100," + Node("f.xml", 8, 0))->note,
            path.substr(0, path.size() - 5) + "f.xml has no NICs; using the preset's network");
  // The command prints the note, too.
  const Outcome plan = Meshift({"plan", "--mesh", "a=16", "--tensor", "f32[64]", "--from", "S(0)",
                                "--to", "R", "--topology", "a100," + path});
  EXPECT_EQ(plan.code, 0) << plan;
  EXPECT_EQ(plan.err, fmt::format("meshift: --topology: {}\n", read.note));
}

TEST(TopologyText, OtherTextIsAsItWas) {
  EXPECT_EQ(ReadTopology("nvlink=8")->topology, *Topology::Parse("nvlink=8"));
  EXPECT_EQ(ReadTopology("flat")->topology, Topology::Flat());
  const std::string json = Topology::Parse("h100-roce")->ToJson();
  EXPECT_EQ(ReadTopology(WriteFile("t.json", json))->topology, *Topology::Parse("h100-roce"));
  EXPECT_EQ(ReadTopology(json)->topology, *Topology::Parse("h100-roce"));
  // Known counts are used for presets only.
  EXPECT_EQ(ReadTopology("h100", {.gpus = 4})->topology.level(0).domain_size, 4);
  EXPECT_EQ(ReadTopology("nvlink=8", {.gpus = 4})->topology.level(0).domain_size, 8);
  EXPECT_EQ(ReadTopology("flat", {.gpus = 4})->topology, Topology::Flat());
}

TEST(TopologyText, FilesAreNamed) {
  EXPECT_TRUE(NamesFile("t.json"));
  EXPECT_TRUE(NamesFile("h100,t.xml"));
  EXPECT_TRUE(NamesFile("h100,t.xml,nics=4x100"));
  EXPECT_TRUE(NamesFile("t.xml"));
  EXPECT_FALSE(NamesFile("h100,nics=4x100"));
  EXPECT_FALSE(NamesFile("{\"levels\": [], \"x.xml\": 1}"));
}

TEST(TopologyText, BadInputIsNamed) {
  const std::string path = Node("g.xml", 8, 1, "<net name=\"odd\" dev=\"0\"/>");
  const std::string other = WriteFile("h.xml", "<system version=\"2\"/>");
  EXPECT_EQ(Error("n.xml"), "topology 'n.xml': \"n.xml\" needs a preset before it: h100,n.xml");
  EXPECT_EQ(Error("a100,m.xml,n.xml"),
            "topology 'a100,m.xml,n.xml': \"m.xml\" and \"n.xml\" both describe nodes; only one "
            "may be given");
  EXPECT_EQ(Error("nvlink=8,n.xml"),
            "topology 'nvlink=8,n.xml': \"nvlink=8\" is not a preset; a node's file needs one: "
            "h100,n.xml");
  EXPECT_EQ(Error("flat,n.xml"),
            "topology 'flat,n.xml': \"flat\" is not a preset; a node's file needs one: h100,n.xml");
  EXPECT_NE(Error("k100,n.xml").find("'k100' is neither name=size nor a preset"),
            std::string::npos);
  EXPECT_NE(Error("h100,nics=x,n.xml").find("'nics=x' is not nics=COUNTxGBPS"), std::string::npos);
  EXPECT_NE(Error("h100,n.xml").find("n.xml: cannot be read: No such file"), std::string::npos);
  EXPECT_EQ(Error("h100," + other).find(other + ": "), 0U) << Error("h100," + other);
  // The exit codes of a bad text, a bad file, and a batch line that names a file.
  const auto plan = [](const std::string& topology) {
    return Meshift({"plan", "--mesh", "a=2", "--tensor", "f32[8]", "--from", "S(0)", "--to", "R",
                    "--topology", topology});
  };
  EXPECT_EQ(plan("n.xml").code, 2);
  EXPECT_EQ(plan("n.xml").err.find("meshift: --topology: topology 'n.xml'"), 0U);
  EXPECT_EQ(plan("h100," + other).code, 3);
  const std::string line =
      fmt::format(R"json({{"mesh": {{"dims": [["a", 2]], "ranks": null}}, "tensor": "f32[8]", )json"
                  R"json("from": "S(0)", "to": "R", "topology": "h100,{}"}})json",
                  other);
  const Outcome refused = Meshift({"plan", "--batch", "-"}, line);
  EXPECT_NE(refused.out.find("names a file; lines may do so with --allow-files"), std::string::npos)
      << refused;
  const Outcome allowed = Meshift({"plan", "--batch", "-", "--allow-files"}, line);
  EXPECT_NE(allowed.out.find("h.xml: "), std::string::npos) << allowed;
}

TEST(TopologyText, ANicWithoutSpeedIsRefused) {
  std::string xml = "<system version=\"1\"><cpu><pci busid=\"0000:01:00.0\" class=\"0x030200\"/>";
  const std::string path =
      WriteFile("i.xml", xml + "<nic><net name=\"eth0\" dev=\"0\"/></nic></cpu></system>");
  EXPECT_EQ(Error("h100," + path), path +
                                       ": NIC \"eth0\" has neither the speed of its network nor a "
                                       "PCIe link; write nics=COUNTxGBPS before the file");
  EXPECT_TRUE(ReadTopology("h100,nics=1x100," + path).ok());
}

// Real files: --test_env=MESHIFT_NCCL_SAMPLES=FOLDER.
TEST(TopologyText, ReadsTheSamples) {
  const char* const folder = std::getenv("MESHIFT_NCCL_SAMPLES");
  if (folder == nullptr) GTEST_SKIP() << "MESHIFT_NCCL_SAMPLES does not name a folder of samples";
  const auto text = [&](const char* preset, const char* file) {
    return fmt::format("{},{}/{}", preset, folder, file);
  };
  for (const auto& [preset, file] :
       {std::pair("a100", "ndv4-topo.xml"), std::pair("h100", "ndv5-topo.xml"),
        std::pair("a100-efa", "p4d-24xl-topo.xml")}) {
    const auto read = ReadTopology(text(preset, file));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->topology.level(0), Topology::Parse(preset)->level(0));
    EXPECT_NE(read->note.find(preset == std::string("a100-efa") ? "4 of 4 NICs" : "8 of 8 NICs"),
              std::string::npos)
        << read->note;
  }
}

}  // namespace
}  // namespace meshift::cli
