/* A stand-in for libnvidia-ml.so.1 with the functions that workbench calls.
 *
 * NVML_STUB        the faults, see stub.h
 * NVML_STUB_GPUS   how many GPUs there are (1)
 * NVML_STUB_SLOWED_NS   how long heat holds the clock back between two readings (0)
 * NVML_STUB_ECC    uncorrected memory errors (0)
 * NVML_STUB_NVLINKS   how many links there are, the last of them down (18)
 * NVML_STUB_INSTANT_MW   power of this moment; 0: the driver does not know that field (0)
 * NVML_STUB_COMPUTE_MODE   as nvmlComputeMode_t: 2 prohibited, 3 exclusive process (0)
 * NVML_STUB_MAJOR  the compute capability, .0 (9)
 * OLD_DRIVER       defined by the compiler: only what a driver of 2019 had
 */
#include "stub.h"

#define FAULT(handle)                                                   \
    int fault = stub_fault("NVML_STUB", __func__, gpu_of(handle));      \
    if (fault > OK) return fault

typedef int *device;
static int gpus[64];

static int gpu_of(device handle) { return (int)(handle - gpus); }

static int text(char *buffer, unsigned size, const char *value) {
    snprintf(buffer, size, "%s", value);
    return OK;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return stub_fault("NVML_STUB", __func__, -1);
}
int nvmlShutdown(void) { return stub_fault("NVML_STUB", __func__, -1); }
const char *nvmlErrorString(int code) { (void)code; return "an error of the stub"; }

