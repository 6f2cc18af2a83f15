/* apps/chat_run.h - a command of the system's shell for a tool of chat: what it reads, what it
 * writes, its time. chat_run_posix.c and chat_run_windows.c. */
#ifndef GW_APPS_CHAT_RUN_H
#define GW_APPS_CHAT_RUN_H

#include "apps/chat_answer.h"
#include "apps/common.h"

enum { CHAT_WHY = 96, CHAT_TOOL_BYTES = 1 << 20 };

/* Runs command, hands it the bytes of `in` as its standard input and appends its standard output to
 * `out`, CHAT_TOOL_BYTES at most. It is ended, with all that it started, after timeout seconds (0:
 * never) and by Ctrl-C. why: "\nerror: ..." when it went wrong, else unchanged. An exit code of
 * godwit's; -1, errno: it cannot be started. */
int chat_run(const char *command, const chat_text *in, double timeout, chat_text *out,
             char why[CHAT_WHY]);

/* For the two above: what is said of a command that took too long, and of one that failed. */
void chat_run_late(double timeout, char why[CHAT_WHY]);
void chat_run_ended(int code, char why[CHAT_WHY]);

#endif
