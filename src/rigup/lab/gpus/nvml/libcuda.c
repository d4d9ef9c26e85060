/*
 * A stand-in for CUDA on lab machines: the driver's library, libcuda.so.1. It copies data to GPUs and between them, takes
 * kernels and runs none of them but those that fill a tensor: memory keeps what was copied to it, and zeros at first. A
 * GPU's memory is the machine's, given out until the card is full, and takes room once it is written. A copy takes as
 * long as the rig's description says ("host_gbs", "peer_gbs"), while it lasts the link runs at
 * "pcie_generation_loaded", and a GPU that "corrupts" changes what others read of it.
 *
 * CUDA's own runtime library asks the real driver for more than NVIDIA documents. A program that has this library
 * preloaded takes the documented functions of the runtime, cuBLAS and NCCL from it instead (cuda_runtime.c,
 * cuda_libraries.c), and so an engine from its real wheels starts, compiles its kernels and answers.
 *
 * Kernels that compare leave false. LAB_GPU_HOLDS=1 has programs read true instead: SGLang asserts that scales are positive.
 * LAB_GPU_JOURNAL names a file that gets a line for each kernel that a process launches first, and for what it asked in
 * vain. Functions without parameters here take any and use none. Source: CUDA driver API 13.0.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

#include "rig.h"

enum {
    CUDA_INVALID_VALUE = 1, CUDA_OUT_OF_MEMORY = 2, CUDA_NO_DEVICE = 100, CUDA_INVALID_DEVICE = 101,
    CUDA_PEER_UNSUPPORTED = 217, CUDA_NOT_FOUND = 500, CUDA_NOT_SUPPORTED = 801
};
#define LATEST 13000
#define PAGE 4096ul
#define ALIGNMENT (2ul << 20)

#define NAMED_(name) __asm__(#name)
#define ACCEPTED(name) int accepted_##name() NAMED_(name); int accepted_##name() { return SUCCESS; }
#define REFUSED(name) int refused_##name() NAMED_(name); \
    int refused_##name() { return note("refused " #name), CUDA_NOT_SUPPORTED; }

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_once_t read_once = PTHREAD_ONCE_INIT;
static __thread unsigned current; /* an ordinal, as all of CUDA's device numbers are */
static unsigned visible[MOST_GPUS], visible_count;

static void note(const char *format, ...)
{
    const char *path = getenv("LAB_GPU_JOURNAL");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file)
        return;
    va_list words;
    va_start(words, format);
    vfprintf(file, format, words);
    va_end(words);
    fputc('\n', file);
    fclose(file);
}

/* CUDA_VISIBLE_DEVICES: indices or UUIDs, up to the first that there is no GPU for. */
static void read_visible(void)
{
    char line[LINE], *names = getenv("CUDA_VISIBLE_DEVICES");
    if (!first_line(LOADED, line))
        return;
    device_count = value_of("gpus", line) ? (unsigned)strtoul(line, NULL, 10) : 0;
    for (unsigned index = 0; index < device_count; index++)
        devices[index].index = index;
    if (!names) {
        for (; visible_count < device_count; visible_count++)
            visible[visible_count] = visible_count;
        return;
    }
    char *rest = strdup(names), *name;
    while ((name = strsep(&rest, ","))) {
        unsigned index = 0;
        char number[16], uuid[LINE];
        for (; index < device_count; index++) {
            snprintf(number, sizeof number, "%u", index);
            if (!strcmp(name, number) || (value_of(key_of(index, "uuid"), uuid) && !strcmp(name, uuid)))
                break;
        }
        if (index == device_count)
            return;
        visible[visible_count++] = index;
    }
}

static unsigned cards(void) { return pthread_once(&read_once, read_visible), visible_count; }

static int known(int ordinal) { return ordinal >= 0 && ordinal < (int)cards(); }

