#include "cli/nccl_topology_xml.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace meshift::cli {
namespace {

// A file for NCCL_TOPO_FILE: two switches, each with two GPUs and a NIC.
constexpr char kClasses[] = R"(<!-- a node -->
<system version="1">
  <cpu numaid="0" arch="x86_64">
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="0000:10:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0000:11:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0000:12:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/>
    </pci>
  </cpu>
  <cpu numaid="1" arch="x86_64">
    <pci busid="ffff:ff:02.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="0000:20:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0000:22:00.0" class="0x020000" link_speed="8.0 GT/s PCIe" link_width="8"/>
    </pci>
  </cpu>
</system>
)";

// A dump by NCCL; {} is the host's hash.
constexpr char kDumpedCpu[] = R"(
  <cpu host_hash="{}" numaid="0" arch="x86_64">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:02:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:07:00.0" count="10" tclass="0x068000"/>
          <nvlink target="0000:08:00.0" count="8" tclass="0x068000"/>
          <c2c bw="44712" count="1"/>
        </gpu>
      </pci>
      <pci busid="0000:03:00.0" class="0x020000" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x1" gdr="1"/>
          <net name="mlx5_1" dev="1" speed="-1" port="2" guid="0x1" gdr="1"/>
          <net name="old" speed="400000"/>
          <net name="merged" dev="2" net="0" speed="400000"/>
          <gin dev="0" speed="400000"/>
        </nic>
      </pci>
    </pci>
    <nic>
      <net name="eth0" dev="3" port="0"/>
    </nic>
  </cpu>)";

std::string System(const std::string& inside) {
  return "<system version=\"1\">" + inside + "</system>";
}
std::string Dumped(const std::string& hash = "0x16fe256e956b115c") {
  return fmt::format(kDumpedCpu, hash);
}
std::string Pci(const std::string& attributes, const std::string& inside = "") {
  return "<pci busid=\"0000:02:00.0\" " + attributes + ">" + inside + "</pci>";
}
std::string Cpu(const std::string& inside) { return "<cpu>" + inside + "</cpu>"; }

NcclTopologyFile Parsed(const std::string& xml) {
  const auto file = ParseNcclTopology(xml);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? *file : NcclTopologyFile();
}

