#include "cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "cli/calibrate_command.h"
#include "cli/check_command.h"
#include "cli/dump_command.h"
#include "cli/engines.h"
#include "cli/env_command.h"
#include "cli/explain_command.h"
#include "cli/io.h"
#include "cli/plan_command.h"
#include "cli/problem.h"
#include "cli/run_as_rank.h"
#include "cli/run_command.h"
#include "cli/shards_command.h"
#include "cli/topology_text.h"
#include "comm/nccl/environment.h"
#include "meshift/planner_options.h"
#include "meshift/status.h"
#include "meshift/version.h"
#include "planner/plan/option_table.h"

namespace meshift::cli {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxRuns = 1'000'000'000;
constexpr int64_t kMaxCases = 1'000'000;
constexpr int64_t kMaxThreads = 64;  // of --conformance, one per rank
constexpr int64_t kMaxAlternatives = 1000;
constexpr int64_t kMaxRanks = int64_t{1} << 20;  // of the local engine

constexpr const char* kFooter =
    "A mesh is name=size,... (ranks in another order: a=2,b=2@4,5,0-1) or 4x2; a placement R, "
    "S(k),\n"
    "P or P(op) per mesh dim. Exit codes: 0 success; 1 a check failed, or a limit, an engine\n"
    "error or an output error stopped the command; 2 bad usage; 3 bad input file.";

template <typename T>
struct ValueOf {
  using type = T;
};
template <typename T>
struct ValueOf<std::optional<T>> {
  using type = T;
};

// An option that takes a number from `least` to `most`. It is parsed here because CLI11 reads an
// empty text as 0, 010 as octal 8, and a number that is too large as the largest one.
template <typename T>
CLI::Option* AddNumber(CLI::App* app, const std::string& name, T* number,
                       typename ValueOf<T>::type least, typename ValueOf<T>::type most,
                       const std::string& description) {
  using Number = typename ValueOf<T>::type;
  const auto is_number = [least, most](const std::string& text) -> std::string {
    Number value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && value >= least && value <= most) return "";
    return fmt::format("'{}' is not a number in {}..{}", text, least, most);
  };
  const auto set = [number](const std::string& text) {
    Number value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    *number = value;
  };
  return app->add_option_function<std::string>(name, set, description)->check(is_number);
}

template <typename T>
CLI::Option* AddPath(CLI::App* app, const std::string& name, T* path,
                     const std::string& description) {
  const auto is_path = [](const std::string& text) -> std::string {
    return text.empty() ? "the path is empty" : "";
  };
  return app->add_option(name, *path, description)->check(is_path);
}

// The options of planner/plan/option_table.h. --reproducibility is a second name of --promise;
// errors use the name that the caller wrote.
void AddPlannerOptions(CLI::App* app, ProblemFlags* flags) {
  for (const PlannerOption& option : PlannerOptionTable()) {
    const std::string name(option.name);
    const std::string flag(option.flag);
    const std::string help(option.help);
    if (option.kind == OptionKind::kSwitch) {
      app->add_flag_callback(
          flag, [flags, name] { flags->options[name] = "off"; }, help);
      continue;
    }
    const auto set = [flags, name](const std::string& text) { flags->options[name] = text; };
    CLI::Option* const added = app->add_option_function<std::string>(flag, set, help)
                                   ->type_name(std::string(option.value_name));
    if (option.kind == OptionKind::kNumber) {
      added->check([&option](const std::string& text) {
        PlannerOptions unused;
        return Message(option.read(text, {}, &unused));
      });
    }
    if (name != "reproducibility") continue;
    const auto set_reproducibility = [flags, name](const std::string& text) {
      flags->options[name] = text;
      flags->promise_option = "--reproducibility";
    };
    added->excludes(app->add_option_function<std::string>("--reproducibility", set_reproducibility,
                                                          "the same as --promise")
                        ->type_name(std::string(option.value_name)));
  }
}

