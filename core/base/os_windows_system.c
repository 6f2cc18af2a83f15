/* core/base/os_windows_system.c - see os.h and os_windows.h: processes, memory, terminals,
 * libraries and small texts of Windows.
 */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <bcrypt.h>
#include <psapi.h>
#include <shellapi.h>

#include "core/base/os.h"

enum { NAME_BYTES = 1024 };

/* ---- the process ----------------------------------------------------------------------------- */

static char *utf8_of(const wchar_t *text) {
    int n = WideCharToMultiByte(CP_UTF8, 0, text, -1, NULL, 0, NULL, NULL);
    char *out = n > 0 ? malloc((size_t)n) : NULL;
    if (out != NULL) {
        WideCharToMultiByte(CP_UTF8, 0, text, -1, out, n, NULL, NULL);
    }
    return out;
}

static void take_arguments(int *argc, char ***argv) {
    int n = 0;
    wchar_t **words = CommandLineToArgvW(GetCommandLineW(), &n);
    char **out = words != NULL ? calloc((size_t)n + 1, sizeof *out) : NULL;
    for (int i = 0; out != NULL && i < n; i++) {
        out[i] = utf8_of(words[i]);
        if (out[i] == NULL) {
            return; /* those of the code page serve */
        }
    }
    if (out != NULL) {
        *argc = n;
        *argv = out;
    }
    LocalFree(words);
}

/* The C library's copy of the environment has the code page's bytes: variables beyond ASCII are put
 * in again. */
static void take_environment(void) {
    wchar_t *all = GetEnvironmentStringsW();
    for (const wchar_t *at = all; at != NULL && *at != L'\0'; at += wcslen(at) + 1) {
        int plain = 1;
        for (const wchar_t *c = at; *c != L'\0'; c++) {
            plain &= *c < 128;
        }
        char *text = plain ? NULL : utf8_of(at);
        const wchar_t *equals = text != NULL ? wcschr(at + 1, L'=') : NULL;
        wchar_t name[NAME_BYTES];
        if (equals != NULL && (size_t)(equals - at) < NAME_BYTES) {
            wmemcpy(name, at, (size_t)(equals - at));
            name[equals - at] = L'\0';
            (void)_putenv(text); /* sets the process's own by the code page as well: put back */
            SetEnvironmentVariableW(name, equals + 1);
        }
        free(text);
    }
    if (all != NULL) {
        FreeEnvironmentStringsW(all);
    }
}

/* HOME, where a user's own files are: the profile, where nothing else is said. */
static void take_home(void) {
    wchar_t profile[NAME_BYTES];
    DWORD n = GetEnvironmentVariableW(L"USERPROFILE", profile, NAME_BYTES);
    if (getenv("HOME") != NULL || n == 0 || n >= NAME_BYTES) {
        return;
    }
    char *text = utf8_of(profile);
    for (char *at = text; text != NULL && *at != '\0'; at++) {
        *at = *at == '\\' ? '/' : *at;
    }
    if (text != NULL) {
        (void)_putenv_s("HOME", text);
    }
    free(text);
}