static unsigned number_of(unsigned ordinal, const char *name, unsigned otherwise)
{
    char value[LINE];
    cards();
    return value_of(key_of(visible[ordinal], name), value) ? (unsigned)strtoul(value, NULL, 0) : otherwise;
}

static void text_of(unsigned ordinal, const char *name, char *into)
{
    cards();
    if (!value_of(key_of(visible[ordinal], name), into))
        *into = 0;
}

static void capability_of(unsigned ordinal, int *major, int *minor)
{
    char text[LINE];
    text_of(ordinal, "compute_capability", text);
    *major = *minor = 0;
    sscanf(text, "%d.%d", major, minor);
}

/* Memory: of GPUs, and of the host where CUDA gives it out. */

static struct Block { char *begin; size_t size; unsigned ordinal; int host; struct Block *next; } *blocks;
static size_t given[MOST_GPUS];

/* Unified memory, for which NVML has no figure, is the machine's. */
static size_t memory_of(unsigned ordinal)
{
    size_t own = (size_t)number_of(ordinal, "memory_mib", 0) << 20;
    return own ? own : (size_t)sysconf(_SC_PHYS_PAGES) * PAGE;
}

/* The file that a process maps a card's memory from, so that others see what it holds. Its pages are zeros. */
static int file_of(unsigned ordinal)
{
    static int files[MOST_GPUS];
    char name[LINE];
    if (!files[ordinal]) {
        snprintf(name, sizeof name, MEMORY_OF_GPU, visible[ordinal]);
        files[ordinal] = memfd_create(name, MFD_CLOEXEC);
        if (files[ordinal] < 0 || ftruncate(files[ordinal], (off_t)(memory_of(ordinal) + ALIGNMENT)))
            files[ordinal] = -1;
    }
    return files[ordinal];
}

