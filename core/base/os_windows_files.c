/* core/base/os_windows_files.c - see os_windows.h: files and folders of Windows. Paths become
 * UTF-16 at this border; handles are shared with whoever wants to read, write, rename or remove.
 */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <stdarg.h>
#include <wchar.h>
#include <winioctl.h>

#include "core/base/os.h"

enum { PATH_UNITS = 4096 }; /* of a path, in UTF-16 */

/* ---- errors and paths ------------------------------------------------------------------------ */

static int fail(void) {
    switch (GetLastError()) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_INVALID_NAME:
    case ERROR_BAD_PATHNAME:
    case ERROR_INVALID_DRIVE:
        errno = ENOENT;
        break;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION:
    case ERROR_WRITE_PROTECT:
        errno = EACCES;
        break;
    case ERROR_PRIVILEGE_NOT_HELD:
        errno = EPERM;
        break;
    case ERROR_ALREADY_EXISTS:
    case ERROR_FILE_EXISTS:
        errno = EEXIST;
        break;
    case ERROR_DIR_NOT_EMPTY:
        errno = ENOTEMPTY;
        break;
    case ERROR_DISK_FULL:
    case ERROR_HANDLE_DISK_FULL:
        errno = ENOSPC;
        break;
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_OUTOFMEMORY:
    case ERROR_COMMITMENT_LIMIT:
        errno = ENOMEM;
        break;
    case ERROR_TOO_MANY_OPEN_FILES:
        errno = EMFILE;
        break;
    case ERROR_DIRECTORY:
        errno = ENOTDIR;
        break;
    case ERROR_BROKEN_PIPE:
    case ERROR_NO_DATA:
        errno = EPIPE;
        break;
    case ERROR_LOCK_VIOLATION:
    case ERROR_IO_PENDING:
        errno = EWOULDBLOCK;
        break;
    case ERROR_INVALID_HANDLE:
        errno = EBADF;
        break;
    default:
        errno = EIO;
    }
    return -1;
}

/* The path in UTF-16: absolute and with the mark of long paths where it would be too long without.
 * 0: it is no UTF-8, or longer than any path (ENOENT, ENAMETOOLONG). */
static int wide(const char *path, wchar_t out[PATH_UNITS]) {
    wchar_t plain[PATH_UNITS];
    if (strcmp(path, "/dev/null") == 0) {
        path = "NUL";
    }
    if (!MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, plain, PATH_UNITS)) {
        errno = GetLastError() == ERROR_INSUFFICIENT_BUFFER ? ENAMETOOLONG : ENOENT;
        return 0;
    }
    if (wcslen(plain) < MAX_PATH - 16 || wcsncmp(plain, L"\\\\", 2) == 0) {
        wcscpy(out, plain);
        return 1;
    }
    wcscpy(out, L"\\\\?\\");
    DWORD n = GetFullPathNameW(plain, PATH_UNITS - 4, out + 4, NULL);
    if (n == 0 || n >= PATH_UNITS - 4) {
        errno = ENAMETOOLONG;
        return 0;
    }
    return 1;
}

static int narrow(const wchar_t *from, char *out, size_t bytes) {
    int n = WideCharToMultiByte(CP_UTF8, 0, from, -1, out, (int)bytes, NULL, NULL);
    if (n == 0) {
        errno = ENAMETOOLONG;
    }
    return n > 0;
}

static HANDLE handle_of(int fd) { return (HANDLE)_get_osfhandle(fd); }

/* name in the folder that fd is, by the folder's own path of now. */
static int path_in(int folder, const char *name, char *out, size_t bytes) {
    wchar_t at[PATH_UNITS];
    if (folder == AT_FDCWD || name[0] == '/' || name[0] == '\\' || (name[0] && name[1] == ':')) {
        return snprintf(out, bytes, "%s", name) < (int)bytes;
    }
    DWORD n = GetFinalPathNameByHandleW(handle_of(folder), at, PATH_UNITS, FILE_NAME_NORMALIZED);
    if (n == 0 || n >= PATH_UNITS) {
        fail();
        return 0;
    }
    const wchar_t *plain = wcsncmp(at, L"\\\\?\\", 4) == 0 && at[5] == L':' ? at + 4 : at;
    if (!narrow(plain, out, bytes)) {
        return 0;
    }
    size_t used = strlen(out);
    return snprintf(out + used, bytes - used, "\\%s", name) < (int)(bytes - used);
}

