# bench/wake.py - what bench/wake.sh measures: GODWIT MODEL DEVICE.
import ctypes
import http.client
import json
import re
import subprocess
import sys
import threading
import time

ROUNDS = 5


def plain_copy(total=4 << 30, piece=64 << 20):
    """GB/s of copies from pinned memory to the card in pieces, by the driver that is there; None: none is."""
    for library, prefix in (("libcuda.so.1", "cu"), ("libamdhip64.so", "hip")):
        try:
            driver = ctypes.CDLL(library)
        except OSError:
            continue
        call = lambda name, *a: getattr(driver, name)(*a) and sys.exit(f"{name} failed")
        stream, host, card = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        if prefix == "cu":
            context = ctypes.c_void_p()
            call("cuInit", 0)
            call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
            call("cuCtxSetCurrent", context)
            call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(total), 0)
            call("cuMemAlloc_v2", ctypes.byref(card), ctypes.c_size_t(total))
            write, wait = "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"
        else:
            call("hipHostMalloc", ctypes.byref(host), ctypes.c_size_t(total), 0)
            call("hipMalloc", ctypes.byref(card), ctypes.c_size_t(total))
            write, wait = "hipMemcpyHtoDAsync", "hipStreamSynchronize"
        ctypes.memset(host, 1, total)
        best = 0.0
        for _ in range(ROUNDS):
            begin = time.monotonic()
            for at in range(0, total, piece):
                call(write, ctypes.c_uint64(card.value + at), ctypes.c_void_p(host.value + at),
                     ctypes.c_size_t(piece), stream)
            call(wait, stream)
            best = max(best, total / (time.monotonic() - begin) / 1e9)
        return best
    return None


class Server:
    def __init__(self, *command):
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.lines, self.port = [], None
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.match(r"listening on http://[^ ]*:(\d+)", line)
            self.port = int(found[1]) if found else self.port

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, json.dumps(body) if body is not None else None)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def until(self, holds):
        while not holds():
            if self.process.poll() is not None:
                sys.exit("".join(self.lines[-5:]))
            time.sleep(0.001)

    def metric(self, name):
        return float(re.search(rf"^godwit_{name}\{{.*\}} (.*)$", self.ask("GET", "/metrics")[1], re.M)[1])


def main():
    godwit, model, device = sys.argv[1:]
    server = Server(godwit, "serve", "-m", model, "--device", device, "--port", "0", "-c", "4096", "--sleep-memory", "1000G")
    try:
        server.until(lambda: server.port)
        server.until(lambda: server.ask("GET", "/health")[0] == 200)
        one = {"prompt": "a", "max_tokens": 1}
        server.ask("POST", "/v1/completions", one)
        for line in (x for x in server.lines if "is ready" in x):
            print(line.strip())
        print("| round | awake, s | weights, s | GB/s | first token, s |\n|---|---:|---:|---:|---:|")
        for i in range(ROUNDS):
            server.ask("POST", "/sleep")
            server.until(lambda: json.loads(server.ask("GET", "/is_sleeping")[1])["is_sleeping"])
            seen = len(server.lines)
            begin = time.monotonic()
            server.ask("POST", "/v1/completions", one)
            took = time.monotonic() - begin
            server.until(lambda: any("is awake" in x for x in server.lines[seen:]))
            said = next(x for x in server.lines[seen:] if "is awake" in x)
            whole, weights = map(float, re.search(r"awake: ([\d.]+) s, of these ([\d.]+) s", said).groups())
            kept = server.metric("model_kept_bytes")
            print(f"| {i + 1} | {whole:.3f} | {weights:.3f} | {kept / max(weights, 1e-9) / 1e9:.1f} | {took:.3f} |", flush=True)
    finally:
        server.process.terminate()
        server.process.wait()
    best = plain_copy()
    print("no card's driver is here" if best is None else f"a plain copy from pinned memory: {best:.1f} GB/s")


main()