void AddProblem(CLI::App* app, ProblemFlags* flags) {
  app->add_option("--mesh", flags->mesh, "the mesh: ddp=8,fsdp=5,tp=1")->type_name("MESH");
  app->add_option("--to-mesh", flags->to_mesh, "the target's mesh, if it differs: tp=8@2048-2055")
      ->type_name("MESH");
  app->add_flag("--relabel-ranks", flags->relabel_ranks,
                "reorder the target's ranks so that the fewest bytes move");
  app->add_option("--tensor", flags->tensor, "dtype and global shape: bf16[4096,512]")
      ->type_name("TENSOR");
  app->add_option("--from", flags->from, "source placements: P,P,R")->type_name("PLACEMENTS");
  app->add_option("--to", flags->to, "target placements: R,R,R")->type_name("PLACEMENTS");
  app->add_option("--to-dtype", flags->to_dtype, "the target's dtype, if it differs: bf16")
      ->type_name("DTYPE");
  app->add_option("--topology", flags->topology,
                  "links: a preset (flat a100 h100-efa gb200), nvlink=8, FILE.json, or "
                  "h100,FILE.xml with NCCL's file of a node")
      ->type_name("TOPOLOGY");
  AddPlannerOptions(app, flags);
  AddPath(app, "--model", &flags->model,
          "plan all parameters of a model file; in a placement list TP stands for S(tp_dim), "
          "which cuts first, and EP for the place of the parameter's expert")
      ->type_name("FILE");
  app->add_option("--dtype", flags->dtype, "the source dtype of all parameters")
      ->type_name("DTYPE");
  AddPath(app, "--rules", &flags->rules,
          "with --model: source and target placements by parameter name")
      ->type_name("FILE");
  app->add_option("--filter", flags->filter, "only parameters whose names match")
      ->type_name("GLOB");
}

CLI::App* AddPlan(CLI::App* app, PlanFlags* flags) {
  CLI::App* plan = app->add_subcommand("plan", "The cheapest plan from one sharding to another");
  AddProblem(plan, &flags->problem);
  plan->add_option("--format", flags->format, "text (default), json")->type_name("FORMAT");
  plan->add_flag("--messages", flags->messages, "also list each message: sender, receiver and box");
  plan->add_flag("--together", flags->together,
                 "with --model or --batch: choose the plans so that the busiest link of all is "
                 "least busy");
  plan->add_option("--bucket", flags->bucket,
                   "with --model or --together: cut into rounds whose workspaces have at most "
                   "this size: 64MiB")
      ->type_name("BYTES");
  AddPath(plan, "--batch", &flags->batch,
          "read one JSON object per line, answer each on one line; - is stdin")
      ->type_name("FILE");
  plan->add_flag("--allow-files", flags->allow_files,
                 "lines of --batch may name files: a topology that ends in .json");
  return plan;
}

CLI::App* AddExplain(CLI::App* app, ExplainFlags* flags) {
  CLI::App* explain =
      app->add_subcommand("explain", "The best plan, its alternatives, and why each is not chosen");
  AddProblem(explain, &flags->problem);
  explain->add_option("--format", flags->format, "text (default), json")->type_name("FORMAT");
  AddNumber(explain, "--alternatives", &flags->alternatives, 0, kMaxAlternatives,
            "list at most N plans that keep the promise (default 8)")
      ->type_name("N");
  explain
      ->add_option("--collective", flags->collective.name,
                   "instead: the time of one all_reduce, all_gather, reduce_scatter or "
                   "all_to_all, and its parts")
      ->type_name("OP");
  explain
      ->add_option("--bytes", flags->collective.bytes,
                   "with --collective: its size as nccl-tests counts it: 64MiB")
      ->type_name("BYTES");
  explain
      ->add_option("--dims", flags->collective.dims,
                   "with --collective: among groups over these mesh dims (default all): a,b")
      ->type_name("DIMS");
  return explain;
}

