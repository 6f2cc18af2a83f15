/* apps/caches.c - see caches.h. */
#include "apps/caches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CPUS = 4096, INDEXES = 8 };

/* The first line of a file of index `i` of a processor; 0: there is none. */
static int read_line(int cpu, int i, const char *name, char *line, int room) {
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, i, name);
    FILE *file = fopen(path, "re");
    int got = file != NULL && fgets(line, room, file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    return got;
}

/* "32768K" -> bytes. */
static uint64_t size_of(const char *text) {
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    return n << (*end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0);
}

/* Is the processor the first of those that share the cache? Each cache is counted there. */
static int is_first(int cpu, const char *shared) { return strtol(shared, NULL, 10) == cpu; }

uint64_t cache_bytes(void) {
    uint64_t all = 0;
    char level[16], type[32], size[32], shared[4096];
    for (int cpu = 0; cpu < CPUS; cpu++) {
        if (!read_line(cpu, 0, "level", level, sizeof level)) {
            break;
        }
        for (int i = 0; i < INDEXES && read_line(cpu, i, "level", level, sizeof level); i++) {
            if (atoi(level) >= 2 && read_line(cpu, i, "type", type, sizeof type) &&
                strncmp(type, "Instruction", 11) != 0 &&
                read_line(cpu, i, "shared_cpu_list", shared, sizeof shared) &&
                is_first(cpu, shared) && read_line(cpu, i, "size", size, sizeof size)) {
                all += size_of(size);
            }
        }
    }
    return all;
}
