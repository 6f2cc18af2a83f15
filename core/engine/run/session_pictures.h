/* core/engine/run/session_pictures.h - pictures of a timeline as a piece of a session's file.
 *
 *   head    i32 sights, i32 0
 *   sights  of each: digest, i64 patches, i32 tiles, i32 rows, i32 values of a row, i32 0; tiles of
 *           3 i32 each (first row, rows, columns); rows f32 [rows, values]
 *   runs    of each 4 i32: which sight, its first row, how many, the position of the first
 */
#ifndef GW_ENGINE_SESSION_PICTURES_H
#define GW_ENGINE_SESSION_PICTURES_H

#include "core/engine/run/seeing.h"

typedef gw_status (*gw_pictures_put_fn)(void *user, const void *data, size_t bytes);
typedef gw_status (*gw_pictures_take_fn)(void *user, void *data, size_t bytes);

/* Nothing where there are no pictures. */
uint64_t gw_pictures_bytes(const gw_views *v);
gw_status gw_pictures_put(const gw_views *v, gw_pictures_put_fn put, void *user);
/* A piece of so many bytes, with n runs within so many tokens, into the session's empty views.
 * Every number is compared with what is left of the bytes before memory is taken: GW_E_METADATA. */
gw_status gw_pictures_take(gw_session *s, const char *path, int32_t n, int32_t tokens,
                           uint64_t bytes, gw_pictures_take_fn take, void *user);

#endif
