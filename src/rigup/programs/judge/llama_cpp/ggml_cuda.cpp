/*
 * The CUDA backend of ggml for simulated GPUs: what the lab's nvcc compiles in place of llama.cpp's ggml-cuda.cu, and what
 * the judge is linked with (docs/judges.md).
 *
 * Which operations run on a card, how many bytes a tensor needs there and how long it lives is decided by ggml-cuda's
 * own functions (cuda_rules.h, taken out of the same source tree by cuda_rules.py), so that buffers are the real ones.
 * Memory is that of the lab's libcuda.so.1, or of cards.cpp. What it computes, ggml's CPU backend computes, on memory
 * that both can read.
 *
 * Not simulated: CUDA's own context and pools, speed, errors of kernels.
 */
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "ggml-cuda.h"
#include "ggml-impl.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

/* CUDA's driver API, as far as it is used here. */
extern "C" {
int cuInit(unsigned);
int cuDeviceGetCount(int *);
int cuDeviceGetName(char *, int, int);
int cuDeviceGetPCIBusId(char *, int, int);
int cuDeviceGetAttribute(int *, int, int);
int cuDeviceTotalMem_v2(size_t *, int);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(void **, size_t);
int cuMemFree_v2(void *);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuMemsetD8_v2(void *, unsigned char, size_t);
}
enum { INTEGRATED = 18, MAJOR = 75, MINOR = 76, SHARED_MEMORY_OF_A_BLOCK = 97 };
static constexpr size_t PAGE_OF_A_GPU = 2 << 20; // what cudaMalloc gives is whole ones

/* What cuda_rules.h expects around itself, under the names of ggml-cuda. */
#define FLASH_ATTN_AVAILABLE
#define GGML_CUDA_USE_CUB
#define __host__
#define __device__
#ifndef QK_K
#define QK_K 256
#endif

struct device_info { int cc; bool integrated; size_t smpb; };
struct devices_info { int device_count; device_info devices[GGML_CUDA_MAX_DEVICES]; };
static devices_info & ggml_cuda_info() { static devices_info info; return info; }
static int  ggml_cuda_highest_compiled_arch(int cc) { return cc; }
static bool amd_mfma_available(int) { return false; }
static bool amd_wmma_available(int) { return false; }
static void ggml_cuda_set_device(int) {}

struct ggml_backend_cuda_context { int device; ggml_backend_t cpu; };
struct ggml_backend_cuda_buffer_type_context { int device; std::string name; };
struct ggml_backend_cuda_device_context {
    int device;
    std::string name, description, pci_bus_id;
    int op_offload_min_batch_size;
    ggml_backend_buffer_type buffer_type;
};

static const char * name_of_type(ggml_backend_buffer_type_t type) {
    return ((ggml_backend_cuda_buffer_type_context *) type->context)->name.c_str();
}
static bool ggml_backend_buft_is_cuda(ggml_backend_buffer_type_t type) { return type->iface.get_name == name_of_type; }

/* The vector kernels of flash attention that are compiled unless a build asks for more: f16, bf16, q4_0 and q8_0, K and V
   alike (ggml-cuda/CMakeLists.txt, GGML_CUDA_FA_QUANTS). */
static bool vector_kernel_is_compiled(int64_t head, ggml_type k, ggml_type v) {
    if (head != 64 && head != 128 && head != 256) return false;
    if (k == GGML_TYPE_F32) k = GGML_TYPE_F16;
    if (v == GGML_TYPE_F32) v = GGML_TYPE_F16;
    return k == v && (k == GGML_TYPE_F16 || k == GGML_TYPE_BF16 || k == GGML_TYPE_Q4_0 || k == GGML_TYPE_Q8_0);
}

#include "cuda_rules.h"

static ggml_backend_cuda_device_context * card_of(ggml_backend_dev_t device) {
    return (ggml_backend_cuda_device_context *) device->context;
}
static void use(int device) {
    void * context;
    cuDevicePrimaryCtxRetain(&context, device);
    cuCtxSetCurrent(context);
}

