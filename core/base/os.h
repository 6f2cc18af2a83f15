/* core/base/os.h - what the program needs of an operating system: files, folders, maps, clocks,
 * processes, terminals, libraries opened at run time, random bytes.
 *
 * The names are POSIX's. A POSIX system has them; core/base/os_windows.h gives Windows the same
 * names with the same meaning. The few things whose POSIX form has no twin there are functions of
 * our own (core/base/os_posix.c, core/base/os_windows_system.c). No other file includes a header of
 * the system but core/base/os_threads.h (threads) and core/base/os_net.h (sockets).
 */
#ifndef GW_BASE_OS_H
#define GW_BASE_OS_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#include "core/base/os_windows.h"
#else
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
extern char **environ;
#endif

#if defined(__APPLE__) /* the same under other names, or not to be had */
#define st_mtim st_mtimespec
#define GRND_NONBLOCK 0
#define MADV_HUGEPAGE 0 /* MADV_NORMAL */
static inline ssize_t getrandom(void *out, size_t bytes, unsigned flags) {
    (void)flags;
    return getentropy(out, bytes) == 0 ? (ssize_t)bytes : -1; /* 256 bytes at most */
}
static inline int posix_fallocate(int fd, off_t at, off_t bytes) {
    (void)fd, (void)at, (void)bytes;
    return 0; /* a full disk shows when it is written to */
}
#endif

#if defined(_WIN32)
#define GW_OS_SLASHES "/\\" /* what parts folders in a path */
#else
#define GW_OS_SLASHES "/"
#endif

/* The last one in a path, as strrchr has it; NULL. */
static inline char *gw_os_last_slash(const char *path) {
    const char *last = NULL;
    for (const char *at = path; *at != '\0'; at++) {
        last = *at == '/' || *at == GW_OS_SLASHES[sizeof GW_OS_SLASHES - 2] ? at : last;
    }
    return (char *)(uintptr_t)last;
}

/* Does the path begin at a root? */
static inline int gw_os_is_absolute(const char *path) {
#if defined(_WIN32)
    return path[0] == '/' || path[0] == '\\' || (path[0] != '\0' && path[1] == ':');
#else
    return path[0] == '/';
#endif
}

/* Gives a file a second name (a hard link). 0; -1, errno. */
int gw_os_second_name(const char *path, const char *name);

/* Once, first in main: arguments are UTF-8 and standard streams bytes afterwards. */
void gw_os_start(int *argc, char ***argv);

/* Bytes of memory of the machine, and of those that could be had now; 0: not known. */
uint64_t gw_os_memory(void);
uint64_t gw_os_memory_free(void);
/* Cores of the machine, each counted once however many threads it runs; 0: not known. */
int gw_os_cores(void);
/* The most that this process has had in memory so far, in bytes; 0: not known. */
uint64_t gw_os_memory_peak(void);

/* Waits until fd can be read (or has ended), at most so many milliseconds: 1, or 0 when it cannot.
 * fd: a terminal, a pipe or a file. */
int gw_os_readable(int fd, int milliseconds);
/* The same for writing; for descriptors that do not block. */
int gw_os_writable(int fd, int milliseconds);

/* A descriptor for the same open file, closed in child processes and no standard one; -1, errno. */
int gw_os_duplicate(int fd);
/* Makes `old` a descriptor of what fd is, closed in child processes. 0; -1, errno. */
int gw_os_replace(int fd, int old);
/* Opens what swallows everything: /dev/null or NUL. */
int gw_os_open_null(int flags);
/* 1: fd is open. */
int gw_os_is_open(int fd);

/* Columns of the terminal that fd is; 0: it is none, or does not say. */
int gw_os_columns(int fd);

/* Memory that begins at a multiple of 64; NULL. Freed by gw_os_aligned_free alone. */
void *gw_os_aligned(size_t bytes);
void gw_os_aligned_free(void *data);

/* Gives memory that is free inside the C library back to the system, where it can be asked to. */
void gw_os_trim(void);

/* From now on blocks of so many bytes are mapped on their own, where the C library can be told. */
void gw_os_map_blocks(size_t from);

/* A signal may end it early. */
void gw_os_sleep(int milliseconds);

/* Calls f, once, after so many seconds, on whatever thread: it may do what a signal handler may.
 * One of the process; 0 takes it back. */
void gw_os_alarm(unsigned seconds, void (*f)(int));

/* Makes this thread give way to others, where a thread alone can be made to. */
void gw_os_yield_priority(void);

/* Lets the process have as many files open as the system allows, up to most; how many that is. */
unsigned long gw_os_open_files(unsigned long most);

#endif
