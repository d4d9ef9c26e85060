/*
 * A stand-in for NVIDIA's management library, libnvidia-ml.so.1, for lab machines. It is not NVIDIA's and drives no GPU.
 *
 * It answers NVML's C API, versioned names and struct layouts included, from files on the machine (see rig.h). Which
 * kernel module is loaded it reads there, too, because a service has a /proc of its own.
 *
 * Compile with -DDRIVER_VERSION='"580.95.05"' -DCUDA_VERSION=13000.
 */
#include <ctype.h>

#include "rig.h"

#define MIB (1024ULL * 1024ULL)

static const struct { Return code; const char *text; } errors[] = {
    {SUCCESS, "Success"},
    {UNINITIALIZED, "Uninitialized"},
    {INVALID_ARGUMENT, "Invalid Argument"},
    {NOT_SUPPORTED, "Not Supported"},
    {NO_PERMISSION, "Insufficient Permissions"},
    {NOT_FOUND, "Not Found"},
    {INSUFFICIENT_SIZE, "Insufficient Size"},
    {DRIVER_NOT_LOADED, "Driver Not Loaded"},
    {GPU_IS_LOST, "GPU is lost"},
    {LIB_RM_VERSION_MISMATCH, "Driver/library version mismatch"},
    {ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
    {UNKNOWN, "Unknown Error"},
};

/* ---- the library and the system ---- */

Return nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    char line[LINE];
    if (!first_line(LOADED, line))
        return DRIVER_NOT_LOADED;
    char *version = strstr(line, DRIVER_VERSION);
    if (!version || isalnum((unsigned char)version[strlen(DRIVER_VERSION)]) || version[-1] != ' ')
        return LIB_RM_VERSION_MISMATCH;
    device_count = value_of("gpus", line) ? (unsigned)strtoul(line, NULL, 10) : 0;
    if (device_count > MOST_GPUS)
        device_count = MOST_GPUS;
    for (unsigned index = 0; index < device_count; index++)
        devices[index].index = index;
    initialised++;
    return SUCCESS;
}
Return nvmlInit(void) { return nvmlInitWithFlags(0); }
Return nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

Return nvmlShutdown(void)
{
    if (!initialised)
        return UNINITIALIZED;
    initialised--;
    return SUCCESS;
}

const char *nvmlErrorString(Return code)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            return errors[i].text;
    return "Unknown Error";
}

Return nvmlSystemGetDriverVersion(char *into, unsigned size)
{
    return initialised ? copy(DRIVER_VERSION, into, size) : UNINITIALIZED;
}
Return nvmlSystemGetNVMLVersion(char *into, unsigned size) { return copy("13." DRIVER_VERSION, into, size); }
Return nvmlSystemGetCudaDriverVersion(int *into) { return *into = CUDA_VERSION, SUCCESS; }
Return nvmlSystemGetCudaDriverVersion_v2(int *into) { return *into = CUDA_VERSION, SUCCESS; }

/* ---- which GPU ---- */

Return nvmlDeviceGetCount_v2(unsigned *into)
{
    return initialised ? (*into = device_count, SUCCESS) : UNINITIALIZED;
}

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *into)
{
    if (!initialised)
        return UNINITIALIZED;
    if (index >= device_count)
        return INVALID_ARGUMENT;
    *into = (Device)&devices[index];
    return check(*into);
}

static Return handle_by(const char *name, const char *wanted, Device *into)
{
    char value[LINE];
    for (unsigned index = 0; initialised && index < device_count; index++)
        if (value_of(key_of(index, name), value) && !strcasecmp(value, wanted))
            return nvmlDeviceGetHandleByIndex_v2(index, into);
    return initialised ? NOT_FOUND : UNINITIALIZED;
}
Return nvmlDeviceGetHandleByUUID(const char *uuid, Device *into) { return handle_by("uuid", uuid, into); }
Return nvmlDeviceGetHandleByPciBusId_v2(const char *bus, Device *into) { return handle_by("bus", bus, into); }

Return nvmlDeviceGetIndex(Device device, unsigned *into)
{
    Return checked = check(device);
    return checked == SUCCESS ? (*into = device->index, SUCCESS) : checked;
}
Return nvmlDeviceGetMinorNumber(Device device, unsigned *into) { return nvmlDeviceGetIndex(device, into); }

#define TEXT(function, name) \
    Return function(Device device, char *into, unsigned size) { return text_copy(device, name, into, size); }
TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")

#define NUMBER(function, name) \
    Return function(Device device, unsigned *into) { return number(device, name, into); }
NUMBER(nvmlDeviceGetArchitecture, "architecture")
NUMBER(nvmlDeviceGetBrand, "brand")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
NUMBER(nvmlDeviceGetPerformanceState, "performance_state")
NUMBER(nvmlDeviceGetPowerUsage, "power_usage_mw")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_default_mw")
NUMBER(nvmlDeviceGetNumaNodeId, "memory_numa_node")