/* Buffers */

struct card_buffer { void * base; int device; size_t size; };

static card_buffer * memory_of(ggml_backend_buffer_t buffer) { return (card_buffer *) buffer->context; }
static void buffer_free(ggml_backend_buffer_t buffer) {
    cuMemFree_v2(memory_of(buffer)->base);
    delete memory_of(buffer);
}
static void * buffer_base(ggml_backend_buffer_t buffer) { return memory_of(buffer)->base; }
static void tensor_fill(ggml_backend_buffer_t, ggml_tensor * tensor, uint8_t value, size_t at, size_t size) {
    memset((char *) tensor->data + at, value, size);
}
static void tensor_write(ggml_backend_buffer_t, ggml_tensor * tensor, const void * data, size_t at, size_t size) {
    memcpy((char *) tensor->data + at, data, size);
}
static void tensor_read(ggml_backend_buffer_t, const ggml_tensor * tensor, void * data, size_t at, size_t size) {
    memcpy(data, (const char *) tensor->data + at, size);
}
static bool is_on_a_card(ggml_backend_buffer_t buffer) { return buffer->iface.free_buffer == buffer_free; }
static bool tensor_copy(ggml_backend_buffer_t, const ggml_tensor * from, ggml_tensor * to) {
    if (!is_on_a_card(from->buffer)) return false;
    memcpy(to->data, from->data, ggml_nbytes(from));
    return true;
}
static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    cuMemsetD8_v2(memory_of(buffer)->base, value, memory_of(buffer)->size);
}
static const ggml_backend_buffer_i BUFFER = {
    buffer_free, buffer_base, nullptr, tensor_fill, tensor_write, tensor_read, nullptr, nullptr, tensor_copy, buffer_clear, nullptr,
};

static ggml_backend_buffer_t buffer_new(ggml_backend_buffer_type_t type, size_t size) {
    const int device = card_of(type->device)->device;
    const size_t whole = (std::max<size_t>(size, 1) + PAGE_OF_A_GPU - 1) / PAGE_OF_A_GPU * PAGE_OF_A_GPU;
    void * base;
    use(device);
    if (cuMemAlloc_v2(&base, whole)) {
        GGML_LOG_ERROR("ggml_backend_cuda_buffer_type_alloc_buffer: allocating %.2f MiB on device %d: cudaMalloc failed: out of memory\n",
                size / 1024.0 / 1024.0, device);
        return nullptr;
    }
    return ggml_backend_buffer_init(type, BUFFER, new card_buffer{base, device, whole}, size);
}
static size_t buffer_alignment(ggml_backend_buffer_type_t) { return 128; }
static const ggml_backend_buffer_type_i BUFFER_TYPE = {
    name_of_type, buffer_new, nullptr, buffer_alignment, nullptr, ggml_backend_cuda_buffer_type_get_alloc_size, nullptr, nullptr,
};

/* Pinned host memory: takes room once it is written. */

static const char * host_name(ggml_backend_buffer_type_t) { return GGML_CUDA_NAME "_Host"; }
static void host_free(ggml_backend_buffer_t buffer) { munmap(buffer->context, buffer->size); }
static ggml_backend_buffer_t host_new(ggml_backend_buffer_type_t type, size_t size) {
    void * base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(base, size);
    buffer->buft = type;
    buffer->iface.free_buffer = host_free;
    return buffer;
}

/* The stream: what was asked for is done when it returns. */

