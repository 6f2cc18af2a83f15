/* apps/chat_tools.h - results of tool calls in a chat: from a command that was allowed for the
 * tool, else typed. */
#ifndef GW_APPS_CHAT_TOOLS_H
#define GW_APPS_CHAT_TOOLS_H

#include "apps/chat_answer.h"

enum { CHAT_TOOL_ROUNDS = 32 };

/* What --tool-command NAME=COMMAND allows; NULL: nothing. Exit code 2 for a value without '='. */
const char *chat_tool_command(const app_options *o, const char *name);
int chat_tool_check(const app_options *o);
/* Runs the command in a shell with the arguments, JSON, on its standard input, no longer than
 * --tool-timeout; *out: what it wrote to its standard output, without the newline at the end; a
 * command that failed says so at the end. Exit code; out.at is freed by the caller. */
int chat_tool_run(const app_options *o, const char *command, const chat_call *call, chat_text *out);
/* The names of the tools, a line each, on stderr. */
void chat_tools_list(const chat_answer *a);

#endif
