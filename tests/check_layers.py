#!/usr/bin/env python3
# tests/check_layers.py - a file includes only what stands below its layer (docs/architecture.md).
# The table is the architecture; a new folder or a new exception is one row here, with its reason.
import re

import tree

BELOW = {"include": [], "core/base": ["include"]}
BELOW["core/image"] = BELOW["core/base"] + ["core/base"]
BELOW["core/tensor"] = BELOW["core/base"] + ["core/base"]
BELOW["core/plan"] = BELOW["core/tensor"] + ["core/tensor"]
BELOW["core/text"] = BELOW["core/plan"] + ["core/plan"]
BELOW["core/text/tokens"] = BELOW["core/text"] + ["core/text"]
BELOW["core/text/grammar"] = BELOW["core/text/tokens"] + ["core/text/tokens"]
BELOW["core/text/template"] = BELOW["core/text"] + ["core/text"]
BELOW["core/text/chat"] = BELOW["core/text/tokens"] + ["core/text/tokens", "core/text/template"]
BELOW["core/text/answer"] = BELOW["core/text/grammar"] + ["core/text/grammar"]
BELOW["core/model"] = BELOW["core/text/grammar"] + ["core/text/grammar", "core/text/chat", "core/image"]
ENGINE = BELOW["core/model"] + ["core/model", "core/text/answer"]
BELOW["core/engine/sampling"] = ENGINE + ["core/engine/run"]  # a model's vocabulary
BELOW["core/engine/placing"] = ENGINE + ["core/engine/run"]  # a sample of a model is run and timed
BELOW["core/engine/run"] = ENGINE + ["core/engine/sampling", "core/engine/placing"]
BELOW["core/engine/encode"] = ENGINE + ["core/engine/run", "core/engine/placing"]
BELOW["core/engine/drafting"] = ENGINE + ["core/engine/run", "core/engine/sampling"]
BELOW["core/engine/writing"] = ENGINE + ["core/engine/run", "core/engine/sampling"]
BELOW["core/engine/batch"] = BELOW["core/engine/writing"] + ["core/engine/writing", "core/engine/drafting"]
BELOW["core/engine/beam"] = ENGINE + ["core/engine/run", "core/engine/sampling"]
BELOW["core/quantize"] = ENGINE + ["core/engine/run"]  # it runs the model that it measures
BELOW["cpu"] = ["core/tensor"]
BELOW["backends/ref"] = BELOW["core/plan"] + ["core/plan"]
BELOW["backends/cpu"] = BELOW["core/plan"] + ["core/plan", "cpu"]
BELOW["backends/opencl"] = BELOW["backends/ref"]
BELOW["backends/mpi"] = BELOW["backends/ref"]
KERNELS_HIP = ["kernels_hip" + room for room in ("", "/linear", "/gemm", "/attention", "/rows",
                                                 "/experts")]
BELOW["backends/hip"] = BELOW["backends/ref"] + KERNELS_HIP  # parameter structs of kernels
BELOW["kernels_hip"] = ["core/tensor"]
BELOW["kernels_hip/gemm"] = BELOW["kernels_hip"] + ["kernels_hip"]
BELOW["kernels_hip/linear"] = BELOW["kernels_hip/gemm"] + ["kernels_hip/gemm"]  # int8 operands
BELOW["kernels_hip/experts"] = BELOW["kernels_hip/linear"] + ["kernels_hip/linear"]
BELOW["kernels_hip/rows"] = BELOW["kernels_hip"] + ["kernels_hip"]
BELOW["kernels_hip/attention"] = BELOW["kernels_hip/rows"] + ["kernels_hip/rows"]  # rope
BELOW["kernels_cl"] = ["core/tensor"]
BELOW["backends"] = BELOW["core/plan"] + ["core/plan"]
BELOW["apps"] = ["include", "apps/hub", "apps/judge", "apps/vectors"]
BELOW["apps/hub"] = ["include", "apps"]  # models by name
BELOW["apps/serve"] = ["include", "apps"]
BELOW["apps/judge"] = ["include", "apps"]  # tables of evaluate, windows of perplexity
BELOW["apps/vectors"] = ["include", "apps"]  # tokens beside a card

SAVE = "every file is written in one way, and a signal removes what is unfinished"
CHARACTERS = "which bytes are a character, and how many, is told in one place"
EXCEPTIONS = {  # (file, what it includes): why
    **{(f"apps/signals_{system}.c", "core/base/waits.h"): "a signal ends a wait for a driver that does not come back"
       for system in ("posix", "windows")},
    **{(f"apps/{name}.c", "core/base/save.h"): SAVE for name in ("output", "signals_posix", "signals_windows", "line")},
    **{(f"apps/{name}.c", "core/base/utf8.h"): CHARACTERS
       for name in ("bench_print", "conversation_file", "tokenize", "judge/tasks", "serve/fault", "serve/job_answer")},
    ("apps/serve/wide.c", "core/base/json.h"): "integers beyond 64 bits are read in one way",
    **{(f"apps/{name}.c", "core/base/text.h"): "sizes are written for people in one way"
       for name in ("common", )},
    ("apps/roof.c", "core/base/cache.h"): "one cache folder, with one set of rules",
    **{(f"backends/{card}.c", "backends/load.h"): "rows of a source by all threads, as the CPU's own are"
       for card in ("hip/memory", "opencl/weights")},
    **{(f"apps/{name}.c", "core/base/sha256.h"): "one SHA-256" for name in ("embed", "logits", "serve/job_grammar", "serve/sights")},
    ("apps/serve/fetch.c", "apps/hub/curl.h"): "libcurl is opened in one place",
    ("apps/serve/picture.c", "core/text/tokens/base64.h"): "base64 is read in one way",
    ("apps/hub/hasher.h", "core/base/digest.h"): "one SHA-256",
    **{(f"backends/mpi/{name}.c", "backends/load.h"): "the same" for name in ("device", "keep")},
    ("backends/open.c", "core/engine/run/model.h"): "the front door hands the backends to the engine",
    **{("backends/quantize.c", f"core/quantize/{name}.h"): "the front door hands it threads, and backends"
       for name in ("quantize", "inputs")},
}

