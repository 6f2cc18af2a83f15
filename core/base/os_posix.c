/* core/base/os_posix.c - see os.h: POSIX systems. */
#include "core/base/os.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#endif

enum { ALIGNED = 64 };

void gw_os_start(int *argc, char ***argv) { (void)argc, (void)argv; }

static uint64_t pages_of(int name) {
    long pages = sysconf(name), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

uint64_t gw_os_memory(void) { return pages_of(_SC_PHYS_PAGES); }

uint64_t gw_os_memory_free(void) {
#if defined(_SC_AVPHYS_PAGES)
    return pages_of(_SC_AVPHYS_PAGES);
#else
    return 0;
#endif
}

int gw_os_cores(void) {
#if defined(__APPLE__)
    int n = 0;
    size_t bytes = sizeof n;
    return sysctlbyname("hw.physicalcpu", &n, &bytes, NULL, 0) == 0 ? n : 0;
#else
    return 0; /* Linux: backends/cpu/machine.c reads what is allowed as well */
#endif
}

uint64_t gw_os_memory_peak(void) {
    struct rusage use;
    if (getrusage(RUSAGE_SELF, &use) != 0 || use.ru_maxrss < 0) {
        return 0;
    }
#if defined(__APPLE__)
    return (uint64_t)use.ru_maxrss; /* bytes there, KiB elsewhere */
#else
    return (uint64_t)use.ru_maxrss * 1024;
#endif
}

static int wait_for(int fd, short events, int milliseconds) {
    struct pollfd wait = {.fd = fd, .events = events};
    return poll(&wait, 1, milliseconds) == 1;
}

int gw_os_readable(int fd, int milliseconds) { return wait_for(fd, POLLIN, milliseconds); }
int gw_os_writable(int fd, int milliseconds) { return wait_for(fd, POLLOUT, milliseconds); }

int gw_os_duplicate(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 3); }
int gw_os_second_name(const char *path, const char *name) { return link(path, name); }

int gw_os_replace(int fd, int old) {
    return dup2(fd, old) == old ? fcntl(old, F_SETFD, FD_CLOEXEC) : -1;
}

int gw_os_open_null(int flags) { return open("/dev/null", flags | O_CLOEXEC); }
int gw_os_is_open(int fd) { return fcntl(fd, F_GETFD) != -1 || errno != EBADF; }

int gw_os_columns(int fd) {
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void *gw_os_aligned(size_t bytes) {
    void *at = NULL;
    return posix_memalign(&at, ALIGNED, bytes) == 0 ? at : NULL;
}

void gw_os_aligned_free(void *data) { free(data); }

void gw_os_trim(void) {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

void gw_os_map_blocks(size_t from) {
#if defined(M_MMAP_THRESHOLD)
    (void)mallopt(M_MMAP_THRESHOLD, (int)from);
#else
    (void)from;
#endif
}

void gw_os_sleep(int milliseconds) {
    struct timespec time = {.tv_sec = milliseconds / 1000,
                            .tv_nsec = (long)(milliseconds % 1000) * 1000000};
    (void)nanosleep(&time, NULL);
}

void gw_os_alarm(unsigned seconds, void (*f)(int)) {
    struct sigaction action = {.sa_handler = f};
    sigemptyset(&action.sa_mask);
    if (seconds > 0) {
        sigaction(SIGALRM, &action, NULL);
    }
    alarm(seconds);
}

void gw_os_yield_priority(void) {
#if defined(__linux__)
    enum { NICE = 5 }; /* of Linux: of this thread alone */
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
#endif
}

unsigned long gw_os_open_files(unsigned long most) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) {
        return 0;
    }
    files.rlim_cur = files.rlim_max < most ? files.rlim_max : most;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    return getrlimit(RLIMIT_NOFILE, &files) == 0 ? (unsigned long)files.rlim_cur : 0;
}
