#!/usr/bin/env python3
"""Golden bytes of every weight format, for tests/test_formats.c.

usage: golden_blocks.py > tests/data/golden_blocks.h

Works in the opposite direction to the engine and shares nothing with it: fields are chosen first,
placed bit by bit where the format's description puts them, and the weights and terms they stand for
are worked out in exact rational numbers, rounded to float only where docs/arithmetic.md rounds.
"""
import random
import struct
from fractions import Fraction

E2M1 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]
IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


# ---- exact numbers -> float, by the rules of IEEE 754 ------------------------------------------


def half_value(bits):
    sign = -1 if bits & 0x8000 else 1
    expo, frac = bits >> 10 & 31, bits & 1023
    assert expo != 31
    if expo == 0:
        return sign * Fraction(frac, 1 << 24)
    return sign * Fraction(1024 + frac) * Fraction(2) ** (expo - 25)


def single_value(bits):
    return Fraction(struct.unpack("<f", struct.pack("<I", bits))[0])


def to_single(x):
    """Nearest float of a rational, ties to even, as bits. Exact zero is +0."""
    if x == 0:
        return 0
    sign, x = (0x80000000, -x) if x < 0 else (0, x)
    e = x.numerator.bit_length() - x.denominator.bit_length()
    if Fraction(2) ** e > x:
        e -= 1
    step = Fraction(2) ** (max(e, -126) - 23)
    n, rest = divmod(x, step)
    n = int(n)
    if rest * 2 > step or (rest * 2 == step and n % 2):
        n += 1
    value = n * step
    if value < Fraction(2) ** -126:
        return sign | n
    if value >= Fraction(2) ** (e + 1):
        e, n = e + 1, n // 2
    assert e <= 127
    return sign | (e + 127) << 23 | (n - (1 << 23))


def rounded(x):
    return single_value(to_single(x))


# ---- formats: where each field goes -------------------------------------------------------------


class Bytes:
    def __init__(self, n):
        self.b = bytearray(n)

    def put(self, byte, shift, width, value):
        """Lowest `width` bits of value at bit `shift` of byte (may run into the next bytes)."""
        value &= (1 << width) - 1
        while width > 0:
            n = min(8 - shift, width)
            assert self.b[byte] >> shift & ((1 << n) - 1) == 0, "field written twice"
            self.b[byte] |= (value & ((1 << n) - 1)) << shift
            value >>= n
            width -= n
            byte, shift = byte + 1, 0


def q8_0(f):
    out = Bytes(34)
    out.put(0, 0, 16, f.d)
    for i, c in enumerate(f.code):
        out.put(2 + i, 0, 8, c)
    return out