int nvmlSystemGetDriverVersion(char *buffer, unsigned size) {
    int fault = stub_fault("NVML_STUB", __func__, -1);
    return fault > OK ? fault : text(buffer, size, "580.159.04");
}
int nvmlSystemGetNVMLVersion(char *buffer, unsigned size) {
    return text(buffer, size, "13.580.159.04");
}
int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)atoi(stub_setting("NVML_STUB_GPUS", "1"));
    return stub_fault("NVML_STUB", __func__, -1);
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *handle) {
    *handle = &gpus[index];
    FAULT(*handle);
    return OK;
}
int nvmlDeviceGetName(device handle, char *buffer, unsigned size) {
    FAULT(handle);
    return text(buffer, size, fault == WORD_BAD_UTF8 ? "NVIDIA \xff\xfe" : "NVIDIA H200");
}
int nvmlDeviceGetUUID(device handle, char *buffer, unsigned size) {
    unsigned char b[16];
    FAULT(handle);
    stub_uuid(gpu_of(handle), b);
    snprintf(buffer, size,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
    return OK;
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};
int nvmlDeviceGetPciInfo_v3(device handle, struct pci *info) {
    FAULT(handle);
    memset(info, 0, sizeof *info);
    info->bus = (unsigned)stub_bus(gpu_of(handle));
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return OK;
}

struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(device handle, struct memory *info) {
    FAULT(handle);
    info->total = fault == WORD_ZERO ? 0 : 150754820096ULL;
    info->used = 1024;
    info->free = info->total - info->used;
    return OK;
}
int nvmlDeviceGetCudaComputeCapability(device handle, int *major, int *minor) {
    FAULT(handle);
    *major = atoi(stub_setting("NVML_STUB_MAJOR", "9"));
    *minor = 0;
    return OK;
}

#define UNSIGNED(function, value)                   \
    int function(device handle, unsigned *result) { \
        FAULT(handle);                              \
        *result = fault == WORD_NO_VALUE ? ~0u : value; \
        return OK;                                  \
    }
UNSIGNED(nvmlDeviceGetCurrPcieLinkGeneration, 1)
UNSIGNED(nvmlDeviceGetCurrPcieLinkWidth, 16)
UNSIGNED(nvmlDeviceGetMaxPcieLinkGeneration, 5)
UNSIGNED(nvmlDeviceGetMaxPcieLinkWidth, 16)
UNSIGNED(nvmlDeviceGetPowerUsage, 76500)
UNSIGNED(nvmlDeviceGetPowerManagementLimit, 690000)
UNSIGNED(nvmlDeviceGetPowerManagementDefaultLimit, 700000)
UNSIGNED(nvmlDeviceGetPersistenceMode, 1)
UNSIGNED(nvmlDeviceGetFanSpeed, 30)
UNSIGNED(nvmlDeviceGetComputeMode, (unsigned)atoi(stub_setting("NVML_STUB_COMPUTE_MODE", "0")))

#define PAIR(function, first, second)                                \
    int function(device handle, unsigned *current, unsigned *next) { \
        FAULT(handle);                                               \
        *current = first;                                            \
        *next = second;                                              \
        return OK;                                                   \
    }
int nvmlDeviceGetVirtualizationMode(device handle, int *mode) {
    FAULT(handle);
    *mode = 1;
    return OK;
}
PAIR(nvmlDeviceGetEccMode, 1, 1)

int nvmlDeviceGetTotalEccErrors(device handle, int kind, int since, unsigned long long *count) {
    FAULT(handle);
    *count = kind == 1 && since == 0 ? strtoull(stub_setting("NVML_STUB_ECC", "0"), NULL, 10) : 7;
    return OK;
}
int nvmlDeviceGetRemappedRows(device handle, unsigned *one, unsigned *two, unsigned *pending,
                              unsigned *failed) {
    FAULT(handle);
    *one = *two = 1;
    const char *remap = stub_setting("NVML_STUB_ROW_REMAP", "");
    *pending = !strcmp(remap, "pending");
    *failed = !strcmp(remap, "failed");
    return OK;
}
int nvmlDeviceGetRetiredPagesPendingStatus(device handle, unsigned *pending) {
    FAULT(handle);
    *pending = !strcmp(stub_setting("NVML_STUB_ROW_REMAP", ""), "pending");
    return OK;
}
int nvmlDeviceGetNvLinkState(device handle, unsigned link, unsigned *active) {
    FAULT(handle);
    unsigned links = (unsigned)atoi(stub_setting("NVML_STUB_NVLINKS", "18"));
    if (link >= links) return 2; /* NVML_ERROR_INVALID_ARGUMENT */
    *active = link + 1 < links;
    return OK;
}

/* GPUs 0 and 1 are joined by NVLink, 2 and 3 share a PCIe switch, others are far apart. */
int nvmlDeviceGetP2PStatus(device one, device two, int capability, int *status) {
    FAULT(one);
    int pair = gpu_of(one) / 2 == gpu_of(two) / 2 ? gpu_of(one) / 2 : -1;
    *status = pair == 0 || (pair == 1 && capability == 0) ? 0 : 1;
    return OK;
}
int nvmlDeviceGetTopologyCommonAncestor(device one, device two, int *level) {
    FAULT(one);
    *level = gpu_of(one) / 2 == gpu_of(two) / 2 ? 10 : 50;
    return OK;
}

struct utilization { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(device handle, struct utilization *rates) {
    FAULT(handle);
    rates->gpu = 37;
    rates->memory = 12;
    return OK;
}
int nvmlDeviceGetTemperature(device handle, unsigned sensor, unsigned *celsius) {
    (void)sensor;
    FAULT(handle);
    *celsius = 31;
    return OK;
}

#define CLOCK(function, mhz)                                       \
    int function(device handle, unsigned kind, unsigned *result) { \
        FAULT(handle);                                             \
        *result = kind == 1 ? mhz : 0;                             \
        return OK;                                                 \
    }
CLOCK(nvmlDeviceGetClockInfo, 345)
CLOCK(nvmlDeviceGetMaxClockInfo, 1980)

static int reasons(unsigned long long *mask) {
    *mask = 0x1 | 0x4 | 0x800;
    return OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device handle, unsigned long long *mask) {
    FAULT(handle);
    return reasons(mask);
}

struct process { unsigned pid; unsigned long long memory; unsigned instance, compute; };
static int processes(unsigned *count, struct process *list) {
    const unsigned there = 2;
    if (!list || *count < there) {
        *count = there;
        return 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
    }
    list[0] = (struct process){4711, 2048, 0, 0};
    list[1] = (struct process){4712, ~0ULL, 0, 0}; /* NVML_VALUE_NOT_AVAILABLE, as on WSL2 */
    *count = there;
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v2(device handle, unsigned *count, struct process *list) {
    FAULT(handle);
    return processes(count, list);
}

#ifndef OLD_DRIVER
UNSIGNED(nvmlDeviceGetGpuMaxPcieLinkGeneration, 5)
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(device handle, struct memory_v2 *info) {
    FAULT(handle);
    info->total = fault == WORD_ZERO ? 0 : 150754820096ULL;
    info->reserved = 4096;
    info->used = 512;
    info->free = info->total - info->used - info->reserved;
    return OK;
}
struct temperature { unsigned version, sensor; int celsius; };
int nvmlDeviceGetTemperatureV(device handle, struct temperature *reading) {
    FAULT(handle);
    reading->celsius = 32;
    return OK;
}
int nvmlDeviceGetCurrentClocksEventReasons(device handle, unsigned long long *mask) {
    FAULT(handle);
    return reasons(mask);
}
int nvmlDeviceGetComputeRunningProcesses_v3(device handle, unsigned *count, struct process *list) {
    FAULT(handle);
    return processes(count, list);
}
UNSIGNED(nvmlDeviceGetEnforcedPowerLimit, 700000)
int nvmlDeviceGetTotalEnergyConsumption(device handle, unsigned long long *millijoules) {
    static unsigned long long used = 5000;
    FAULT(handle);
    *millijoules = used += 1500;
    return OK;
}
struct field_value {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, status;
    unsigned long long value;
};
int nvmlDeviceGetFieldValues(device handle, int count, struct field_value *values) {
    static unsigned long long slowed;
    unsigned long long instant = strtoull(stub_setting("NVML_STUB_INSTANT_MW", "0"), NULL, 10);
    FAULT(handle);
    for (int i = 0; i < count; i++) {
        unsigned field = values[i].field;
        int missing = field == 186 && !instant;
        if (field == 75) slowed += strtoull(stub_setting("NVML_STUB_SLOWED_NS", "0"), NULL, 10);
        values[i].status = missing ? 3 /* NVML_ERROR_NOT_SUPPORTED */ : OK;
        values[i].value = field == 75 ? slowed : field == 186 ? instant : 0;
    }
    return OK;
}
PAIR(nvmlDeviceGetMigMode, 0, 1)
#endif
