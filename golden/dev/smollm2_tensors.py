#!/usr/bin/env python3
"""Writes tests/data/smollm2_tensors.json: every tensor of a GGUF file as PyPI's `gguf` reads and dequantises it.

Usage: smollm2_tensors.py MODEL.gguf OUT.json. Needs gguf, numpy. Not needed to build or test.
Per tensor: name, row-major shape, ggml type, sum and position-weighted sum (mod 2^64) of the f32 bit patterns,
and the bit patterns of eight values spread over it.
"""
import json, sys
import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

out = []
for t in GGUFReader(sys.argv[1]).tensors:
    bits = np.ascontiguousarray(dequantize(t.data, t.tensor_type), np.float32).reshape(-1).view(np.uint32).astype(np.uint64)
    weights = np.arange(bits.size, dtype=np.uint64) % np.uint64(65521) + np.uint64(1)
    picks = [bits.size * i // 8 + i for i in range(8)]
    out.append({
        "name": t.name, "shape": [int(d) for d in reversed(t.shape)], "type": t.tensor_type.name,
        "sum": str(int(bits.sum(dtype=np.uint64))), "weighted": str(int((bits * weights).sum(dtype=np.uint64))),
        "samples": [[p, int(bits[p])] for p in picks],
    })
json.dump(out, open(sys.argv[2], "w"), separators=(",", ":"))