Return nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor)
{
    char value[LINE];
    Return found = text(device, "compute_capability", value);
    return found == SUCCESS && sscanf(value, "%d.%d", major, minor) != 2 ? UNKNOWN : found;
}

struct PciInfo { char legacy[16]; unsigned domain, bus, device, device_id, subsystem_id; char bus_id[32]; };

Return nvmlDeviceGetPciInfo_v3(Device device, struct PciInfo *into)
{
    char value[LINE];
    Return found = text(device, "bus", value);
    if (found != SUCCESS)
        return found;
    memset(into, 0, sizeof *into);
    sscanf(value, "%x:%x:%x", &into->domain, &into->bus, &into->device);
    into->device_id = 0x10DE; /* NVIDIA's vendor id; which device it is, the lab does not know */
    snprintf(into->bus_id, sizeof into->bus_id, "%.31s", value);
    snprintf(into->legacy, sizeof into->legacy, "%.15s", value + 4);
    return SUCCESS;
}

/* ---- memory, power, modes ---- */

struct Memory { unsigned long long total, free, used; };
struct Memory2 { unsigned version; unsigned long long total, reserved, free, used; };

Return nvmlDeviceGetMemoryInfo_v2(Device device, struct Memory2 *into)
{
    unsigned long long total, reserved = 0, used = 0;
    Return found = wide(device, "memory_mib", &total);
    if (found != SUCCESS)
        return found;
    wide(device, "memory_reserved_mib", &reserved);
    wide(device, "memory_used_mib", &used);
    into->total = total * MIB;
    into->reserved = reserved * MIB;
    into->used = used * MIB + held(device->index);
    into->free = into->total - into->reserved - into->used;
    return SUCCESS;
}

/* Version 1 counts what the driver keeps for itself as used. */
Return nvmlDeviceGetMemoryInfo(Device device, struct Memory *into)
{
    struct Memory2 memory;
    Return found = nvmlDeviceGetMemoryInfo_v2(device, &memory);
    if (found == SUCCESS)
        *into = (struct Memory){memory.total, memory.free, memory.used + memory.reserved};
    return found;
}

Return nvmlDeviceGetPowerManagementLimitConstraints(Device device, unsigned *least, unsigned *most)
{
    Return found = number(device, "power_minimum_mw", least);
    return found == SUCCESS ? number(device, "power_maximum_mw", most) : found;
}

Return nvmlDeviceSetPowerManagementLimit(Device device, unsigned milliwatts)
{
    unsigned least, most;
    Return found = nvmlDeviceGetPowerManagementLimitConstraints(device, &least, &most);
    if (found != SUCCESS)
        return found;
    if (geteuid() != 0)
        return NO_PERMISSION;
    return milliwatts < least || milliwatts > most ? INVALID_ARGUMENT : set(device, "power_limit_mw", milliwatts);
}

Return nvmlDeviceSetPersistenceMode(Device device, unsigned mode)
{
    Return checked = check(device);
    if (checked != SUCCESS)
        return checked;
    return geteuid() != 0 ? NO_PERMISSION : mode > 1 ? INVALID_ARGUMENT : set(device, "persistence", mode);
}

/* What is set here takes effect at once: current and pending are the same. */
#define MODE(function, name) \
    Return function(Device device, unsigned *current, unsigned *pending) \
    { \
        Return found = number(device, name, current); \
        return found == SUCCESS ? (*pending = *current, SUCCESS) : found; \
    }
MODE(nvmlDeviceGetEccMode, "ecc")
MODE(nvmlDeviceGetMigMode, "mig")

/* ---- health and use ---- */

struct Bar1 { unsigned long long total, free, used; };

Return nvmlDeviceGetBAR1MemoryInfo(Device device, struct Bar1 *into)
{
    unsigned long long total;
    Return found = wide(device, "bar1_mib", &total);
    if (found == SUCCESS)
        *into = (struct Bar1){total * MIB, total * MIB, 0};
    return found;
}

/* Only uncorrected errors (1) happen here, and they are those since the boot (0). */
Return nvmlDeviceGetTotalEccErrors(Device device, unsigned kind, unsigned counter, unsigned long long *into)
{
    unsigned mode;
    Return found = number(device, "ecc", &mode);
    if (found != SUCCESS || !mode)
        return found != SUCCESS ? found : NOT_SUPPORTED;
    *into = 0;
    if (kind == 1 && counter == 0)
        wide(device, "ecc_uncorrected", into);
    return SUCCESS;
}

