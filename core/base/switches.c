/* core/base/switches.c - see switches.h. */
#include "core/base/switches.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hooks.h"

enum { WORD = 64 };

/* 1: the row has taken the value (text, behind the word). */
static int take(const gw_switch *row, const char *text, void *set) {
    char *at = (char *)set + row->at, *end = NULL;
    if (row->kind == GW_SWITCH_SET) {
        *(int *)(void *)at = row->least;
        return 1;
    }
    if (row->kind == GW_SWITCH_TEXT) {
        snprintf(at, WORD, "%s", text);
        return text[0] != '\0';
    }
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0') {
        return 0;
    }
    if (row->kind == GW_SWITCH_BYTES) {
        *(uint64_t *)(void *)at = value;
        return value > 0;
    }
    unsigned long long most = (unsigned long long)row->most;
    value = row->kind == GW_SWITCH_CAPPED && value > most ? most : value;
    if (value < (unsigned long long)row->least || value > most) {
        return 0;
    }
    *(int *)(void *)at = (int)value;
    return 1;
}

static gw_status take_word(const char *variable, const char *word, const gw_switch *rows, size_t n,
                           void *set) {
    const char *equals = strchr(word, '=');
    size_t name = equals != NULL ? (size_t)(equals - word) + 1 : strlen(word);
    int known = 0, taken = 1;
    if (!GW_TEST_HOOKS && strncmp(word, "fail-", 5) == 0) {
        return gw_fail(GW_E_ARGUMENT, variable, "'%s' takes a build with its tests", word);
    }
    for (size_t i = 0; i < n; i++) {
        if (strncmp(rows[i].word, word, name) == 0 && rows[i].word[name] == '\0') {
            known = 1;
            taken &= take(&rows[i], word + name, set);
        }
    }
    return known && taken ? GW_OK : gw_fail(GW_E_ARGUMENT, variable, "'%s' is not known", word);
}

gw_status gw_switches_read(const char *variable, const gw_switch *rows, size_t n, void *set) {
    const char *p = getenv(variable);
    while (p != NULL && *p != '\0') {
        size_t length = strcspn(p, ",");
        char word[WORD];
        snprintf(word, sizeof word, "%.*s", (int)(length < WORD - 1 ? length : WORD - 1), p);
        GW_TRY(take_word(variable, word, rows, n, set));
        p += length + (p[length] == ',');
    }
    return GW_OK;
}