static const char * backend_name(ggml_backend_t backend) { return card_of(backend->device)->name.c_str(); }
static void backend_free(ggml_backend_t backend) {
    auto * context = (ggml_backend_cuda_context *) backend->context;
    if (context->cpu) ggml_backend_free(context->cpu);
    delete context;
    delete backend;
}
static void write_async(ggml_backend_t, ggml_tensor * tensor, const void * data, size_t at, size_t size) {
    tensor_write(nullptr, tensor, data, at, size);
}
static void read_async(ggml_backend_t, const ggml_tensor * tensor, void * data, size_t at, size_t size) {
    tensor_read(nullptr, tensor, data, at, size);
}
static bool copy_async(ggml_backend_t, ggml_backend_t, const ggml_tensor * from, ggml_tensor * to) {
    return is_on_a_card(to->buffer) && tensor_copy(nullptr, from, to);
}
static void synchronise(ggml_backend_t) {}
static ggml_status compute(ggml_backend_t backend, ggml_cgraph * graph) {
    auto * context = (ggml_backend_cuda_context *) backend->context;
    if (!context->cpu) {
        context->cpu = ggml_backend_cpu_init();
        ggml_backend_cpu_set_n_threads(context->cpu, std::max(1u, std::thread::hardware_concurrency()));
    }
    return ggml_backend_graph_compute(context->cpu, graph);
}
static void event(ggml_backend_t, ggml_backend_event_t) {}
static const ggml_backend_i BACKEND = {
    backend_name, backend_free, write_async, read_async, nullptr, nullptr, copy_async, synchronise,
    nullptr, nullptr, nullptr, nullptr, compute, event, event, ggml_backend_cuda_graph_optimize,
};

/* Devices */

static const char * device_name(ggml_backend_dev_t device) { return card_of(device)->name.c_str(); }
static const char * device_description(ggml_backend_dev_t device) { return card_of(device)->description.c_str(); }
static void device_memory(ggml_backend_dev_t device, size_t * free, size_t * total) {
    use(card_of(device)->device);
    cuMemGetInfo_v2(free, total);
}
static bool is_integrated(ggml_backend_dev_t device) { return ggml_cuda_info().devices[card_of(device)->device].integrated; }
static enum ggml_backend_dev_type device_type(ggml_backend_dev_t device) {
    return is_integrated(device) ? GGML_BACKEND_DEVICE_TYPE_IGPU : GGML_BACKEND_DEVICE_TYPE_GPU;
}
static void device_properties(ggml_backend_dev_t device, ggml_backend_dev_props * into) {
    into->name        = device_name(device);
    into->description = device_description(device);
    into->type        = device_type(device);
    into->device_id   = card_of(device)->pci_bus_id.c_str();
    device_memory(device, &into->memory_free, &into->memory_total);
    into->caps.async                = true;
    into->caps.host_buffer          = getenv("GGML_CUDA_NO_PINNED") == nullptr;
    into->caps.buffer_from_host_ptr = false;
    into->caps.events               = true;
    into->caps.mmap_support         = !is_integrated(device);
}
static ggml_backend_t device_start(ggml_backend_dev_t device, const char *) {
    static ggml_guid id = {'r', 'i', 'g', 'u', 'p', 's', ' ', 'l', 'a', 'b', ' ', 'c', 'u', 'd', 'a', 1};
    return new ggml_backend{&id, BACKEND, device, new ggml_backend_cuda_context{card_of(device)->device, nullptr}};
}
static ggml_backend_buffer_type_t device_buffers(ggml_backend_dev_t device) { return &card_of(device)->buffer_type; }
static ggml_backend_buffer_type_t host_buffers(ggml_backend_dev_t device) {
    static const ggml_backend_buffer_type_i & cpu = ggml_backend_cpu_buffer_type()->iface;
    static ggml_backend_buffer_type host = {
        {host_name, host_new, nullptr, cpu.get_alignment, nullptr, cpu.get_alloc_size, nullptr, cpu.is_host},
        ggml_backend_reg_dev_get(device->reg, 0), nullptr,
    };
    return &host;
}
static bool reads(ggml_backend_dev_t device, ggml_backend_buffer_type_t type) {
    return (ggml_backend_buft_is_cuda(type) && type->device == device) || (is_integrated(device) && type->iface.get_name == host_name);
}
static ggml_backend_event_t event_new(ggml_backend_dev_t device) { return new ggml_backend_event{device, nullptr}; }
static void event_free(ggml_backend_dev_t, ggml_backend_event_t one) { delete one; }
static void event_wait(ggml_backend_dev_t, ggml_backend_event_t) {}
static const ggml_backend_device_i DEVICE = {
    device_name, device_description, device_memory, device_type, device_properties, device_start, device_buffers, host_buffers,
    nullptr, ggml_backend_cuda_device_supports_op, reads, ggml_backend_cuda_device_offload_op, event_new, event_free, event_wait,
};

