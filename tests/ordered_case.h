// Cases of reductions whose bits depend on the order, and what every engine must make of them under
// the promise `ordered`: the contributions of a tensor, combined from left to right in ascending
// order of the flattened partial coordinate, by tests/plain_arithmetic.h; or so in blocks, and then
// these.
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
  // Ranks of the world, where they are given; else as many as the case wants.
  int64_t ranks = 0;
  // Contributions are combined in blocks of 1, 2, 3, 4, 8 or all of them.
  bool blocks = false;
  // Some meshes have their ranks in another order than that of coordinates.
  bool shuffle = false;
};

// Of one factoring of the contributions into mesh dims. The same ranks hold the same contributions
// in all problems of a case.
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

  // Partial over one to three mesh dims, and replicated or cut over one that stands before, behind
  // or, of size 1, nowhere. Targets differ.
  std::vector<OrderedProblem> Problems() const;

  // Of the rank at a position: what it holds before; and its first element after that is other than
  // the reference, or "". REQUIRES: `local` has the bytes of the local tensor, row-major.
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
  bool others_cut_ = false;  // it cuts tensor dim 0 of the source
  bool others_first_ = false;
  Shape shape_;
  std::vector<Bits> expected_;  // by element
};

// Topologies on which reductions in blocks go in stages: those on which a message costs so much
// that the fewer the better, and those with so little between domains that whatever can be combined
// inside is; there an all_reduce is more often one than a scatter and a gather.
Topology DearMessages(int64_t domain);
Topology DearCrossings(int64_t domain);

// All ways to write n as a product of one to three factors of two or more, in order.
std::vector<std::vector<int64_t>> Factorings(int64_t n);

}  // namespace meshift

#endif  // MESHIFT_TESTS_ORDERED_CASE_H_
