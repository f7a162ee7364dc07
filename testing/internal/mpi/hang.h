// Makes MPI calls hang, as after a peer was killed at the wrong moment. A binary that links this
// has its own calls in place of Open MPI's, by MPI's profiling interface.
//
//   HangIn("MPI_Testall");     // from now on every caller hangs
//   HangIn("");                // ends the hang
#ifndef MESHIFT_TESTING_INTERNAL_MPI_HANG_H_
#define MESHIFT_TESTING_INTERNAL_MPI_HANG_H_

namespace meshift {

// `function`: a literal; one of those in hang.cc, or "*" for all of them. `when`: hangs only if it
// returns true.
void HangIn(const char* function, bool (*when)() = nullptr);

// Whether a thread hangs, or has hung and has not returned from that call yet.
bool SomeHangs();

// HangIn(""), and waits until those threads return: the rest of their MPI calls, such as making
// communicators, must not mix with the next calls of the test.
void EndHang();

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_MPI_HANG_H_
