/*
 * Part of libcuda.c: the documented functions of CUDA's runtime library, for programs that have the stand-in preloaded.
 * Work on a stream is done when its call returns. Source: CUDA runtime API 13.0.
 */
enum { FROM_DEVICE = 2 };
typedef struct { unsigned x, y, z; } Extent;
typedef struct { char memory[64]; } IpcHandle;
typedef struct { int capturing; void *graph; } Stream;
typedef struct timespec Event;

static __thread int last_error;
static Stream first_stream; /* and those that programs name by small numbers */

static int result(int error) { return last_error = error ? error : last_error, error; }

typedef struct {
    char name[256];
    unsigned char uuid[16];
    char luid[8];
    unsigned luid_mask;
    size_t memory, shared_per_block;
    int registers_per_block, warp_size;
    size_t pitch;
    int threads_per_block, threads[3], grid[3];
    size_t constant_memory;
    int major, minor;
    size_t texture_alignment, texture_pitch_alignment;
    int multiprocessors, integrated, maps_host_memory, textures[39];
    size_t surface_alignment;
    int concurrent_kernels, ecc, bus, bus_device, domain, tcc, copy_engines, unified_addressing, bus_bits, level_2_bytes;
    int persisting_level_2_bytes, threads_per_multiprocessor, priorities, global_level_1, local_level_1;
    size_t shared_per_multiprocessor;
    int registers_per_multiprocessor, managed, multiple, multiple_group, atomics, pageable, concurrent_managed, preemption;
    int registered_pointers, cooperative;
    size_t shared_on_request;
    int pageable_tables, managed_from_host, blocks_per_multiprocessor, policy_window;
    size_t shared_of_driver;
    int registers_host_memory, sparse, read_only, semaphores, pools, rdma, rdma_flush, rdma_order, pool_handles, deferred, ipc;
    int clusters, function_pointers, numa, numa_node, mps, host_numa_node, pci_device, pci_subsystem, numa_ipc, reserved[56];
} Properties;

int cudaGetDeviceProperties(Properties *into, int device)
{
    if (!known(device))
        return result(CUDA_INVALID_DEVICE);
    int major, minor;
    capability_of((unsigned)device, &major, &minor);
    *into = (Properties){
        .memory = memory_of((unsigned)device), .shared_per_block = 49152, .registers_per_block = 65536, .warp_size = 32,
        .pitch = 2147483647, .threads_per_block = 1024, .threads = {1024, 1024, 64}, .grid = {2147483647, 65535, 65535},
        .constant_memory = 65536, .major = major, .minor = minor, .texture_alignment = 512, .texture_pitch_alignment = 32,
        .multiprocessors = attribute((unsigned)device, 16), .maps_host_memory = 1, .concurrent_kernels = 1,
        .bus = attribute((unsigned)device, 33), .copy_engines = 2, .unified_addressing = 1, .bus_bits = 384,
        .level_2_bytes = attribute((unsigned)device, 38), .threads_per_multiprocessor = attribute((unsigned)device, 39),
        .priorities = 1, .global_level_1 = 1, .local_level_1 = 1,
        .shared_per_multiprocessor = (size_t)attribute((unsigned)device, 81), .registers_per_multiprocessor = 65536,
        .managed = 1, .concurrent_managed = 1, .preemption = 1, .registered_pointers = 1, .cooperative = 1,
        .shared_on_request = (size_t)attribute((unsigned)device, 97),
        .blocks_per_multiprocessor = attribute((unsigned)device, 106), .shared_of_driver = 1024, .registers_host_memory = 1,
        .pools = 1, .clusters = major >= 9,
    };
    cuDeviceGetName(into->name, sizeof into->name, device);
    return cuDeviceGetUuid_v2(into->uuid, device);
}