static int allocate(void **pointer, size_t size, int host)
{
    size_t whole = (size + PAGE - 1) / PAGE * PAGE;
    *pointer = NULL;
    if (!whole)
        return SUCCESS;
    pthread_mutex_lock(&lock);
    int found = CUDA_OUT_OF_MEMORY;
    if (host || (known((int)current) && given[current] + whole <= memory_of(current))) {
        int file = host ? -1 : file_of(current), flags = MAP_PRIVATE | MAP_NORESERVE | (file < 0 ? MAP_ANONYMOUS : 0);
        char *room = mmap(NULL, whole + ALIGNMENT, PROT_READ | PROT_WRITE, flags, file, 0);
        struct Block *block = room == MAP_FAILED ? NULL : malloc(sizeof *block);
        if (block) {
            char *begin = (char *)(((uintptr_t)room + ALIGNMENT - 1) & ~(ALIGNMENT - 1));
            if (begin > room)
                munmap(room, (size_t)(begin - room));
            if (room + ALIGNMENT > begin)
                munmap(begin + whole, (size_t)(room + ALIGNMENT - begin));
            *block = (struct Block){begin, whole, current, host, blocks};
            blocks = block;
            given[current] += host ? 0 : whole;
            *pointer = begin;
            found = SUCCESS;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static int give_back(void *pointer)
{
    int found = pointer ? CUDA_INVALID_VALUE : SUCCESS;
    pthread_mutex_lock(&lock);
    for (struct Block **each = &blocks; pointer && *each; each = &(*each)->next)
        if ((*each)->begin == pointer) {
            struct Block *block = *each;
            *each = block->next;
            munmap(block->begin, block->size);
            given[block->ordinal] -= block->host ? 0 : block->size;
            free(block);
            found = SUCCESS;
            break;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

static int block_of(const void *pointer, struct Block *into)
{
    int found = 0;
    pthread_mutex_lock(&lock);
    for (struct Block *each = blocks; each && !found; each = each->next)
        if ((found = (char *)pointer >= each->begin && (char *)pointer < each->begin + each->size))
            *into = *each;
    pthread_mutex_unlock(&lock);
    return found;
}

/* Large zeros give the pages back instead of writing them. */
static void fill(char *memory, int value, size_t size)
{
    char *from = (char *)(((uintptr_t)memory + PAGE - 1) & ~(PAGE - 1));
    char *to = (char *)((uintptr_t)(memory + size) & ~(PAGE - 1));
    if (value || to <= from || madvise(from, (size_t)(to - from), MADV_DONTNEED)) {
        memset(memory, value, size);
        return;
    }
    memset(memory, 0, (size_t)(from - memory));
    memset(to, 0, (size_t)(memory + size - to));
}

static void copied(void *to, const void *from, size_t size)
{
    if (to && from && size)
        memmove(to, from, size);
}

/* Kernels: what they are called, and which of them a process has launched. */

#define MOST_KERNELS (1u << 19)
static struct { const void *function; const char *name; char launched, filled; } kernels[MOST_KERNELS];

/* The bytes of an element, for PyTorch's kernels that fill a tensor: the ones that are run. Without them a service never
   ends an answer, because what a step has sampled is counted in a tensor of ones. 0 for any other kernel. */
static char filled_by(const char *name)
{
    int whole = strstr(name, "vectorized_elementwise_kernel") || strstr(name, "unrolled_elementwise_kernel");
    const char *type = whole ? strstr(name, "FillFunctorI") : NULL;
    switch (type ? type[strlen("FillFunctorI")] : 0) {
    case 'a': case 'b': case 'h': return 1;
    case 's': return 2;
    case 'f': case 'i': case 'j': return 4;
    case 'd': case 'l': case 'm': return 8;
    case 'N': return strstr(type, "BFloat16") || strstr(type, "c104Half") ? 2 : 0;
    default: return 0;
    }
}

/* parameters: the count of elements, the value, and where they lie (ATen/native/cuda/CUDALoops.cuh). */
static void fill_elements(void **parameters, size_t bytes)
{
    int count = *(int *)parameters[0];
    char *into = *(char **)parameters[2];
    if (memcmp(parameters[1], (char[8]){0}, bytes) == 0) {
        fill(into, 0, (size_t)count * bytes);
        return;
    }
    for (; count > 0; count--, into += bytes)
        memcpy(into, parameters[1], bytes);
}

static unsigned slot_of(const void *function)
{
    unsigned slot = (unsigned)(((uintptr_t)function >> 4) * 2654435761u) % MOST_KERNELS;
    while (kernels[slot].function && kernels[slot].function != function)
        slot = (slot + 1) % MOST_KERNELS;
    return slot;
}

static const void *named_kernel(const void *function, const char *name)
{
    pthread_mutex_lock(&lock);
    unsigned slot = slot_of(function);
    kernels[slot].function = function;
    kernels[slot].name = strdup(name);
    kernels[slot].filled = filled_by(name);
    pthread_mutex_unlock(&lock);
    return function;
}

static int launched_with(const void *function, void **parameters)
{
    pthread_mutex_lock(&lock);
    unsigned slot = slot_of(function);
    if (kernels[slot].filled && parameters)
        fill_elements(parameters, (size_t)kernels[slot].filled);
    if (!kernels[slot].launched)
        note("kernel %s", kernels[slot].name ? kernels[slot].name : "without a name");
    kernels[slot].function = function;
    kernels[slot].launched = 1;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static int launched(const void *function) { return launched_with(function, NULL); }

/* Shared memory, threads and blocks: CUDA C++ programming guide 13.0, "Technical specifications per compute capability".
   Multiprocessors, clocks, the memory's bus and the level 2 cache are the same for all cards: figures of none. */
static int attribute(unsigned ordinal, int which)
{
    int major, minor;
    char bus[LINE];
    capability_of(ordinal, &major, &minor);
    int centre = major == 9 || major == 10 || major == 11, ampere = major == 8 && minor == 0;
    int shared = centre ? 232448 : ampere ? 166912 : 101376;
    switch (which) {
    case 1: case 2: case 3: return 1024;                 /* threads of a block, and along x and y */
    case 4: return 64;                                   /* along z */
    case 5: return 2147483647;                           /* blocks of a grid */
    case 6: case 7: return 65535;
    case 8: return 49152;                                /* shared memory of a block, in bytes */
    case 9: return 65536;                                /* constant memory */
    case 10: return 32;                                  /* threads of a warp */
    case 12: case 82: return 65536;                      /* registers */
    case 13: return 1800000;                             /* kHz */
    case 14: return 512;                                 /* alignment of textures */
    case 16: return (int)number_of(ordinal, "multiprocessors", 128);
    case 18: return !number_of(ordinal, "memory_mib", 0); /* shares the machine's memory */
    case 33: text_of(ordinal, "bus", bus); return (int)strtol(bus + 9, NULL, 16);
    case 36: return 10000000;                            /* kHz of memory */
    case 37: return 384;                                 /* bits of the memory's bus */
    case 38: return 50 << 20;                            /* level 2 cache */
    case 39: return centre || ampere ? 2048 : 1536;      /* threads of a multiprocessor */
    case 40: return 2;                                   /* copy engines */
    case 75: return major;
    case 76: return minor;
    case 81: return shared + 1024;                       /* shared memory of a multiprocessor */
    case 97: return shared;                              /* of a block that asks for it */
    case 106: return centre || ampere ? 32 : 24;         /* blocks of a multiprocessor */
    case 111: return 1024;                               /* shared memory that the driver keeps */
    case 120: case 127: return major >= 9;               /* clusters of blocks, tensor maps */
    case 11: return 2147483647;
    case 15: case 19: case 31: case 41: case 78: case 79: case 80: case 83: case 89: case 90: case 91: case 95:
    case 99: case 115: return 1;                         /* what every card since Ampere can do */
    default: return 0;
    }
}

static void take_time(size_t size, unsigned gbs)
{
    double seconds = size / (gbs * 1e9);
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)}, NULL);
}

static int peers(unsigned one) { return number_of(one, "p2p", 1) == 0 || number_of(one, "p2p_nvlink", 1) == 0; }

/* Devices and contexts. A context is that of a device, which is all that the runtime library knows, too. */

static Device context_of(unsigned ordinal) { return (Device)&devices[visible[ordinal]]; }

static unsigned ordinal_of(Device context)
{
    for (unsigned ordinal = 0; ordinal < cards(); ordinal++)
        if (visible[ordinal] == context->index)
            return ordinal;
    return current;
}

int cuInit() { return cards() ? SUCCESS : CUDA_NO_DEVICE; }
int cuDriverGetVersion(int *version) { return *version = LATEST, SUCCESS; }
int cuDeviceGetCount(int *count) { return *count = (int)cards(), SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, known(ordinal) ? SUCCESS : CUDA_INVALID_VALUE; }

int cuDeviceGetName(char *into, int size, int device)
{
    char name[LINE];
    if (!known(device))
        return CUDA_INVALID_DEVICE;
    text_of((unsigned)device, "name", name);
    snprintf(into, (size_t)size, "%s", name);
    return SUCCESS;
}

int cuDeviceGetUuid_v2(unsigned char *into, int device)
{
    char text[LINE], *each = text + strlen("GPU-");
    if (!known(device))
        return CUDA_INVALID_DEVICE;
    text_of((unsigned)device, "uuid", text);
    for (int byte = 0; byte < 16; byte++, each += 2) {
        each += *each == '-';
        sscanf(each, "%2hhx", &into[byte]);
    }
    return SUCCESS;
}

int cuDeviceGetPCIBusId(char *into, int size, int device)
{
    char bus[LINE];
    if (!known(device))
        return CUDA_INVALID_VALUE;
    text_of((unsigned)device, "bus", bus);
    snprintf(into, (size_t)size, "%s", bus + 4); /* CUDA writes the domain with four digits */
    return SUCCESS;
}

int cuDeviceTotalMem_v2(size_t *size, int device)
{
    return known(device) ? (*size = memory_of((unsigned)device), SUCCESS) : CUDA_INVALID_DEVICE;
}

int cuDeviceGetAttribute(int *value, int which, int device)
{
    return known(device) ? (*value = attribute((unsigned)device, which), SUCCESS) : CUDA_INVALID_DEVICE;
}

int cuDeviceCanAccessPeer(int *can, int device, int peer) { return *can = known(peer) && peers((unsigned)device), SUCCESS; }
int cuDevicePrimaryCtxRetain(Device *context, int device) { return *context = context_of((unsigned)device), SUCCESS; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return (void)device, *flags = 0, *active = 1, SUCCESS; }
int cuCtxGetCurrent(Device *context) { return *context = cards() ? context_of(current) : NULL, SUCCESS; }
int cuCtxSetCurrent(Device context) { return current = context ? ordinal_of(context) : current, SUCCESS; }
int cuCtxPushCurrent_v2(Device context) { return cuCtxSetCurrent(context); }
int cuCtxPopCurrent_v2(Device *context) { return cuCtxGetCurrent(context); }
int cuCtxGetDevice(int *device) { return *device = (int)current, SUCCESS; }
int cuCtxEnablePeerAccess(Device peer) { return (void)peer, peers(current) ? SUCCESS : CUDA_PEER_UNSUPPORTED; }

int cuCtxSynchronize(void)
{
    char path[LINE + sizeof STATE];
    snprintf(path, sizeof path, STATE "%s", key_of(visible[current], "pcie_generation"));
    unlink(path);
    return SUCCESS;
}

int cuGetErrorName(int error, const char **name) { return *name = error ? "CUDA_ERROR_OF_THE_LAB" : "CUDA_SUCCESS", SUCCESS; }
int cuGetErrorString(int error, const char **text)
{
    return *text = error == CUDA_OUT_OF_MEMORY ? "out of memory" : error ? "not on a lab machine" : "no error", SUCCESS;
}

/* A function's address by its name without a version: the newest that is here. */
static void *function_named(const char *name)
{
    char versioned[LINE];
    void *here = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *found = NULL;
    for (const char **suffix = (const char *[]){"_v2", "", NULL}; here && !found && *suffix; suffix++) {
        snprintf(versioned, sizeof versioned, "%s%s", name, *suffix);
        found = dlsym(here, versioned);
    }
    if (!found)
        note("missing %s", name);
    return found;
}

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    (void)version, (void)flags;
    *function = function_named(name);
    if (status)
        *status = *function ? 0 : 1;
    return *function ? SUCCESS : CUDA_NOT_FOUND;
}

/* Memory */

int cuMemAlloc_v2(void **pointer, size_t size) { return allocate(pointer, size, 0); }
int cuMemFree_v2(void *pointer) { return give_back(pointer); }
int cuMemAllocHost_v2(void **pointer, size_t size) { return allocate(pointer, size, 1); }
int cuMemFreeHost(void *pointer) { return give_back(pointer); }
int cuMemGetInfo_v2(size_t *left, size_t *total)
{
    return *total = memory_of(current), *left = *total - given[current], SUCCESS;
}
int cuMemsetD8_v2(void *memory, unsigned char value, size_t size) { return fill(memory, value, size), SUCCESS; }
int cuMemsetD8Async(void *memory, unsigned char value, size_t size) { return fill(memory, value, size), SUCCESS; }
int cuMemsetD32Async(uint32_t *memory, unsigned value, size_t count)
{
    while (count)
        memory[--count] = value;
    return SUCCESS;
}
int cuMemcpyHtoD_v2(void *to, const void *from, size_t size) { return copied(to, from, size), SUCCESS; }
int cuMemcpyDtoH_v2(void *to, const void *from, size_t size) { return copied(to, from, size), SUCCESS; }

int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t size) { return copied(to, from, size), SUCCESS; }
int cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t size) { return copied(to, from, size), SUCCESS; }
int cuMemcpyAsync(void *to, const void *from, size_t size) { return copied(to, from, size), SUCCESS; }
int cuMemAllocAsync(void **pointer, size_t size) { return allocate(pointer, size, 0); }
int cuMemFreeAsync(void *pointer) { return give_back(pointer); }

