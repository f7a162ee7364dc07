#include "cli/env_command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>

#include "cli/io.h"
#include "comm/nccl/environment.h"
#include "testing/internal/nccl/fake_environment.h"

namespace meshift::cli {
namespace {

struct Ran {
  int code;
  std::string out;
  std::string err;
};

Ran RunEnv(const EnvFlags& flags, const std::map<std::string, std::string>& variables = {}) {
  std::istringstream in;
  std::ostringstream out, err;
  Io io{in, out, err};
  const FakeEnvironment environment(variables);
  const int code = EnvCommand(flags, environment, io);
  return {code, out.str(), err.str()};
}

TEST(EnvCommandTest, BatchInvariantExports) {
  EXPECT_EQ(RunEnv({.profile = "batch-invariant", .nccl_version = "2.28.9"}).out,
            R"(# batch-invariant for NCCL 2.28.9
export NCCL_ALGO='allreduce:tree'  # all-reduce by tree: one order of sums, whatever the size
export NCCL_PROTO='Simple'  # one protocol, whatever the size
export NCCL_NVLS_ENABLE='0'  # no sums in NVSwitch
export NCCL_COLLNET_ENABLE='0'  # no sums in network switches
)");
  EXPECT_EQ(RunEnv({.profile = "batch-invariant", .nccl_version = "2.31"}).out,
            R"(# batch-invariant for NCCL 2.31.0
export NCCL_ALGO='ring,tree;allreduce:tree'  # all-reduce by tree; since 2.31 a collective that is not named has no algorithm
export NCCL_PROTO='Simple'  # one protocol, whatever the size
export NCCL_NVLS_ENABLE='0'  # no sums in NVSwitch
export NCCL_COLLNET_ENABLE='0'  # no sums in network switches
)");
}

TEST(EnvCommandTest, TorchtitanExports) {
  const std::string golden =
      R"(export NCCL_LAUNCH_MODE='GROUP'  # no effect in this version: deprecated, and for several GPUs per process
export NCCL_COLLNET_ENABLE='0'  # no sums in network switches
export NCCL_NVLS_ENABLE='0'  # no sums in NVSwitch
export NCCL_P2P_NET_DISABLE='1'  # no effect in this version: NCCL reads no such variable
export NCCL_MIN_NCHANNELS='1'  # one channel, of every communicator
export NCCL_MAX_NCHANNELS='1'  # one channel, of every communicator
export NCCL_PROTO='Simple'  # one protocol, whatever the size
)";
  const std::string end =
      R"(export NCCL_NTHREADS='1'  # no effect in this version: not a multiple of 32, so NCCL takes its maximum
export NCCL_SOCKET_NTHREADS='1'  # one thread per socket connection; no result depends on it
)";
  EXPECT_EQ(RunEnv({.profile = "torchtitan-vllm", .nccl_version = "2.28"}).out,
            "# torchtitan-vllm for NCCL 2.28.0\n" + golden +
                "export NCCL_ALGO='allreduce:tree'  # all-reduce by tree: one order of sums, "
                "whatever the size\n" +
                end);
  EXPECT_EQ(RunEnv({.profile = "torchtitan-vllm", .nccl_version = "2.31"}).out,
            "# torchtitan-vllm for NCCL 2.31.0\n" + golden +
                "export NCCL_ALGO='ring,tree;allreduce:tree'  # all-reduce by tree; since 2.31 a "
                "collective that is not named has no algorithm\n" +
                end);
}

