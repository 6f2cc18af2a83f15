/* apps/chat_run_windows.c - see chat_run.h: cmd.exe in a job, so that all that it starts ends with
 * it. One thread writes to it while this one reads. */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "apps/chat_run.h"
#include "apps/signals.h"
#include "core/base/os.h"

enum { COMMAND_UNITS = 8192 };

typedef struct running {
    HANDLE job, process, in, out; /* our ends */
    const chat_text *text;
} running;

static DWORD WINAPI write_all(void *user) {
    running *r = user;
    for (size_t at = 0; at < r->text->bytes;) {
        DWORD n = 0;
        size_t left = r->text->bytes - at;
        if (!WriteFile(r->in, r->text->at + at, (DWORD)(left < 65536 ? left : 65536), &n, NULL)) {
            break; /* it reads no more */
        }
        at += n;
    }
    CloseHandle(r->in);
    return 0;
}

/* A pipe whose end `theirs` (0: the read end) the child inherits. */
static int open_pipe(HANDLE ends[2], int theirs) {
    SECURITY_ATTRIBUTES inherited = {.nLength = sizeof inherited, .bInheritHandle = TRUE};
    return CreatePipe(&ends[0], &ends[1], &inherited, 1 << 16) &&
           SetHandleInformation(ends[1 - theirs], HANDLE_FLAG_INHERIT, 0);
}

static int start(running *r, const char *command) {
    wchar_t line[COMMAND_UNITS] = L"cmd.exe /d /s /c \"";
    wchar_t shell[MAX_PATH + 16];
    size_t used = wcslen(line);
    HANDLE in[2] = {NULL, NULL}, out[2] = {NULL, NULL};
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {.BasicLimitInformation.LimitFlags =
                                                       JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE};
    STARTUPINFOW s = {.cb = sizeof s, .dwFlags = STARTF_USESTDHANDLES};
    PROCESS_INFORMATION p;
    if (!MultiByteToWideChar(CP_UTF8, 0, command, -1, line + used,
                             (int)(COMMAND_UNITS - used - 1))) {
        errno = E2BIG;
        return -1;
    }
    wcscat(line, L"\"");
    errno = EMFILE;
    r->job = CreateJobObjectW(NULL, NULL);
    if (r->job == NULL || !open_pipe(in, 0) || !open_pipe(out, 1)) {
        return -1; /* what is open goes with the process: a machine without handles is at its end */
    }
    SetInformationJobObject(r->job, JobObjectExtendedLimitInformation, &limits, sizeof limits);
    s.hStdInput = in[0];
    s.hStdOutput = out[1];
    s.hStdError = (HANDLE)_get_osfhandle(STDERR_FILENO);
    UINT n = GetSystemDirectoryW(shell, MAX_PATH); /* not one of the current folder */
    if (n > 0 && n < MAX_PATH) {
        wcscat(shell, L"\\cmd.exe");
    }
    int ok = n > 0 && n < MAX_PATH &&
             CreateProcessW(shell, line, NULL, NULL, TRUE,
                            CREATE_NEW_PROCESS_GROUP | CREATE_SUSPENDED, NULL, NULL, &s, &p);
    CloseHandle(in[0]);
    CloseHandle(out[1]);
    r->in = in[1];
    r->out = out[0];
    if (!ok) {
        errno = ENOENT;
        CloseHandle(r->in);
        CloseHandle(r->out);
        CloseHandle(r->job);
        return -1;
    }
    AssignProcessToJobObject(r->job, p.hProcess);
    ResumeThread(p.hThread);
    CloseHandle(p.hThread);
    r->process = p.hProcess;
    return 0;
}

/* Takes what lies in the pipe. 0: there will be no more. */
static int read_some(running *r, chat_text *out, int *code) {
    char block[65536];
    DWORD waiting = 0, n = 0;
    if (!PeekNamedPipe(r->out, NULL, 0, NULL, &waiting, NULL)) {
        return 0;
    }
    if (waiting == 0) {
        return 1;
    }
    if (!ReadFile(r->out, block, waiting < sizeof block ? waiting : sizeof block, &n, NULL)) {
        return 0;
    }
    size_t room = CHAT_TOOL_BYTES - out->bytes;
    if (room > 0 && *code == APP_OK) {
        *code = chat_text_add(out, block, n < room ? n : room);
    }
    return 1;
}

int chat_run(const char *command, const chat_text *in, double timeout, chat_text *out,
             char why[CHAT_WHY]) {
    running r = {.text = in};
    if (start(&r, command) != 0) {
        return -1;
    }
    HANDLE writer = CreateThread(NULL, 0, write_all, &r, 0, NULL);
    if (writer == NULL) {
        CloseHandle(r.in);
    }
    double until = timeout > 0 ? app_seconds() + timeout : INFINITY;
    int code = APP_OK, more = 1, late = 0;
    DWORD state = 1;
    while (!late) {
        int ended = WaitForSingleObject(r.process, more ? 10 : 50) == WAIT_OBJECT_0;
        for (size_t before = SIZE_MAX; more && before != out->bytes;) {
            before = out->bytes;
            more = read_some(&r, out, &code);
        }
        if (ended) {
            break;
        }
        late = app_seconds() > until || signals_caught() != 0;
    }
    if (late) {
        chat_run_late(timeout, why);
    } else {
        GetExitCodeProcess(r.process, &state);
        chat_run_ended((int)state, why);
    }
    TerminateJobObject(r.job, 1); /* nobody holds the pipe any more: the writer ends */
    if (writer != NULL) {
        WaitForSingleObject(writer, INFINITE);
        CloseHandle(writer);
    }
    CloseHandle(r.out);
    CloseHandle(r.process);
    CloseHandle(r.job);
    return code;
}
