// The oracle for given sources that are cast and reduced. Private to //testing.
#ifndef MESHIFT_TESTING_GIVEN_CAST_H_
#define MESHIFT_TESTING_GIVEN_CAST_H_

#include "meshift/dtype.h"
#include "meshift/testing.h"
#include "testing/given.h"
#include "testing/given_world.h"

namespace meshift::testkit {

// Checks the targets' values: contributions of dtype `from` are cast to `reduce`, reduced, and cast
// to `to`. REQUIRES: these casts exist; buffers have the right sizes.
CheckResult CheckCastSum(const World& world, DType from, DType reduce, DType to,
                         BufferViews sources, BufferViews targets);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_GIVEN_CAST_H_
