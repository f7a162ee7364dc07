// Lets calls of MPI not come back, as after a peer was killed at the wrong moment: a binary with
// this has calls of its own in place of Open MPI's, by MPI's profiling interface.
//
//   HangIn("MPI_Testall");     // from now on whoever calls it stays there
//   HangIn("");                // until now
#ifndef MESHIFT_TESTING_INTERNAL_MPI_HANG_H_
#define MESHIFT_TESTING_INTERNAL_MPI_HANG_H_

namespace meshift {

// `function`: a literal; one of those in hang.cc, or "*" for all of them. `when`: only
// where it says so.
void HangIn(const char* function, bool (*when)() = nullptr);

// Whether some thread hangs, or has and is not back from that call.
bool SomeHangs();

// HangIn(""), and waits for those threads to come back: what they do in MPI yet, such as making
// communicators, may not be mixed with what the test does next.
void EndHang();

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_MPI_HANG_H_