int cudaGetDeviceCount(int *count) { return *count = (int)cards(), result(*count ? SUCCESS : CUDA_NO_DEVICE); }
int cudaGetDevice(int *device) { return *device = (int)current, SUCCESS; }
int cudaSetDevice(int device) { return known(device) ? (current = (unsigned)device, SUCCESS) : result(CUDA_INVALID_DEVICE); }
int cudaDeviceGetAttribute(int *value, int which, int device) { return result(cuDeviceGetAttribute(value, which, device)); }
int cudaDeviceGetPCIBusId(char *into, int size, int device) { return result(cuDeviceGetPCIBusId(into, size, device)); }
int cudaDeviceGetStreamPriorityRange(int *least, int *most) { return *least = 0, *most = -5, SUCCESS; }
int cudaDeviceCanAccessPeer(int *can, int device, int peer) { return cuDeviceCanAccessPeer(can, device, peer); }
int cudaDeviceGetDefaultMemPool(void **pool) { return made(pool); }
int cudaDeviceGetGraphMemAttribute(int device, int which, uint64_t *value) { return (void)device, (void)which, *value = 0, SUCCESS; }
int cudaMemPoolGetAttribute(void *pool, int which, uint64_t *value) { return (void)pool, (void)which, *value = 0, SUCCESS; }
int cudaDriverGetVersion(int *version) { return *version = LATEST, SUCCESS; }
int cudaRuntimeGetVersion(int *version) { return *version = LATEST, SUCCESS; }
int cudaGetLastError(void) { int error = last_error; return last_error = SUCCESS, error; }
int cudaPeekAtLastError(void) { return last_error; }
const char *cudaGetErrorName(int error) { const char *name; return cuGetErrorName(error, &name), name; }
const char *cudaGetErrorString(int error) { const char *text; return cuGetErrorString(error, &text), text; }
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, uint64_t flags, int *status)
{
    return cuGetProcAddress_v2(name, function, (int)version, flags, status), SUCCESS;
}

int cudaGetDriverEntryPoint(const char *name, void **function, uint64_t flags, int *status)
{
    return cuGetProcAddress_v2(name, function, LATEST, flags, status), SUCCESS;
}

int cudaMalloc(void **pointer, size_t size) { return result(allocate(pointer, size, 0)); }
int cudaMallocAsync(void **pointer, size_t size) { return cudaMalloc(pointer, size); }
int cudaMallocManaged(void **pointer, size_t size) { return cudaMalloc(pointer, size); }
int cudaMallocHost(void **pointer, size_t size) { return result(allocate(pointer, size, 1)); }
int cudaHostAlloc(void **pointer, size_t size) { return cudaMallocHost(pointer, size); }
int cudaFree(void *pointer) { return result(give_back(pointer)); }
int cudaFreeAsync(void *pointer) { return cudaFree(pointer); }
int cudaFreeHost(void *pointer) { return cudaFree(pointer); }
int cudaHostGetDevicePointer(void **pointer, void *host) { return *pointer = host, SUCCESS; }
int cudaMemGetInfo(size_t *left, size_t *total) { return cuMemGetInfo_v2(left, total); }
int cudaGetSymbolAddress(void **pointer) { return cudaMalloc(pointer, ALIGNMENT); }
int cudaMemset(void *memory, int value, size_t size) { return fill(memory, value, size), SUCCESS; }
int cudaMemsetAsync(void *memory, int value, size_t size) { return fill(memory, value, size), SUCCESS; }
int cudaMemset2DAsync(char *memory, size_t pitch, int value, size_t width, size_t height)
{
    while (height--)
        fill(memory + height * pitch, value, width);
    return SUCCESS;
}
int cudaMemcpy(void *to, const void *from, size_t size) { return copied(to, from, size), SUCCESS; }
/* A byte alone that a program reads is most often whether something holds: false here, true if LAB_GPU_HOLDS is set. */
int cudaMemcpyAsync(void *to, const void *from, size_t size, int direction)
{
    copied(to, from, size);
    if (size == 1 && direction == FROM_DEVICE && getenv("LAB_GPU_HOLDS"))
        *(char *)to = 1;
    return SUCCESS;
}
int cudaMemcpyPeerAsync(void *to, int device, const void *from, int other, size_t size)
{
    return (void)device, (void)other, copied(to, from, size), SUCCESS;
}
int cudaMemcpy2DAsync(char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width, size_t height)
{
    while (height--)
        copied(to + height * to_pitch, from + height * from_pitch, width);
    return SUCCESS;
}
int cudaMemcpyBatchAsync(void **to, const void **from, const size_t *sizes, size_t count)
{
    while (count--)
        copied(to[count], from[count], sizes[count]);
    return SUCCESS;
}