GENERATED = {"spec_table.h": "core/model", "page_tag.h": "apps/serve", "opencl_sources.h": "backends/opencl"}  # written into the build folder: who may include it

# System and library headers: where each may appear. What C itself has is free; what a system has stands
# in core/base/os*.h, with its twins (*_posix.c, *_windows.c), in the hosts' backend, which only POSIX systems
# have, and in cpu/isa.c, which asks a system for instructions.
SYSTEM = (r"(aio|dirent|dlfcn|fcntl|glob|grp|ifaddrs|io|libgen|netdb|poll|process|pthread|pwd|regex|sched|semaphore|"
          r"signal|spawn|strings|syslog|termios|time|unistd|malloc|windows|winsock2|ws2tcpip|psapi|bcrypt|"
          r"(arpa|net|netinet|sys|linux|mach|asm)/.*)\.h$")
SYSTEM_FILES = re.compile(r"core/base/os[a-z_]*\.[ch]$|.*_(posix|windows)\.c$|backends/mpi/|cpu/isa\.c$|backends/opencl/device\.c$|"
                          r"(tests|bench|kernels_hip)/")
SIMD = r"(immintrin|x86intrin|[a-z]mmintrin|cpuid|arm_neon|arm_acle|simde/.*|sys/auxv)\.h$"
THREADS = r"(pthread|threads|sched|semaphore)\.h$"
THREADED = ("core/base",  # the thread team
            "core/engine/batch",  # it waits for work (gw_batch_wait), and starts no thread
            "cpu", "backends/cpu", "backends/ref", "backends/opencl", "backends/hip", "backends/mpi",
            "apps/serve", "apps/hub", "apps/judge", "apps/vectors", "tests", "bench")
OS_THREADS = "core/base/os_threads.h"
OS = ("core/base/os.h", OS_THREADS, "core/base/os_net.h")
VENDOR = r"(hip/|cuda|CL/|nccl|rccl|cblas|openblas|clblast)"
LIBRARIES = [
    (SIMD, ("cpu", "backends/cpu", "tests", "bench")),
    (THREADS, THREADED),
    (r"event2/", ("apps/serve",)),
    (VENDOR, ("backends/opencl", "kernels_hip", "tests")),
    (r"jansson\.h$", ("core/base", "core/image", "core/model", "core/quantize", "core/text", "apps",
                      "tests")),
    (r"(jpeglib|jerror|png|webp/[a-z_]+)\.h$", ("core/image", "tests")),
    (r"(pcre2|utf8proc)\.h$", ("core/text", "tests")),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layer_of(path):
    """The longest row of BELOW that the path lies in, or the top folder."""
    rows = [row for row in BELOW if path.startswith(row + "/")]
    return max(rows, key=len) if rows else path.split("/")[0]


def project_path(source, quote, name):
    """The included file as a path in the repository; None for a system header."""
    if (tree.ROOT / name).is_file():
        return name
    beside = (source.parent / name)
    if quote == '"' and beside.is_file():
        return tree.rel(beside.resolve())
    return None


def check_file(source):
    me = tree.rel(source)
    layer = layer_of(me)
    text = tree.without_comments(source.read_text())
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*#\s*pragma\s+omp\b", line):
            yield f"{me}:{number}: threads are core/base/team.h's"
        found = INCLUDE.match(line)
        if not found:
            continue
        quote, name = found.groups()
        target = project_path(source, quote, name)
        if target is None:
            if quote == '"' and not layer_of(me).startswith(GENERATED.get(name, "?")):
                yield f"{me}:{number}: cannot find {name}"
            if re.match(SYSTEM, name) and not SYSTEM_FILES.match(me):
                yield f"{me}:{number}: write core/base/os.h (or os_threads.h, os_net.h) for {name}"
            for pattern, where in LIBRARIES:
                inside = any((layer + "/").startswith(row + "/") for row in where)
                if re.match(pattern, name) and not inside:
                    yield f"{me}:{number}: {layer}/ may not include {name}"
            continue
        if layer not in BELOW:  # tests and bench see everything
            continue
        installed = layer == "include"  # they lie beside one another wherever they are put
        if quote == '"' and not (tree.ROOT / name).is_file() and not installed:
            yield f"{me}:{number}: write {name} as {target}, from the root"
        of = layer_of(target)
        if target == OS_THREADS and not any((layer + "/").startswith(row + "/") for row in THREADED):
            yield f"{me}:{number}: no threads in {layer}/"
        if target in OS:
            continue  # a system is below everything
        if of != layer and of not in BELOW[layer] and (me, target) not in EXCEPTIONS:
            # The list of backends is put together in backends/, above the single ones.
            if not (layer == "backends" and of.startswith("backends/")):
                yield f"{me}:{number}: {layer}/ may not include {target}"


def main():
    sources = list(tree.files((*tree.CODE, *tree.KERNELS), (".c", ".h", ".hip", ".cl")))
    tree.report("layers", [p for s in sources for p in check_file(s)])
    unknown = sorted({layer_of(tree.rel(s)) for s in tree.files((*tree.LIBRARY, *tree.KERNELS), (".c", ".h", ".hip", ".cl"))}
                     - set(BELOW))
    tree.report("every folder has a layer", [f"{u}/ has no row in the table" for u in unknown])
    tree.finish()


main()
