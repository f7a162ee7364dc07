#include "placement/notation.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/placement.h"
#include "meshift/status.h"
#include "placement/scanner.h"

namespace meshift {
namespace {

// "0" or "dim=0".
absl::StatusOr<int> ReadNamedDim(Scanner& scanner) {
  if (scanner.Take("dim")) MESHIFT_RETURN_IF_ERROR(scanner.Expect("="));
  MESHIFT_ASSIGN_OR_RETURN(const int64_t dim, scanner.ExpectInt());
  if (dim < std::numeric_limits<int>::min() || dim > std::numeric_limits<int>::max()) {
    return InvalidArgument("Shard({}) is out of range for any tensor", dim);
  }
  return static_cast<int>(dim);
}

absl::StatusOr<int> ReadTensorDim(Scanner& scanner) {
  const bool parenthesis = scanner.Take("(");
  MESHIFT_ASSIGN_OR_RETURN(const int dim, ReadNamedDim(scanner));
  if (parenthesis) MESHIFT_RETURN_IF_ERROR(scanner.Expect(")"));
  return dim;
}

absl::StatusOr<PlacementTerm> ReadStridedShard(Scanner& scanner) {
  MESHIFT_RETURN_IF_ERROR(scanner.Expect("("));
  MESHIFT_ASSIGN_OR_RETURN(const int dim, ReadNamedDim(scanner));
  MESHIFT_RETURN_IF_ERROR(scanner.Expect(","));
  if (scanner.Take("split_factor") || scanner.Take("sf")) {
    MESHIFT_RETURN_IF_ERROR(scanner.Expect("="));
  }
  MESHIFT_ASSIGN_OR_RETURN(const int64_t factor, scanner.ExpectInt());
  MESHIFT_RETURN_IF_ERROR(scanner.Expect(")"));
  return PlacementTerm{Placement::Shard(dim), std::nullopt, factor};
}

absl::StatusOr<ReduceOp> ReadOp(Scanner& scanner) {
  const std::string_view name = scanner.TakeWord();
  if (name == "band") return ReduceOp::kAnd;
  if (name == "bor") return ReduceOp::kOr;
  if (name == "bxor") return ReduceOp::kXor;
  return ParseReduceOp(name);
}

absl::StatusOr<PlacementTerm> ReadShard(Scanner& scanner) {
  MESHIFT_ASSIGN_OR_RETURN(const int tensor_dim, ReadTensorDim(scanner));
  PlacementTerm term{Placement::Shard(tensor_dim), std::nullopt};
  if (scanner.Take("{")) {
    Placement::Sizes sizes;
    do {
      MESHIFT_ASSIGN_OR_RETURN(const int64_t size, scanner.ExpectInt());
      sizes.push_back(size);
    } while (scanner.Take(","));
    MESHIFT_RETURN_IF_ERROR(scanner.Expect("}"));
    term.placement = Placement::RaggedShard(tensor_dim, std::move(sizes));
  }
  if (scanner.Take("[")) {
    MESHIFT_ASSIGN_OR_RETURN(term.place, scanner.ExpectInt());
    MESHIFT_RETURN_IF_ERROR(scanner.Expect("]"));
  }
  return term;
}

absl::StatusOr<PlacementTerm> ReadPartial(Scanner& scanner) {
  ReduceOp op = ReduceOp::kSum;
  if (scanner.Take("(") && !scanner.Take(")")) {
    MESHIFT_ASSIGN_OR_RETURN(op, ReadOp(scanner));
    MESHIFT_RETURN_IF_ERROR(scanner.Expect(")"));
  }
  return PlacementTerm{Placement::Partial(op), std::nullopt};
}

absl::StatusOr<PlacementTerm> ReadAt(Scanner& scanner) {
  MESHIFT_RETURN_IF_ERROR(scanner.Expect("("));
  Placement::Sizes coordinates;
  do {
    MESHIFT_ASSIGN_OR_RETURN(const int64_t coordinate, scanner.ExpectInt());
    coordinates.push_back(coordinate);
  } while (scanner.Take(","));
  MESHIFT_RETURN_IF_ERROR(scanner.Expect(")"));
  return PlacementTerm{Placement::At(std::move(coordinates)), std::nullopt};
}

absl::StatusOr<PlacementTerm> ReadTerm(Scanner& scanner) {
  // Long words first: the short ones are prefixes of them.
  if (scanner.Take("_StridedShard") || scanner.Take("_S")) return ReadStridedShard(scanner);
  if (scanner.Take("Shard") || scanner.Take("S")) return ReadShard(scanner);
  if (scanner.Take("Partial") || scanner.Take("P")) return ReadPartial(scanner);
  if (scanner.Take("Replicate") || scanner.Take("R")) {
    if (scanner.Take("(")) MESHIFT_RETURN_IF_ERROR(scanner.Expect(")"));
    return PlacementTerm{Placement::Replicate(), std::nullopt};
  }
  if (scanner.Take("At")) return ReadAt(scanner);
  return InvalidArgument("expected R, S(dim), P, P(op) or At(coordinates) {}", scanner.Place());
}

absl::StatusOr<std::vector<PlacementTerm>> ReadList(Scanner& scanner) {
  const std::string_view close = scanner.Take("(") ? ")" : scanner.Take("[") ? "]" : "";
  std::vector<PlacementTerm> terms;
  bool done = false;
  while (!done) {
    MESHIFT_ASSIGN_OR_RETURN(PlacementTerm term, ReadTerm(scanner));
    terms.push_back(std::move(term));
    const bool comma = scanner.Take(",");
    // Python writes a tuple of one as "(Shard(0),)"; without parentheses an item must follow a
    // comma.
    done = close.empty() ? !comma && scanner.rest().empty() : scanner.rest().starts_with(close);
  }
  MESHIFT_RETURN_IF_ERROR(scanner.Expect(close));
  MESHIFT_RETURN_IF_ERROR(scanner.ExpectEnd());
  return terms;
}

}  // namespace

absl::StatusOr<std::vector<PlacementTerm>> ParsePlacements(std::string_view text) {
  Scanner scanner(text);
  absl::StatusOr<std::vector<PlacementTerm>> terms = ReadList(scanner);
  if (!terms.ok()) return Annotate(terms.status(), fmt::format("placements \"{}\"", text));
  return terms;
}

}  // namespace meshift
