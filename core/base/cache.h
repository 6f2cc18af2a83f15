/* core/base/cache.h - what can be made again, kept on disk: $XDG_CACHE_HOME/godwit or
 * ~/.cache/godwit.
 *
 * An entry is found by its kind and a key that hashes all it was made from. Whatever is wrong with
 * a file or the folder, the entry counts as not there, and its maker makes it again. Any thread and
 * any process: an entry appears whole or not at all.
 *
 * Entries are code that this process runs. So the folder and the file must belong to this user,
 * give nobody else the right to write, and be no links; else they count as not there.
 *
 * The folder is bounded: what was not read for GW_CACHE_DAYS goes, and the longest unread beyond
 * GW_CACHE_BYTES.
 */
#ifndef GW_BASE_CACHE_H
#define GW_BASE_CACHE_H

#include <stddef.h>
#include <stdint.h>

enum { GW_CACHE_DAYS = 90 };
#define GW_CACHE_BYTES ((uint64_t)1 << 30)

/* The bytes, malloc'd; NULL when there are none or they are damaged. kind: a file name's part. */
void *gw_cache_read(const char *kind, uint64_t key, size_t *bytes);
/* Best effort: a cache that cannot be written is no error. */
void gw_cache_write(const char *kind, uint64_t key, const void *data, size_t bytes);
/* Hash of data, continuing from seed. Not against malice: the folder is the user's own. */
uint64_t gw_cache_hash(uint64_t seed, const void *data, size_t bytes);

#endif
