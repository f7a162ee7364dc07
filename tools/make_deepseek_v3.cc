// Writes the parameters of DeepSeek-V3 as a model file to stdout. Its 45,000 lines follow from the
// numbers below; examples/models/README.md describes the format.
//
//   bazel run //tools:make_deepseek_v3 > deepseek-v3.json
#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

// The public configuration of the model.
constexpr int kVocabulary = 129280;
constexpr int kHidden = 7168;
constexpr int kLayers = 61;
constexpr int kDenseLayers = 3;  // the first ones; the others are mixtures of experts
constexpr int kDenseHidden = 18432;
constexpr int kExperts = 256;
constexpr int kSharedExperts = 1;
constexpr int kExpertHidden = 2048;
constexpr int kHeads = 128;
constexpr int kQueryRank = 1536;  // of the low-rank projection of queries
constexpr int kKeyValueRank = 512;
constexpr int kHeadWithoutPosition = 128;  // of a head's queries and keys: the plain part
constexpr int kHeadWithPosition = 64;      // and the part that encodes the position
constexpr int kHeadValue = 128;

constexpr std::optional<int> kWhole = std::nullopt;  // not cut by tensor parallelism

class Writer {
 public:
  // Adds a parameter; `tp_dim` is the tensor dim that tensor parallelism cuts.
  void Add(const std::string& name, const std::vector<int>& shape, std::optional<int> tp_dim,
           std::optional<int> expert = std::nullopt) {
    if (!text_.empty()) text_ += ",\n";
    text_ += fmt::format(R"(  {{"name": "{}", "shape": [{}], "tp_dim": {})", name,
                         fmt::join(shape, ", "), tp_dim ? fmt::to_string(*tp_dim) : "null");
    if (expert) text_ += fmt::format(R"(, "expert": {})", *expert);
    text_ += '}';
  }

  // Adds the three matrices of a gated MLP.
  void AddMlp(std::string_view prefix, int hidden, std::optional<int> expert = std::nullopt) {
    Add(fmt::format("{}.gate_proj.weight", prefix), {hidden, kHidden}, 0, expert);
    Add(fmt::format("{}.up_proj.weight", prefix), {hidden, kHidden}, 0, expert);
    Add(fmt::format("{}.down_proj.weight", prefix), {kHidden, hidden}, 1, expert);
  }

  // The parameters added so far, one a line, without a newline at the end.
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void AddLayer(Writer& writer, int layer) {
  const std::string prefix = fmt::format("model.layers.{}", layer);
  const std::string attention = prefix + ".self_attn";
  writer.Add(attention + ".q_a_proj.weight", {kQueryRank, kHidden}, kWhole);
  writer.Add(attention + ".q_a_layernorm.weight", {kQueryRank}, kWhole);
  writer.Add(attention + ".q_b_proj.weight",
             {kHeads * (kHeadWithoutPosition + kHeadWithPosition), kQueryRank}, 0);
  writer.Add(attention + ".kv_a_proj_with_mqa.weight", {kKeyValueRank + kHeadWithPosition, kHidden},
             kWhole);
  writer.Add(attention + ".kv_a_layernorm.weight", {kKeyValueRank}, kWhole);
  writer.Add(attention + ".kv_b_proj.weight",
             {kHeads * (kHeadWithoutPosition + kHeadValue), kKeyValueRank}, 0);
  writer.Add(attention + ".o_proj.weight", {kHidden, kHeads * kHeadValue}, 1);

  const std::string mlp = prefix + ".mlp";
  if (layer < kDenseLayers) {
    writer.AddMlp(mlp, kDenseHidden);
  } else {
    writer.Add(mlp + ".gate.weight", {kExperts, kHidden}, kWhole);
    writer.Add(mlp + ".gate.e_score_correction_bias", {kExperts}, kWhole);
    for (int expert = 0; expert < kExperts; ++expert) {
      writer.AddMlp(fmt::format("{}.experts.{}", mlp, expert), kExpertHidden, expert);
    }
    writer.AddMlp(mlp + ".shared_experts", kSharedExperts * kExpertHidden);
  }
  writer.Add(prefix + ".input_layernorm.weight", {kHidden}, kWhole);
  writer.Add(prefix + ".post_attention_layernorm.weight", {kHidden}, kWhole);
}

}  // namespace

int main() {
  Writer writer;
  writer.Add("model.embed_tokens.weight", {kVocabulary, kHidden}, 0);
  for (int layer = 0; layer < kLayers; ++layer) AddLayer(writer, layer);
  writer.Add("model.norm.weight", {kHidden}, kWhole);
  writer.Add("lm_head.weight", {kVocabulary, kHidden}, 0);
  const std::string model = fmt::format(
      R"-({{"model": "deepseek-v3", "source": "public config of DeepSeek-V3 )-"
      R"-((without the next-token-prediction layer)", "dtype": "bf16", "parameters": [)-"
      "\n{}\n]}}\n",
      writer.text());
  const bool written = std::fwrite(model.data(), 1, model.size(), stdout) == model.size();
  return written && std::fflush(stdout) == 0 ? 0 : 1;
}