struct Pointer { int kind, device; void *on_device, *on_host; long reserved[8]; };
int cudaPointerGetAttributes(struct Pointer *into, void *pointer)
{
    struct Block block;
    *into = (struct Pointer){.device = -2};
    if (block_of(pointer, &block))
        *into = (struct Pointer){block.host ? 1 : 2, (int)block.ordinal, pointer, block.host ? pointer : NULL, {0}};
    return SUCCESS;
}

struct Function {
    size_t shared, constant, local;
    int threads, registers, ptx_version, binary_version, cache, shared_on_request, carveout, reserved[23];
};
int cudaFuncGetAttributes(struct Function *into)
{
    int major, minor;
    capability_of(current, &major, &minor);
    *into = (struct Function){.threads = 1024, .registers = 64, .ptx_version = 10 * major + minor,
                              .binary_version = 10 * major + minor, .shared_on_request = 49152};
    return SUCCESS;
}
int cudaFuncSetAttribute(void *function, int which, int value) { return result(cuFuncSetAttribute(function, which, value)); }
int cudaLaunchKernel(const void *function, Extent grid, Extent block, void **parameters)
{
    return (void)grid, (void)block, launched_with(function, parameters);
}
int cudaLaunchCooperativeKernel(const void *function) { return launched(function); }
int cudaLaunchKernelExC(const void *configuration, const void *function) { return (void)configuration, launched(function); }
int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *data) { return (void)stream, function(data), SUCCESS; }
int cudaStreamAddCallback(void *stream, void (*function)(void *, int, void *), void *data)
{
    return function(stream, SUCCESS, data), SUCCESS;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *count) { return *count = 2, SUCCESS; }
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count) { return *count = 2, SUCCESS; }
int cudaOccupancyMaxActiveClusters(int *count) { return *count = 8, SUCCESS; }
int cudaOccupancyMaxPotentialClusterSize(int *size) { return *size = 8, SUCCESS; }
int cudaGetKernel(const void **kernel, const void *function) { return *kernel = function, SUCCESS; }
int cudaLibraryLoadData(void **library) { return made(library); }
int cudaLibraryGetKernel(void **kernel, void *library, const char *name) { return cuModuleGetFunction(kernel, library, name); }

/* What nvcc's code for the host calls. */
void **__cudaRegisterFatBinary() { return calloc(1, 64); }
void __cudaRegisterFatBinaryEnd() {}
void __cudaUnregisterFatBinary() {}
void __cudaRegisterVar() {}
char __cudaInitModule() { return 1; }
void __cudaRegisterFunction(void **binary, const char *host, char *device, const char *name)
{
    (void)binary, (void)device;
    named_kernel(host, name);
}
static __thread struct { Extent grid, block; size_t shared; void *stream; } configuration;
unsigned __cudaPushCallConfiguration(Extent grid, Extent block, size_t shared, void *stream)
{
    return configuration.grid = grid, configuration.block = block, configuration.shared = shared, configuration.stream = stream, 0;
}
int __cudaPopCallConfiguration(Extent *grid, Extent *block, size_t *shared, void **stream)
{
    *grid = configuration.grid, *block = configuration.block, *shared = configuration.shared, *stream = configuration.stream;
    return SUCCESS;
}
int __cudaGetKernel(const void **kernel, const void *function) { return *kernel = function, SUCCESS; }
int __cudaLaunchKernel(const void *kernel, Extent grid, Extent block, void **parameters)
{
    return cudaLaunchKernel(kernel, grid, block, parameters);
}

/* Streams, events and graphs. What is captured is done at once and not again. */

static Stream *stream_of(void *stream) { return (uintptr_t)stream < 16 ? &first_stream : stream; }

