# tests/tensor_files.py - safetensors and GGUF files for tests that make checkpoints, by the standard library.
import json
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
