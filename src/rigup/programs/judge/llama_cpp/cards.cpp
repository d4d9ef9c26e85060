/*
 * The part of CUDA's driver API that ggml_cuda.cpp uses, for cards that the file named by RIGUP_CARDS describes, a line
 * each: MiB, MiB free, major and minor compute capability, 1 where the card shares the host's memory, and its name.
 * It asks no driver and takes no memory of a card.
 *
 * Shared memory: CUDA C++ programming guide 13.0, "Technical specifications per compute capability".
 */
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <vector>

struct card { size_t mib, free_mib; int major, minor, unified; std::string name; };
static std::vector<card> cards;
static std::map<void *, size_t> sizes;
static thread_local int current;

enum { INTEGRATED = 18, MAJOR = 75, MINOR = 76, SHARED_MEMORY_OF_A_BLOCK = 97 };

static int shared_memory(const card & of) {
    if (of.major == 7) return 65536;
    if (of.major == 8) return of.minor == 0 || of.minor == 7 ? 166912 : 101376;
    return of.major >= 9 && of.major <= 11 ? 232448 : 101376;
}

extern "C" {
int cuInit(unsigned) {
    const char * path = getenv("RIGUP_CARDS");
    std::ifstream file(path ? path : "");
    for (std::string line; std::getline(file, line);) {
        card one;
        std::istringstream words(line);
        if (!(words >> one.mib >> one.free_mib >> one.major >> one.minor >> one.unified)) return 1;
        std::getline(words >> std::ws, one.name);
        cards.push_back(one);
    }
    return cards.empty();
}
int cuDeviceGetCount(int * count) { return *count = (int) cards.size(), 0; }
int cuDeviceGetName(char * into, int size, int device) { return snprintf(into, size, "%s", cards.at(device).name.c_str()), 0; }
int cuDeviceGetPCIBusId(char * into, int size, int device) { return snprintf(into, size, "0000:%02x:00.0", device + 1), 0; }
int cuDeviceGetAttribute(int * into, int which, int device) {
    const card & of = cards.at(device);
    *into = which == INTEGRATED ? of.unified : which == MAJOR ? of.major : which == MINOR ? of.minor
          : which == SHARED_MEMORY_OF_A_BLOCK ? shared_memory(of) : 0;
    return 0;
}
int cuDeviceTotalMem_v2(size_t * bytes, int device) { return *bytes = cards.at(device).mib << 20, 0; }
int cuDevicePrimaryCtxRetain(void ** context, int device) { return current = device, *context = nullptr, 0; }
int cuCtxSetCurrent(void *) { return 0; }
int cuMemGetInfo_v2(size_t * free, size_t * total) {
    return *free = cards.at(current).free_mib << 20, *total = cards.at(current).mib << 20, 0;
}
/* Caches are allocated and cleared, but nothing is computed: pages are zero, and take no memory until they are written. */
int cuMemAlloc_v2(void ** base, size_t size) {
    *base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return *base == MAP_FAILED ? 2 : (sizes[*base] = size, 0);
}
int cuMemFree_v2(void * base) { return munmap(base, sizes[base]); }
int cuMemsetD8_v2(void *, unsigned char, size_t) { return 0; }
}
