#!/usr/bin/env python3
"""Makes decode.txt, encode.txt and hashes.txt: what other people's libraries say about the small formats.

Development only: building and testing need the text files, not this script. It wants Python 3.11 with

    pip install numpy==2.4.6 ml_dtypes==0.6.0 gfloat==0.5.2

and is run as `python make_tables.py` in this folder. Where ml_dtypes and gfloat both know a conversion they must agree,
or the difference must be one of DISAGREE below, which docs/numeric.md explains.

decode.txt   format, then the FP32 bits of every code (canonical NaN).
encode.txt   source, target, rounding, overflow rule, then the target codes of all 65,536 source codes in order, as runs:
             `len` is a run of the previous code + 1 (the first run: of code 0), `len=code` of another code.
hashes.txt   the same where a listing would be long: 64-bit FNV-1a over the codes, little-endian 16 bits each. The source
             fp32:LOW is the 65,536 FP32 codes whose low half is LOW, fp32:mix those whose low half is the high half
             times 0x9e37.
"""

import numpy as np
import ml_dtypes
from gfloat import FormatInfo, Domain, RoundMode, decode_ndarray, round_ndarray
from gfloat.formats import (
    format_info_bfloat16, format_info_binary16, format_info_ocp_e2m1, format_info_ocp_e2m3, format_info_ocp_e3m2,
    format_info_ocp_e4m3, format_info_ocp_e5m2, format_info_ocp_e8m0, format_info_ocp_int8,
)

NAN = 0x7FC00000
FLOATS = {
    "e2m1": (format_info_ocp_e2m1, ml_dtypes.float4_e2m1fn),
    "e2m3": (format_info_ocp_e2m3, ml_dtypes.float6_e2m3fn),
    "e3m2": (format_info_ocp_e3m2, ml_dtypes.float6_e3m2fn),
    "e4m3": (format_info_ocp_e4m3, ml_dtypes.float8_e4m3fn),
    "e5m2": (format_info_ocp_e5m2, ml_dtypes.float8_e5m2),
    "e8m0": (format_info_ocp_e8m0, ml_dtypes.float8_e8m0fnu),
    "bf16": (format_info_bfloat16, ml_dtypes.bfloat16),
    "fp16": (format_info_binary16, np.float16),
}
INTS = {"int4": (-8, 7, 1), "int8": (-128, 127, 1), "uint8": (0, 255, 1), "mxint8": (-128, 127, 64)}
CANONICAL_NAN = {"e4m3": 0x7F, "e5m2": 0x7E, "e8m0": 0xFF, "bf16": 0x7FC0, "fp16": 0x7E00}
ROUNDINGS = {"rne": RoundMode.TiesToEven, "rtz": RoundMode.TowardZero}
# (target, what) that ml_dtypes does in its own way, left to gfloat and the rule in docs/numeric.md:
# NaN into FP6 and FP4 is -0 there, zero here; zero into E8M0 is NaN there, the smallest scale here; FP32 subnormals above
# 2**-127 into E8M0 are 2**-126 there, the nearest here; a tie between two E8M0 codes goes up there, to the even code here.
DISAGREE = {("e2m1", "nan"), ("e2m3", "nan"), ("e3m2", "nan"), ("e8m0", "below 2**-126"), ("e8m0", "ties")}


def fnv(codes):
    h = 0xCBF29CE484222325
    for b in np.asarray(codes).astype("<u2").tobytes():
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def fp32_bits(values):
    bits = np.asarray(values, np.float32).view(np.uint32).copy()
    bits[np.isnan(values)] = NAN
    return bits


def decoded(info):
    """FP64 value of every code, by gfloat."""
    return decode_ndarray(info, np.arange(1 << info.k))


def by_ml_dtypes(dtype, k):
    raw = np.arange(1 << k).astype(np.uint16 if k == 16 else np.uint8).view(dtype)
    return raw.astype(np.float32).astype(np.float64)


def encode(info, name, values, rounding, saturate):
    """Codes of FP64 values, by gfloat's rounding and a look-up in its decoding; NaN and signs by our rules."""
    table = decoded(info)
    nan, has_nan = np.isnan(values), name in CANONICAL_NAN
    x = np.where(nan, 0.0, values)
    signed = info.is_signed
    below = np.signbit(x) & (x != 0) & (not signed)
    x = np.where(below, 0.0, x)
    x = np.where((x == 0) & (not signed), 0.0, x)
    smallest_scale = (x == 0) if name == "e8m0" else np.zeros(x.shape, bool)
    x = np.where(smallest_scale, table[0], x)
    can_overflow = info.domain == Domain.Extended or info.num_high_nans > 0
    with np.errstate(all="ignore"):
        r = round_ndarray(info, x, ROUNDINGS[rounding], sat=saturate or not can_overflow)
    if name == "e8m0":  # below the smallest scale there is only the smallest scale
        r = np.where(r < table[0], table[0], r)
    finite = np.isfinite(table)
    order = np.argsort(np.where(finite, table, np.inf), kind="stable")[: finite.sum()]
    at = np.clip(np.searchsorted(table[order], np.where(np.isfinite(r), r, 0.0)), 0, len(order) - 1)
    codes = order[at]
    zero = np.isfinite(r) & (r == 0)
    codes = np.where(zero, np.where(np.signbit(r) & signed, 1 << (info.k - 1), 0), codes)
    assert np.all(~np.isfinite(r) | (table[codes] == r)), name
    if info.domain == Domain.Extended:
        codes = np.where(np.isposinf(r), info.code_of_posinf, codes)
        codes = np.where(np.isneginf(r), info.code_of_neginf, codes)
    if has_nan:
        codes = np.where(np.isnan(r) | nan, CANONICAL_NAN[name], codes)
    if name == "e8m0":
        codes = np.where(below, 0xFF, codes)
    return codes.astype(np.uint32)


