/* core/base/os_windows.h - POSIX's names for Windows, as mingw-w64 lacks them or means something
 * else by them. Paths are UTF-8 with / or \; files are bytes (no translation of line ends), may be
 * renamed and removed while they are open, and are not inherited by child processes.
 *
 * Included by core/base/os.h alone, which says what belongs here. Functions return what POSIX says,
 * with errno set; deviations stand at the declaration.
 */
#ifndef GW_BASE_OS_WINDOWS_H
#define GW_BASE_OS_WINDOWS_H

/* Names that the C library has with narrower types: its own are put aside. */
#define read narrow_read
#define write narrow_write
#include <direct.h>
#include <io.h>
#include <unistd.h>
#undef read
#undef write

#include <errno.h>
#include <fcntl.h>
#include <process.h>
#include <pthread.h> /* clock_gettime, nanosleep, gmtime_r */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

/* ---- the process ------------------------------------------------------------------------------
 */

#define environ _environ
int gw_windows_setenv(const char *name, const char *value, int replace);
#define setenv gw_windows_setenv
#define unsetenv(name) _putenv_s((name), "")

/* The C name is POSIX's (members of structures may have it as well), the function is ours. */
#define OURS(name) __asm__(name)

/* ---- files ------------------------------------------------------------------------------------
 */

#define O_CLOEXEC 0 /* always so */
#define O_NONBLOCK 0
#define O_NOCTTY 0
#define O_NOFOLLOW 0x10000000
#define O_DIRECTORY 0x20000000
#define AT_FDCWD (-100)
#define AT_SYMLINK_NOFOLLOW 1

#ifndef S_IFSOCK
#define S_IFSOCK 0xC000
#endif
#ifndef S_IFLNK
#define S_IFLNK 0xA000
#endif
#define S_ISSOCK(mode) (((mode)&S_IFMT) == S_IFSOCK)
#define S_ISLNK(mode) (((mode)&S_IFMT) == S_IFLNK)
#define S_IWGRP 0 /* who may write is the folder's matter here */
#define S_IWOTH 0
#define EDQUOT ENOSPC

struct gw_windows_stat {
    uint64_t st_dev, st_ino; /* volume and file number: equal for one file */
    unsigned short st_mode;
    int st_uid; /* 0, as geteuid() */
    int64_t st_size;
    struct timespec st_mtim;
};
#undef st_mtime
#define st_mtime st_mtim.tv_sec
#define stat gw_windows_stat /* the structure and the function */
#define lstat gw_windows_lstat
#undef fstat
#define fstat gw_windows_fstat
int gw_windows_stat(const char *path, struct gw_windows_stat *out);
int gw_windows_lstat(const char *path, struct gw_windows_stat *out);
int gw_windows_fstat(int fd, struct gw_windows_stat *out);
int fstatat(int folder, const char *name, struct gw_windows_stat *out, int flags);

int open(const char *path, int flags, ...) OURS("gw_windows_open");
int openat(int folder, const char *name, int flags, ...);
FILE *fopen(const char *path, const char *mode) OURS("gw_windows_fopen");
int unlink(const char *path) OURS("gw_windows_unlink");
int remove(const char *path) OURS("gw_windows_unlink");
int unlinkat(int folder, const char *name, int flags);
int rename(const char *from, const char *to) OURS("gw_windows_rename");
int gw_windows_mkdir(const char *path, mode_t mode);
int rmdir(const char *path) OURS("gw_windows_rmdir");
int access(const char *path, int mode) OURS("gw_windows_access");
char *realpath(const char *path, char *out);       /* out: NULL, or PATH_MAX bytes */
int symlink(const char *target, const char *path); /* EPERM where the user may make none */
ssize_t readlink(const char *path, char *out, size_t bytes);
#define mkdir gw_windows_mkdir

ssize_t read(int fd, void *out, size_t bytes) OURS("gw_windows_read");
ssize_t write(int fd, const void *data, size_t bytes) OURS("gw_windows_write");
ssize_t pread(int fd, void *out, size_t bytes, int64_t at); /* the position stays where it is */
ssize_t pwrite(int fd, const void *data, size_t bytes, int64_t at);
int gw_windows_ftruncate(int fd, int64_t bytes);
int64_t gw_windows_lseek(int fd, int64_t at, int from);
int fsync(int fd);
int posix_fallocate(int fd, int64_t at, int64_t bytes); /* is there room; nothing is reserved */
int futimens(int fd, const struct timespec *times);     /* times: NULL, now */
int pipe2(int fds[2], int flags);
#define ftruncate gw_windows_ftruncate
#define lseek gw_windows_lseek
#define pipe(fds) pipe2((fds), 0)

#define LOCK_SH 1
#define LOCK_EX 2
#define LOCK_NB 4
#define LOCK_UN 8
int flock(int fd, int operation); /* of one byte far beyond the end: others may read */

struct statvfs {
    uint64_t f_bavail, f_frsize;
};
int statvfs(const char *path, struct statvfs *out);

/* ---- folders ----------------------------------------------------------------------------------
 */

struct dirent {
    char d_name[1024];
};
typedef struct gw_windows_folder DIR;
DIR *opendir(const char *path);
DIR *fdopendir(int fd); /* takes fd */
int dirfd(DIR *folder); /* belongs to the folder */
struct dirent *readdir(DIR *folder);
void rewinddir(DIR *folder);
int closedir(DIR *folder);
int scandir(const char *path, struct dirent ***out, int (*filter)(const struct dirent *),
            int (*order)(const struct dirent **, const struct dirent **));
int alphasort(const struct dirent **a, const struct dirent **b);

/* ---- memory -----------------------------------------------------------------------------------
 */

#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_PRIVATE 2
#define MAP_ANONYMOUS 32
#define MAP_NORESERVE 0
#define MAP_FAILED ((void *)-1)
#define MADV_DONTNEED 4
#define MADV_HUGEPAGE 14
/* A whole file to be read, or zeroed memory to be written; munmap takes back the whole of it. */
void *mmap(void *wish, size_t bytes, int protection, int flags, int fd, int64_t at);
int munmap(void *data, size_t bytes);
int madvise(void *data, size_t bytes, int advice); /* nothing is done with it */

enum { _SC_PAGESIZE, _SC_NPROCESSORS_ONLN, _SC_PHYS_PAGES, _SC_AVPHYS_PAGES };
long sysconf(int name);

#define GRND_NONBLOCK 0
ssize_t getrandom(void *out, size_t bytes, unsigned flags);

/* ---- libraries opened at run time ---------------------------------------------------------------
 */

#define RTLD_NOW 0
#define RTLD_LAZY 0
#define RTLD_LOCAL 0
#define RTLD_GLOBAL 0
void *dlopen(const char *name, int flags);
void *dlsym(void *library, const char *name);
int dlclose(void *library);
char *dlerror(void); /* of this thread, until its next call */

/* ---- users, texts, times ------------------------------------------------------------------------
 */

static inline int geteuid(void) { return 0; }
time_t timegm(struct tm *t);
void *memmem(const void *in, size_t n, const void *word, size_t bytes);
char *strndup(const char *text, size_t most);
char *strsep(char **rest, const char *marks);

#undef OURS

#endif
