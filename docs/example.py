# docs/example.py - continues a text with libgodwit through ctypes:
#     python3 example.py model.gguf "Once upon a time"
import ctypes as c
import sys

gw = c.CDLL("libgodwit.so.0")
gw.gw_error_text.restype, gw.gw_session_logits.restype = c.c_char_p, c.c_void_p


def call(name, *args):
    if gw[name](*args) != 0:
        sys.exit("example: " + gw.gw_error_text().decode())


def size_of(options):  # longer than the library's: what it does not have is zero
    return c.c_size_t(c.sizeof(options))


model, session, sampler, stream, text = (c.c_void_p() for _ in range(5))
ids, n, token = c.POINTER(c.c_int32)(), c.c_size_t(), c.c_int32()
path, prompt = (word.encode() for word in sys.argv[1:3])
options = (c.c_char_p * 64)(path)  # gw_model_options begins with the path; zero: defaults
sampling = (c.c_uint64 * 64)()  # gw_sampler_options begins with the seed
gw.gw_sampler_defaults_sized(sampling, size_of(sampling))
sampling[0] = 1
call("gw_model_open_sized", options, size_of(options), c.byref(model))
call("gw_session_new_sized", model, None, c.c_size_t(0), c.byref(session))
call("gw_sampler_new_sized", model, sampling, size_of(sampling), c.byref(sampler))
call("gw_stream_new", model, c.byref(stream))
call("gw_tokenize", model, prompt, c.c_size_t(len(prompt)), 1, c.byref(ids), c.byref(n))
call("gw_session_prefill", session, ids, n)
logits = c.c_void_p(gw.gw_session_logits(session, c.c_size_t(0)))
call("gw_sampler_pick", sampler, logits, gw.gw_session_pos(session), c.byref(token))
for _ in range(32):
    if gw.gw_token_is_end(model, token):
        break
    call("gw_sampler_accept", sampler, token)
    call("gw_stream_push", stream, token, c.byref(text), c.byref(n))
    sys.stdout.buffer.write(c.string_at(text, n.value))
    call("gw_session_next", session, sampler, token, 0, c.byref(token))
print()
for name, what in (("free", ids), ("stream_free", stream), ("sampler_free", sampler),
                   ("session_free", session), ("model_free", model)):
    gw["gw_" + name](what)