/* The registry */

static std::vector<std::unique_ptr<ggml_backend_device>> & devices() {
    static std::vector<std::unique_ptr<ggml_backend_device>> all;
    return all;
}
static const char * registry_name(ggml_backend_reg_t) { return GGML_CUDA_NAME; }
static size_t registry_count(ggml_backend_reg_t) { return devices().size(); }
static ggml_backend_dev_t registry_device(ggml_backend_reg_t, size_t at) { return devices().at(at).get(); }

/* --split-mode tensor: without NCCL, ggml adds up itself. */
static void * communicator(ggml_backend_t *, size_t count) { return count > 1 ? new int : nullptr; }
static void communicator_free(void * one) { delete (int *) one; }
static bool all_reduce(void *, ggml_tensor **) { return false; }
static void * registry_function(ggml_backend_reg_t, const char * name) {
    if (!strcmp(name, "ggml_backend_comm_init")) return (void *) communicator;
    if (!strcmp(name, "ggml_backend_comm_free")) return (void *) communicator_free;
    if (!strcmp(name, "ggml_backend_comm_allreduce_tensor")) return (void *) all_reduce;
    return nullptr;
}

static int attribute(int device, int which) {
    int value = 0;
    cuDeviceGetAttribute(&value, which, device);
    return value;
}

static ggml_backend_reg read_devices() {
    static ggml_backend_reg registry = {GGML_BACKEND_API_VERSION, {registry_name, registry_count, registry_device, registry_function}, nullptr};
    auto & info = ggml_cuda_info();
    if (cuInit(0) || cuDeviceGetCount(&info.device_count)) info.device_count = 0;
    GGML_LOG_INFO("ggml_cuda_init: found %d " GGML_CUDA_NAME " devices (simulated):\n", info.device_count);
    const char * smallest = getenv("GGML_OP_OFFLOAD_MIN_BATCH");
    for (int device = 0; device < info.device_count; device++) {
        char name[256] = "", bus[32] = "";
        size_t total = 0;
        cuDeviceGetName(name, sizeof name, device);
        cuDeviceGetPCIBusId(bus, sizeof bus, device);
        cuDeviceTotalMem_v2(&total, device);
        const int major = attribute(device, MAJOR), minor = attribute(device, MINOR);
        info.devices[device] = {100 * major + 10 * minor, attribute(device, INTEGRATED) != 0, (size_t) attribute(device, SHARED_MEMORY_OF_A_BLOCK)};
        GGML_LOG_INFO("  Device %d: %s, compute capability %d.%d, VRAM: %zu MiB\n", device, name, major, minor, total >> 20);
        auto * card = new ggml_backend_cuda_device_context{
            device, GGML_CUDA_NAME + std::to_string(device), name, bus, smallest ? atoi(smallest) : 32, {}};
        devices().emplace_back(new ggml_backend_device{DEVICE, nullptr, card});
        card->buffer_type = {BUFFER_TYPE, devices().back().get(), new ggml_backend_cuda_buffer_type_context{device, card->name}};
    }
    return registry;
}

ggml_backend_reg_t ggml_backend_cuda_reg(void) {
    static ggml_backend_reg registry = read_devices();
    for (auto & device : devices()) device->reg = &registry;
    return &registry;
}