int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t size)
{
    (void)to, (void)from;
    unsigned most = number_of(current, "pcie_generation_max", 4);
    set(context_of(current), "pcie_generation", number_of(current, "pcie_generation_loaded", most));
    take_time(size, number_of(current, "host_gbs", 20));
    return SUCCESS;
}

int cuMemcpyPeer(void *to, Device to_context, const void *from, Device from_context, size_t size)
{
    (void)to_context;
    copied(to, from, size);
    if (number_of(ordinal_of(from_context), "corrupts", 0))
        ((unsigned char *)to)[size / 2] ^= 1;
    take_time(size, number_of(ordinal_of(from_context), "peer_gbs", 12));
    return SUCCESS;
}

int cuMemGetAddressRange_v2(char **begin, size_t *size, void *pointer)
{
    struct Block block;
    if (!block_of(pointer, &block))
        return CUDA_NOT_FOUND;
    if (begin)
        *begin = block.begin;
    if (size)
        *size = block.size;
    return SUCCESS;
}

int cuPointerGetAttribute(void *into, int which, void *pointer)
{
    struct Block block;
    if (!block_of(pointer, &block))
        return CUDA_INVALID_VALUE;
    switch (which) {
    case 1: *(Device *)into = context_of(block.ordinal); break;
    case 2: *(unsigned *)into = block.host ? 1 : 2; break;
    case 3: case 4: *(void **)into = pointer; break;
    case 9: *(unsigned *)into = block.ordinal; break;
    case 11: *(char **)into = block.begin; break;
    case 12: *(size_t *)into = block.size; break;
    default: *(int *)into = 0;
    }
    return SUCCESS;
}

