/* core/base/hash.h - a map from byte strings to numbers.
 *
 * Keys are borrowed and must outlive the map. Hashing is keyed with a random seed (SipHash-1-3,
 * Aumasson and Bernstein 2012), so a file cannot choose names that collide. Order of insertion has
 * no influence on any result. Not thread-safe while it changes.
 */
#ifndef GW_BASE_HASH_H
#define GW_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct gw_map gw_map;

gw_map *gw_map_new(void);      /* NULL: no memory */
void gw_map_free(gw_map *map); /* accepts NULL    */

typedef enum gw_map_result { GW_MAP_ADDED, GW_MAP_PRESENT, GW_MAP_NOMEM } gw_map_result;

/* Add key -> value. When the key is there already nothing changes, and *present (may be NULL)
 * receives the value it has. */
gw_map_result gw_map_add(gw_map *map, const void *key, size_t n, size_t value, size_t *present);
/* 1 and *value when the key is known. */
int gw_map_find(const gw_map *map, const void *key, size_t n, size_t *value);
size_t gw_map_count(const gw_map *map);

/* The same hash of n bytes under a key of the caller's: a checksum of what this program wrote.
 * Words are taken in the machine's order. */
uint64_t gw_hash_bytes(const uint64_t key[2], const void *data, size_t n);

#endif
