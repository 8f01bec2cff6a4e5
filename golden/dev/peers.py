#!/usr/bin/env python3
"""Writes tests/data/peers.safetensors: rows of BF16 values and what other implementations make of them.

Usage: peers.py OUT.safetensors. Needs numpy, gguf, ml_dtypes, safetensors. Not needed to build or test.
x (float32 [64, 64]): Gaussian rows of many sizes with outliers, zeros and a constant row. q8_0, q4_0: PyPI's gguf, there and back.
fp8: ml_dtypes' float8_e4m3fn, saturated. mxfp4, nvfp4: blocks and scales here, elements by ml_dtypes' float4_e2m1fn.
nvfp4 takes 32 rows as a tile.
"""
import sys
import ml_dtypes, numpy as np
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

rng = np.random.default_rng(1)
x = rng.standard_normal((64, 64)) * np.exp2(rng.integers(-12, 9, (64, 1)))
x *= np.where(rng.random((64, 64)) < 0.02, 20, 1)
x[5], x[6], x[7, :32] = 0, 3.25, 0
x = x.astype(ml_dtypes.bfloat16).astype(np.float32)
f4 = lambda v: v.astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
f8 = lambda v: np.clip(v, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)

blocks = x.reshape(-1, 32)
top = np.abs(blocks).max(1, keepdims=True)
scale = np.exp2(np.floor(np.log2(np.where(top > 0, top, 1))) - 2).astype(np.float32)
mxfp4 = f4(np.clip(blocks / scale, -6, 6)) * scale

tiles = x.reshape(2, -1, 16)
unit = (np.abs(tiles).max((1, 2), keepdims=True) / np.float32(448 * 6)).astype(np.float32)
s = f8(np.abs(tiles).max(2, keepdims=True) / np.float32(6) / unit) * unit
nvfp4 = np.where(s > 0, f4(np.clip(tiles / np.where(s > 0, s, 1), -6, 6)) * s, 0).astype(np.float32)

out = {"x": x, "fp8": f8(x), "mxfp4": mxfp4.reshape(64, 64), "nvfp4": nvfp4.reshape(64, 64)}
for name, kind in (("q8_0", T.Q8_0), ("q4_0", T.Q4_0)):
    out[name] = dequantize(quantize(x, kind), kind).astype(np.float32)
save_file(out, sys.argv[1])