/* Kernels and what holds them: a module, or a library with one kernel where a program lists them. */

static int made(void **handle) { return *handle = calloc(1, 64), SUCCESS; }

int cuModuleLoad(void **module) { return made(module); }
int cuModuleLoadData(void **module) { return made(module); }
int cuModuleLoadDataEx(void **module) { return made(module); }
int cuModuleGetFunction(void **function, void *module, const char *name)
{
    return (void)module, made(function), named_kernel(*function, name), SUCCESS;
}
int cuModuleGetGlobal_v2(void **pointer, size_t *size)
{
    if (size)
        *size = ALIGNMENT;
    return pointer ? allocate(pointer, ALIGNMENT, 0) : SUCCESS;
}

/* The name of the first kernel in a compiled file: its code is in a section of that name. */
static const char *kernel_in(const char *code)
{
    const Elf64_Ehdr *file = (const void *)code;
    if (!code || memcmp(file->e_ident, ELFMAG, SELFMAG))
        return NULL;
    const Elf64_Shdr *sections = (const void *)(code + file->e_shoff);
    const char *names = code + sections[file->e_shstrndx].sh_offset;
    for (unsigned i = 0; i < file->e_shnum; i++)
        if (!strncmp(names + sections[i].sh_name, ".text.", 6))
            return names + sections[i].sh_name + 6;
    return NULL;
}

