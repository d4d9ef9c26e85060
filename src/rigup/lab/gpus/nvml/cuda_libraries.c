/*
 * Part of libcuda.c: what PyTorch and the engines call of cuBLAS and NCCL, for programs that have the stand-in preloaded.
 * Matrices are not multiplied and nothing is exchanged: memory stays as it is. Sources: cuBLAS 13.0, NCCL 2.28.
 */
static int called(const char *name)
{
    return launched(kernels[slot_of(name)].name ? name : named_kernel(name, name));
}

#define CALLED(name) int called_##name() NAMED_(name); int called_##name() { return called(#name); }

int cublasCreate_v2(void **handle) { return made(handle); }
int cublasLtCreate(void **handle) { return made(handle); }
int cublasLtMatmulDescCreate(void **handle) { return made(handle); }
int cublasLtMatmulPreferenceCreate(void **handle) { return made(handle); }
int cublasLtMatrixLayoutCreate(void **handle) { return made(handle); }
int cublasGetMathMode(void *handle, int *mode) { return (void)handle, *mode = 0, SUCCESS; }
int cublasGetPointerMode_v2(void *handle, int *mode) { return (void)handle, *mode = 0, SUCCESS; }
const char *cublasGetStatusString() { return "not on a lab machine"; }
size_t cublasLtGetVersion(void) { return 130000; }
struct Algorithm { uint64_t words[8]; size_t workspace; int state; float waves; int reserved[4]; };
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference, int most,
                                   struct Algorithm *found, int *count)
{
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)most;
    return *found = (struct Algorithm){0}, *count = 1, SUCCESS;
}
int cublasLtMatmulAlgoConfigGetAttribute(const void *algorithm, int which, void *into, size_t size, size_t *written)
{
    (void)algorithm, (void)which;
    if (written)
        *written = size;
    return memset(into, 0, size), SUCCESS;
}

ACCEPTED(cublasDestroy_v2) ACCEPTED(cublasLtDestroy) ACCEPTED(cublasLtMatmulAlgoCheck)
ACCEPTED(cublasLtMatmulAlgoConfigSetAttribute) ACCEPTED(cublasLtMatmulAlgoInit) ACCEPTED(cublasLtMatmulDescDestroy)
ACCEPTED(cublasLtMatmulDescSetAttribute) ACCEPTED(cublasLtMatmulPreferenceDestroy)
ACCEPTED(cublasLtMatmulPreferenceSetAttribute) ACCEPTED(cublasLtMatrixLayoutDestroy)
ACCEPTED(cublasLtMatrixLayoutSetAttribute) ACCEPTED(cublasSetMathMode) ACCEPTED(cublasSetPointerMode_v2)
ACCEPTED(cublasSetSmCountTarget) ACCEPTED(cublasSetStream_v2) ACCEPTED(cublasSetWorkspace_v2)
CALLED(cublasCdotc_v2) CALLED(cublasCdotu_v2) CALLED(cublasCgelsBatched) CALLED(cublasCgemmStridedBatched)
CALLED(cublasCgemm_v2) CALLED(cublasCgemv_v2) CALLED(cublasCgeqrfBatched) CALLED(cublasCgetrfBatched)
CALLED(cublasCgetrsBatched) CALLED(cublasCtrsmBatched) CALLED(cublasCtrsm_v2) CALLED(cublasDdot_v2)
CALLED(cublasDgelsBatched) CALLED(cublasDgemmStridedBatched) CALLED(cublasDgemm_v2) CALLED(cublasDgemv_v2)
CALLED(cublasDgeqrfBatched) CALLED(cublasDgetrfBatched) CALLED(cublasDgetrsBatched) CALLED(cublasDotEx)
CALLED(cublasDtrsmBatched) CALLED(cublasDtrsm_v2) CALLED(cublasGemmEx) CALLED(cublasGemmStridedBatchedEx)
CALLED(cublasHgemm) CALLED(cublasLtMatmul) CALLED(cublasSdot_v2) CALLED(cublasSgelsBatched) CALLED(cublasSgemmEx)
CALLED(cublasSgemmStridedBatched) CALLED(cublasSgemm_v2) CALLED(cublasSgemv_v2) CALLED(cublasSgeqrfBatched)
CALLED(cublasSgetrfBatched) CALLED(cublasSgetrsBatched) CALLED(cublasStrsmBatched) CALLED(cublasStrsm_v2)

typedef struct { char bytes[128]; } UniqueId;
typedef struct { int ranks, rank; unsigned ordinal; } Communicator;

int ncclGetVersion(int *version) { return *version = 22807, SUCCESS; }
int ncclGetUniqueId(UniqueId *id) { return *id = (UniqueId){{1}}, SUCCESS; }
int ncclCommInitRank(Communicator **communicator, int ranks, UniqueId id, int rank)
{
    (void)id;
    return *communicator = malloc(sizeof **communicator), **communicator = (Communicator){ranks, rank, current}, SUCCESS;
}
int ncclCommInitRankConfig(Communicator **communicator, int ranks, UniqueId id, int rank)
{
    return ncclCommInitRank(communicator, ranks, id, rank);
}
int ncclCommCount(const Communicator *communicator, int *count) { return *count = communicator->ranks, SUCCESS; }
int ncclCommUserRank(const Communicator *communicator, int *rank) { return *rank = communicator->rank, SUCCESS; }
int ncclCommGetAsyncError(const Communicator *communicator, int *error) { return (void)communicator, *error = SUCCESS, SUCCESS; }
const char *ncclGetErrorString() { return "not on a lab machine"; }
const char *ncclGetLastError() { return ""; }

ACCEPTED(ncclCommAbort) ACCEPTED(ncclCommDestroy) ACCEPTED(ncclCommFinalize) ACCEPTED(ncclCommDeregister)
ACCEPTED(ncclCommWindowDeregister) ACCEPTED(ncclGroupStart) ACCEPTED(ncclGroupEnd) ACCEPTED(ncclRedOpDestroy)
CALLED(ncclAllGather) CALLED(ncclAllReduce) CALLED(ncclAlltoAll) CALLED(ncclBcast) CALLED(ncclBroadcast)
CALLED(ncclGather) CALLED(ncclRecv) CALLED(ncclReduce) CALLED(ncclReduceScatter) CALLED(ncclSend)
REFUSED(ncclCommRegister) REFUSED(ncclCommWindowRegister) REFUSED(ncclCommSplit) REFUSED(ncclCommShrink)
REFUSED(ncclCommInitAll) REFUSED(ncclCommInitRankScalable) REFUSED(ncclRedOpCreatePreMulSum) REFUSED(ncclMemAlloc)
REFUSED(ncclMemFree)
