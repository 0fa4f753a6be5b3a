/* A libnvidia-ml.so.1 of one card, for tests of the real pynvml binding. The declarations follow nvml.h.
 *
 * The file named by FAKE_NVML_CONTROL is read at each call; its words change the card:
 *   lost        every call on the card answers 15
 *   hang        nvmlDeviceGetFieldValues never comes back
 *   v1          nvmlDeviceGetMemoryInfo_v2 is not supported
 *   denied      processes need permission
 *   old_driver  driver 575.57.08, whose thermal counters have other field ids
 *   xid         the next wait for an event answers XID 119, once for each time the file changes
 *   none        there is no card
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { int dummy; } device_t;
typedef struct { uint32_t version; uint64_t total, reserved, free, used; } memory_v2_t;
typedef struct { uint64_t total, free, used; } memory_t;
typedef struct { char legacy[16]; uint32_t domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
typedef struct { uint32_t gpu, memory; } utilization_t;
typedef struct { uint64_t reference, violation; } violation_t;
typedef struct { uint32_t field, scope; int64_t timestamp, latency; int32_t type, ret; union { double d; uint64_t u; int64_t s; uint32_t ui; } value; } field_t;
typedef struct { device_t *device; uint64_t type, data; uint32_t gpu_instance, compute_instance; } event_t;
typedef struct { uint32_t pid; uint64_t used; uint32_t gpu_instance, compute_instance; } process_t;

static device_t card;
static int xids_told;

static int says(const char *word)
{
    char text[256] = "";
    const char *path = getenv("FAKE_NVML_CONTROL");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file)
        return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    return strstr(text, word) != NULL;
}

#define CARD if (says("lost")) return 15
#define TEXT(name, value) int name(device_t *d, char *out, unsigned n) { CARD; snprintf(out, n, "%s", value); return 0; }
#define NUMBER(name, value) int name(device_t *d, unsigned *out) { CARD; *out = value; return 0; }

int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "fake error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned n) { snprintf(out, n, "%s", says("old_driver") ? "575.57.08" : "580.159.04"); return 0; }
int nvmlSystemGetNVMLVersion(char *out, unsigned n) { snprintf(out, n, "13.580.159.04"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *out) { *out = says("none") ? 0 : 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **out) { CARD; *out = &card; return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, device_t **out) { CARD; *out = &card; return strcmp(uuid, "GPU-fake") ? 6 : 0; }
TEXT(nvmlDeviceGetName, "Fake card")
TEXT(nvmlDeviceGetUUID, "GPU-fake")
TEXT(nvmlDeviceGetSerial, "123")
NUMBER(nvmlDeviceGetIndex, 0)
NUMBER(nvmlDeviceGetPowerUsage, 250000)
NUMBER(nvmlDeviceGetPerformanceState, 2)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, 4)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, 16)

int nvmlDeviceGetPciInfo_v3(device_t *d, pci_t *out)
{
    CARD;
    memset(out, 0, sizeof *out);
    strcpy(out->bus_id, "00000000:3B:00.0");
    return 0;
}

int nvmlDeviceGetMemoryInfo(device_t *d, memory_t *out) { CARD; out->total = 1000; out->free = 600; out->used = 400; return 0; }

int nvmlDeviceGetMemoryInfo_v2(device_t *d, memory_v2_t *out)
{
    CARD;
    if (says("v1"))
        return 13;
    out->total = 1000, out->reserved = 100, out->free = 600, out->used = 300;
    return 0;
}

int nvmlDeviceGetTemperature(device_t *d, int sensor, unsigned *out) { CARD; *out = 66; return 0; }
int nvmlDeviceGetUtilizationRates(device_t *d, utilization_t *out) { CARD; out->gpu = 97, out->memory = 40; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(device_t *d, uint64_t *out) { CARD; *out = 4; return 0; }
int nvmlDeviceGetEccMode(device_t *d, unsigned *now, unsigned *later) { CARD; *now = 1, *later = 0; return 0; }

int nvmlDeviceGetViolationStatus(device_t *d, int policy, violation_t *out)
{
    CARD;
    out->reference = 1, out->violation = policy == 1 ? 5000000000ULL : 0;
    return 0;
}

int nvmlDeviceGetRetiredPages(device_t *d, int cause, unsigned *count, uint64_t *pages)
{
    CARD;
    if (!pages) {
        *count = 2;
        return 7;
    }
    pages[0] = 0x1000, pages[1] = 0x2000, *count = 2;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device_t *d, unsigned *count, process_t *out)
{
    CARD;
    if (says("denied"))
        return 4;
    if (!out) {
        *count = 1;
        return 7;
    }
    *count = 1;
    out[0].pid = 77, out[0].used = 300, out[0].gpu_instance = out[0].compute_instance = -1;
    return 0;
}

/* Field 269 to 271 are the thermal counters of this driver; 251 is whether power smoothing is on. */
int nvmlDeviceGetFieldValues(device_t *d, int count, field_t *out)
{
    CARD;
    while (says("hang"))
        pause();
    for (int i = 0; i < count; i++) {
        out[i].ret = 3, out[i].type = 0, out[i].value.u = 0, out[i].latency = 5;
        switch (out[i].field) {
        case 3: case 4: case 5: case 6: out[i].ret = 0, out[i].type = 3, out[i].value.u = out[i].field; break;
        case 82: out[i].ret = 0, out[i].type = 1, out[i].value.ui = 71; break;
        case 186: out[i].ret = 0, out[i].type = 1, out[i].value.ui = 251000; break;
        case 187: out[i].ret = 0; break; /* POWER_MIN_LIMIT: success, and nothing written */
        case 193: out[i].ret = 0, out[i].type = 5, out[i].value.s = -8; break;
        case 196: out[i].ret = 0, out[i].type = 5; break; /* GPU_MAX_TLIMIT: a real 0 */
        case 251: out[i].ret = 0, out[i].type = 1, out[i].value.ui = 1; break;
        case 270: out[i].ret = 0, out[i].type = 3, out[i].value.u = 5000000000ULL; break;
        }
    }
    return 0;
}

int nvmlDeviceGetSupportedEventTypes(device_t *d, uint64_t *out) { CARD; *out = 0xff9f; return 0; }
int nvmlEventSetCreate(void **out) { *out = &card; return 0; }
int nvmlEventSetFree(void *set) { return 0; }
int nvmlDeviceRegisterEvents(device_t *d, uint64_t types, void *set) { return 0; }

int nvmlEventSetWait_v2(void *set, event_t *out, unsigned ms)
{
    CARD; /* at once, as the real library does for a lost card */
    for (unsigned waited = 0; waited < ms; waited += 20) {
        if (says("xid") && !xids_told++) {
            memset(out, 0, sizeof *out);
            out->type = 8, out->data = 119;
            return 0;
        }
        usleep(20000);
    }
    return 10;
}
