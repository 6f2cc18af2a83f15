#!/bin/sh
# findings/zig-cpu-supports.sh - __builtin_cpu_supports of programs that zig links says no to instructions that every x86-64 processor has
# packages: ziglang==0.17.1
# seen: 2026-11-30
# what: after __builtin_cpu_init(), __builtin_cpu_supports("sse2") is 0 in a program of `zig cc`; CPUID leaf 1 has the bit
# instead: not 0, as GCC's and clang's manuals say of a feature that is there; SSE2 is part of x86-64
set -u
[ "$(uname -m)" = x86_64 ] || exit 77
folder=$(mktemp -d) || exit 77
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" -q install ziglang==0.17.1 > "$folder/log" 2>&1 || {
    tail -n 3 "$folder/log" >&2
    exit 77
}
cat > "$folder/ask.c" <<'C'
#include <cpuid.h>
#include <stdio.h>

int main(void) {
    unsigned a, b, c, d;
    __builtin_cpu_init();
    __cpuid(1, a, b, c, d);
    printf("builtin %d, CPUID %u\n", __builtin_cpu_supports("sse2") != 0, d >> 26 & 1);
    return 0;
}
C
export ZIG_GLOBAL_CACHE_DIR="$folder/cache" ZIG_LOCAL_CACHE_DIR="$folder/cache"
"$folder/venv/bin/python" -m ziglang cc -O1 "$folder/ask.c" -o "$folder/ask" > "$folder/log" 2>&1 || {
    tail -n 3 "$folder/log" >&2
    exit 77
}
seen=$("$folder/ask")
echo "zig $("$folder/venv/bin/python" -m ziglang version): $seen"
[ "$seen" = "builtin 0, CPUID 1" ]
