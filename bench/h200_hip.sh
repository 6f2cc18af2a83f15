#!/bin/sh
# bench/h200_hip.sh - the hip backend on a GPU: op table, hashes, memory checker, speed.
#
#   bench/h200_hip.sh pack BUILD OUT MODEL...   where it was built: programs, libraries, small models
#   bench/h200_hip.sh run OUT [SYNTH [SHAPE [FORMATS]]]   on the machine with the GPU
#
# Hashes are those of the scalar CPU on the same machine. SYNTH writes models for the speed runs:
# SYNTH SHAPE FORMAT FILE; SHAPE: 7b; FORMATS: "q4_0 q8_0 f16". Without SYNTH no speed is measured.
# Models go to GODWIT_TMP (default: a fresh folder, removed at the end).
set -u

pack() {
    build=$1 out=$2
    shift 2
    mkdir -p "$out/lib" "$out/models"
    cp "$build/godwit" "$build/tests/test_hip_ops" "$out/"
    for lib in $(ldd "$build/godwit" "$build/tests/test_hip_ops" |
                 awk '$3 ~ /(jansson|pcre2|utf8proc|gomp|cmocka)/ { print $3 }' | sort -u); do
        cp -L "$lib" "$out/lib/"
    done
    cp "$@" "$out/models/"
    echo "packed: $out ($(du -sh "$out" | cut -f1))"
}

ids=1,300,45,17,99,250,33,8,12,77,500,600,401,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16

hash_of() { # model, rows, options
    model=$1 rows=$2
    shift 2
    timeout 120 "$bin/godwit" logits -q -m "$model" --rows "$rows" --ids "$ids" "$@" 2>&1 |
        sed -n 's/^hash: \(.\{16\}\).*/\1/p; s/^godwit.*/&/p' | head -1
}

hashes() {
    echo "| model | rows | cpu, scalar | hip | equal |"
    echo "|---|---|---|---|---|"
    exact=$("$bin/godwit" logits --help | grep -o -m 1 -e --exact) # float prompts: the CPU's order
    for file in "$bin"/models/*.gguf; do
        for rows in prefill decode 4 16; do
            want=$(GODWIT_CPU=scalar hash_of "$file" $rows -t 1)
            got=$(hash_of "$file" $rows --device hip $exact)
            same=$([ -n "$want" ] && [ "$want" = "$got" ] && echo yes || echo NO)
            echo "| $(basename "$file" .gguf) | $rows | $want | $got | $same |"
        done
    done
}

ops() {
    if GODWIT_HIP_DRIVER=system timeout 300 "$bin/test_hip_ops" > "$tmp/log" 2>&1; then
        echo "op table: passed"
    else
        echo "op table: FAILED"
        grep -E 'ERROR|FAILED|SKIP|\[' "$tmp/log" | head -12
    fi
}

# No graph: the checker then names the kernel. Its first lines are shown when it finds something.
checker() {
    command -v compute-sanitizer > /dev/null || { echo "no compute-sanitizer"; return; }
    for file in "$bin"/models/tales-2m-q4_0.gguf "$bin"/models/tales-2m-q4_k_m.gguf; do
        [ -f "$file" ] || continue
        for how in "memcheck prefill" "memcheck decode" "racecheck decode" "racecheck 4"; do
            quiet=$([ "${how% *}" = memcheck ] && echo "--report-api-errors no")
            GODWIT_HIP=no-graph timeout 200 compute-sanitizer --tool ${how% *} $quiet \
                "$bin/godwit" logits -q -m "$file" --rows ${how#* } --ids 1,300,45,17,99 \
                --device hip > "$tmp/log" 2>&1
            echo "$how, $(basename "$file" .gguf): $(grep 'SUMMARY' "$tmp/log")"
            if ! grep -q '^hash:' "$tmp/log" || ! grep -q 'SUMMARY: 0 ' "$tmp/log"; then
                head -12 "$tmp/log"
            fi
        done
    done
}

speed() {
    for format in $formats; do
        file=$tmp/$shape-$format.gguf
        "$python" "$synth" "$shape" "$format" "$file" > /dev/null
        for how in "" no-fuse no-graph; do # launches per layer: five, nine, five
            echo "$shape $format $how"
            GODWIT_HIP=$how timeout 120 "$bin/godwit" bench -m "$file" --device hip -p 512 -n 128 \
                -r 3 2>&1 | grep '^|.*[0-9]'
        done
        for how in "" no-fuse; do
            echo "$shape $format, per kernel $how"
            GODWIT_HIP=$how timeout 120 "$bin/godwit" bench -m "$file" --device hip -p 0 -n 32 -r 1 \
                --ops 2>&1 | grep '^|' | tail -n +3 | head -30
        done
        for width in 1 2 3 4 5 8 16; do # the time of a step of that many rows
            for how in "" no-fuse; do
                echo "$shape $format, 512 tokens in steps of $width $how: $(
                    step_seconds "$file" $width "$how") s"
            done
        done
        rm -f "$file"
    done
}

# Seconds beyond loading: of 513 tokens less those of one.
step_seconds() { # model, width, GODWIT_HIP
    for n in 513 1; do
        start=$(date +%s.%N)
        GODWIT_HIP=$3 timeout 120 "$bin/godwit" logits -q -m "$1" --rows "$2" --device hip \
            --ids "$(seq -s, 1 $n)" > /dev/null 2>&1
        date +%s.%N | awk -v start="$start" '{ print $1 - start }'
    done | paste -s -d ' ' | awk '{ printf "%.3f", $1 - $2 }'
}

# A large product, and those of a 7b layer, alone.
products() {
    for spec in int4-g128:K=14336,N=21504 q4_0:K=14336,N=21504 f16:K=14336,N=21504 \
        q4_0:K=4096,N=12288 q4_0:K=4096,N=4096 q4_0:K=4096,N=22016 q4_0:K=11008,N=4096; do
        timeout 200 "$bin/godwit" bench --gemm $spec --device hip
        echo
    done
}

run() {
    bin=$1 synth=${2:-} shape=${3:-7b} formats=${4:-q4_0 q8_0 f16}
    python=${PYTHON:-python3}
    tmp=${GODWIT_TMP:-$(mktemp -d)}
    export LD_LIBRARY_PATH="$bin/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export XDG_CACHE_HOME="$tmp/cache"
    mkdir -p "$tmp/cache"
    "$bin/godwit" devices --measure
    echo
    ops
    echo
    hashes
    echo
    checker
    echo
    products
    if [ -n "$synth" ]; then
        speed
    fi
    if [ -z "${GODWIT_TMP:-}" ]; then
        rm -rf "$tmp"
    fi
}

case ${1:-} in
pack) shift; pack "$@" ;;
run) shift; run "$@" ;;
*) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