static void take_console(void) {
    SetConsoleOutputCP(CP_UTF8);
    SetConsoleCP(CP_UTF8);
    for (int fd = 1; fd <= 2; fd++) {
        DWORD mode;
        HANDLE handle = (HANDLE)_get_osfhandle(fd);
        if (GetConsoleMode(handle, &mode)) {
            SetConsoleMode(handle, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
        }
    }
}

void gw_os_start(int *argc, char ***argv) {
    for (int fd = 0; fd <= 2; fd++) {
        (void)_setmode(fd, _O_BINARY);
    }
    take_arguments(argc, argv);
    take_home(); /* before variables change */
    take_environment();
    take_console();
}

int gw_windows_setenv(const char *name, const char *value, int replace) {
    if (!replace && getenv(name) != NULL) {
        return 0;
    }
    return _putenv_s(name, value) == 0 ? 0 : -1;
}

/* ---- memory ---------------------------------------------------------------------------------- */

uint64_t gw_os_memory(void) {
    MEMORYSTATUSEX m = {.dwLength = sizeof m};
    return GlobalMemoryStatusEx(&m) ? m.ullTotalPhys : 0;
}

uint64_t gw_os_memory_free(void) {
    MEMORYSTATUSEX m = {.dwLength = sizeof m};
    if (!GlobalMemoryStatusEx(&m)) {
        return 0;
    }
    return m.ullAvailPhys < m.ullAvailPageFile ? m.ullAvailPhys : m.ullAvailPageFile;
}

int gw_os_cores(void) {
    DWORD bytes = 0;
    int n = 0;
    (void)GetLogicalProcessorInformationEx(RelationProcessorCore, NULL, &bytes);
    char *rows = bytes > 0 ? malloc(bytes) : NULL;
    if (rows != NULL &&
        GetLogicalProcessorInformationEx(RelationProcessorCore, (void *)rows, &bytes)) {
        for (DWORD at = 0; at < bytes; n++) {
            at += ((SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX *)(void *)(rows + at))->Size;
        }
    }
    free(rows);
    return n;
}

uint64_t gw_os_memory_peak(void) {
    PROCESS_MEMORY_COUNTERS use;
    return GetProcessMemoryInfo(GetCurrentProcess(), &use, sizeof use) ? use.PeakWorkingSetSize : 0;
}

void *mmap(void *wish, size_t bytes, int protection, int flags, int fd, int64_t at) {
    (void)wish;
    if (flags & MAP_ANONYMOUS) {
        void *data = VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
        errno = ENOMEM;
        return data != NULL ? data : MAP_FAILED;
    }
    HANDLE map =
        CreateFileMappingW((HANDLE)_get_osfhandle(fd), NULL,
                           protection & PROT_WRITE ? PAGE_WRITECOPY : PAGE_READONLY, 0, 0, NULL);
    void *data = NULL;
    if (map != NULL) {
        data = MapViewOfFile(map, protection & PROT_WRITE ? FILE_MAP_COPY : FILE_MAP_READ,
                             (DWORD)((uint64_t)at >> 32), (DWORD)(uint64_t)at, bytes);
        CloseHandle(map); /* the view keeps it */
    }
    errno = GetLastError() == ERROR_NOT_ENOUGH_MEMORY ? ENOMEM : EACCES;
    return data != NULL ? data : MAP_FAILED;
}

int munmap(void *data, size_t bytes) {
    MEMORY_BASIC_INFORMATION what;
    (void)bytes;
    if (VirtualQuery(data, &what, sizeof what) == 0) {
        errno = EINVAL;
        return -1;
    }
    int ok = what.Type == MEM_MAPPED ? UnmapViewOfFile(data) : VirtualFree(data, 0, MEM_RELEASE);
    errno = ok ? errno : EINVAL;
    return ok ? 0 : -1;
}

int madvise(void *data, size_t bytes, int advice) {
    (void)data, (void)bytes, (void)advice;
    return 0;
}

void *gw_os_aligned(size_t bytes) { return _aligned_malloc(bytes > 0 ? bytes : 1, 64); }
void gw_os_aligned_free(void *data) { _aligned_free(data); }
void gw_os_trim(void) {}
void gw_os_map_blocks(size_t from) { (void)from; }

long sysconf(int name) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    switch (name) {
    case _SC_PAGESIZE:
        return (long)info.dwPageSize;
    case _SC_NPROCESSORS_ONLN:
        return (long)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
    case _SC_PHYS_PAGES:
        return (long)(gw_os_memory() / info.dwPageSize);
    case _SC_AVPHYS_PAGES:
        return (long)(gw_os_memory_free() / info.dwPageSize);
    default:
        return -1;
    }
}

ssize_t getrandom(void *out, size_t bytes, unsigned flags) {
    (void)flags;
    if (BCryptGenRandom(NULL, out, (ULONG)bytes, BCRYPT_USE_SYSTEM_PREFERRED_RNG) != 0) {
        errno = EIO;
        return -1;
    }
    return (ssize_t)bytes;
}

/* ---- terminals and other descriptors --------------------------------------------------------- */

int gw_os_readable(int fd, int milliseconds) {
    HANDLE handle = (HANDLE)_get_osfhandle(fd);
    DWORD waiting;
    DWORD mode;
    if (GetConsoleMode(handle, &mode)) {
        return WaitForSingleObject(handle, (DWORD)milliseconds) == WAIT_OBJECT_0;
    }
    if (GetFileType(handle) != FILE_TYPE_PIPE) {
        return 1;
    }
    for (int waited = 0;; waited += 10) {
        if (!PeekNamedPipe(handle, NULL, 0, NULL, &waiting, NULL) || waiting > 0) {
            return 1; /* its end can be read as well */
        }
        if (waited >= milliseconds) {
            return 0;
        }
        Sleep(10);
    }
}

int gw_os_writable(int fd, int milliseconds) {
    (void)fd, (void)milliseconds; /* none here that does not block */
    return 1;
}

int gw_os_duplicate(int fd) {
    HANDLE copy;
    if (!DuplicateHandle(GetCurrentProcess(), (HANDLE)_get_osfhandle(fd), GetCurrentProcess(),
                         &copy, 0, FALSE, DUPLICATE_SAME_ACCESS)) {
        errno = EBADF;
        return -1;
    }
    int out = _open_osfhandle((intptr_t)copy, _O_BINARY | _O_NOINHERIT);
    if (out < 0) {
        CloseHandle(copy);
    }
    return out;
}