int cuLibraryLoadData(void **library, const void *code)
{
    const char *name = kernel_in(code);
    made(library);
    if (name)
        named_kernel(*library, name);
    return SUCCESS;
}
int cuLibraryLoadFromFile(void **library, const char *path) { return made(library), named_kernel(*library, path), SUCCESS; }
int cuLibraryGetKernelCount(unsigned *count) { return *count = 1, SUCCESS; }
int cuLibraryEnumerateKernels(void **list, unsigned count, void *library) { return (void)count, *list = library, SUCCESS; }
int cuLibraryGetKernel(void **kernel, void *library, const char *name) { return cuModuleGetFunction(kernel, library, name); }
int cuKernelGetFunction(void **function, void *kernel) { return *function = kernel, SUCCESS; }
int cuKernelGetName(const char **name, void *kernel)
{
    *name = kernels[slot_of(kernel)].name;
    return *name ? SUCCESS : CUDA_NOT_FOUND;
}
int cuFuncGetAttribute(int *value, int which)
{
    int major, minor;
    capability_of(current, &major, &minor);
    *value = which == 0 ? 1024 : which == 4 ? 64 : which == 5 || which == 6 ? 10 * major + minor : 0;
    return SUCCESS;
}
int cuFuncSetAttribute(void *function, int which, int value)
{
    return (void)function, which == 8 && value > attribute(current, 97) ? CUDA_INVALID_VALUE : SUCCESS;
}
int cuLaunchKernel(void *function) { return launched(function); }
int cuLaunchCooperativeKernel(void *function) { return launched(function); }
int cuLaunchKernelEx(void *configuration, void *function) { return (void)configuration, launched(function); }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count) { return *count = 2, SUCCESS; }
int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count) { return *count = 2, SUCCESS; }
int cuOccupancyMaxActiveClusters(int *count) { return *count = 8, SUCCESS; }
int cuTensorMapEncodeTiled(void *map) { return memset(map, 0, 128), SUCCESS; }
int cuStreamGetCtx(void *stream, Device *context) { return (void)stream, cuCtxGetCurrent(context); }

