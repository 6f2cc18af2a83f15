/* tests/fuzz/fuzz_schema_cost.c - what a schema costs: processor time and memory stay below a fixed
 * sum and so much for each byte. Input: a kind, a count, then a JSON value that is put together so
 * many times in a list or an object of that kind, or stands alone. */
#include <sanitizer/allocator_interface.h>
#include <stdio.h>
#include <time.h>

#include "core/text/grammar/grammar.h"
#include "core/text/grammar/json_schema.h"
#include "tests/fuzz/fuzz.h"

/* With sanitizers and coverage all is slower by an order of magnitude. */
enum { MS_FIXED = 12000, MS_PER_KB = 40, MB_FIXED = 320, BYTES_PER_BYTE = 2000 };
enum { LONGEST = 1 << 18 };

static size_t live, peak;

static void count_up(const volatile void *p, size_t n) {
    (void)p;
    live += n;
    peak = live > peak ? live : peak;
}

static void count_down(const volatile void *p) {
    size_t n = p != NULL ? __sanitizer_get_allocated_size(p) : 0;
    live -= n < live ? n : live;
}

static const struct {
    const char *before, *item, *after; /* item: %u is its number, %s the value */
} kinds[] = {
    {"", "%s", ""},
    {"{\"enum\":[", "%s,", "%u]}"},
    {"{\"enum\":[", "[%s,%u],", "0]}"},
    {"{\"enum\":[", "\"%u\",", "0],\"pattern\":\"1\"}"},
    {"{\"not\":{\"enum\":[", "%u,", "0]}}"},
    {"{\"anyOf\":[", "%s,", "true]}"},
    {"{\"oneOf\":[", "%s,", "false]}"},
    {"{\"allOf\":[", "%s,", "true]}"},
    {"{\"allOf\":[", "{\"anyOf\":[%s,{\"minLength\":%u}]},", "true]}"},
    {"{\"prefixItems\":[", "%s,", "true]}"},
    {"{\"properties\":{", "\"p%u\":%s,", "\"q\":true}}"},
    {"{\"additionalProperties\":true,\"properties\":{", "\"%u\":%s,", "\"q\":true}}"},
    {"{\"patternProperties\":{", "\"^x%u\":%s,", "\"q\":true}}"},
    {"{\"dependencies\":{", "\"p%u\":%s,", "\"q\":[]}}"},
    {"{\"required\":[", "\"p%u\",", "\"q\"]}"},
    {"{\"items\":{\"enum\":[", "\"%u\",", "0]},\"uniqueItems\":true}"},
    {"{\"$ref\":\"#/$defs/p1\",\"$defs\":{", "\"p%u\":%s,", "\"q\":true}}"},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static size_t add(char *out, size_t at, const char *form, unsigned number, const char *value,
                  size_t n) {
    for (; *form != '\0' && at + n + 16 < LONGEST; form++) {
        if (form[0] == '%' && form[1] == 'u') {
            at += (size_t)sprintf(out + at, "%u", number);
            form++;
        } else if (form[0] == '%' && form[1] == 's') {
            memcpy(out + at, value, n);
            at += n;
            form++;
        } else {
            out[at++] = *form;
        }
    }
    return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char text[LONGEST + 64];
    static int hooked;
    if (size < 2) {
        return 0;
    }
    if (!hooked) {
        hooked = __sanitizer_install_malloc_and_free_hooks(count_up, count_down);
    }
    const char *value = (const char *)data + 2;
    size_t n = size - 2, kind = data[0] % KINDS, at;
    unsigned count = kind == 0 ? 1 : 1u << (data[1] % 14);
    if (n > LONGEST / 2) {
        return 0;
    }
    at = add(text, 0, kinds[kind].before, 0, value, n);
    for (unsigned i = 0; i < count && at + n + 200 < LONGEST; i++) {
        at = add(text, at, kinds[kind].item, i, value, n);
    }
    at = add(text, at, kinds[kind].after, count, value, n);
    live = peak = 0;
    clock_t start = clock();
    gw_program *program = NULL;
    gw_status status = gw_json_schema_compile(text, at, &program);
    double ms = (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC;
    fuzz_judge(status);
    gw_program_free(program);
    if (ms > MS_FIXED + MS_PER_KB * (double)at / 1024 ||
        peak > ((size_t)MB_FIXED << 20) + BYTES_PER_BYTE * at) {
        fprintf(stderr, "%zu bytes of schema took %.0f ms and %zu bytes\n", at, ms, peak);
        abort();
    }
    return 0;
}
