# tests/tensor_files.py - safetensors and GGUF files for tests that make checkpoints, by the standard library.
import json
import math
import struct


def read_safetensors(path):
    """name -> (type, shape, bytes)."""
    raw = path.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    head, data = json.loads(raw[8:8 + n]), raw[8 + n:]
    head.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[slice(*v["data_offsets"])]) for k, v in head.items()}


def write_safetensors(path, tensors):
    head, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def gguf_text(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def write_gguf(path, pairs, tensors):
    """pairs: name -> bytes of its type and value; tensors: name -> (shape, GGUF's number of the type, bytes),
    the shape with rows first."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    head += b"".join(gguf_text(k) + v for k, v in pairs.items())
    data = b""
    for name, (shape, kind, raw) in tensors.items():
        head += gguf_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


GGUF_BYTES = [1, 1, 2, 2, 4, 4, 4, 1, None, None, 8, 8, 8]  # of a value, by GGUF's number of its type
BLOCK = {0: (1, 4), 1: (1, 2), 2: (32, 18), 14: (256, 210)}  # elements and bytes: F32, F16, Q4_0, Q6_K


def read_gguf(path):
    """pairs and tensors as write_gguf takes them, of a file whose tensors are of the formats in BLOCK."""
    raw, at = path.read_bytes(), 24

    def text_end(at):
        return at + 8 + struct.unpack_from("<Q", raw, at)[0]

    def value_end(kind, at):
        if kind == 9:
            item, n = struct.unpack_from("<IQ", raw, at)
            at += 12
            for _ in range(n if item in (8, 9) else 0):
                at = value_end(item, at)
            return at if item in (8, 9) else at + n * GGUF_BYTES[item]
        return text_end(at) if kind == 8 else at + GGUF_BYTES[kind]

    n_tensors, n_pairs = struct.unpack_from("<QQ", raw, 8)
    pairs, places = {}, {}
    for _ in range(n_pairs):
        start, at = at + 8, text_end(at)
        name, end = raw[start:at].decode(), value_end(*struct.unpack_from("<I", raw, at), at + 4)
        pairs[name], at = raw[at:end], end
    for _ in range(n_tensors):
        start, at = at + 8, text_end(at)
        name, (n_dim,) = raw[start:at].decode(), struct.unpack_from("<I", raw, at)
        *shape, kind, place = struct.unpack_from(f"<{n_dim}QIQ", raw, at + 4)
        places[name], at = (shape[::-1], kind, place), at + 4 + 8 * n_dim + 12
    data, tensors = raw[at + -at % 32:], {}
    for name, (shape, kind, place) in places.items():
        elements, size = BLOCK[kind]
        tensors[name] = (shape, kind, data[place:place + math.prod(shape) // elements * size])
    return pairs, tensors
