"""Writes onnx_cases.json: ONNX's own node cases of data movement, as data. Development only.

pip install onnx==1.23.2; python onnx_cases.py >onnx_cases.json
"""
import json
import warnings

import numpy as np
import onnx

warnings.filterwarnings("ignore")
from onnx.backend.test.case.node import collect_testcases

OPS = {
    "Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "Transpose", "DepthToSpace", "SpaceToDepth",
    "Slice", "Pad", "TensorScatter",
}


def tensor(a):
    a = np.asarray(a)
    if a.dtype == np.int64:
        return {"shape": list(a.shape), "ints": [int(v) for v in a.ravel()]}
    assert a.dtype.itemsize == 4, a.dtype
    return {"shape": list(a.shape), "words": "".join(f"{int(w):08x}" for w in np.ascontiguousarray(a).view(np.uint32).ravel())}


cases, left_out = [], []
for case in collect_testcases(None):
    nodes = case.model.graph.node
    if len(nodes) != 1 or nodes[0].op_type not in OPS:
        continue
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in nodes[0].attribute}
    attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items()}
    if attributes.get("reduction", "none") != "none":
        left_out.append({"name": case.name, "reason": "the engine moves elements and does no arithmetic on them"})
        continue
    inputs, outputs = case.data_sets[0]
    cases.append({
        "name": case.name,
        "op": nodes[0].op_type,
        "text": {k: v for k, v in attributes.items() if isinstance(v, str)},
        "number": {k: v if isinstance(v, list) else [v] for k, v in attributes.items() if not isinstance(v, str)},
        "inputs": [tensor(i) for i in inputs],
        "output": tensor(outputs[0]),
    })
print(json.dumps({"onnx": onnx.__version__, "cases": cases, "left_out": left_out}, separators=(",", ":")).replace('{"name"', '\n{"name"'))
