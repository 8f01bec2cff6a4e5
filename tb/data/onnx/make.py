"""Writes cases.json: ONNX's own node test cases of the integer and float products and convolutions.

    pip install onnx==1.23.2 && python tb/data/onnx/make.py

Source: onnx.backend.test.case.node.collect_testcases, Apache-2.0, https://github.com/onnx/onnx. For development only; the bench reads
the file that lies here. Values are written as numbers: integers as they are, floats with all digits that FP32 needs.
"""

import json
import pathlib

import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

OPERATORS = {"MatMulInteger", "QLinearMatMul", "ConvInteger", "QLinearConv", "Conv", "Gemm"}


def tensor(value):
    if value is None:
        return None
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    value = numpy.asarray(value)
    name = value.dtype.name
    wide = value.astype(numpy.float32) if value.dtype.kind not in "iu" else value
    flat = [v if value.dtype.kind in "iu" else float(v) for v in wide.reshape(-1).tolist()]
    return {"type": name, "shape": list(value.shape), "data": flat}


def attribute(a):
    value = onnx.helper.get_attribute_value(a)
    return value.decode() if isinstance(value, bytes) else list(value) if hasattr(value, "__len__") else value


cases = {}
for case in collect_testcases():
    graph = case.model.graph
    if [n.op_type for n in graph.node if n.op_type in OPERATORS] != [n.op_type for n in graph.node]:
        continue
    node = graph.node[0]
    inputs, outputs = case.data_sets[0]
    given = iter(inputs)
    cases[case.name] = {
        "name": case.name,
        "op": node.op_type,
        "attributes": {a.name: attribute(a) for a in node.attribute},
        "inputs": [tensor(next(given)) if name else None for name in node.input],
        "output": tensor(outputs[0]),
    }
path = pathlib.Path(__file__).with_name("cases.json")
lines = ",\n".join(json.dumps(cases[name], separators=(",", ":")) for name in sorted(cases))
path.write_text(f'{{"source":"onnx {onnx.__version__}","cases":[\n{lines}\n]}}\n')
print(len(cases), path.stat().st_size)
