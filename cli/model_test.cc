#include "cli/model.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace meshift::cli {
namespace {

std::string ErrorOf(const std::string& json) { return Message(ParseModel(json).status()); }

std::string WithParameter(const std::string& parameter) {
  return R"({"model": "m", "dtype": "bf16", "parameters": [)" + parameter + "]}";
}

TEST(Model, ReadsThePublishedModels) {
  const auto count = [](const std::string& name) {
    std::ifstream file("examples/models/" + name);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const absl::StatusOr<Model> model = ParseModel(text);
    EXPECT_TRUE(model.ok()) << name << ": " << model.status();
    return model.ok() ? model->parameters.size() : 0;
  };
  EXPECT_EQ(count("llama3-8b.json"), 291);
  EXPECT_EQ(count("llama3.1-405b.json"), 1137);
  EXPECT_EQ(count("deepseek-v3.json"), 45395);
}

TEST(Model, ErrorsNameTheParameterTheValueAndTheRule) {
  EXPECT_EQ(ErrorOf(""), "the text is empty; one JSON object is expected");
  EXPECT_EQ(ErrorOf("{\"model\": "), "not one JSON value, or truncated: {\"model\": ");
  EXPECT_EQ(ErrorOf("[1]"), "a model is an object, not [1]");
  EXPECT_EQ(ErrorOf(R"({"dtype": "bf16"})"), "key 'model' is missing");
  EXPECT_EQ(ErrorOf(R"({"model": 3})"), "model is 3; it must be a string");
  EXPECT_EQ(ErrorOf(R"({"model": "m", "dtype": "bf17", "parameters": []})").substr(0, 20),
            "unknown dtype 'bf17'");
  EXPECT_EQ(ErrorOf(R"({"model": "m", "dtype": "bf16", "parameters": {}})"),
            "parameters is {}; it must be a list");
  EXPECT_EQ(ErrorOf(WithParameter("")), "model 'm' has no parameters");
  EXPECT_EQ(ErrorOf(WithParameter("7")), "parameter 0: 7 is not an object");
  const std::string one = R"({"name": "w", "shape": [4], "tp_dim": null})";
  EXPECT_EQ(ErrorOf(WithParameter(one + "," + one)), "two parameters are named 'w'");
  EXPECT_EQ(ErrorOf(WithParameter(R"({"name": "w"})")), "parameter 0: key 'shape' is missing");
  EXPECT_EQ(ErrorOf(WithParameter(R"({"name": "w", "shape": 4})")),
            "parameter 0: shape of 'w' is 4; it must be a list");
  EXPECT_EQ(ErrorOf(WithParameter(R"({"name": "w", "shape": [1.5]})")),
            "parameter 0: a size in the shape of 'w' is 1.5; it must be an integer below 2^63");
  EXPECT_EQ(ErrorOf(WithParameter(R"({"name": "w", "shape": [-4], "tp_dim": 0})")),
            "parameter 0: 'w': bf16[-4]: size -4 is negative");
  EXPECT_EQ(ErrorOf(WithParameter(R"({"name": "w", "shape": [4], "dtype": 8, "tp_dim": null})")),
            "parameter 0: dtype of 'w' is 8; it must be a string");
  EXPECT_EQ(ErrorOf(WithParameter(R"({"name": "w", "shape": [4], "dtype": "f5", "tp_dim": null})"))
                .substr(0, 36),
            "parameter 0: 'w': unknown dtype 'f5'");
  EXPECT_EQ(ErrorOf(WithParameter(R"({"name": "w", "shape": [4]})")),
            "parameter 0: key 'tp_dim' is missing");
  EXPECT_EQ(ErrorOf(WithParameter(R"({"name": "w", "shape": [4], "tp_dim": 1})")),
            "parameter 0: tp_dim 1 of 'w' is out of range for a rank-1 tensor");
}

TEST(Model, AParameterMaySayItsOwnDtype) {
  const absl::StatusOr<Model> model = ParseModel(WithParameter(
      R"({"name": "w", "shape": [4], "dtype": "f8e4m3", "tp_dim": 0},
         {"name": "w_scale", "shape": [1], "dtype": "f32", "tp_dim": null},
         {"name": "b", "shape": [4], "dtype": null, "tp_dim": null},
         {"name": "n", "shape": [4], "tp_dim": null})"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->parameters[0].type.ToString(), "f8e4m3[4]");
  EXPECT_EQ(model->parameters[1].type.ToString(), "f32[1]");
  EXPECT_EQ(model->parameters[2].type.ToString(), "bf16[4]");
  EXPECT_EQ(model->parameters[3].type.ToString(), "bf16[4]");
}

TEST(Model, FilterMatchesWholeNames) {
  const Model model{"m", {{"a.0.w", {}, {}}, {"a.1.w", {}, {}}, {"a.10.w", {}, {}}}};
  EXPECT_EQ(Filter(model, "a.1.*")->parameters.size(), 1);
  EXPECT_EQ(Filter(model, "a.[01].w")->parameters.size(), 2);
  EXPECT_EQ(Filter(model, "*")->parameters.size(), 3);
  EXPECT_EQ(Message(Filter(model, "a").status()), "'a' matches none of the 3 parameters of m");
}

TEST(Model, TpStandsForTheParametersOwnDim) {
  const Parameter cut{"w", {}, 1};
  const Parameter whole{"b", {}, std::nullopt};
  EXPECT_EQ(PlacementsFor("S(0),TP", cut), "S(0),S(1)");
  EXPECT_EQ(PlacementsFor("S(0), TP", whole), "S(0), R");
  EXPECT_EQ(PlacementsFor("TP,R,TP", cut), "S(1),R,S(1)");
  EXPECT_EQ(PlacementsFor("TPX,_TP", cut), "TPX,_TP");
}

TEST(PlacementsFor, TensorParallelismCutsFirst) {
  const Parameter rows{"rows", {DType::kBF16, {8, 4}}, 0};
  EXPECT_EQ(PlacementsFor("S(0),TP", rows), "S(0)[1],S(0)[0]");
  EXPECT_EQ(PlacementsFor("S(-2), R, TP, P", rows), "S(-2)[1],R,S(0)[0],P");
  EXPECT_EQ(PlacementsFor("S(0),TP,S(0),TP", rows), "S(0)[2],S(0)[0],S(0)[3],S(0)[1]");
  EXPECT_EQ(PlacementsFor("TP,S(0)", rows), "S(0),S(0)");
  EXPECT_EQ(PlacementsFor("S(0)[0],TP[1]", rows), "S(0)[0],S(0)[1]");
  EXPECT_EQ(PlacementsFor("S(1),TP", rows), "S(1),S(0)");
  EXPECT_EQ(PlacementsFor("S(0),what,TP", rows), "S(0),what,S(0)");
}

TEST(PlacementsFor, ExpertParallelismHandsExpertsOut) {
  const DeviceMesh mesh = DeviceMesh::Parse("ep=4,fsdp=2").value();
  Parameter w{"e.w", {DType::kBF16, {8, 6}}, 0, 5, 8};
  EXPECT_EQ(*PlacementsFor("EP,S(0)", w, mesh), "At(2),S(0)");
  // Expert 5 of 8 is at coordinate (2, 1).
  EXPECT_EQ(*PlacementsFor("EP,EP", w, mesh), "At(2),At(1)");
  // Ten experts on four coordinates: three each, the last has one.
  w.num_experts = 10;
  EXPECT_EQ(*PlacementsFor("EP,R", w, mesh), "At(1),R");
  w.expert = 9;
  EXPECT_EQ(*PlacementsFor("EP,R", w, mesh), "At(3),R");
  // Tensor parallelism cuts the expert, before FSDP.
  EXPECT_EQ(*PlacementsFor("EP,TP", w, mesh), "At(3),S(0)");
  EXPECT_EQ(*PlacementsFor("EP,S(0),TP", w, DeviceMesh::Parse("ep=4,fsdp=2,tp=2").value()),
            "At(3),S(0)[1],S(0)[0]");
  w.expert = std::nullopt;
  EXPECT_EQ(*PlacementsFor("EP,S(0)", w, mesh), "R,S(0)");
  EXPECT_EQ(*PlacementsFor("S(0),TP", w, mesh), "S(0)[1],S(0)[0]");
}

TEST(PlacementsFor, OwnersSayWhereExpertsAre) {
  const DeviceMesh mesh = DeviceMesh::Parse("ep=4,fsdp=2").value();
  const Parameter w{"e.w", {DType::kBF16, {8, 6}}, 0, 2, 8};
  const ExpertOwners owners = {{0}, {0}, {1, 3}};
  EXPECT_EQ(*PlacementsFor("EP,S(0)", w, mesh, owners), "At(1,3),S(0)");
  EXPECT_EQ(*PlacementsFor("EP,TP", w, mesh, owners), "At(1,3),S(0)");
  EXPECT_EQ(Message(PlacementsFor("EP,EP", w, mesh, owners).status()),
            "owners are given for one mesh dim EP; EP,EP has 2");
  EXPECT_EQ(Message(PlacementsFor("EP,R", w, mesh, {{0}}).status()),
            "owners are given for 1 experts; 'e.w' belongs to expert 2");
}

TEST(PlacementsFor, ExpertsNeedNoTensorDim) {
  const DeviceMesh mesh = DeviceMesh::Parse("ep=4,fsdp=2").value();
  const Parameter bias{"e.b", {DType::kBF16, {8}}, std::nullopt, 5, 8};
  EXPECT_EQ(*PlacementsFor("EP,EP", bias, mesh), "At(2),At(1)");
  EXPECT_EQ(Message(PlacementsFor("EP,R,R", bias, mesh).status()),
            "the number of placements is 3; expected 2, one for each dim of mesh ep=4,fsdp=2");
}

TEST(Model, KnowsHowManyExpertsThereAre) {
  const auto model = ParseModel(WithParameter(
      R"({"name": "a", "shape": [4], "tp_dim": null, "expert": 6},
         {"name": "b", "shape": [4], "tp_dim": null})"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->parameters[0].expert, 6);
  EXPECT_EQ(model->parameters[1].expert, std::nullopt);
  EXPECT_EQ(model->parameters[1].num_experts, 7);
  EXPECT_EQ(ErrorOf(WithParameter(R"({"name": "a", "shape": [4], "tp_dim": null, "expert": -1})")),
            "parameter 0: expert -1 of 'a' is not in 0..1048575");
}

}  // namespace
}  // namespace meshift::cli
