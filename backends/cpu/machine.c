/* backends/cpu/machine.c - what this process may use: processors, memory. Linux tells it in files:
 * what is missing or odd there counts as "no limit"; others are asked through os.h.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "core/base/os.h"
#include "core/base/os_threads.h"

/* First line of a small file, without its newline. */
static int read_line(const char *path, char *out, size_t bytes) {
    FILE *f = fopen(path, "re");
    int ok = f != NULL && fgets(out, (int)bytes, f) != NULL;
    if (f != NULL) {
        fclose(f);
    }
    if (ok) {
        out[strcspn(out, "\n")] = '\0';
    }
    return ok;
}

static int read_number(const char *path, uint64_t *out) {
    char line[64], *end;
    if (!read_line(path, line, sizeof line) || !isdigit((unsigned char)line[0])) {
        return 0; /* "max" and "-1" are no limit */
    }
    *out = strtoull(line, &end, 10);
    return end != line;
}

/* ---- control groups
 * ------------------------------------------------------------------------------ */

enum { CGROUP_PATH = 1024 };

/* Folder of this process in a hierarchy: controller "" is version 2. Returns the length of the
 * mount prefix, 0 when there is none. */
static size_t cgroup_folder(const char *controller, char *out) {
    char line[CGROUP_PATH];
    const char *mount = controller[0] ? controller : "";
    FILE *f = fopen("/proc/self/cgroup", "re");
    size_t prefix = 0;
    while (f != NULL && prefix == 0 && fgets(line, sizeof line, f) != NULL) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (path == NULL) {
            continue;
        }
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        names++;
        int mine = controller[0] == '\0' ? names[0] == '\0' : 0;
        for (char *rest = names, *name;
             !mine && controller[0] != '\0' && (name = strsep(&rest, ",")) != NULL;) {
            mine = strcmp(name, controller) == 0;
        }
        if (mine) {
            int n = snprintf(out, CGROUP_PATH, "/sys/fs/cgroup%s%s", mount[0] ? "/" : "", mount);
            prefix = (size_t)n;
            snprintf(out + n, CGROUP_PATH - (size_t)n, "%s", strcmp(path, "/") == 0 ? "" : path);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return prefix;
}

/* Call visit for the folder and each one above it, up to the mount. A container may show only the
 * mount itself; folders that do not exist are harmless. */
static void each_cgroup(const char *controller, void (*visit)(const char *folder, void *to),
                        void *to) {
    char folder[CGROUP_PATH];
    size_t prefix = cgroup_folder(controller, folder);
    while (prefix > 0) {
        visit(folder, to);
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= prefix || slash == NULL || (size_t)(slash - folder) < prefix) {
            break;
        }
        *slash = '\0';
    }
}

static int folder_file(char *out, const char *folder, const char *name) {
    return snprintf(out, CGROUP_PATH + 64, "%s/%s", folder, name) < CGROUP_PATH + 64;
}

static void visit_quota_v2(const char *folder, void *to) {
    char path[CGROUP_PATH + 64], line[96];
    unsigned long long quota, period;
    double *processors = to;
    if (folder_file(path, folder, "cpu.max") && read_line(path, line, sizeof line) &&
        sscanf(line, "%llu %llu", &quota, &period) == 2 && quota > 0 && period > 0) {
        double share = (double)quota / (double)period;
        *processors = share < *processors ? share : *processors;
    }
}

static void visit_quota_v1(const char *folder, void *to) {
    char path[CGROUP_PATH + 64];
    uint64_t quota, period;
    double *processors = to;
    if (folder_file(path, folder, "cpu.cfs_quota_us") && read_number(path, &quota) &&
        folder_file(path, folder, "cpu.cfs_period_us") && read_number(path, &period) && quota > 0 &&
        period > 0) {
        double share = (double)quota / (double)period;
        *processors = share < *processors ? share : *processors;
    }
}

/* Value of "name 123" in a file of such lines. */
static uint64_t stat_value(const char *path, const char *name) {
    char line[128];
    uint64_t value = 0;
    size_t n = strlen(name);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, name, n) == 0 && line[n] == ' ') {
            value = strtoull(line + n, NULL, 10);
            break;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return value;
}

typedef struct memory_limit {
    uint64_t total, available;
} memory_limit;

/* Page cache counts as used but gives way, so it is taken off. */
static void limit_memory(memory_limit *m, uint64_t limit, uint64_t used, uint64_t cache) {
    uint64_t held = used > cache ? used - cache : 0;
    uint64_t left = limit > held ? limit - held : 0;
    m->total = limit < m->total ? limit : m->total;
    m->available = left < m->available ? left : m->available;
}

