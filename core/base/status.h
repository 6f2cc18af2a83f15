/* core/base/status.h - the one error convention, inside the engine.
 *
 * Every function that can fail returns gw_status (godwit.h); results leave through pointers and are
 * unchanged on error. Whoever finds the error describes it once with gw_fail(): what is wrong,
 * where, what to do. The text is thread-local (gw_error_text) and printed once, at the top.
 * Anything a user, a file or a device can cause is a status; GW_ASSERT is for our own mistakes.
 */
#ifndef GW_BASE_STATUS_H
#define GW_BASE_STATUS_H

#include "include/godwit.h"

#if defined(__GNUC__)
#define GW_PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))
#else
#define GW_PRINTF(fmt_at, args_at)
#endif

/* Record the message of an error and return its status, so that callers write
 *     return gw_fail(GW_E_TRUNCATED, path, "needs %zu bytes, %zu are left", need, left);
 * where: file, option or object the message is about; may be NULL. One line, no newline.
 * The stored text reads "WHERE: CLASS: message" (CLASS is gw_status_name). */
gw_status gw_fail(gw_status status, const char *where, const char *fmt, ...) GW_PRINTF(3, 4);

/* Forward an error to the caller. */
#define GW_TRY(expr)                                                                               \
    do {                                                                                           \
        gw_status try_status_ = (expr);                                                            \
        if (try_status_ != GW_OK) {                                                                \
            return try_status_;                                                                    \
        }                                                                                          \
    } while (0)

/* The same in a function that cleans up: needs a variable `status` and a label `done`. */
#define GW_TRY_DONE(expr)                                                                          \
    do {                                                                                           \
        status = (expr);                                                                           \
        if (status != GW_OK) {                                                                     \
            goto done;                                                                             \
        }                                                                                          \
    } while (0)

#endif