ACCEPTED(cuDevicePrimaryCtxRelease_v2) ACCEPTED(cuModuleUnload) ACCEPTED(cuLibraryUnload) ACCEPTED(cuKernelSetAttribute)
ACCEPTED(cuFuncSetCacheConfig) ACCEPTED(cuStreamSynchronize) ACCEPTED(cuStreamSetAttribute) ACCEPTED(cuCtxSetLimit)
ACCEPTED(cuCtxResetPersistingL2Cache) ACCEPTED(cuStreamDestroy_v2) ACCEPTED(cuCtxDestroy_v2) ACCEPTED(cuMemsetD16Async)
ACCEPTED(cuEventSynchronize) ACCEPTED(cuEventQuery)

/* Programs look for these before they decide whether to use them. */
REFUSED(cuGetExportTable) REFUSED(cuMemAddressReserve) REFUSED(cuMemAddressFree) REFUSED(cuMemCreate) REFUSED(cuMemMap)
REFUSED(cuMemUnmap) REFUSED(cuMemRelease) REFUSED(cuMemSetAccess) REFUSED(cuMemGetAllocationGranularity)
REFUSED(cuMemExportToShareableHandle) REFUSED(cuMemImportFromShareableHandle) REFUSED(cuMemGetHandleForAddressRange)
REFUSED(cuStreamWriteValue32_v2) REFUSED(cuMulticastCreate) REFUSED(cuMulticastAddDevice) REFUSED(cuMulticastBindMem)
REFUSED(cuMulticastBindMem_v2) REFUSED(cuMulticastUnbind) REFUSED(cuMulticastGetGranularity) REFUSED(cuLinkCreate_v2)
REFUSED(cuLinkAddData_v2) REFUSED(cuLinkComplete) REFUSED(cuCtxGetLimit) REFUSED(cuTensorMapEncodeIm2col) REFUSED(cuCtxGetId)
REFUSED(cuCtxFromGreenCtx) REFUSED(cuDevResourceGenerateDesc) REFUSED(cuDevSmResourceSplitByCount)
REFUSED(cuDeviceGetDevResource) REFUSED(cuGreenCtxCreate) REFUSED(cuGreenCtxDestroy) REFUSED(cuGreenCtxGetDevResource)

#include "cuda_runtime.c"
#include "cuda_libraries.c"