// "GPUs, NICs", or the error.
std::string Told(const std::string& xml) {
  const auto file = ParseNcclTopology(xml);
  return file.ok() ? fmt::format("{}, {}", file->gpus.size(), file->nics.size())
                   : Message(file.status());
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// The NIC of a file with this PCIe link.
NcclTopologyNic NicOf(const std::string& link) {
  const NcclTopologyFile file =
      Parsed(System(Cpu(Pci("class=\"0x030200\"") + Pci("class=\"0x020000\" " + link))));
  return file.nics.size() == 1 ? file.nics[0] : NcclTopologyNic();
}

TEST(NcclTopology, PciClassesStandInForElements) {
  const NcclTopologyFile file = Parsed(kClasses);
  EXPECT_EQ(file.hosts, 1);
  ASSERT_EQ(file.gpus.size(), 3);
  EXPECT_EQ(file.gpus[0], (NcclTopologyGpu{"0000:10:00.0", std::nullopt, std::nullopt}));
  ASSERT_EQ(file.nics.size(), 2);
  EXPECT_EQ(file.nics[0], (NcclTopologyNic{"0000:12:00.0", 252061, NicSpeed::kPcie}));
  EXPECT_EQ(file.nics[1], (NcclTopologyNic{"0000:22:00.0", 63015, NicSpeed::kPcie}));
}

TEST(NcclTopology, ElementsOfADumpCountAsInNccl) {
  const NcclTopologyFile file = Parsed(System(Dumped()));
  ASSERT_EQ(file.gpus.size(), 1);
  EXPECT_EQ(file.gpus[0], (NcclTopologyGpu{"0000:02:00.0", 90, 18}));
  ASSERT_EQ(file.nics.size(), 3);
  EXPECT_EQ(file.nics[0], (NcclTopologyNic{"mlx5_0", 400000, NicSpeed::kNet}));
  EXPECT_EQ(file.nics[1], (NcclTopologyNic{"mlx5_1", 504123, NicSpeed::kPcie}));
  EXPECT_EQ(file.nics[2], (NcclTopologyNic{"eth0", 0, NicSpeed::kUnknown}));
}

TEST(NcclTopology, RanksMayShareAGpuAndGpusHaveParts) {
  const std::string twice =
      "<gpu dev=\"0\" sm=\"90\"/><gpu dev=\"0\" sm=\"90\"><nvlink count=\"1\"/></gpu>";
  EXPECT_EQ(Told(System(Cpu(Pci("class=\"0x030200\"", twice)))), "1, 0");
  const std::string parts = "<gpu mlopart=\"0\"/><gpu mlopart=\"1\"/><gpu mlopart=\"1\"/>";
  EXPECT_EQ(Told(System(Cpu(Pci("class=\"0x030200\"", parts)))), "2, 0");
  std::string many;
  for (int i = 0; i < 17; ++i) many += fmt::format("<gpu mlopart=\"{}\"/>", i);
  EXPECT_EQ(Told(System(Cpu(Pci("class=\"0x030200\"", many)))),
            "line 1: a GPU has more than 16 parts (mlopart)");
}

TEST(NcclTopology, ElementsThatNcclDoesNotReadAreSkipped) {
  const std::string gpu = Pci("class=\"0x030200\"");
  EXPECT_EQ(Told(System(Cpu(gpu) + gpu + "<nic><net dev=\"0\"/></nic>")), "1, 0");
  EXPECT_EQ(Told(System(Cpu(gpu + "<net dev=\"0\"/><gpu sm=\"x\"/>"))), "1, 0");
  EXPECT_EQ(Told(System(Cpu(gpu + "<switch><pci class=\"0x030200\"/></switch>"))), "1, 0");
  EXPECT_EQ(Told(System("<!-- <cpu> --><![CDATA[<cpu>]]>text" + Cpu(gpu))), "1, 0");
  EXPECT_EQ(Told("<?xml version=\"1.0\" encoding=\"UTF-8\"?>" + System(Cpu(gpu))), "1, 0");
}

TEST(NcclTopology, HostsMustHaveTheSame) {
  const NcclTopologyFile two = Parsed(System(Dumped("0x1") + Dumped("0x2")));
  EXPECT_EQ(two.hosts, 2);
  EXPECT_EQ(two.gpus.size(), 1);
  EXPECT_EQ(two.nics.size(), 3);
  // Two CPUs of one host.
  EXPECT_EQ(Told(System(Dumped("0x1") + Dumped("0x01"))), "2, 6");
  EXPECT_EQ(Told(System(Dumped("0x1") + Dumped("0x2") + Dumped("0x2"))),
            "host 0x1 has 1 GPUs and 3 NICs, host 0x2 2 and 6; all hosts must have the same");
}

TEST(NcclTopology, PcieBoundsTheSpeed) {
  const auto with = [](const std::string& speed, const std::string& width) {
    return NicOf("link_speed=\"" + speed + "\" link_width=\"" + width + "\"").mbps;
  };
  EXPECT_EQ(with("2.5 GT/s", "1"), 2000);
  EXPECT_EQ(with("2.5 GT/s PCIe", "4"), 8000);
  EXPECT_EQ(with("5 GT/s", "8"), 32000);
  EXPECT_EQ(with("5.0 GT/s PCIe", "8"), 32000);
  EXPECT_EQ(with("8 GT/s", "16"), 126030);
  EXPECT_EQ(with("16 GT/s", "16"), 252061);
  EXPECT_EQ(with("32.0 GT/s PCIe", "16"), 504123);
  EXPECT_EQ(with("64.0 GT/s PCIe", "16"), 1008246);
  for (const char* const unknown :
       {"", "link_speed=\"16 GT/s\"", "link_width=\"16\"", "link_speed=\"\" link_width=\"\"",
        "link_speed=\"Unknown speed\" link_width=\"16\"", "link_speed=\"16 GT/s\" link_width=\"0\"",
        "link_speed=\"16 GT/s\" link_width=\"255\""}) {
    EXPECT_EQ(NicOf(unknown), (NcclTopologyNic{"0000:02:00.0", 0, NicSpeed::kUnknown})) << unknown;
  }
}

TEST(NcclTopology, BadValues) {
  const auto with = [](const std::string& from, const std::string& to) {
    return Told(Replaced(System(Dumped()), from, to));
  };
  EXPECT_EQ(with("version=\"1\"", ""), "line 1: <system> has no version; expected 1");
  EXPECT_EQ(with("version=\"1\"", "version=\"2\""), "line 1: the version is \"2\"; expected 1");
  EXPECT_EQ(with("version=\"1\"", "version=\"one\""), "line 1: the version is \"one\"; expected 1");
  EXPECT_EQ(with("version=\"1\"", "version=\"0x1\""), "1, 3");
  EXPECT_EQ(Told("<graphs version=\"1\"/>"), "line 1: the root is \"graphs\"; expected <system>");
  EXPECT_EQ(with("sm=\"90\"", "sm=\"9.0\""),
            "line 5: sm is \"9.0\"; it must be an integer between 1 and 9999");
  EXPECT_EQ(with("sm=\"90\"", "sm=\"0\""),
            "line 5: sm is \"0\"; it must be an integer between 1 and 9999");
  EXPECT_EQ(with("count=\"10\"", ""), "line 6: <nvlink> has no count");
  EXPECT_EQ(with("count=\"10\"", "count=\"1001\""),
            "line 6: count is \"1001\"; it must be an integer between 0 and 1000");
  EXPECT_EQ(with("speed=\"400000\"", "speed=\"fast\""),
            "line 13: speed is \"fast\"; it must be an integer between -1 and 100000000");
  EXPECT_EQ(with("speed=\"400000\"", "speed=\"99999999999999999999\""),
            "line 13: speed is \"99999999999999999999\"; it must be an integer between -1 and "
            "100000000");
  const auto link = [](const std::string& speed, const std::string& width) {
    return Told(System(
        Cpu("\n" + Pci("class=\"0x030200\"") +
            Pci("class=\"0x020000\" link_speed=\"" + speed + "\" link_width=\"" + width + "\""))));
  };
  for (const char* const bad : {"16", "16 Gb/s", "9 GT/s", "16GT/s", "16 GT/s x", "fast"}) {
    EXPECT_EQ(
        link(bad, "16"),
        fmt::format("line 2: link_speed is \"{}\"; PCIe has 2.5, 5, 8, 16, 32, 64 and 128 GT/s",
                    bad));
  }
  for (const char* const bad : {"3", "-1", "x16", "64"}) {
    EXPECT_EQ(
        link("16 GT/s", bad),
        fmt::format("line 2: link_width is \"{}\"; PCIe has 1, 2, 4, 8, 12, 16 and 32 lanes", bad));
  }
  EXPECT_EQ(
      Told(System("")),
      "the file has no GPU: neither <gpu> in <pci>, nor <pci> with a class that begins with 0x03");
  EXPECT_EQ(
      Told(System(Cpu(Pci("class=\"0x020000\"")))),
      "the file has no GPU: neither <gpu> in <pci>, nor <pci> with a class that begins with 0x03");
}

TEST(NcclTopology, BadXml) {
  EXPECT_EQ(Told(""), "line 1: the XML is not well-formed: no element found");
  EXPECT_EQ(Told("<system version=\"1\">\n<cpu>\n</system>"),
            "line 3: the XML is not well-formed: mismatched tag");
  EXPECT_EQ(Told("<system version=\"1\" version=\"1\"/>"),
            "line 1: the XML is not well-formed: duplicate attribute");
  EXPECT_EQ(Told(System("") + System("")),
            "line 1: the XML is not well-formed: junk after document element");
  EXPECT_EQ(Told(System("&x;")), "line 1: the XML is not well-formed: undefined entity");
  EXPECT_EQ(Told(System("\xff")),
            "line 1: the XML is not well-formed: not well-formed (invalid token)");
  EXPECT_EQ(Told(std::string("\xff\xfe<\0s\0", 6)), "byte 3 is 0; expected XML in UTF-8");
}

TEST(NcclTopology, EntitiesAreRefused) {
  const std::string refused = "line 1: the file has a DOCTYPE; a topology must not have one";
  EXPECT_EQ(Told("<!DOCTYPE system><system version=\"1\"/>"), refused);
  EXPECT_EQ(Told("<!DOCTYPE system SYSTEM \"file:///etc/hostname\"><system version=\"1\"/>"),
            refused);
  std::string laughs = "<!DOCTYPE system [<!ENTITY a0 \"ha\">";
  for (int i = 1; i < 30; ++i) {
    laughs += fmt::format("<!ENTITY a{} \"&a{};&a{};&a{};\">", i, i - 1, i - 1, i - 1);
  }
  EXPECT_EQ(Told(laughs + "]><system version=\"1\">&a29;</system>"), refused);
  EXPECT_EQ(Told("<!DOCTYPE system [<!ENTITY x SYSTEM \"file:///etc/hostname\">]><system "
                 "version=\"&x;\"/>"),
            refused);
}

TEST(NcclTopology, LimitsAreKept) {
  EXPECT_EQ(Told(std::string(kMaxNcclTopologyBytes + 1, ' ')),
            "the file has 4194305 bytes; at most 4194304 are read");
  std::string deep;
  for (int i = 0; i < 63; ++i) deep += "<x>";
  std::string end;
  for (int i = 0; i < 63; ++i) end += "</x>";
  EXPECT_EQ(Told(System(deep + end + Cpu(Pci("class=\"0x03\"")))), "1, 0");
  EXPECT_EQ(Told(System(deep + "<x></x>" + end)), "line 1: elements are nested deeper than 64");
  std::string opened;
  for (int i = 0; i < 1000000; ++i) opened += "<x>";
  EXPECT_EQ(Told(System(opened)), "line 1: elements are nested deeper than 64");
}

TEST(NcclTopology, ErrorsShowLittleOfTheText) {
  const std::string value(100000, 'x');
  const std::string message =
      Told(Replaced(System(Dumped()), "sm=\"90\"", "sm=\"\xe2\x80\xae" + value + "\""));
  EXPECT_LT(message.size(), 200);
  EXPECT_EQ(message.find('\xe2'), std::string::npos);
  EXPECT_LT(Told("<" + value + "/>").size(), 200);
  EXPECT_EQ(
      Parsed(System(Cpu("<pci class=\"0x03\" busid=\"" + value + "\"/>"))).gpus[0].busid.size(),
      200);
}

TEST(NcclTopology, ATruncatedFileIsRefused) {
  for (const std::string& xml : {std::string(kClasses), System(Dumped("0x1") + Dumped("0x2"))}) {
    const size_t end = xml.rfind('>');
    for (size_t size = 0; size <= end; ++size) {
      EXPECT_FALSE(ParseNcclTopology(xml.substr(0, size)).ok()) << size;
    }
  }
}

// Real files, which are not part of the sources: --test_env=MESHIFT_NCCL_SAMPLES=FOLDER.
TEST(NcclTopology, ReadsTheSamples) {
  const char* const folder = std::getenv("MESHIFT_NCCL_SAMPLES");
  if (folder == nullptr) GTEST_SKIP() << "MESHIFT_NCCL_SAMPLES does not name a folder of samples";
  struct Sample {
    const char* file;
    size_t nics;
    int64_t mbps;
  };
  for (const auto& [file, nics, mbps] :
       {Sample{"ndv4-topo.xml", 8, 252061}, Sample{"ndv5-topo.xml", 8, 504123},
        Sample{"p4d-24xl-topo.xml", 4, 126030}}) {
    std::ifstream in(std::string(folder) + "/" + file);
    std::stringstream text;
    text << in.rdbuf();
    const NcclTopologyFile node = Parsed(text.str());
    EXPECT_EQ(node.hosts, 1) << file;
    EXPECT_EQ(node.gpus.size(), 8) << file;
    ASSERT_EQ(node.nics.size(), nics) << file;
    for (const NcclTopologyNic& nic : node.nics) {
      EXPECT_EQ(nic.mbps, mbps) << file;
      EXPECT_EQ(nic.source, NicSpeed::kPcie) << file;
    }
    for (size_t size = 0; size < text.str().size(); ++size) {
      (void)ParseNcclTopology(text.view().substr(0, size));
    }
  }
}

}  // namespace
}  // namespace meshift::cli
