/* What both stub libraries share: how faults are asked for, and the identity of GPU number i.
 *
 * A fault list such as "nvmlInitWithFlags=9;nvmlDeviceGetName@2=segv;nvmlDeviceGetUUID@0+3=15"
 * stands in an environment variable: function, optionally @ the GPU's number, optionally + how
 * many calls go well first, then an error code or one of
 * abort, segv, hang, zero, novalue, badutf8, mig.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK 0
#define WORD_ZERO -2
#define WORD_BAD_UTF8 -3
#define WORD_MIG -4
#define WORD_NO_VALUE -5

static const char *stub_setting(const char *variable, const char *fallback) {
    const char *value = getenv(variable);
    return value && *value ? value : fallback;
}

static int stub_fault(const char *variable, const char *function, int gpu) {
    static unsigned calls[64]; /* of each entry of the list */
    const char *entry = stub_setting(variable, "");
    char one[80];
    snprintf(one, sizeof one, "%s@%d", function, gpu);
    for (unsigned number = 0; *entry; number++) {
        const char *action = NULL;
        size_t length = strlen(one), plain = strlen(function);
        if (!strncmp(entry, one, length) && strchr("=+", entry[length])) action = entry + length;
        else if (!strncmp(entry, function, plain) && strchr("=+", entry[plain]))
            action = entry + plain;
        if (action && *action == '+') {
            char *end;
            unsigned well = (unsigned)strtoul(action + 1, &end, 10);
            action = calls[number % 64]++ < well ? NULL : end;
        }
        if (action) {
            action++;
            if (!strncmp(action, "abort", 5)) abort();
            if (!strncmp(action, "segv", 4)) raise(SIGSEGV);
            if (!strncmp(action, "hang", 4)) for (;;) pause();
            if (!strncmp(action, "zero", 4)) return WORD_ZERO;
            if (!strncmp(action, "badutf8", 7)) return WORD_BAD_UTF8;
            if (!strncmp(action, "novalue", 7)) return WORD_NO_VALUE;
            if (!strncmp(action, "mig", 3)) return WORD_MIG;
            return atoi(action);
        }
        entry += strcspn(entry, ";");
        entry += *entry == ';';
    }
    return OK;
}

/* 16 bytes; GPU i is 000000ii-1111-2222-3333-444444444444. */
static void stub_uuid(int gpu, unsigned char *bytes) {
    static const unsigned char rest[] = {0x11, 0x11, 0x22, 0x22, 0x33, 0x33,
                                         0x44, 0x44, 0x44, 0x44, 0x44, 0x44};
    memset(bytes, 0, 4);
    bytes[3] = (unsigned char)gpu;
    memcpy(bytes + 4, rest, sizeof rest);
}

static int stub_bus(int gpu) { return 0x18 + gpu; }