def encode_ml_dtypes(name, dtype, values32):
    with np.errstate(all="ignore"):
        codes = values32.astype(dtype).view(np.uint16 if name in ("bf16", "fp16") else np.uint8).astype(np.uint32)
    if name in CANONICAL_NAN:
        is_nan = np.isnan(by_ml_dtypes(dtype, 16 if name in ("bf16", "fp16") else 8))
        codes = np.where(is_nan[codes], CANONICAL_NAN[name], codes)
    return codes


def encode_int(name, values, rounding):
    low, high, scale = INTS[name]
    x = np.where(np.isnan(values), 0.0, values * scale)
    x = np.clip(np.rint(x) if rounding == "rne" else np.trunc(x), low, high)
    return x.astype(np.int64).astype(np.uint32) & (0xF if name == "int4" else 0xFF)


def runs(codes):
    out, start, previous = [], 0, -1
    edges = np.flatnonzero(np.diff(codes.astype(np.int64))) + 1
    for end in list(edges) + [len(codes)]:
        code = int(codes[start])
        out.append(f"{end - start}" if code == previous + 1 else f"{end - start}={code:x}")
        start, previous = end, code
    return " ".join(out)


def ffp8(signed, e, bias):
    f = 8 - signed - e
    return FormatInfo(
        f"ffp8:{int(signed)},{e},{f},{bias}", 8, f + 1, bias=bias, is_signed=bool(signed), domain=Domain.Finite,
        has_nz=bool(signed), num_high_nans=0, has_subnormals=True, is_twos_complement=False,
    )


def ffp8_biases(signed, e):
    """Seven across the range in which every code is exact in FP32, and the IEEE-like one."""
    low, high = (1 << e) - 1 - 127, 1 - (8 - signed - e) + 149
    return [low + (high - low) * i // 6 for i in range(7)] + [(1 << e >> 1) - 1 if e else 0]


def main():
    sources = {"bf16": by_ml_dtypes(ml_dtypes.bfloat16, 16), "fp16": by_ml_dtypes(np.float16, 16)}
    high = np.arange(1 << 16, dtype=np.uint32)
    lows = {"7fff": 0x7FFF, "8000": 0x8000, "8001": 0x8001, "mix": high * np.uint32(0x9E37) & np.uint32(0xFFFF)}
    fp32s = {
        f"fp32:{name}": (high << np.uint32(16) | np.uint32(low)).view(np.float32).astype(np.float64)
        for name, low in lows.items()
    }
    with open("decode.txt", "w") as out:
        for name, (info, dtype) in FLOATS.items():
            values = decoded(info)
            assert np.array_equal(fp32_bits(values), fp32_bits(by_ml_dtypes(dtype, info.k))), name
            if info.k <= 8:
                print(name, *(f"{b:08x}" for b in fp32_bits(values)), file=out)
        ints = {
            "int4": np.arange(16).astype(np.uint8).view(ml_dtypes.int4).astype(np.float64),
            "int8": np.arange(256).astype(np.uint8).view(np.int8).astype(np.float64),
            "uint8": np.arange(256).astype(np.float64),
            "mxint8": decoded(format_info_ocp_int8),
        }
        for name, values in ints.items():
            print(name, *(f"{b:08x}" for b in fp32_bits(values)), file=out)

    with open("encode.txt", "w") as out, open("hashes.txt", "w") as hashes:
        for source, values in (sources | fp32s).items():
            listed = source in sources
            if listed:
                print("decode", source, fnv_fp32(values), file=hashes)
            for name, (info, dtype) in FLOATS.items():
                for rounding in ROUNDINGS:
                    for overflow in ("own", "sat"):
                        codes = encode(info, name, values, rounding, overflow == "sat")
                        if rounding == "rne" and overflow == "own":
                            other = encode_ml_dtypes(name, dtype, values.astype(np.float32))
                            skip = np.zeros(codes.shape, bool)
                            skip |= np.isnan(values) if (name, "nan") in DISAGREE else False
                            skip |= (np.abs(values) < 2.0**-126) if (name, "below 2**-126") in DISAGREE else False
                            skip |= (np.frexp(values)[0] == 0.75) if (name, "ties") in DISAGREE else False
                            bad = np.flatnonzero((codes != other) & ~skip)
                            assert len(bad) == 0, (source, name, [(values[i], codes[i], other[i]) for i in bad[:9]])
                        key = f"{source} {name} {rounding} {overflow}"
                        if info.k == 16 or not listed:
                            print("encode", key, fnv(codes), file=hashes)
                        else:
                            print(key, runs(codes), file=out)
            for name in INTS:
                for rounding in ROUNDINGS:
                    key, codes = f"{source} {name} {rounding} sat", encode_int(name, values, rounding)
                    print(*((key, runs(codes)) if listed else ("encode", key, fnv(codes))), file=out if listed else hashes)
        for signed in (0, 1):
            for e in range(8):
                for bias in ffp8_biases(signed, e):
                    info = ffp8(signed, e, bias)
                    print("decode", info.name, fnv_fp32(decoded(info)), file=hashes)
                    for source, values in sources.items():
                        for rounding in ROUNDINGS:
                            codes = encode(info, info.name, values, rounding, True)
                            print("encode", source, info.name, rounding, "sat", fnv(codes), file=hashes)


def fnv_fp32(values):
    bits = fp32_bits(values)
    return fnv(np.stack([bits & 0xFFFF, bits >> 16], 1))


if __name__ == "__main__":
    main()
