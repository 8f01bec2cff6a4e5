#!/usr/bin/env python3
"""Makes requant_onnx.txt and mx.txt: what ONNX Runtime and gfloat do with sampled values.

Development only: building and testing need the text files, not this script. It wants Python 3.11 with

    pip install numpy==2.4.6 gfloat==0.5.2 array-api-compat onnx==1.23.2 onnxruntime==1.32.0

requant_onnx.txt  type, accumulator, FP32 bits of the scale, zero point, result: QLinearMatMul, the accumulator made by
                  one-row products whose factors the script chooses.
mx.txt            MX format, 32 FP32 inputs, scale code, 32 element codes, 32 FP32 values: gfloat's quantisation and
                  decoding of one block.
"""

import numpy as np
import onnx
import onnxruntime
from gfloat import decode_block
from gfloat.block import compute_scale_amax, encode_block
from gfloat.formats import all_block_formats

rng = np.random.default_rng(2104)


def qlinear_matmul(a, za, b, zb, scale, zero_point, kind):
    """y[0, n] = requantised sum over k of (a[0, k] − za)(b[k, n] − zb)."""
    tensor = onnx.helper.make_tensor
    types = {np.dtype(np.uint8): onnx.TensorProto.UINT8, np.dtype(np.int8): onnx.TensorProto.INT8}
    f32 = onnx.TensorProto.FLOAT
    ins = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    node = onnx.helper.make_node("QLinearMatMul", ins, ["y"])
    t = types[np.dtype(kind)]
    constants = [
        tensor("sa", f32, [], [scale]), tensor("za", t, [], [za]), tensor("b", t, b.shape, b.flatten().tolist()),
        tensor("sb", f32, [], [1.0]), tensor("zb", t, [], [zb]), tensor("sy", f32, [], [1.0]),
        tensor("zy", t, [], [zero_point]),
    ]
    graph = onnx.helper.make_graph(
        [node], "g", [onnx.helper.make_tensor_value_info("a", t, a.shape)],
        [onnx.helper.make_tensor_value_info("y", t, [1, b.shape[1]])], constants,
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"a": a})[0][0]


def requant(out):
    for kind in (np.uint8, np.int8):
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        for round_ in range(60):
            k = int(rng.choice([1, 2, 7, 64, 1024]))
            a = rng.integers(low, high + 1, (1, k)).astype(kind)
            b = rng.integers(low, high + 1, (k, 16)).astype(kind)
            za, zb, zero_point = (int(rng.integers(low, high + 1)) for _ in range(3))
            acc = (a.astype(np.int64) - za) @ (b.astype(np.int64) - zb)
            if round_ % 3 == 0:  # ties: an odd multiple of a half comes out often
                scale = np.float32(2.0 ** -int(rng.integers(1, 18)))
            else:
                spread = max(1.0, float(np.abs(acc).max()))
                scale = np.float32(rng.uniform(0.3, 400.0) / spread)
            y = qlinear_matmul(a, za, b, zb, float(scale), zero_point, kind)
            for s, q in zip(acc[0], y):
                print(np.dtype(kind).name, s, f"{scale.view(np.uint32):08x}", zero_point, int(q), file=out)


def mx(out):
    for fi in all_block_formats:
        for n in range(24):
            spread = [0.0, 1.0, 4.0, 12.0][n % 4]
            x = rng.standard_normal(32) * np.exp2(rng.normal(0, spread, 32)) * 2.0 ** int(rng.integers(-120, 110))
            if n % 5 == 0:
                x = np.exp2(rng.integers(-6, 6, 32)) * rng.choice([-1.75, -1.5, -1.25, 1.0, 1.25, 1.5], 32)
            if n == 7:
                x[:] = 0.0
            if n == 8:
                x[3] = 0.0
            if n == 9:
                x *= 1e-38 / np.abs(x).max()
            x = x.astype(np.float32).astype(np.float64)
            scale = compute_scale_amax(fi.etype.emax, x)
            codes = list(encode_block(fi, scale, x / scale))
            values = np.array(list(decode_block(fi, codes)), np.float32)
            words = lambda v: ",".join(f"{w:08x}" for w in np.asarray(v, np.float32).view(np.uint32))
            print(fi.name, words(x), codes[0], ",".join(str(int(c)) for c in codes[1:]), words(values), file=out)


with open("requant_onnx.txt", "w") as out:
    requant(out)
with open("mx.txt", "w") as out:
    mx(out)
