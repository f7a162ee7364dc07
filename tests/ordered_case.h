// Cases of reductions whose bits depend on the order, with the result that every engine must
// produce under the promise `ordered`: the contributions combined from left to right in ascending
// order of the flattened partial coordinate, by tests/plain_arithmetic.h; or in blocks in that way,
// and then the blocks.
//
//   const OrderedCase c(seed);
//   for (const OrderedProblem& problem : c.Problems()) {    // one per factoring of the group
//     ...                                                   // plan problem.from -> problem.to
//     c.Fill(problem.from, position, local);                // run it
//     EXPECT_EQ(c.FindWrong(problem.to, position, local), "");
//   }
#ifndef MESHIFT_TESTS_ORDERED_CASE_H_
#define MESHIFT_TESTS_ORDERED_CASE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "tests/plain_arithmetic.h"

namespace meshift {

struct OrderedOptions {
  int64_t max_ranks = 40;
  // The number of ranks of the world; 0: chosen by the case.
  int64_t ranks = 0;
  // Combines contributions in blocks of 1, 2, 3, 4, 8 or all of them.
  bool blocks = false;
  // Some meshes have ranks in another order than that of coordinates.
  bool shuffle = false;
};

// One factoring of the contributions into mesh dims. The same ranks hold the same contributions in
// all problems of a case.
struct OrderedProblem {
  Sharding from;
  Sharding to;
};

class OrderedCase {
 public:
  explicit OrderedCase(uint64_t seed, const OrderedOptions& options = {});

  DType dtype() const { return dtype_; }
  ReduceOp op() const { return op_; }
  int64_t contributions() const { return contributions_; }
  int64_t ranks() const { return contributions_ * others_; }
  int64_t reduce_block() const { return block_; }  // 0: none
  std::string ToString() const;

  // Partial over one to three mesh dims, and replicated or cut over another mesh dim, which stands
  // before them, after them, or (with size 1) is missing. Targets differ.
  std::vector<OrderedProblem> Problems() const;

  // For the rank at a position. Fill writes its source. FindWrong describes the first element of
  // its target that differs from the reference, or returns "". REQUIRES: `local` has the bytes of
  // the local tensor, row-major.
  void Fill(const Sharding& from, int64_t position, absl::Span<std::byte> local) const;
  std::string FindWrong(const Sharding& to, int64_t position,
                        absl::Span<const std::byte> local) const;

 private:
  Bits Contribution(int64_t coordinate, int64_t element) const;

  const uint64_t seed_;
  const bool shuffle_;
  DType dtype_ = DType::kF32;
  ReduceOp op_ = ReduceOp::kSum;
  int64_t contributions_ = 2;
  int64_t block_ = 0;
  int64_t others_ = 1;       // size of the mesh dim that is not partial
  bool others_cut_ = false;  // that dim cuts tensor dim 0 of the source
  bool others_first_ = false;
  Shape shape_;
  std::vector<Bits> expected_;  // by element
};

// Topologies on which reductions in blocks go in stages. In the first, messages are so expensive
// that fewer are better. In the second, links between domains are so slow that contributions are
// combined inside domains; there an all_reduce is often one step instead of a scatter and a gather.
Topology DearMessages(int64_t domain);
Topology DearCrossings(int64_t domain);

// All ordered factorings of n into one to three factors of two or more.
std::vector<std::vector<int64_t>> Factorings(int64_t n);

}  // namespace meshift

#endif  // MESHIFT_TESTS_ORDERED_CASE_H_
