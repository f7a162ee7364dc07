#include "comm/nccl/tuning_list.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "base/status.h"

namespace meshift {
namespace {

// The algorithms that all-reduce and all-gather may use, or the error.
std::string Left(const std::string& text) {
  const auto list = TuningList::Algorithms(text);
  if (!list.ok()) return std::string(Message(list.status()));
  return list->ToString(NcclFunction::kAllReduce) + " " + list->ToString(NcclFunction::kAllGather);
}

TEST(TuningListTest, EntriesCountForWhatTheyName) {
  EXPECT_EQ(Left(""), "any any");
  EXPECT_EQ(Left(";"), "any any");
  EXPECT_EQ(Left("Tree"), "tree tree");
  EXPECT_EQ(Left("RING,tree"), "tree,ring tree,ring");
  EXPECT_EQ(Left("allreduce:tree"), "tree any");
  EXPECT_EQ(Left("AllGather:Ring"), "any ring");
  EXPECT_EQ(Left("ring;allreduce:tree"), "tree ring");
  EXPECT_EQ(Left("allreduce:tree;allreduce:ring"), "ring any");
  EXPECT_EQ(Left("allreduce:tree;"), "tree any");
  EXPECT_EQ(Left("allreduce:tree:ring"), "tree any");
  EXPECT_EQ(Left(":ring"), "ring ring");
}

TEST(TuningListTest, ACaretExcludes) {
  EXPECT_EQ(Left("^ring,collnetdirect,collnetchain,nvls,nvlstree"), "tree,pat tree,pat");
  EXPECT_EQ(Left("^"), "any any");
  EXPECT_EQ(Left("ring;allreduce:^ring,nvls,nvlstree,pat,collnetdirect,collnetchain"), "tree ring");
  EXPECT_EQ(Left("^tree,ring,collnetdirect,collnetchain,nvls,nvlstree,pat"), "none none");
}

TEST(TuningListTest, NcclRefusesTheRest) {
  EXPECT_EQ(Left("tre"),
            "unknown algorithm 'tre'; NCCL knows tree ring collnetdirect collnetchain nvls "
            "nvlstree pat");
  EXPECT_EQ(Left("allreduce: tree").rfind("unknown algorithm ' tree'", 0), 0U);
  EXPECT_EQ(Left("collnet").rfind("unknown algorithm 'collnet'", 0), 0U);
  EXPECT_EQ(Left("all_reduce:tree"),
            "unknown collective 'all_reduce'; NCCL knows broadcast reduce allgather reducescatter "
            "allreduce");
  EXPECT_EQ(Left("allreduce:tree;ring"), "'ring' names no collective, and is not the first entry");
  EXPECT_EQ(Left(";ring"), "'ring' names no collective, and is not the first entry");
  EXPECT_EQ(Left("allreduce:").rfind("unknown algorithm 'allreduce'", 0), 0U);
  EXPECT_EQ(TuningList::Protocols("simpel").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TuningListTest, Protocols) {
  const auto list = TuningList::Protocols("LL128;allreduce:Simple;reduce:^LL,LL128,Simple");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_TRUE(list->AllowsOnly(NcclFunction::kAllReduce, "simple"));
  EXPECT_FALSE(list->Allows(NcclFunction::kBroadcast, "simple"));
  EXPECT_TRUE(list->AllowsAny(NcclFunction::kBroadcast));
  EXPECT_FALSE(list->AllowsAny(NcclFunction::kReduce));
  EXPECT_FALSE(list->Allows(NcclFunction::kAllReduce, "ring"));
}

}  // namespace
}  // namespace meshift
