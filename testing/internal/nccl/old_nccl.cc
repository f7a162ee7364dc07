// A library with NCCL's functions, of a version that is too old. For tests.

extern "C" {

int ncclGetVersion(int* version) {
  *version = 21805;
  return 0;
}

#define MESHIFT_OLD_FUNCTION(name) \
  int name() { return 3; }
MESHIFT_OLD_FUNCTION(ncclGetUniqueId)
MESHIFT_OLD_FUNCTION(ncclGetErrorString)
MESHIFT_OLD_FUNCTION(ncclGetLastError)
MESHIFT_OLD_FUNCTION(ncclCommInitRankConfig)
MESHIFT_OLD_FUNCTION(ncclCommSplit)
MESHIFT_OLD_FUNCTION(ncclCommFinalize)
MESHIFT_OLD_FUNCTION(ncclCommDestroy)
MESHIFT_OLD_FUNCTION(ncclCommAbort)
MESHIFT_OLD_FUNCTION(ncclCommGetAsyncError)
MESHIFT_OLD_FUNCTION(ncclCommCount)
MESHIFT_OLD_FUNCTION(ncclCommCuDevice)
MESHIFT_OLD_FUNCTION(ncclCommUserRank)
MESHIFT_OLD_FUNCTION(ncclAllReduce)
MESHIFT_OLD_FUNCTION(ncclReduceScatter)
MESHIFT_OLD_FUNCTION(ncclAllGather)
MESHIFT_OLD_FUNCTION(ncclBroadcast)
MESHIFT_OLD_FUNCTION(ncclReduce)
MESHIFT_OLD_FUNCTION(ncclSend)
MESHIFT_OLD_FUNCTION(ncclRecv)
MESHIFT_OLD_FUNCTION(ncclGroupStart)
MESHIFT_OLD_FUNCTION(ncclGroupEnd)

}  // extern "C"
