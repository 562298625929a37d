/* A stand-in for libcuda.so.1: the driver API's enumeration, no contexts.
 *
 * CUDA_STUB          the faults, see stub.h; GPUs are numbered as NVML numbers them
 * CUDA_STUB_DEVICES  the GPUs that CUDA offers, in its own order: "3,1" (default "0")
 * CUDA_STUB_VERSION  what cuDriverGetVersion says (13000)
 * CUDA_STUB_INTEGRATED  "1": the GPUs share the system's memory
 */
#include "stub.h"

#define FAULT(device)                                                \
    int fault = stub_fault("CUDA_STUB", __func__, gpu_of(device));   \
    if (fault > OK) return fault

static int count(void) {
    const char *list = getenv("CUDA_STUB_DEVICES");
    int number = 0;
    if (!list) return 1;
    for (; *list; list++) number += *list == ',';
    return *getenv("CUDA_STUB_DEVICES") ? number + 1 : 0;
}
static int gpu_of(int device) {
    const char *list = getenv("CUDA_STUB_DEVICES");
    if (device < 0 || !list) return device;
    while (device-- > 0) list = strchr(list, ',') + 1;
    return atoi(list);
}

int cuDriverGetVersion(int *version) {
    *version = atoi(stub_setting("CUDA_STUB_VERSION", "13000"));
    return stub_fault("CUDA_STUB", __func__, -1);
}
int cuInit(unsigned flags) {
    (void)flags;
    return stub_fault("CUDA_STUB", __func__, -1);
}
int cuDeviceGetCount(int *number) {
    *number = count();
    return stub_fault("CUDA_STUB", __func__, -1);
}
int cuDeviceGet(int *device, int ordinal) {
    FAULT(ordinal);
    *device = ordinal;
    return OK;
}
int cuDeviceGetName(char *buffer, int size, int device) {
    FAULT(device);
    snprintf(buffer, (size_t)size, "NVIDIA H200");
    return OK;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    FAULT(device);
    *bytes = fault == WORD_MIG ? 18874368000UL : 150121545728UL;
    return OK;
}
int cuDeviceGetPCIBusId(char *buffer, int size, int device) {
    FAULT(device);
    snprintf(buffer, (size_t)size, "0000:%02x:00.0", stub_bus(gpu_of(device)));
    return OK;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    FAULT(device);
    switch (attribute) {
    case 18: *value = atoi(stub_setting("CUDA_STUB_INTEGRATED", "0")); return OK;
    case 38: *value = 62914560; return OK;
    case 75: *value = 9; return OK;
    case 76: *value = 0; return OK;
    default: return 1;
    }
}
int cuDeviceGetUuid(unsigned char *bytes, int device) {
    FAULT(device);
    stub_uuid(gpu_of(device), bytes);
    return OK;
}
int cuDeviceGetUuid_v2(unsigned char *bytes, int device) {
    FAULT(device);
    stub_uuid(gpu_of(device), bytes);
    if (fault == WORD_MIG) bytes[0] = 0xaa;
    return OK;
}