CLI::Option* AddTimeout(CLI::App* app, std::optional<int64_t>* timeout) {
  return AddNumber(
             app, "--timeout", timeout, 1, kMaxTimeoutSeconds,
             "the longest time that ranks wait for each other (default MESHIFT_TIMEOUT_S, or 600)")
      ->type_name("SECONDS");
}

CLI::App* AddRun(CLI::App* app, RunFlags* flags) {
  CLI::App* run =
      app->add_subcommand("run", "Plan, execute, and check every element of every rank");
  AddProblem(run, &flags->problem);
  AddPath(run, "--plan", &flags->plan, "run this plan; - is stdin")->type_name("FILE");
  run->add_option(
         "--engine", flags->problem.engine,
         "local (default); mpi, nccl: each process that mpirun or torchrun starts is a rank")
      ->type_name("ENGINE");
  AddTimeout(run, &flags->timeout);
  run->add_option("--reduction-order", flags->reduction_order,
                  "the order of the local engine's sums: ranks (default), topology, adversarial")
      ->type_name("ORDER");
  AddNumber(run, "--repeat", &flags->repeat, 1, kMaxRuns,
            "run N times in one process, and compare the bits")
      ->type_name("N");
  AddNumber(run, "--seed", &flags->seed, 0, std::numeric_limits<uint64_t>::max(),
            "the seed of the contributions (default 1)")
      ->type_name("N");
  AddPath(run, "--load", &flags->load,
          "read contributions from DIR/source.rank00000.npy and so on, one file per rank")
      ->type_name("DIR");
  AddPath(run, "--save", &flags->save,
          "write DIR/source.rank00000.npy, DIR/target.rank00000.npy and so on")
      ->type_name("DIR");
  run->add_flag("--conformance", flags->conformance,
                "run the redistributions that every engine must get right");
  run->add_flag("--cross", flags->cross, "with --conformance: from one mesh to another");
  AddNumber(run, "--cases", &flags->cases, 1, kMaxCases,
            "with --conformance: the number of cases (default 2000)")
      ->type_name("N");
  AddNumber(
      run, "--ranks", &flags->ranks, 2, kMaxThreads,
      "with --conformance on the local engine: the number of ranks (default 8, or 12 with --cross)")
      ->type_name("N");
  return run;
}

CLI::App* AddCheck(CLI::App* app, CheckFlags* flags) {
  CLI::App* check = app->add_subcommand("check", "Prove that plans are right");
  AddPath(check, "files", &flags->files, "plan files; - is stdin")->type_name("FILE");
  AddPath(check, "--batch", &flags->batch, "read one plan per line, print one verdict per line")
      ->type_name("FILE");
  AddNumber(check, "--max-work", &flags->max_work, 1, kNoLimit,
            "the limit on the work of a proof (default 2^29, a few seconds)")
      ->type_name("N");
  return check;
}

CLI::App* AddShards(CLI::App* app, ShardsFlags* flags) {
  CLI::App* shards = app->add_subcommand("shards", "The part of a tensor that each rank holds");
  shards->add_option("--mesh", flags->mesh, "the mesh: a=2,b=2")->type_name("MESH");
  shards->add_option("--tensor", flags->tensor, "dtype and global shape: f32[8,6]")
      ->type_name("TENSOR");
  shards->add_option("--placements,--from", flags->placements, "one per mesh dim: S(0),R")
      ->type_name("PLACEMENTS");
  AddNumber(shards, "--skip", &flags->skip, 0, kNoLimit, "skip N ranks first")->type_name("N");
  AddNumber(shards, "--count", &flags->count, 1, kNoLimit, "list at most N ranks")->type_name("N");
  return shards;
}

