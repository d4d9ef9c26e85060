/*
 * A stand-in for CUDA's driver library, libcuda.so.1, for lab machines: what it takes to copy data to GPUs and between
 * them. A GPU's memory is the machine's. A copy takes as long as the rig's description says ("host_gbs", "peer_gbs"),
 * while it lasts the link runs at "pcie_generation_loaded", and a GPU that "corrupts" changes what others read of it.
 */
#include <time.h>

#include "rig.h"

enum { CUDA_INVALID_VALUE = 1, CUDA_NO_DEVICE = 100, CUDA_OUT_OF_MEMORY = 2, CUDA_PEER_UNSUPPORTED = 217 };

static __thread Device current;

static unsigned number_of(unsigned index, const char *name, unsigned otherwise)
{
    char value[LINE];
    return value_of(key_of(index, name), value) ? (unsigned)strtoul(value, NULL, 0) : otherwise;
}

static void take_time(size_t size, unsigned gbs)
{
    double seconds = size / (gbs * 1e9);
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)}, NULL);
}

int cuInit(unsigned flags)
{
    char line[LINE];
    (void)flags;
    if (!first_line("/proc/driver/nvidia/version", line))
        return CUDA_NO_DEVICE;
    device_count = value_of("gpus", line) ? (unsigned)strtoul(line, NULL, 10) : 0;
    for (unsigned index = 0; index < device_count; index++)
        devices[index].index = index;
    return SUCCESS;
}

int cuDeviceGetCount(int *count) { return *count = (int)device_count, SUCCESS; }

int cuDeviceGet(int *device, int ordinal)
{
    return *device = ordinal, ordinal >= 0 && ordinal < (int)device_count ? SUCCESS : CUDA_INVALID_VALUE;
}

int cuDeviceGetPCIBusId(char *into, int size, int device)
{
    char bus[LINE];
    if (!value_of(key_of((unsigned)device, "bus"), bus))
        return CUDA_INVALID_VALUE;
    snprintf(into, (size_t)size, "%s", bus + 4); /* CUDA writes the domain with four digits */
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(Device *context, int device) { return *context = (Device)&devices[device], SUCCESS; }
int cuCtxSetCurrent(Device context) { return current = context, SUCCESS; }

int cuMemAlloc_v2(void **pointer, size_t size)
{
    *pointer = malloc(size);
    return *pointer ? SUCCESS : CUDA_OUT_OF_MEMORY;
}
int cuMemAllocHost_v2(void **pointer, size_t size) { return cuMemAlloc_v2(pointer, size); }
int cuMemsetD8_v2(void *memory, unsigned char value, size_t size) { return memset(memory, value, size), SUCCESS; }
int cuMemcpyHtoD_v2(void *to, const void *from, size_t size) { return memcpy(to, from, size), SUCCESS; }
int cuMemcpyDtoH_v2(void *to, const void *from, size_t size) { return memcpy(to, from, size), SUCCESS; }

int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t size, void *stream)
{
    (void)to, (void)from, (void)stream;
    unsigned index = current->index, most = number_of(index, "pcie_generation_max", 4);
    set(current, "pcie_generation", number_of(index, "pcie_generation_loaded", most));
    take_time(size, number_of(index, "host_gbs", 20));
    return SUCCESS;
}

int cuCtxSynchronize(void)
{
    char path[LINE + sizeof STATE];
    snprintf(path, sizeof path, STATE "%s", key_of(current->index, "pcie_generation"));
    unlink(path);
    return SUCCESS;
}

static int peers(unsigned one, unsigned other)
{
    (void)other;
    return number_of(one, "p2p", 1) == 0 || number_of(one, "p2p_nvlink", 1) == 0;
}

int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    return *can = peers((unsigned)device, (unsigned)peer), SUCCESS;
}

int cuCtxEnablePeerAccess(Device peer, unsigned flags)
{
    (void)flags;
    return peers(current->index, peer->index) ? SUCCESS : CUDA_PEER_UNSUPPORTED;
}

int cuMemcpyPeer(void *to, Device to_context, const void *from, Device from_context, size_t size)
{
    (void)to_context;
    memcpy(to, from, size);
    if (number_of(from_context->index, "corrupts", 0))
        ((unsigned char *)to)[size / 2] ^= 1;
    take_time(size, number_of(from_context->index, "peer_gbs", 12));
    return SUCCESS;
}