/* ---- what a file is -------------------------------------------------------------------------- */

static struct timespec time_of(FILETIME t) { /* 100 ns since 1601 */
    uint64_t ticks = (uint64_t)t.dwHighDateTime << 32 | t.dwLowDateTime;
    ticks = ticks > 116444736000000000u ? ticks - 116444736000000000u : 0;
    return (struct timespec){.tv_sec = (time_t)(ticks / 10000000),
                             .tv_nsec = (long)(ticks % 10000000) * 100};
}

static int look(HANDLE handle, struct gw_windows_stat *out) {
    BY_HANDLE_FILE_INFORMATION i;
    DWORD type = GetFileType(handle);
    memset(out, 0, sizeof *out);
    if (type == FILE_TYPE_CHAR || type == FILE_TYPE_PIPE) {
        out->st_mode = (type == FILE_TYPE_CHAR ? S_IFCHR : S_IFIFO) | 0600;
        out->st_ino = (uint64_t)(uintptr_t)handle;
        return 0;
    }
    if (!GetFileInformationByHandle(handle, &i)) {
        return fail();
    }
    int folder = (i.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
    FILE_ATTRIBUTE_TAG_INFO tag = {0};
    if (i.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) {
        (void)GetFileInformationByHandleEx(handle, FileAttributeTagInfo, &tag, sizeof tag);
    }
    int link =
        tag.ReparseTag == IO_REPARSE_TAG_SYMLINK || tag.ReparseTag == IO_REPARSE_TAG_MOUNT_POINT;
    out->st_dev = i.dwVolumeSerialNumber;
    out->st_ino = (uint64_t)i.nFileIndexHigh << 32 | i.nFileIndexLow;
    out->st_mode = (unsigned short)(link     ? S_IFLNK | 0777
                                    : folder ? S_IFDIR | 0700
                                             : S_IFREG | 0600);
    out->st_size = (int64_t)((uint64_t)i.nFileSizeHigh << 32 | i.nFileSizeLow);
    out->st_mtim = time_of(i.ftLastWriteTime);
    return 0;
}

static int look_at(const char *path, DWORD flags, struct gw_windows_stat *out) {
    wchar_t name[PATH_UNITS];
    if (!wide(path, name)) {
        return -1;
    }
    HANDLE handle = CreateFileW(name, FILE_READ_ATTRIBUTES,
                                FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                                OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS | flags, NULL);
    if (handle == INVALID_HANDLE_VALUE) {
        return fail();
    }
    int result = look(handle, out);
    CloseHandle(handle);
    return result;
}

int gw_windows_stat(const char *path, struct gw_windows_stat *out) { return look_at(path, 0, out); }

int gw_windows_lstat(const char *path, struct gw_windows_stat *out) {
    return look_at(path, FILE_FLAG_OPEN_REPARSE_POINT, out);
}

int gw_windows_fstat(int fd, struct gw_windows_stat *out) {
    HANDLE handle = handle_of(fd);
    if (handle == INVALID_HANDLE_VALUE) {
        errno = EBADF;
        return -1;
    }
    return look(handle, out);
}

int fstatat(int folder, const char *name, struct gw_windows_stat *out, int flags) {
    char path[PATH_UNITS];
    DWORD how = flags & AT_SYMLINK_NOFOLLOW ? FILE_FLAG_OPEN_REPARSE_POINT : 0;
    return path_in(folder, name, path, sizeof path) ? look_at(path, how, out) : -1;
}

/* ---- opening --------------------------------------------------------------------------------- */

static HANDLE open_handle(const wchar_t *name, int flags) {
    DWORD access = (flags & O_ACCMODE) == O_RDONLY   ? GENERIC_READ
                   : (flags & O_ACCMODE) == O_WRONLY ? GENERIC_WRITE
                                                     : GENERIC_READ | GENERIC_WRITE;
    if (flags & O_APPEND) {
        access = (access & ~(DWORD)GENERIC_WRITE) | FILE_APPEND_DATA | SYNCHRONIZE;
    }
    /* O_TRUNC: open_path does it, once it has seen what the file is. */
    DWORD how = flags & O_CREAT ? (flags & O_EXCL ? CREATE_NEW : OPEN_ALWAYS) : OPEN_EXISTING;
    DWORD more = (flags & O_DIRECTORY ? FILE_FLAG_BACKUP_SEMANTICS : 0u) |
                 (flags & O_NOFOLLOW ? FILE_FLAG_OPEN_REPARSE_POINT : 0u);
    if (flags & O_DIRECTORY) {
        access = FILE_LIST_DIRECTORY | FILE_READ_ATTRIBUTES;
    }
    return CreateFileW(name, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                       how, FILE_ATTRIBUTE_NORMAL | more, NULL);
}

static int open_path(const char *path, int flags) {
    wchar_t name[PATH_UNITS];
    struct gw_windows_stat st;
    if (!wide(path, name)) {
        return -1;
    }
    HANDLE handle = open_handle(name, flags);
    if (handle == INVALID_HANDLE_VALUE) {
        return fail();
    }
    int wrong = 0; /* what this handle must not be */
    if ((flags & O_NOFOLLOW) && look(handle, &st) == 0 && S_ISLNK(st.st_mode)) {
        wrong = ELOOP;
    } else if ((flags & O_DIRECTORY) && (look(handle, &st) != 0 || !S_ISDIR(st.st_mode))) {
        wrong = ENOTDIR;
    }
    FILE_END_OF_FILE_INFO empty = {.EndOfFile.QuadPart = 0};
    if (wrong == 0 && (flags & O_TRUNC) &&
        !SetFileInformationByHandle(handle, FileEndOfFileInfo, &empty, sizeof empty)) {
        (void)fail();
        wrong = errno;
    }
    int fd = -1;
    if (wrong == 0) {
        fd = _open_osfhandle((intptr_t)handle, _O_BINARY | _O_NOINHERIT |
                                                   (flags & O_APPEND ? _O_APPEND : 0) |
                                                   (flags & O_ACCMODE));
    }
    if (fd < 0) {
        CloseHandle(handle);
        errno = wrong != 0 ? wrong : EMFILE;
    }
    return fd;
}

int open(const char *path, int flags, ...) { return open_path(path, flags); }

int openat(int folder, const char *name, int flags, ...) {
    char path[PATH_UNITS];
    return path_in(folder, name, path, sizeof path) ? open_path(path, flags) : -1;
}

FILE *fopen(const char *path, const char *mode) {
    int more = strchr(mode, '+') != NULL;
    int flags = mode[0] == 'r'
                    ? (more ? O_RDWR : O_RDONLY)
                    : (more ? O_RDWR : O_WRONLY) | O_CREAT | (mode[0] == 'w' ? O_TRUNC : O_APPEND);
    char plain[4] = {mode[0], more ? '+' : 'b', more ? 'b' : '\0', '\0'};
    int fd = open_path(path, flags);
    FILE *file = fd >= 0 ? _fdopen(fd, plain) : NULL;
    if (file == NULL && fd >= 0) {
        _close(fd);
    }
    return file;
}

/* ---- names ----------------------------------------------------------------------------------- */

int unlink(const char *path) {
    wchar_t name[PATH_UNITS];
    return !wide(path, name) ? -1 : DeleteFileW(name) ? 0 : fail();
}

int unlinkat(int folder, const char *name, int flags) {
    char path[PATH_UNITS];
    (void)flags;
    return path_in(folder, name, path, sizeof path) ? unlink(path) : -1;
}

/* Over a file that somebody has open, as Windows 10 can: its name goes, the open file stays. */
static int rename_over_open(const wchar_t *from, const wchar_t *to) {
    enum { INFO_EX = 22, REPLACE = 1, POSIX = 2 }; /* FileRenameInfoEx and its flags */
    struct {
        DWORD flags;
        HANDLE root;
        DWORD bytes;
        wchar_t name[PATH_UNITS];
    } info = {.flags = REPLACE | POSIX};
    DWORD n = GetFullPathNameW(to, PATH_UNITS, info.name, NULL);
    info.bytes = n * (DWORD)sizeof(wchar_t);
    HANDLE handle = n > 0 && n < PATH_UNITS
                        ? CreateFileW(from, DELETE | SYNCHRONIZE,
                                      FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                                      OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL)
                        : INVALID_HANDLE_VALUE;
    int ok = handle != INVALID_HANDLE_VALUE &&
             SetFileInformationByHandle(handle, (FILE_INFO_BY_HANDLE_CLASS)INFO_EX, &info,
                                        (DWORD)(offsetof(__typeof__(info), name)) + info.bytes +
                                            (DWORD)sizeof(wchar_t));
    if (handle != INVALID_HANDLE_VALUE) {
        CloseHandle(handle);
    }
    return ok;
}

int rename(const char *from, const char *to) {
    wchar_t a[PATH_UNITS], b[PATH_UNITS];
    if (!wide(from, a) || !wide(to, b)) {
        return -1;
    }
    if (MoveFileExW(a, b, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH)) {
        return 0;
    }
    (void)fail();
    return errno == EACCES && rename_over_open(a, b) ? 0 : -1;
}

int gw_windows_mkdir(const char *path, mode_t mode) {
    wchar_t name[PATH_UNITS];
    (void)mode;
    if (!wide(path, name)) {
        return -1;
    }
    if (CreateDirectoryW(name, NULL)) {
        return 0;
    }
    (void)fail();
    DWORD what = GetFileAttributesW(name); /* of a drive: access denied */
    errno = what != INVALID_FILE_ATTRIBUTES && (what & FILE_ATTRIBUTE_DIRECTORY) ? EEXIST : errno;
    return -1;
}

int rmdir(const char *path) {
    wchar_t name[PATH_UNITS];
    return !wide(path, name) ? -1 : RemoveDirectoryW(name) ? 0 : fail();
}

int access(const char *path, int mode) {
    struct gw_windows_stat st;
    int fd;
    if (gw_windows_stat(path, &st) != 0) {
        return -1;
    }
    if (mode == F_OK || S_ISDIR(st.st_mode)) {
        return 0;
    }
    fd = open_path(path, mode & W_OK ? O_RDWR : O_RDONLY);
    if (fd >= 0) {
        _close(fd);
    }
    return fd >= 0 ? 0 : -1;
}

char *realpath(const char *path, char *out) {
    wchar_t name[PATH_UNITS], full[PATH_UNITS];
    size_t bytes = out != NULL ? PATH_MAX : 4 * PATH_UNITS;
    if (!wide(path, name)) {
        return NULL;
    }
    HANDLE handle = CreateFileW(name, FILE_READ_ATTRIBUTES,
                                FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                                OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
    if (handle == INVALID_HANDLE_VALUE) {
        (void)fail();
        return NULL;
    }
    DWORD n = GetFinalPathNameByHandleW(handle, full, PATH_UNITS, FILE_NAME_NORMALIZED);
    CloseHandle(handle);
    char *to = out != NULL ? out : malloc(bytes);
    const wchar_t *plain = n > 5 && full[5] == L':' ? full + 4 : full; /* without its mark */
    if (to == NULL || n == 0 || n >= PATH_UNITS || !narrow(plain, to, bytes)) {
        errno = to == NULL ? ENOMEM : ENAMETOOLONG;
        if (out == NULL) {
            free(to);
        }
        return NULL;
    }
    return to;
}

int symlink(const char *target, const char *path) {
    enum { UNPRIVILEGED = 2 };
    wchar_t to[PATH_UNITS], name[PATH_UNITS];
    if (!wide(target, to) || !wide(path, name)) {
        return -1;
    }
    for (wchar_t *at = to; *at != L'\0'; at++) {
        *at = *at == L'/' ? L'\\' : *at; /* kept as it is written, and read by the system */
    }
    return CreateSymbolicLinkW(name, to, UNPRIVILEGED) ? 0 : fail();
}

int gw_os_second_name(const char *path, const char *name) {
    wchar_t a[PATH_UNITS], b[PATH_UNITS];
    if (!wide(path, a) || !wide(name, b)) {
        return -1;
    }
    return CreateHardLinkW(b, a, NULL) ? 0 : fail();
}

ssize_t readlink(const char *path, char *out, size_t bytes) {
    wchar_t name[PATH_UNITS];
    char text[PATH_UNITS];
    union {
        struct {
            DWORD tag;
            WORD bytes, unused, substitute_at, substitute_bytes, print_at, print_bytes;
            DWORD flags;
            wchar_t paths[1];
        } link;
        char room[16384];
    } data;
    DWORD got;
    if (!wide(path, name)) {
        return -1;
    }
    HANDLE handle =
        CreateFileW(name, 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                    OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT, NULL);
    if (handle == INVALID_HANDLE_VALUE) {
        return fail();
    }
    int ok =
        DeviceIoControl(handle, FSCTL_GET_REPARSE_POINT, NULL, 0, &data, sizeof data, &got, NULL);
    CloseHandle(handle);
    if (!ok || data.link.tag != IO_REPARSE_TAG_SYMLINK) {
        errno = EINVAL;
        return -1;
    }
    size_t n = data.link.print_bytes / sizeof(wchar_t);
    wchar_t *at = data.link.paths + data.link.print_at / sizeof(wchar_t);
    at[n] = L'\0';
    if (!narrow(at, text, sizeof text)) {
        return -1;
    }
    size_t used = strlen(text) < bytes ? strlen(text) : bytes;
    for (size_t i = 0; i < used; i++) {
        out[i] = text[i] == '\\' ? '/' : text[i];
    }
    return (ssize_t)used;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

enum { MOST_AT_ONCE = 1 << 30 };

/* What was typed on the console and not yet been handed out, in UTF-8. */
static struct {
    char text[4096];
    size_t at, n;
} typed;

/* By its UTF-16 form: the narrow one loses every letter beyond ASCII. Ctrl-Z at the beginning of a
 * line is the end. */
static ssize_t read_console(HANDLE console, char *out, size_t bytes) {
    wchar_t units[sizeof typed.text / 4];
    DWORD n = 0;
    if (typed.at == typed.n) {
        if (!ReadConsoleW(console, units, sizeof units / sizeof units[0] - 1, &n, NULL)) {
            return fail();
        }
        DWORD more = 0;
        if (n > 0 && (units[n - 1] & 0xfc00) == 0xd800 &&
            ReadConsoleW(console, units + n, 1, &more, NULL)) {
            n += more;
        }
        if (n == 0 || units[0] == 26) {
            return 0;
        }
        typed.at = 0;
        typed.n = (size_t)WideCharToMultiByte(CP_UTF8, 0, units, (int)n, typed.text,
                                              (int)sizeof typed.text, NULL, NULL);
    }
    size_t used = 0;
    for (; used < bytes && typed.at < typed.n; typed.at++) {
        if (typed.text[typed.at] != '\r') {
            out[used++] = typed.text[typed.at];
        }
    }
    return (ssize_t)used;
}

ssize_t read(int fd, void *out, size_t bytes) {
    DWORD mode;
    HANDLE handle = handle_of(fd);
    if (bytes > 0 && GetFileType(handle) == FILE_TYPE_CHAR && GetConsoleMode(handle, &mode)) {
        ssize_t n;
        do { /* "\r" alone is nothing yet */
            n = read_console(handle, out, bytes);
        } while (n == 0 && typed.at < typed.n);
        return n;
    }
    return _read(fd, out, (unsigned)(bytes < MOST_AT_ONCE ? bytes : MOST_AT_ONCE));
}

ssize_t write(int fd, const void *data, size_t bytes) {
    int n = _write(fd, data, (unsigned)(bytes < MOST_AT_ONCE ? bytes : MOST_AT_ONCE));
    if (n < 0 && errno == EINVAL && _doserrno == ERROR_NO_DATA) {
        errno = EPIPE; /* the reader is gone */
    }
    return n;
}

static OVERLAPPED place(int64_t at) {
    OVERLAPPED o = {0};
    o.Offset = (DWORD)(uint64_t)at;
    o.OffsetHigh = (DWORD)((uint64_t)at >> 32);
    return o;
}

/* Reading at a place moves the position of a handle: it is put back. */
ssize_t pread(int fd, void *out, size_t bytes, int64_t at) {
    OVERLAPPED o = place(at);
    DWORD n = 0;
    int64_t before = _lseeki64(fd, 0, SEEK_CUR);
    int ok =
        ReadFile(handle_of(fd), out, (DWORD)(bytes < MOST_AT_ONCE ? bytes : MOST_AT_ONCE), &n, &o);
    DWORD error = GetLastError();
    (void)_lseeki64(fd, before, SEEK_SET);
    SetLastError(error);
    return ok ? (ssize_t)n : error == ERROR_HANDLE_EOF ? 0 : fail();
}

ssize_t pwrite(int fd, const void *data, size_t bytes, int64_t at) {
    OVERLAPPED o = place(at);
    DWORD n = 0;
    int64_t before = _lseeki64(fd, 0, SEEK_CUR);
    int ok = WriteFile(handle_of(fd), data, (DWORD)(bytes < MOST_AT_ONCE ? bytes : MOST_AT_ONCE),
                       &n, &o);
    DWORD error = GetLastError();
    (void)_lseeki64(fd, before, SEEK_SET);
    SetLastError(error);
    return ok ? (ssize_t)n : fail();
}

int gw_windows_ftruncate(int fd, int64_t bytes) {
    FILE_END_OF_FILE_INFO end = {.EndOfFile.QuadPart = bytes};
    return SetFileInformationByHandle(handle_of(fd), FileEndOfFileInfo, &end, sizeof end) ? 0
                                                                                          : fail();
}

int64_t gw_windows_lseek(int fd, int64_t at, int from) { return _lseeki64(fd, at, from); }

int fsync(int fd) {
    struct gw_windows_stat st; /* a folder has nothing of its own to be written */
    if (gw_windows_fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        return 0;
    }
    return FlushFileBuffers(handle_of(fd)) ? 0 : fail();
}

int posix_fallocate(int fd, int64_t at, int64_t bytes) {
    wchar_t name[PATH_UNITS];
    ULARGE_INTEGER room;
    DWORD n = GetFinalPathNameByHandleW(handle_of(fd), name, PATH_UNITS, FILE_NAME_NORMALIZED);
    wchar_t *slash = n > 0 && n < PATH_UNITS ? wcsrchr(name, L'\\') : NULL;
    if (slash == NULL) {
        return EINVAL;
    }
    slash[1] = L'\0';
    return GetDiskFreeSpaceExW(name, &room, NULL, NULL) && (uint64_t)(at + bytes) > room.QuadPart
               ? ENOSPC
               : 0;
}

int futimens(int fd, const struct timespec *times) {
    FILETIME now;
    (void)times;
    GetSystemTimeAsFileTime(&now);
    /* The file's own handle may be one for reading. */
    HANDLE handle = ReOpenFile(handle_of(fd), FILE_WRITE_ATTRIBUTES,
                               FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                               FILE_FLAG_BACKUP_SEMANTICS);
    if (handle == INVALID_HANDLE_VALUE) {
        return fail();
    }
    int result = SetFileTime(handle, NULL, NULL, &now) ? 0 : fail();
    CloseHandle(handle);
    return result;
}

int pipe2(int fds[2], int flags) {
    (void)flags;
    return _pipe(fds, 1 << 16, _O_BINARY | _O_NOINHERIT);
}

int flock(int fd, int operation) {
    OVERLAPPED far_away = place(INT64_MAX - 1);
    HANDLE handle = handle_of(fd);
    if (operation & LOCK_UN) {
        return UnlockFileEx(handle, 0, 1, 0, &far_away) ? 0 : fail();
    }
    DWORD flags = (operation & LOCK_EX ? LOCKFILE_EXCLUSIVE_LOCK : 0u) |
                  (operation & LOCK_NB ? LOCKFILE_FAIL_IMMEDIATELY : 0u);
    return LockFileEx(handle, flags, 0, 1, 0, &far_away) ? 0 : fail();
}

int statvfs(const char *path, struct statvfs *out) {
    wchar_t name[PATH_UNITS];
    ULARGE_INTEGER room;
    if (!wide(path, name)) {
        return -1;
    }
    DWORD attributes = GetFileAttributesW(name);
    if (attributes != INVALID_FILE_ATTRIBUTES && !(attributes & FILE_ATTRIBUTE_DIRECTORY)) {
        wchar_t *slash = wcsrchr(name, L'/') != NULL ? wcsrchr(name, L'/') : wcsrchr(name, L'\\');
        if (slash != NULL) {
            *slash = L'\0';
        } else {
            wcscpy(name, L".");
        }
    }
    if (!GetDiskFreeSpaceExW(name, &room, NULL, NULL)) {
        return fail();
    }
    *out = (struct statvfs){.f_bavail = room.QuadPart, .f_frsize = 1};
    return 0;
}

/* ---- folders --------------------------------------------------------------------------------- */

struct gw_windows_folder {
    HANDLE find;
    int fd, started;
    WIN32_FIND_DATAW data;
    struct dirent entry;
    wchar_t pattern[PATH_UNITS];
};

DIR *fdopendir(int fd) {
    char path[PATH_UNITS];
    wchar_t name[PATH_UNITS];
    DIR *folder = calloc(1, sizeof *folder);
    if (folder == NULL || !path_in(fd, "*", path, sizeof path) || !wide(path, name)) {
        free(folder);
        return NULL;
    }
    folder->find = INVALID_HANDLE_VALUE;
    folder->fd = fd;
    wcscpy(folder->pattern, name);
    return folder;
}

DIR *opendir(const char *path) {
    int fd = open_path(path, O_RDONLY | O_DIRECTORY);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder == NULL && fd >= 0) {
        _close(fd);
    }
    return folder;
}

int dirfd(DIR *folder) { return folder->fd; }

struct dirent *readdir(DIR *folder) {
    for (;;) {
        if (!folder->started) {
            folder->started = 1;
            folder->find = FindFirstFileW(folder->pattern, &folder->data);
            if (folder->find == INVALID_HANDLE_VALUE) {
                return NULL;
            }
        } else if (folder->find == INVALID_HANDLE_VALUE ||
                   !FindNextFileW(folder->find, &folder->data)) {
            return NULL;
        }
        if (narrow(folder->data.cFileName, folder->entry.d_name, sizeof folder->entry.d_name)) {
            return &folder->entry;
        }
    }
}

void rewinddir(DIR *folder) {
    if (folder->find != INVALID_HANDLE_VALUE) {
        FindClose(folder->find);
    }
    folder->find = INVALID_HANDLE_VALUE;
    folder->started = 0;
}

int closedir(DIR *folder) {
    rewinddir(folder);
    _close(folder->fd);
    free(folder);
    return 0;
}

int alphasort(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

int scandir(const char *path, struct dirent ***out, int (*filter)(const struct dirent *),
            int (*order)(const struct dirent **, const struct dirent **)) {
    DIR *folder = opendir(path);
    struct dirent **list = NULL;
    int n = 0, failed = 0;
    if (folder == NULL) {
        return -1;
    }
    for (struct dirent *e; !failed && (e = readdir(folder)) != NULL;) {
        if (filter != NULL && !filter(e)) {
            continue;
        }
        struct dirent **more = realloc(list, ((size_t)n + 1) * sizeof *list),
                      *copy = malloc(sizeof *e);
        list = more != NULL ? more : list;
        failed = more == NULL || copy == NULL;
        if (!failed) {
            *copy = *e;
            list[n++] = copy;
        } else {
            free(copy);
        }
    }
    closedir(folder);
    if (order != NULL && n > 1) {
        qsort(list, (size_t)n, sizeof *list, (int (*)(const void *, const void *))(void *)order);
    }
    *out = list;
    return n;
}