CLI::App* AddEnv(CLI::App* app, EnvFlags* flags) {
  CLI::App* env =
      app->add_subcommand("env", "The environment variables that NCCL needs for a promise");
  env->add_option("--profile", flags->profile, "batch-invariant, torchtitan-vllm")
      ->type_name("PROFILE")
      ->required();
  env->add_option("--nccl-version", flags->nccl_version,
                  "for this version instead of the installed library's: 2.31")
      ->type_name("VERSION");
  env->add_flag("--check", flags->check, "check the environment instead of printing exports");
  return env;
}

CLI::App* AddDump(CLI::App* app, DumpFlags* flags) {
  CLI::App* dump = app->add_subcommand(
      "dump", "The late ranks of a hung job, from the records that its ranks wrote");
  AddPath(dump, "folder", &flags->folder, "the folder of the records: MESHIFT_DUMP of the job")
      ->type_name("FOLDER")
      ->required();
  AddPath(dump, "--flight-recorder", &flags->flight_recorder,
          "also write the records for PyTorch's analyser: torchfrtrace FOLDER")
      ->type_name("FOLDER");
  return dump;
}

CLI::App* AddCalibrate(CLI::App* app, CalibrateFlags* flags) {
  CLI::App* calibrate =
      app->add_subcommand("calibrate", "The numbers of the cost model, from measured times");
  CLI::Option* const engine =
      calibrate->add_option("--engine", flags->engine, "local (default), mpi, nccl")
          ->type_name("ENGINE");
  CLI::Option* const timeout = AddTimeout(calibrate, &flags->timeout);
  calibrate
      ->add_option(
          "--topology", flags->topology,
          "which ranks share a domain: nvlink=8; its numbers are used where nothing is measured")
      ->type_name("TOPOLOGY");
  CLI::Option* const ranks = AddNumber(calibrate, "--ranks", &flags->ranks, 2, kMaxRanks,
                                       "the number of ranks of the local engine (default 8)")
                                 ->type_name("N");
  CLI::Option* const max_bytes =
      calibrate
          ->add_option("--max-bytes", flags->max_bytes,
                       "the size of a rank's largest tensor (default 16MiB)")
          ->type_name("BYTES");
  CLI::Option* const repeat = AddNumber(calibrate, "--repeat", &flags->repeat, 1, kMaxRuns,
                                        "take the fastest of N runs (default 20)")
                                  ->type_name("N");
  calibrate->add_option("--format", flags->format, "text (default), or json for the topology alone")
      ->type_name("FORMAT");
  CLI::Option* const logs =
      AddPath(calibrate, "--from-nccl-tests", &flags->logs,
              "take times from output of nccl-tests instead of an engine; all_gather=FILE names "
              "the collective if neither the log nor the file's name does (topology: default h100)")
          ->type_name("LOG...");
  for (CLI::Option* const other : {engine, timeout, ranks, max_bytes, repeat})
    logs->excludes(other);
  return calibrate;
}

// The last value of --engine, in arguments that are not parsed yet; "local" if there is none.
std::string EngineIn(const std::vector<std::string>& args) {
  constexpr std::string_view kOption = "--engine";
  std::string engine = "local";
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == kOption && i + 1 < args.size()) engine = args[i + 1];
    if (args[i].rfind("--engine=", 0) == 0) engine = args[i].substr(kOption.size() + 1);
  }
  return engine;
}

// CLI11's message of an error, in one line. "--mesh: At Most 1 required but received 2" and
// "--mesh: 1 required MESH missing" become sentences.
std::string SentenceOf(const CLI::ParseError& error) {
  std::string text = error.what();
  text.resize(std::min(text.size(), text.find('\n')));
  const std::string_view most = ": At Most ";
  const std::string_view received = " required but received ";
  const size_t colon = text.find(": ");
  const std::string option = text.substr(0, colon);
  if (const size_t at = text.find(received);
      at != std::string::npos && colon == text.find(most) && colon < at) {
    const size_t begin = colon + most.size();
    return fmt::format("{} has {} values; expected at most {}", option,
                       text.substr(at + received.size()), text.substr(begin, at - begin));
  }
  if (colon != std::string::npos && text.ends_with(" missing")) {
    return fmt::format("{} needs a value", option);
  }
  return text;
}

