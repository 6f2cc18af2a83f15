#!/bin/sh
# bench/h200_opencl.sh - the opencl backend on a GPU: op table, hashes, speed, as a short table.
#
#   bench/h200_opencl.sh pack BUILD OUT     where it was built: the programs and their libraries
#   bench/h200_opencl.sh run OUT SYNTH [SHAPE [FORMATS]]   on the machine with the GPU
#   bench/h200_opencl.sh speed OUT SYNTH [SHAPE [FORMATS]]   its last part alone
#
# SYNTH writes models: SYNTH SHAPE FORMAT FILE [--layers N]. SHAPE: of the speed runs (7b); FORMATS:
# "q4_0 q8_0 f16". GODWIT_OPS=1: time per op, too; GODWIT_PROMPT: tokens of the prompt, 0: none. A
# driver without an .icd file: OCL_ICD_FILENAMES=LIBRARY. Models go to GODWIT_TMP (default: a fresh
# folder, removed at the end).
set -eu

pack() {
    mkdir -p "$2/lib"
    cp "$1/godwit" "$1/tests/test_opencl_ops" "$2/"
    for lib in $(ldd "$1/godwit" "$1/tests/test_opencl_ops" |
                 awk '$3 ~ /(jansson|pcre2|utf8proc|cmocka)/ { print $3 }' | sort -u); do
        cp -L "$lib" "$2/lib/"
    done
    echo "packed: $2 ($(du -sh "$2" | cut -f1))"
}

hash_of() { # device, model, rows
    "$bin/godwit" logits -q --exact -m "$2" --device "$1" --rows "$3" --ids "$ids" 2>&1 |
        sed -n 's/^hash: \(.\{16\}\).*/\1/p; s/^godwit.*/&/p' | head -1
}

hashes() {
    ids=1,300,45,17,99,250,33,8,12,77,500,600,401,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16
    echo "| model | rows | cpu | opencl | equal |"
    echo "|---|---|---|---|---|"
    for format in q4_0 q8_0 f16 q4_k q6_k; do
        file=$tmp/small-$format.gguf
        "$python" "$synth" 1.1b $format "$file" --layers 2 > /dev/null
        for rows in prefill decode 4 16; do
            want=$(hash_of cpu "$file" $rows)
            got=$(hash_of opencl "$file" $rows)
            same=$([ -n "$want" ] && [ "$want" = "$got" ] && echo yes || echo NO)
            echo "| 1.1b, 2 layers, $format | $rows | $want | $got | $same |"
        done
        rm -f "$file"
    done
}

timed() { # setting, options
    setting=$1
    shift
    echo "GODWIT_OPENCL=$setting"
    GODWIT_OPENCL=$setting "$bin/godwit" bench -m "$file" --device opencl "$@" 2>&1 |
        grep -E '^\||^godwit' | head -24 || true
}

# A step in one launch and in one launch per op, in turn; then the ops of the latter.
speed() {
    for format in $formats; do
        file=$tmp/$shape-$format.gguf
        "$python" "$synth" "$shape" "$format" "$file" > /dev/null
        timed walk=4096,must-walk -p 0 -n 128 -r 4
        timed walk=0 -p ${GODWIT_PROMPT:-512} -n 128 -r 3
        [ -z "${GODWIT_OPS:-}" ] || timed walk=0 -p 0 -n 32 -r 1 --ops
        rm -f "$file"
    done
}

walk_hashes() {
    ids=1,300,45,17,99,250,33,8,12,77,500,600,401,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16
    for format in $formats; do
        file=$tmp/small-$format.gguf
        "$python" "$synth" 1.1b $format "$file" --layers 2 > /dev/null
        want=$(hash_of cpu "$file" decode)
        got=$(GODWIT_OPENCL=walk=4096,must-walk hash_of opencl "$file" decode)
        echo "one launch, 1.1b, 2 layers, $format: cpu $want, opencl $got"
        rm -f "$file"
    done
}

setup() {
    bin=$1
    synth=$2
    shape=${3:-7b}
    formats=${4:-q4_0 q8_0 f16}
    python=${PYTHON:-python3}
    tmp=${GODWIT_TMP:-$(mktemp -d)}
    export LD_LIBRARY_PATH="$bin/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export XDG_CACHE_HOME="$tmp/cache"
    mkdir -p "$tmp/cache"
    "$bin/godwit" devices
    echo
}

run() {
    for t in bits_as_found bits_team widths_team bits_walk bits_chain; do
        GODWIT_TEST=$t "$bin/test_opencl_ops" > "$tmp/log" 2>&1 && verdict=passed || verdict=FAILED
        echo "op table, $t: $verdict"
        grep -E 'ERROR|SKIP' "$tmp/log" | head -5 || true
    done
    echo
    hashes
    echo
}

only_speed() {
    walk_hashes
    echo
    speed
    if [ -z "${GODWIT_TMP:-}" ]; then
        rm -rf "$tmp"
    fi
}

case ${1:-} in
pack) shift; pack "$@" ;;
run) shift; setup "$@"; run; only_speed ;;
speed) shift; setup "$@"; only_speed ;;
*) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
