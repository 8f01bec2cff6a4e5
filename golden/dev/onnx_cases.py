"""Writes tests/data/onnx_cases.json: ONNX's own node cases of a transformer's operations, as data. Development only.

pip install onnx==1.23.2; python onnx_cases.py >../tests/data/onnx_cases.json
"""
import json
import warnings

import numpy as np
import onnx

warnings.filterwarnings("ignore")
from onnx.backend.test.case.node import collect_testcases

OPS = {"Attention", "RMSNormalization", "RotaryEmbedding", "Softmax", "Swish"}


# What a Llama has no use for.
ABSENT = {"softcap", "left_window_size", "right_window_size", "rotary_embedding_dim"}


def tensor(a):
    if a is None:
        return None
    a = np.asarray(a)
    if a.dtype == bool:
        return {"shape": list(a.shape), "bools": [int(v) for v in a.ravel()]}
    if a.dtype == np.int64:
        return {"shape": list(a.shape), "ints": [int(v) for v in a.ravel()]}
    assert a.dtype == np.float32, a.dtype
    return {"shape": list(a.shape), "words": "".join(f"{int(w):08x}" for w in np.ascontiguousarray(a).view(np.uint32).ravel())}


cases, left_out = [], []
for case in collect_testcases(None):
    nodes = case.model.graph.node
    if len(nodes) != 1 or nodes[0].op_type not in OPS:
        continue
    node = nodes[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    inputs, outputs = case.data_sets[0]
    dtypes = {np.asarray(t).dtype for t in list(inputs) + list(outputs)} - {np.dtype(bool), np.dtype(np.int64)}
    if dtypes != {np.dtype(np.float32)}:
        left_out.append({"name": case.name, "reason": "operands that are not FP32"})
        continue
    if absent := sorted(ABSENT & attributes.keys()):
        left_out.append({"name": case.name, "reason": f"{', '.join(absent)}: Llama models have none"})
        continue
    if "attention_3d" in case.name and "transpose" not in case.name:
        left_out.append({"name": case.name, "reason": "the 4-dimensional case of the same name with heads and positions exchanged"})
        continue
    # Optional inputs that are left out have an empty name.
    given = iter(inputs)
    placed = [tensor(next(given)) if name else None for name in node.input]
    given = iter(outputs)
    cases.append({"name": case.name, "op": node.op_type, "attributes": attributes, "inputs": placed, "output": tensor(next(given))})
print(json.dumps({"onnx": onnx.__version__, "cases": cases, "left_out": left_out}, separators=(",", ":")).replace('{"name"', '\n{"name"'))