int ParseAndRun(std::vector<std::string> args, Io& io) {
  CLI::App app("Plans, proves and runs redistributions of tensors over device meshes.", "meshift");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", "meshift " MESHIFT_VERSION);
  PlanFlags plan_flags;
  ExplainFlags explain_flags;
  RunFlags run_flags;
  CheckFlags check_flags;
  ShardsFlags shards_flags;
  EnvFlags env_flags;
  CalibrateFlags calibrate_flags;
  DumpFlags dump_flags;
  const CLI::App* plan = AddPlan(&app, &plan_flags);
  const CLI::App* explain = AddExplain(&app, &explain_flags);
  const CLI::App* run = AddRun(&app, &run_flags);
  const CLI::App* check = AddCheck(&app, &check_flags);
  const CLI::App* shards = AddShards(&app, &shards_flags);
  const CLI::App* calibrate = AddCalibrate(&app, &calibrate_flags);
  const CLI::App* dump = AddDump(&app, &dump_flags);
  AddEnv(&app, &env_flags);
  // CLI11's message would not name an unknown command.
  constexpr std::array<std::string_view, 8> kVerbs = {"plan",   "explain", "run",       "check",
                                                      "shards", "env",     "calibrate", "dump"};
  const std::string engine = EngineIn(args);
  if (!args.empty() && args[0].substr(0, 1) != "-" &&
      std::find(kVerbs.begin(), kVerbs.end(), args[0]) == kVerbs.end()) {
    const absl::Status wrong =
        InvalidArgument("unknown command '{}'; expected {}", args[0], fmt::join(kVerbs, ", "));
    return FailAsRank(engine, wrong, io);
  }
  try {
    std::reverse(args.begin(), args.end());  // CLI11 takes them in reverse order
    app.parse(std::move(args));
  } catch (const CLI::Success& help) {
    app.exit(help, io.out, io.err);
    return kExitOk;
  } catch (const CLI::ExtrasError&) {
    // CLI11 returns them in reverse order.
    const std::vector<std::string> extra = app.remaining(/*recurse=*/true);
    const absl::Status wrong =
        InvalidArgument("The following argument{} not expected: {}; --help lists the options",
                        extra.size() == 1 ? " was" : "s were", fmt::join(extra, " "));
    return FailAsRank(engine, wrong, io);
  } catch (const CLI::ParseError& error) {
    const absl::Status wrong = InvalidArgument("{}; --help lists the options", SentenceOf(error));
    return FailAsRank(engine, wrong, io);
  }
  // With other engines each rank would print the same note.
  if (engine == "local") {
    for (const auto* topology : {&plan_flags.problem.topology, &explain_flags.problem.topology,
                                 &run_flags.problem.topology, &calibrate_flags.topology}) {
      TellNote(*topology, io);
    }
  }
  if (plan->parsed()) return PlanCommand(plan_flags, io);
  if (explain->parsed()) return ExplainCommand(explain_flags, io);
  if (run->parsed()) return RunCommand(run_flags, io);
  if (check->parsed()) return CheckCommand(check_flags, io);
  if (shards->parsed()) return ShardsCommand(shards_flags, io);
  if (dump->parsed()) return DumpCommand(dump_flags, io);
  if (calibrate->parsed()) return CalibrateCommand(calibrate_flags, io);
  return EnvCommand(env_flags, NcclEnvironment(Environment::Process()), io);
}

}  // namespace

int RunMeshift(std::vector<std::string> args, Io& io) {
  const int code = ParseAndRun(std::move(args), io);
  io.out.flush();
  if (!io.out) return Fail(io, absl::InternalError("the output cannot be written"));
  return code;
}

}  // namespace meshift::cli