TEST(EnvCommandTest, CheckTellsWhatBreaksThePromise) {
  const Ran ran = RunEnv({.profile = "batch-invariant", .nccl_version = "2.28", .check = true},
                         {{"NCCL_ALGO", "Ring"},
                          {"NCCL_PROTO", "Simple"},
                          {"NCCL_NVLS_ENABLE", "0"},
                          {"NCCL_MAX_CTAS", "16"}});
  EXPECT_EQ(ran.code, kExitCheckFailed);
  EXPECT_EQ(ran.out, R"(# batch-invariant for NCCL 2.28.0
# variable             value     verdict  why
NCCL_ALGO              'Ring'    breaks   all-reduce may take 'ring': only the tree adds an element's contributions in an order that no size changes
NCCL_PROTO             'Simple'  ok       one protocol
NCCL_NVLS_ENABLE       '0'       ok       no sums in NVSwitch
NCCL_COLLNET_ENABLE    -         ok       no sums in the network
NCCL_MIN_NCHANNELS     -         ok       leaves the number of channels to the communicator
NCCL_MIN_NRINGS        -         ok       leaves the number of channels to the communicator
NCCL_MIN_CTAS          -         ok       leaves the number of channels to the communicator
NCCL_MAX_CTAS          '16'      breaks   overrides the one channel that communicators under this promise request
NCCL_MAX_NCHANNELS     -         ok       leaves a communicator of one channel as it is
NCCL_MAX_NRINGS        -         ok       leaves a communicator of one channel as it is
NCCL_SYM_KERNEL        -         ok       forces no symmetric kernel
NCCL_SYM_NOWIN_ENABLE  -         ok       no symmetric kernels without windows
NCCL_TUNER_PLUGIN      -         ok       no tuner can be loaded
NCCL_ENV_PLUGIN        -         ok       no plugin that sets variables can be loaded
the environment breaks the promise in 2 variables
)");
  EXPECT_EQ(
      RunEnv({.profile = "batch-invariant", .nccl_version = "2.28", .check = true},
             {{"NCCL_ALGO", "allreduce:tree"}, {"NCCL_PROTO", "Simple"}, {"NCCL_NVLS_ENABLE", "0"}})
          .code,
      kExitOk);
}

TEST(EnvCommandTest, AVersionThatNobodyHasMeasuredBreaksThePromise) {
  const Ran ran = RunEnv({.profile = "batch-invariant", .nccl_version = "2.31", .check = true},
                         {{"NCCL_ALGO", "ring,tree;allreduce:tree"},
                          {"NCCL_PROTO", "Simple"},
                          {"NCCL_NVLS_ENABLE", "0"}});
  EXPECT_EQ(ran.code, kExitCheckFailed);
  EXPECT_NE(ran.out.find("the version of NCCL    '2.31.0'                    breaks"),
            std::string::npos)
      << ran.out;
  EXPECT_EQ(
      RunEnv({.profile = "batch-invariant", .nccl_version = "2.31"}).err,
      "meshift: NCCL 2.31.0 cannot keep the promise with any variables: since 2.31 NCCL chooses "
      "among ring, tree and symmetric kernels in one step; its bits have not been measured\n");
  EXPECT_EQ(RunEnv({.profile = "batch-invariant", .nccl_version = "2.30"}).err, "");
  EXPECT_NE(ran.out.find("in 1 variable\n"), std::string::npos) << ran.out;
}

TEST(EnvCommandTest, WhatVariablesHoldIsShownOnOneLine) {
  const Ran ran = RunEnv({.profile = "batch-invariant", .nccl_version = "2.28", .check = true},
                         {{"NCCL_ALGO", "ri\nng\x1b[2J\xff"}, {"NCCL_PROTO", "LL\n"}});
  EXPECT_NE(ran.out.find(R"(NCCL_ALGO              'ri\nng\x1b[2J\xff'  breaks)"),
            std::string::npos)
      << ran.out;
  EXPECT_EQ(ran.out.find('\x1b'), std::string::npos) << ran.out;
  EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 17) << ran.out;
}

TEST(EnvCommandTest, BadUsageNamesTheValue) {
  Ran ran = RunEnv({.profile = "fast", .nccl_version = "2.28"});
  EXPECT_EQ(ran.code, kExitBadUsage);
  EXPECT_EQ(ran.err,
            "meshift: unknown profile 'fast'; expected batch-invariant or torchtitan-vllm\n");
  ran = RunEnv({.profile = "batch-invariant", .nccl_version = "two"});
  EXPECT_EQ(ran.code, kExitBadUsage);
  EXPECT_EQ(ran.err, "meshift: invalid NCCL version 'two'; expected the form 2.28 or 2.28.9\n");
}

TEST(EnvCommandTest, WithoutALibraryTheVersionIsAssumedAndSaidSo) {
  ASSERT_EQ(setenv("MESHIFT_NCCL_LIBRARY", "/nowhere/libnccl.so", 1), 0);
  const Ran ran = RunEnv({.profile = "batch-invariant"});
  EXPECT_EQ(ran.code, kExitOk);
  EXPECT_NE(ran.err.find("assuming 2.28.9 (set another by --nccl-version)"), std::string::npos);
  EXPECT_NE(ran.out.find("for NCCL 2.28.9"), std::string::npos);
}

}  // namespace
}  // namespace meshift::cli