int cudaStreamCreate(void **stream) { return made(stream); }
int cudaStreamCreateWithFlags(void **stream) { return made(stream); }
int cudaStreamCreateWithPriority(void **stream) { return made(stream); }
int cuStreamCreate(void **stream) { return made(stream); }
int cudaStreamGetPriority(void *stream, int *priority) { return (void)stream, *priority = 0, SUCCESS; }
int cudaStreamBeginCapture(void *stream) { return stream_of(stream)->capturing = 1, made(&stream_of(stream)->graph); }
int cudaStreamBeginCaptureToGraph(void *stream, void *graph)
{
    return stream_of(stream)->capturing = 1, stream_of(stream)->graph = graph, SUCCESS;
}
int cudaStreamEndCapture(void *stream, void **graph)
{
    return stream_of(stream)->capturing = 0, *graph = stream_of(stream)->graph, SUCCESS;
}
int cudaStreamIsCapturing(void *stream, int *capturing) { return *capturing = stream_of(stream)->capturing, SUCCESS; }
int cuStreamIsCapturing(void *stream, int *capturing) { return cudaStreamIsCapturing(stream, capturing); }
int cudaStreamGetCaptureInfo(void *stream, int *capturing, uint64_t *id, void **graph, void **nodes, void **edges, size_t *count)
{
    *capturing = stream_of(stream)->capturing;
    if (id)
        *id = (uintptr_t)stream_of(stream)->graph;
    if (graph)
        *graph = stream_of(stream)->graph;
    if (nodes)
        *nodes = NULL;
    if (edges)
        *edges = NULL;
    if (count)
        *count = 0;
    return SUCCESS;
}
int cudaGraphInstantiateWithFlags(void **graph) { return made(graph); }
int cudaGraphGetNodes(void *graph, void **nodes, size_t *count) { return (void)graph, (void)nodes, *count = 1, SUCCESS; }
int cudaGraphNodeGetDependencies(void *node, void **nodes, void *edges, size_t *count)
{
    return (void)node, (void)nodes, (void)edges, *count = 0, SUCCESS;
}
int cudaUserObjectCreate(void **object) { return made(object); }
int cudaEventCreate(Event **event) { return *event = calloc(1, sizeof **event), SUCCESS; }
int cudaEventCreateWithFlags(Event **event) { return cudaEventCreate(event); }
int cudaEventDestroy(Event *event) { return free(event), SUCCESS; }
int cudaEventRecord(Event *event) { return clock_gettime(CLOCK_MONOTONIC, event), SUCCESS; }
int cudaEventRecordWithFlags(Event *event) { return cudaEventRecord(event); }
int cuEventCreate(Event **event) { return cudaEventCreate(event); }
int cuEventRecord(Event *event) { return cudaEventRecord(event); }
int cuEventDestroy_v2(Event *event) { return cudaEventDestroy(event); }
int cudaEventElapsedTime(float *milliseconds, Event *from, Event *to)
{
    double elapsed = (to->tv_sec - from->tv_sec) * 1e3 + (to->tv_nsec - from->tv_nsec) / 1e6;
    return *milliseconds = elapsed > 0 ? (float)elapsed : 0.001f, SUCCESS;
}

ACCEPTED(cudaDeviceSynchronize) ACCEPTED(cudaDeviceSetGraphMemAttribute) ACCEPTED(cudaMemPoolSetAttribute)
ACCEPTED(cudaMemPoolSetAccess) ACCEPTED(cudaMemPoolTrimTo) ACCEPTED(cudaHostRegister) ACCEPTED(cudaHostUnregister)
ACCEPTED(cudaMemcpyToSymbol) ACCEPTED(cudaMemcpyFromSymbol) ACCEPTED(cudaProfilerStart) ACCEPTED(cudaProfilerStop) ACCEPTED(cudaStreamDestroy)
ACCEPTED(cudaStreamSynchronize) ACCEPTED(cudaStreamQuery) ACCEPTED(cudaStreamWaitEvent) ACCEPTED(cudaEventQuery)
ACCEPTED(cudaEventSynchronize) ACCEPTED(cudaStreamUpdateCaptureDependencies) ACCEPTED(cudaThreadExchangeStreamCaptureMode)
ACCEPTED(cudaGraphLaunch) ACCEPTED(cudaGraphDestroy) ACCEPTED(cudaGraphExecDestroy) ACCEPTED(cudaGraphRetainUserObject)
ACCEPTED(cudaUserObjectRelease) ACCEPTED(cudaLibraryUnload) ACCEPTED(cudaKernelSetAttributeForDevice)

REFUSED(cudaDeviceEnablePeerAccess) REFUSED(cudaIpcGetMemHandle) REFUSED(cudaIpcOpenMemHandle) REFUSED(cudaIpcCloseMemHandle)
REFUSED(cudaIpcGetEventHandle) REFUSED(cudaIpcOpenEventHandle) REFUSED(cudaGraphAddNode) REFUSED(cudaGraphConditionalHandleCreate)
