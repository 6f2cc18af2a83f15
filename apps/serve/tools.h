/* apps/serve/tools.h - tools as clients offer them, and which of them may be called. */
#ifndef GW_APPS_SERVE_TOOLS_H
#define GW_APPS_SERVE_TOOLS_H

#include "apps/serve/ask.h"

/* "tools", "tool_choice" and "parallel_tool_calls" of OpenAI's chat API and of its responses, where
 * the function's members stand in the tool itself. Functions of a namespace (Codex: those of an MCP
 * server) are offered as NAMESPACE__NAME. Tools that are no functions are left out: the client or
 * another server would run them. 0 or -1 and *f. */
int tools_read(ask *a, const json_t *body, fault *f);
/* One function; space NULL: none; description and parameters may be missing or null. -1: no memory.
 */
int tools_add(ask *a, const char *space, const char *name, const json_t *description,
              const json_t *parameters);
/* A choice alone, once the tools are there. */
int tools_choose(ask *a, const json_t *choice, fault *f);

/* The name that a function of a namespace is offered by, malloc'd; NULL: no memory. */
char *tools_joined(const char *space, const char *name);
/* Its two halves again: the namespace, or NULL and *name as it was. */
const char *tools_split(const ask *a, const char *offered, const char **name);

#endif
