/* backends/asked.c - see asked.h. */
#include "backends/asked.h"

#include <string.h>

int gw_is_asked(const gw_backend *b, int ordinal, const char *id, const char *devices) {
    if (devices == NULL) {
        int cards[64];
        int n = b->cards != NULL ? b->cards(cards, 64) : 0;
        for (int i = 0; i < n; i++) {
            if (cards[i] == ordinal) {
                return 1;
            }
        }
        return b->cards == NULL && (!b->by_name_only || strcmp(b->name, "cpu") == 0);
    }
    for (const char *at = devices; *at != '\0';) {
        size_t n = strcspn(at, ",");
        if ((n == 3 && strncmp(at, "all", 3) == 0) ||
            (n == strlen(id) && strncmp(at, id, n) == 0) ||
            (n == strlen(b->name) && strncmp(at, b->name, n) == 0 && ordinal == 0)) {
            return 1;
        }
        at += n + (at[n] == ',');
    }
    return 0;
}
