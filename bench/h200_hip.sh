#!/bin/sh
# bench/h200_hip.sh - the hip backend on a GPU: op table, hashes, memory checker, speed.
#
#   bench/h200_hip.sh pack BUILD OUT MODEL...   where it was built: programs, libraries, small models
#   bench/h200_hip.sh run OUT [SYNTH [SHAPE [FORMATS]]]   on the machine with the GPU
#
# Hashes are those of the scalar CPU on the same machine, JOBS (8) at a time. SYNTH writes models for
# the speed runs: SYNTH SHAPE FORMAT FILE; SHAPE: 7b; FORMATS: "q4_0 q8_0 f16". Without SYNTH no
# speed is measured. Models go to GODWIT_TMP (default: a fresh folder, removed at the end). Checkers
# go through the whole op table; racecheck took seven minutes on an H200. GODWIT_PARTS: what is to be
# run, of: devices ops hashes checker memcheck racecheck products speed.
set -u

pack() {
    build=$1 out=$2
    shift 2
    mkdir -p "$out/lib" "$out/models"
    cp "$build/godwit" "$build/tests/test_hip_ops" "$out/"
    for lib in $(ldd "$build/godwit" "$build/tests/test_hip_ops" |
                 awk '$3 ~ /(jansson|pcre2|utf8proc|cmocka)/ { print $3 }' | sort -u); do
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

# One comparison: "equal", or what is not. With the scalar CPU in the same order; a piece, a prompt
# of so many tokens a pass without --exact, with the device's own of all tokens at once.
equal() { # BIN KIND MODEL HOW
    bin=$1
    case $2 in
    rows) want=$(GODWIT_CPU=scalar hash_of "$3" "$4" -t 1)
          got=$(hash_of "$3" "$4" --device hip --exact) ;;
    layers) want=$(GODWIT_CPU=scalar hash_of "$3" "${4#*,}" -t 1)
            got=$(hash_of "$3" "${4#*,}" --device hip --exact --offload-layers "${4%,*}") ;;
    piece) want=$(hash_of "$3" prefill --device hip)
           got=$(hash_of "$3" prefill --device hip -b "$4") ;;
    esac
    if [ "$want" = "$got" ] && [ "${#want}" = 16 ]; then
        echo equal
    else
        echo "$(basename "$3" .gguf), $2 $4: $got, not $want"
    fi
}

# Every model: as a prompt, one row, 2 to 16; every number of layers on the device; pieces.
hashes() {
    for file in "$bin"/models/*.gguf; do
        layers=$("$bin/godwit" inspect -m "$file" | sed -n 's/^\([0-9]*\) layers.*/\1/p')
        for rows in prefill decode $(seq 2 16); do echo rows "$file" "$rows"; done
        for n in $(seq 0 "${layers:-0}"); do
            for rows in prefill decode 4; do echo layers "$file" "$n,$rows"; done
        done
        for n in 1 3 10 20; do echo piece "$file" "$n"; done
    done > "$tmp/hashes"
    xargs -P "${JOBS:-8}" -L 1 sh "$0" equal "$bin" < "$tmp/hashes" > "$tmp/found"
    echo "hashes: $(grep -c '^equal$' "$tmp/found") of $(grep -c . "$tmp/hashes") equal"
    grep -v '^equal$' "$tmp/found" | head -20
}

ops() {
    if GODWIT_HIP_DRIVER=system timeout 300 "$bin/test_hip_ops" > "$tmp/log" 2>&1; then
        echo "op table: passed"
    else
        echo "op table: FAILED"
        grep -E 'ERROR|FAILED|SKIP|\[' "$tmp/log" | head -12
    fi
}

# The op table, with and without groups of waves, under a checker: parts of it side by side.
table() { # tool and options
    command -v compute-sanitizer > /dev/null || return
    for test in check_table table_without_groups; do
        for part in 0-115 116-231 232-347 348-9999; do
            GODWIT_OP_CASES=$part GODWIT_TEST=$test GODWIT_HIP_DRIVER=system timeout 580 \
                compute-sanitizer --tool "$@" "$bin/test_hip_ops" > "$tmp/$test.$part" 2>&1 &
        done
    done
    wait
    for log in "$tmp"/check_table.* "$tmp"/table_without_groups.*; do
        echo "$1, ${log##*/}: $(grep -E 'SUMMARY|FAILED' "$log" | head -2)"
    done
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
    for part in ${GODWIT_PARTS:-devices ops hashes checker memcheck racecheck products speed}; do
        case $part in
        devices) "$bin/godwit" devices --measure ;;
        memcheck) table memcheck --report-api-errors no ;;
        racecheck) table racecheck --racecheck-report all ;;
        speed) [ -z "$synth" ] || speed ;;
        *) $part ;;
        esac
        echo
    done
    if [ -z "${GODWIT_TMP:-}" ]; then
        rm -rf "$tmp"
    fi
}

case ${1:-} in
pack) shift; pack "$@" ;;
run) shift; run "$@" ;;
equal) shift; equal "$@" ;;
*) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