def pairs(out, at, codes):
    for i, c in enumerate(codes):
        out.put(at + i % 16, 4 * (i // 16), 4, c)


def q4_0(f):
    out = Bytes(18)
    out.put(0, 0, 16, f.d)
    pairs(out, 2, [c + 8 for c in f.code])
    return out


def q4_1(f):
    out = Bytes(20)
    out.put(0, 0, 16, f.d)
    out.put(2, 0, 16, f.d2)
    pairs(out, 4, f.code)
    return out


def q5_0(f):
    out = Bytes(22)
    out.put(0, 0, 16, f.d)
    for i, c in enumerate(f.code):
        out.put(2 + i // 8, i % 8, 1, c + 16 >> 4)
    pairs(out, 6, [c + 16 for c in f.code])
    return out


def q5_1(f):
    out = Bytes(24)
    out.put(0, 0, 16, f.d)
    out.put(2, 0, 16, f.d2)
    for i, c in enumerate(f.code):
        out.put(4 + i // 8, i % 8, 1, c >> 4)
    pairs(out, 8, f.code)
    return out


def q2_k(f):
    out = Bytes(84)
    for h in range(16):
        out.put(h, 0, 4, f.sc[h])
        out.put(h, 4, 4, f.mn[h])
    for i, c in enumerate(f.code):
        out.put(16 + i // 128 * 32 + i % 32, i % 128 // 32 * 2, 2, c)
    out.put(80, 0, 16, f.d)
    out.put(82, 0, 16, f.d2)
    return out


def q3_k(f):
    out = Bytes(110)
    for i, c in enumerate(f.code):
        out.put(i % 32, i // 32, 1, 1 if c >= 0 else 0)
        out.put(32 + i // 128 * 32 + i % 32, i % 128 // 32 * 2, 2, c & 3)
    for h in range(16):
        s = f.sc[h] + 32
        out.put(96 + h % 8, 0 if h < 8 else 4, 4, s)
        out.put(104 + h % 4, h // 4 * 2, 2, s >> 4)
    out.put(108, 0, 16, f.d)
    return out


def six_bit_scales(out, at, f):
    for s in range(8):
        if s < 4:
            out.put(at + s, 0, 6, f.sc[s])
            out.put(at + 4 + s, 0, 6, f.mn[s])
        else:
            out.put(at + 4 + s, 0, 4, f.sc[s])
            out.put(at + 4 + s, 4, 4, f.mn[s])
            out.put(at + s - 4, 6, 2, f.sc[s] >> 4)
            out.put(at + s, 6, 2, f.mn[s] >> 4)


def q4_k(f):
    out = Bytes(144)
    out.put(0, 0, 16, f.d)
    out.put(2, 0, 16, f.d2)
    six_bit_scales(out, 4, f)
    for i, c in enumerate(f.code):
        out.put(16 + i // 64 * 32 + i % 32, i % 64 // 32 * 4, 4, c)
    return out


def q5_k(f):
    out = Bytes(176)
    out.put(0, 0, 16, f.d)
    out.put(2, 0, 16, f.d2)
    six_bit_scales(out, 4, f)
    for i, c in enumerate(f.code):
        out.put(16 + i % 32, i // 32, 1, c >> 4)
        out.put(48 + i // 64 * 32 + i % 32, i % 64 // 32 * 4, 4, c)
    return out


def q6_k(f):
    out = Bytes(210)
    for i, c in enumerate(f.code):
        n, j, l = i // 128, i % 128 // 32, i % 32
        c += 32
        out.put(64 * n + (32 if j in (1, 3) else 0) + l, 4 if j in (2, 3) else 0, 4, c)
        out.put(128 + 32 * n + l, 2 * j, 2, c >> 4)
    for h in range(16):
        out.put(192 + h, 0, 8, f.sc[h])
    out.put(208, 0, 16, f.d)
    return out


def iq4_nl(f):
    out = Bytes(18)
    out.put(0, 0, 16, f.d)
    pairs(out, 2, [IQ4.index(c) for c in f.code])
    return out


def iq4_xs(f):
    out = Bytes(136)
    out.put(0, 0, 16, f.d)
    for s in range(8):
        ls = f.sc[s] + 32
        out.put(2 + s // 4, s % 4 * 2, 2, ls >> 4)
        out.put(4 + s // 2, s % 2 * 4, 4, ls)
        pairs(out, 8 + 16 * s, [IQ4.index(c) for c in f.code[32 * s:32 * s + 32]])
    return out


def mxfp4(f):
    out = Bytes(17)
    out.put(0, 0, 8, f.d)
    pairs(out, 1, [E2M1.index(c) for c in f.code])
    return out


def int8(f):
    out = Bytes(4 + len(f.code))
    out.put(0, 0, 32, f.d)
    for i, c in enumerate(f.code):
        out.put(4 + i, 0, 8, c)
    return out


def int4(f):
    out = Bytes(4 + len(f.code) // 2)
    out.put(0, 0, 16, f.d)
    out.put(2, 0, 16, f.d2)
    for s in range(0, len(f.code), 32):
        pairs(out, 4 + s // 2, f.code[s:s + 32])
    return out


def planes(out, at, low, high, index):
    """Indices in planes of their lower and of their upper bits, 32 after 32."""
    def put(at, bits, values):
        for i, v in enumerate(values):
            if bits == 8:
                out.put(at + i, 0, 8, v)
            elif bits == 4:
                out.put(at + i % 16, 4 * (i // 16), 4, v)
            elif bits == 2:
                out.put(at + i % 8, 2 * (i // 8), 2, v)
            elif bits == 1:
                out.put(at + i // 8, i % 8, 1, v)
    for s in range(0, len(index), 32):
        put(at + s // 32 * 4 * low, low, [v & (1 << low) - 1 for v in index[s:s + 32]])
        put(at + len(index) // 32 * 4 * low + s // 32 * 4 * high, high, [v >> low for v in index[s:s + 32]])


def linear(low, high):
    def pack(f):
        out = Bytes(4 + len(f.code) * (low + high) // 8)
        out.put(0, 0, 16, f.d)
        out.put(2, 0, 16, f.d2)
        planes(out, 4, low, high, f.code)
        return out
    return pack


def elevens(f):
    out = Bytes(32)
    out.put(0, 0, 16, f.d)
    out.put(2, 0, 16, f.d2)
    for p in range(32):
        v = 11 * f.code[2 * p] + f.code[2 * p + 1]
        out.put(4 + p % 16, 4 * (p // 16), 4, v)
        out.put(20 + p % 8, 2 * (p // 8), 2, v >> 4)
        out.put(28 + p // 8, p % 8, 1, v >> 6)
    return out


def levels(table, low, high):
    def pack(f):
        out = Bytes(20 + len(f.code) * (low + high) // 8)
        out.put(0, 0, 32, f.d)
        for s in range(8):
            out.put(4 + 2 * s, 0, 8, f.sc[2 * s] if len(f.sc) == 16 else f.sc[s])
            out.put(5 + 2 * s, 0, 8, f.sc[2 * s + 1] if len(f.sc) == 16 else 0)
        planes(out, 20, low, high, [table.index(c) for c in f.code])
        return out
    return pack


def both_signs(sizes):
    return sizes + [-c for c in sizes]


IQ3_S, IQ3_XXS = both_signs(list(range(1, 16, 2))), both_signs([4, 12, 20, 28, 36, 44, 52, 62])
IQ2, IQ1 = both_signs([8, 25, 43, 0]), both_signs([1, 7, 9, 0])
FLOAT_SCALES = ("INT8", "IQ3_S_CODES", "IQ3_XXS_CODES", "IQ2_CODES", "IQ1_CODES")

SPAN = lambda lo, hi: list(range(lo, hi + 1))
# name: packer, weights, codes, weights per integer scale (0: none), scales, minimums
FORMATS = {
    "Q8_0": (q8_0, 32, SPAN(-128, 127), 0, None, None),
    "Q4_0": (q4_0, 32, SPAN(-8, 7), 0, None, None),
    "Q4_1": (q4_1, 32, SPAN(0, 15), 0, None, "m"),
    "Q5_0": (q5_0, 32, SPAN(-16, 15), 0, None, None),
    "Q5_1": (q5_1, 32, SPAN(0, 31), 0, None, "m"),
    "Q2_K": (q2_k, 256, SPAN(0, 3), 16, SPAN(0, 15), SPAN(0, 15)),
    "Q3_K": (q3_k, 256, SPAN(-4, 3), 16, SPAN(-32, 31), None),
    "Q4_K": (q4_k, 256, SPAN(0, 15), 32, SPAN(0, 63), SPAN(0, 63)),
    "Q5_K": (q5_k, 256, SPAN(0, 31), 32, SPAN(0, 63), SPAN(0, 63)),
    "Q6_K": (q6_k, 256, SPAN(-32, 31), 16, SPAN(-128, 127), None),
    "IQ4_NL": (iq4_nl, 32, IQ4, 0, None, None),
    "IQ4_XS": (iq4_xs, 256, IQ4, 32, SPAN(-32, 31), None),
    "INT8": (int8, 96, SPAN(-127, 127), 0, None, None),
    "INT4_G32": (int4, 32, SPAN(0, 15), 0, None, "m"),
    "INT4_G64": (int4, 64, SPAN(0, 15), 0, None, "m"),
    "INT4_G128": (int4, 128, SPAN(0, 15), 0, None, "m"),
    "INT4_G256": (int4, 256, SPAN(0, 15), 0, None, "m"),
    "MXFP4": (mxfp4, 32, E2M1, 0, None, None),
    "BL2_B32": (linear(2, 0), 32, SPAN(0, 3), 0, None, "m"),
    "BL3_B32": (linear(2, 1), 32, SPAN(0, 7), 0, None, "m"),
    "BL3H_B64": (elevens, 64, SPAN(0, 10), 0, None, "m"),
    "BL5_B64": (linear(4, 1), 64, SPAN(0, 31), 0, None, "m"),
    "BL6_B64": (linear(4, 2), 64, SPAN(0, 63), 0, None, "m"),
    "BL8_B32": (linear(8, 0), 32, SPAN(0, 255), 0, None, "m"),
    "BL8_B64": (linear(8, 0), 64, SPAN(0, 255), 0, None, "m"),
    "IQ3_S_CODES": (levels(IQ3_S, 4, 0), 256, IQ3_S, 32, SPAN(0, 31), None),
    "IQ3_XXS_CODES": (levels(IQ3_XXS, 4, 0), 256, IQ3_XXS, 32, SPAN(0, 31), None),
    "IQ2_CODES": (levels(IQ2, 2, 1), 256, IQ2, 16, SPAN(0, 31), None),
    "IQ1_CODES": (levels(IQ1, 2, 1), 256, IQ1, 16, SPAN(0, 31), None),
}


class Fields:
    pass


def negative(bits, wide):
    return bool(bits >> (31 if wide else 15))


def scales_of(name, f):
    if name == "MXFP4":  # twice the value is a code, so half of 2^(e - 127)
        return Fraction(2) ** (f.d - 128), 0, False
    wide = name in FLOAT_SCALES
    return (single_value if wide else half_value)(f.d), half_value(f.d2), negative(f.d, wide)


def weights(name, f):
    """Float bits of every weight: the exact rational, rounded once."""
    _, n, _, group, _, minimum = FORMATS[name]
    d, d2, d_negative = scales_of(name, f)
    out = []
    for i in range(n):
        sc = f.sc[i // group] if group else 1
        product_negative = d_negative ^ (sc < 0)
        value = d * sc * f.code[i]
        if minimum is None:
            bits = to_single(value)
            if value == 0 and product_negative ^ (f.code[i] < 0):
                bits = 0x80000000
        else:
            wm = d2 if minimum == "m" else -(d2 * f.mn[i // group])
            bits = to_single(value + wm)
            wm_negative = negative(f.d2, False) ^ (minimum != "m")
            if value == 0 and wm == 0 and product_negative and wm_negative:
                bits = 0x80000000
        out.append(bits)
    return out


def one_scale(acts):
    """Blocks of activations (scale bits, codes) as one: the largest scale, codes to its measure."""
    top = max(single_value(bits) for bits, _ in acts)
    inverse = rounded(256 / top)
    assert inverse < Fraction(3 * 10 ** 38)
    q = []
    for bits, block in acts:
        part = round(rounded(single_value(bits) * inverse))  # ties to even
        q += [(2 * c * part + 256) // 512 for c in block]  # ties up
    return to_single(top), q


def term(name, f, sub, x_bits, q, acc_bits):
    """acc + the term of 32 weights (or as many as q has), every product and sum rounded where the
    contract says so."""
    _, _, _, group, _, minimum = FORMATS[name]
    d, d2, _ = scales_of(name, f)
    dx, acc = single_value(x_bits), single_value(acc_bits)
    code = f.code[32 * sub:32 * sub + len(q)]
    halves = (range(16), range(16, len(q)))
    dot = [sum(code[i] * q[i] for i in h) for h in halves]
    total = [sum(q[i] for i in h) for h in halves]
    if group == 16:
        s = f.sc[2 * sub] * dot[0] + f.sc[2 * sub + 1] * dot[1]
        assert abs(s) < 1 << 24
        acc = rounded(rounded(d * dx) * s + acc)
        if minimum is not None:
            m = f.mn[2 * sub] * total[0] + f.mn[2 * sub + 1] * total[1]
            acc = rounded(-rounded(d2 * dx) * m + acc)
        return to_single(acc)
    if name.startswith("BL8"):  # codes less 128, and the weight of the middle one
        dot = [dot[h] - 128 * total[h] for h in range(2)]
        d2 = rounded(128 * d + d2)
    ws = d * f.sc[sub] if group else d
    assert rounded(ws) == ws
    acc = rounded(rounded(ws * dx) * sum(dot) + acc)
    if minimum is not None:
        wm = d2 if minimum == "m" else -(d2 * f.mn[sub])
        assert rounded(wm) == wm
        acc = rounded(wm * rounded(dx * sum(total)) + acc)
    return to_single(acc)


# ---- cases -----------------------------------------------------------------------------------------


def activations(rng):
    out = [(0x3F800000, [127] * 32), (0x3C010204, [-127] * 32),
           (0x00000003, [127 if i % 2 else -127 for i in range(32)]),  # subnormal scale
           (0x3D4CCCCD, [1 if i == 0 else 0 for i in range(32)]),
           (0x3E99999A, [i - 16 for i in range(32)])]
    while len(out) < 8:
        out.append((rng.randrange(0x38000000, 0x3F800000), [rng.randint(-127, 127) for _ in range(32)]))
    return out


def cases(name, rng):
    _, n, codes, group, scales, minimums = FORMATS[name]
    groups = n // group if group else 0
    wide = name in FLOAT_SCALES

    def make(what, d, d2, code, sc, mn):
        f = Fields()
        if name == "MXFP4":
            d = {"every": 129, "negat": 0, "large": 220}.get(what[:5], 1 + d % 160)
        if wide and name != "INT8":  # part of a binary16
            d &= 0xFFFFE000
        f.what, f.d, f.d2 = what, d, d2
        f.code = [codes[code(i) % len(codes)] for i in range(n)]
        f.sc = [scales[sc(h) % len(scales)] for h in range(groups)] if scales else []
        f.mn = [minimums[mn(h) % len(minimums)] for h in range(groups)] if groups and minimums else []
        return f

    yield make("every code, a scale per group", 0x3FC00000 if wide else 0x3E00, 0xB555,
               lambda i: i * 7 + i // 32, lambda h: h * 5 + 3, lambda h: 61 - h * 7)
    yield make("negative smallest scale, one code alone", 0x80000001 if wide else 0x8001, 0x0001,
               lambda i: -1 if i % 32 == i // 32 * 4 % 32 + i // 32 % 2 else len(codes) // 2,
               lambda h: -1 - h, lambda h: 1 << h % 6)
    yield make("largest scale, extreme codes", 0x477FE000 if wide else 0x7BFF, 0xFBFF,
               lambda i: 0 if (i >> i // 32 % 5 & 1) else -1, lambda h: -(h & 1), lambda h: -(h >> 1 & 1))
    for k in range(2):
        yield make("random", rng.randrange(0x38000000, 0x40000000) if wide
                   else rng.choice((0, 0x8000)) | rng.randrange(0x0400, 0x3C00),
                   rng.choice((0, 0x8000)) | rng.randrange(0x0400, 0x3C00),
                   lambda i: rng.randrange(1 << 16), lambda h: rng.randrange(1 << 16),
                   lambda h: rng.randrange(1 << 16))


def text(hexadecimal, indent):
    return "\n".join(f'{indent}"{hexadecimal[i:i + 88]}"' for i in range(0, len(hexadecimal), 88))


def main():
    rng = random.Random(20240501)
    acts = activations(rng)
    print("/* golden_blocks.h - blocks, the weights they stand for and their terms.\n"
          " * Written by tools/golden_blocks.py from the format descriptions; do not edit.\n"
          " *\n"
          " * acts:    scale (float bits), 32 codes; sub-block s of a block meets act s % 8.\n"
          " * bytes:   the stored row. weights: float bits of each. terms: per sub-block (of formats\n"
          " *          with terms of four sub-blocks, four) the accumulator before and after, float\n"
          " *          bits. */")
    print("/* clang-format off */\nstatic const char *const golden_acts[] = {")
    for bits, q in acts:
        print(f'    "{bits:08x}" "{bytes(c & 255 for c in q).hex()}",')
    print("};\n\nstatic const struct golden {\n    gw_fmt fmt;\n    const char *what, *bytes, *weights, *terms;\n} goldens[] = {")
    for name, row in FORMATS.items():
        for f in cases(name, rng):
            terms = ""
            for sub in range(row[1] // 32):
                span = 4 if name in ("INT4_G128", "INT4_G256") else 1
                acc = rng.choice((0, 0x3F800001, rng.randrange(0xB0000000, 0xC0000000)))
                if sub % span == 0:
                    some = [acts[(sub + b) % 8] for b in range(span)]
                    bits, q = one_scale(some) if span > 1 else some[0]
                    terms += f"{acc:08x}{term(name, f, sub, bits, q, acc):08x}"
            print(f'    {{GW_FMT_{name}, "{f.what}",')
            print(text(row[0](f).b.hex(), "     ") + ",")
            print(text("".join(f"{w:08x}" for w in weights(name, f)), "     ") + ",")
            print(text(terms, "     ") + "},")
    print("};\n/* clang-format on */")


if __name__ == "__main__":
    main()
