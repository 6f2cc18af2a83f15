# docs/example.py - continues a text with libgodwit through ctypes:
#     python3 example.py model.gguf "Once upon a time"
# Structs and constants are those of godwit.h.
import ctypes as c
import sys


class ModelOptions(c.Structure):
    _fields_ = [("path", c.c_char_p), ("memory", c.c_void_p), ("memory_bytes", c.c_size_t),
                ("weights", c.c_char_p), ("device", c.c_char_p), ("threads", c.c_int),
                ("rest", c.c_char * 256)]  # zero: the defaults of what follows, now and later


gw = c.CDLL("libgodwit.so.0")
gw.gw_error_text.restype = c.c_char_p
gw.gw_session_logits.argtypes, gw.gw_session_logits.restype = [c.c_void_p, c.c_size_t], c.c_void_p


def check(status):
    if status != 0:
        sys.exit("example: " + gw.gw_error_text().decode())


model, session, sampler, stream, text = (c.c_void_p() for _ in range(5))
path, prompt = (word.encode() for word in sys.argv[1:3])
ids, n, token = c.POINTER(c.c_int32)(), c.c_size_t(), c.c_int32()
check(gw.gw_model_open(c.byref(ModelOptions(path=path)), c.byref(model)))
check(gw.gw_session_new(model, None, c.byref(session)))
sampling = (c.c_uint64 * 64)()  # room for gw_sampler_options; the seed is its first field
gw.gw_sampler_defaults(sampling)
sampling[0] = 1
check(gw.gw_sampler_new(model, sampling, c.byref(sampler)))
check(gw.gw_stream_new(model, c.byref(stream)))
check(gw.gw_tokenize(model, prompt, c.c_size_t(len(prompt)), 1, c.byref(ids), c.byref(n)))
check(gw.gw_session_prefill(session, ids, n))
for _ in range(32):
    logits = c.c_void_p(gw.gw_session_logits(session, 0))
    check(gw.gw_sampler_pick(sampler, logits, gw.gw_session_pos(session), c.byref(token)))
    if gw.gw_token_is_end(model, token):
        break
    check(gw.gw_sampler_accept(sampler, token))
    check(gw.gw_stream_push(stream, token, c.byref(text), c.byref(n)))
    sys.stdout.buffer.write(c.string_at(text, n.value))
    check(gw.gw_session_decode(session, c.byref(token), c.c_size_t(1)))
print()
gw.gw_free(ids)
gw.gw_stream_free(stream)
gw.gw_sampler_free(sampler)
gw.gw_session_free(session)
gw.gw_model_free(model)