int gw_os_replace(int fd, int old) {
    return _dup2(fd, old) == 0 &&
                   SetHandleInformation((HANDLE)_get_osfhandle(old), HANDLE_FLAG_INHERIT, 0)
               ? 0
               : -1;
}

int gw_os_open_null(int flags) { return open("NUL", flags); }
int gw_os_is_open(int fd) { return _get_osfhandle(fd) >= 0; }

int gw_os_columns(int fd) {
    CONSOLE_SCREEN_BUFFER_INFO info;
    if (!GetConsoleScreenBufferInfo((HANDLE)_get_osfhandle(fd), &info)) {
        return 0;
    }
    return info.srWindow.Right - info.srWindow.Left + 1;
}

unsigned long gw_os_open_files(unsigned long most) { return most; /* handles are not counted */ }

void gw_os_yield_priority(void) {
    (void)SetThreadPriority(GetCurrentThread(), THREAD_PRIORITY_BELOW_NORMAL);
}

/* ---- time ------------------------------------------------------------------------------------ */

void gw_os_sleep(int milliseconds) { Sleep((DWORD)milliseconds); }

static void (*alarm_function)(int);

static void CALLBACK on_timer(void *user, BOOLEAN fired) {
    (void)user, (void)fired;
    alarm_function(0);
}

void gw_os_alarm(unsigned seconds, void (*f)(int)) {
    static HANDLE timer;
    if (timer != NULL) {
        (void)DeleteTimerQueueTimer(NULL, timer, NULL);
        timer = NULL;
    }
    if (seconds > 0) {
        alarm_function = f;
        (void)CreateTimerQueueTimer(&timer, NULL, on_timer, NULL, seconds * 1000, 0,
                                    WT_EXECUTEONLYONCE);
    }
}

time_t timegm(struct tm *t) { return _mkgmtime64(t); }

/* ---- libraries opened at run time ------------------------------------------------------------ */

static _Thread_local char library_fault[NAME_BYTES];

void *dlopen(const char *name, int flags) {
    wchar_t path[NAME_BYTES];
    (void)flags;
    if (!MultiByteToWideChar(CP_UTF8, 0, name, -1, path, NAME_BYTES)) {
        snprintf(library_fault, sizeof library_fault, "%.200s: no name of a library", name);
        return NULL;
    }
    UINT before = SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOOPENFILEERRORBOX);
    /* A bare name is looked for where Windows and the program are, not in the current folder. */
    HMODULE library = LoadLibraryExW(
        path, NULL, strpbrk(name, "/\\") == NULL ? LOAD_LIBRARY_SEARCH_DEFAULT_DIRS : 0);
    DWORD error = GetLastError();
    SetErrorMode(before);
    if (library == NULL) {
        snprintf(library_fault, sizeof library_fault, "%.200s: not found (%lu)", name,
                 (unsigned long)error);
    }
    return (void *)library;
}

void *dlsym(void *library, const char *name) {
    FARPROC at = GetProcAddress((HMODULE)library, name);
    void *out;
    memcpy(&out, &at, sizeof out);
    if (at == NULL) {
        snprintf(library_fault, sizeof library_fault, "no symbol %.200s", name);
    }
    return out;
}

int dlclose(void *library) { return FreeLibrary((HMODULE)library) ? 0 : -1; }
char *dlerror(void) { return library_fault; }

/* ---- texts ----------------------------------------------------------------------------------- */

void *memmem(const void *in, size_t n, const void *word, size_t bytes) {
    const char *at = in, *first = word;
    if (bytes == 0) {
        return (void *)(uintptr_t)in;
    }
    while (n >= bytes) {
        const char *hit = memchr(at, first[0], n - bytes + 1);
        if (hit == NULL) {
            return NULL;
        }
        if (memcmp(hit, word, bytes) == 0) {
            return (void *)(uintptr_t)hit;
        }
        n -= (size_t)(hit + 1 - at);
        at = hit + 1;
    }
    return NULL;
}

char *strndup(const char *text, size_t most) {
    size_t n = strnlen(text, most);
    char *out = malloc(n + 1);
    if (out != NULL) {
        memcpy(out, text, n);
        out[n] = '\0';
    }
    return out;
}

char *strsep(char **rest, const char *marks) {
    char *word = *rest;
    if (word == NULL) {
        return NULL;
    }
    char *end = word + strcspn(word, marks);
    *rest = *end != '\0' ? end + 1 : NULL;
    *end = '\0';
    return word;
}