static void visit_memory_v2(const char *folder, void *to) {
    char path[CGROUP_PATH + 64];
    uint64_t limit, used;
    if (folder_file(path, folder, "memory.max") && read_number(path, &limit) &&
        folder_file(path, folder, "memory.current") && read_number(path, &used)) {
        folder_file(path, folder, "memory.stat");
        limit_memory(to, limit, used, stat_value(path, "file"));
    }
}

static void visit_memory_v1(const char *folder, void *to) {
    char path[CGROUP_PATH + 64];
    uint64_t limit, used;
    if (folder_file(path, folder, "memory.limit_in_bytes") && read_number(path, &limit) &&
        folder_file(path, folder, "memory.usage_in_bytes") && read_number(path, &used)) {
        folder_file(path, folder, "memory.stat");
        limit_memory(to, limit, used, stat_value(path, "cache"));
    }
}

void gw_cpu_memory(uint64_t *total, uint64_t *available) {
    memory_limit m = {UINT64_MAX, UINT64_MAX};
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        unsigned long long kib;
        if (sscanf(line, "MemTotal: %llu", &kib) == 1) {
            m.total = kib * 1024;
        } else if (sscanf(line, "MemAvailable: %llu", &kib) == 1) {
            m.available = kib * 1024;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    if (m.total == UINT64_MAX && gw_os_memory() > 0) { /* not Linux */
        m.total = gw_os_memory();
        m.available = gw_os_memory_free() > 0 ? gw_os_memory_free() : m.total;
    }
    each_cgroup("", visit_memory_v2, &m);
    each_cgroup("memory", visit_memory_v1, &m);
    *total = m.total;
    *available = m.available;
}

/* ---- processors
 * ------------------------------------------------------------------------------------ */

#if defined(__linux__)
/* The affinity mask in a set large enough for any machine; NULL when it cannot be read. */
static cpu_set_t *allowed(size_t *n, size_t *bytes) {
    for (*n = 1024; *n <= 1u << 18; *n *= 4) {
        cpu_set_t *set = CPU_ALLOC(*n);
        *bytes = CPU_ALLOC_SIZE(*n);
        if (set != NULL && sched_getaffinity(0, *bytes, set) == 0) {
            return set;
        }
        CPU_FREE(set);
    }
    return NULL;
}

int gw_cpu_usable_processors(void) {
    size_t n, bytes;
    cpu_set_t *set = allowed(&n, &bytes);
    if (set == NULL) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        return online > 0 ? (int)online : 1;
    }
    int count = CPU_COUNT_S(bytes, set);
    CPU_FREE(set);
    return count > 0 ? count : 1;
}

/* Is this the first allowed processor of its core? Siblings read "0,64" or "0-1". */
static int first_of_core(int cpu, const cpu_set_t *set, size_t bytes) {
    char path[128], line[256], *at = line;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    if (!read_line(path, line, sizeof line)) {
        return 1;
    }
    while (*at != '\0') {
        long from = strtol(at, &at, 10), to = from;
        if (*at == '-') {
            to = strtol(at + 1, &at, 10);
        }
        for (long i = from; i <= to && i < cpu; i++) {
            if (i >= 0 && CPU_ISSET_S((size_t)i, bytes, set)) {
                return 0;
            }
        }
        if (*at != ',') {
            break;
        }
        at++;
    }
    return 1;
}

static int physical_cores(void) {
    int count = 0;
    size_t n, bytes;
    cpu_set_t *set = allowed(&n, &bytes);
    if (set == NULL) {
        return gw_cpu_usable_processors();
    }
    for (size_t cpu = 0; cpu < n; cpu++) {
        if (CPU_ISSET_S(cpu, bytes, set)) {
            count += first_of_core((int)cpu, set, bytes);
        }
    }
    CPU_FREE(set);
    return count > 0 ? count : 1;
}
#else
int gw_cpu_usable_processors(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

static int physical_cores(void) {
    int cores = gw_os_cores();
    return cores > 0 ? cores : gw_cpu_usable_processors();
}
#endif

int gw_cpu_default_threads(void) {
    int wish = gw_team_wish();
    if (wish > 0) {
        return wish;
    }
    int cores = physical_cores();
    double quota = (double)cores;
    each_cgroup("", visit_quota_v2, &quota);
    each_cgroup("cpu", visit_quota_v1, &quota);
    int whole = (int)quota + (quota > (double)(int)quota);
    cores = whole < cores ? whole : cores;
    cores = cores < GW_CPU_MAX_THREADS ? cores : GW_CPU_MAX_THREADS;
    return cores > 0 ? cores : 1;
}

void gw_cpu_model_name(char *out, size_t bytes) {
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    out[0] = '\0';
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(out, bytes, "%s", colon + 1 + strspn(colon + 1, " \t"));
            break;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
}