Return nvmlDeviceGetRemappedRows(Device device, unsigned *fixed, unsigned *errors, unsigned *pending, unsigned *failed)
{
    unsigned mode;
    Return found = number(device, "ecc", &mode);
    if (found != SUCCESS)
        return found;
    *fixed = *errors = *pending = *failed = 0;
    number(device, "remap_pending", pending);
    number(device, "remap_failed", failed);
    return SUCCESS;
}

struct Temperature1 { unsigned version, sensor; int celsius; };

Return nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *into)
{
    return sensor ? INVALID_ARGUMENT : number(device, "temperature", into);
}

Return nvmlDeviceGetTemperatureV(Device device, struct Temperature1 *into)
{
    return into->version == 0x100000C ? nvmlDeviceGetTemperature(device, into->sensor, (unsigned *)&into->celsius)
                                      : ARGUMENT_VERSION_MISMATCH;
}

Return nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long *into)
{
    return wide(device, "clocks_event_reasons", into);
}
Return nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *into)
{
    return wide(device, "clocks_event_reasons", into);
}

/* Clocks of the multiprocessors (1) only; a description has none, but what has happened since the boot may. */
Return nvmlDeviceGetClockInfo(Device device, unsigned kind, unsigned *into)
{
    return kind == 1 ? number(device, "clock_mhz", into) : NOT_SUPPORTED;
}
Return nvmlDeviceGetMaxClockInfo(Device device, unsigned kind, unsigned *into)
{
    return kind == 1 ? number(device, "clock_max_mhz", into) : NOT_SUPPORTED;
}

struct Utilization { unsigned gpu, memory; };

Return nvmlDeviceGetUtilizationRates(Device device, struct Utilization *into)
{
    Return found = number(device, "utilization", &into->gpu);
    into->memory = 0;
    return found;
}

/* No process ever runs on these GPUs. */
#define PROCESSES(function) \
    Return function(Device device, unsigned *count, void *into) \
    { \
        (void)into; \
        Return checked = check(device); \
        return checked == SUCCESS ? (*count = 0, SUCCESS) : checked; \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)

/* ---- how the GPUs are connected ---- */

Return nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *active)
{
    unsigned links;
    Return found = number(device, "nvlinks", &links);
    if (found != SUCCESS)
        return found;
    return link >= links ? INVALID_ARGUMENT : number(device, "nvlinks_active", active);
}

static Return both(Device first, Device second)
{
    Return checked = check(first);
    return checked == SUCCESS ? check(second) : checked;
}

/* NVML_TOPOLOGY_SYSTEM between processors, else what the rig says: a host bridge or a node. */
Return nvmlDeviceGetTopologyCommonAncestor(Device first, Device second, unsigned *into)
{
    unsigned one, other;
    Return found = both(first, second);
    if (found != SUCCESS || number(first, "numa_node", &one) != SUCCESS || number(second, "numa_node", &other) != SUCCESS)
        return found != SUCCESS ? found : NOT_SUPPORTED;
    if (one == other)
        return number(first, "topology", into);
    return *into = 50, SUCCESS;
}

Return nvmlDeviceGetP2PStatus(Device first, Device second, unsigned capability, unsigned *into)
{
    Return checked = both(first, second);
    if (checked != SUCCESS)
        return checked;
    return capability == 2 ? number(first, "p2p_nvlink", into) : number(first, "p2p", into);
}

Return nvmlDeviceGetMemoryAffinity(Device device, unsigned size, unsigned long *set_of_nodes, unsigned scope)
{
    (void)scope;
    unsigned node;
    Return found = number(device, "numa_node", &node);
    if (found != SUCCESS)
        return found;
    memset(set_of_nodes, 0, size * sizeof *set_of_nodes);
    return node / 64 < size ? (set_of_nodes[node / 64] = 1UL << (node % 64), SUCCESS) : INSUFFICIENT_SIZE;
}

struct Fabric1 { unsigned char cluster[16]; Return status; unsigned clique; unsigned state; };
struct Fabric2 { unsigned version; unsigned char cluster[16]; Return status; unsigned clique; unsigned state, health; };

static unsigned fabric(Device device, const char *name)
{
    unsigned value;
    return number(device, name, &value) == SUCCESS ? value : 0;
}

Return nvmlDeviceGetGpuFabricInfo(Device device, struct Fabric1 *into)
{
    Return checked = check(device);
    if (checked == SUCCESS)
        *into = (struct Fabric1){.status = (Return)fabric(device, "fabric_status"), .state = fabric(device, "fabric_state")};
    return checked;
}

/* Version 3 is longer by one byte, which the caller has set to zero: no summary of its health. */
Return nvmlDeviceGetGpuFabricInfoV(Device device, struct Fabric2 *into)
{
    Return checked = check(device);
    if (checked == SUCCESS)
        *into = (struct Fabric2){
            .version = into->version,
            .status = (Return)fabric(device, "fabric_status"),
            .state = fabric(device, "fabric_state"),
        };
    return checked;
}
