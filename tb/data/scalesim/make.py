"""Writes cycles.json: SCALE-Sim 3's weight-stationary cycle counts of matrix products.

    pip install scalesim==3.0.0 'numpy<2' && python tb/data/scalesim/make.py

Source: SCALE-Sim, https://github.com/scalesim-project/SCALE-Sim, MIT. For development only; the bench reads the file that lies here.
Bandwidth is not the limit (CALC mode), so its total is the compute time.
"""

import csv
import json
import pathlib
import tempfile
from importlib.metadata import version

from scalesim.scale_sim import scalesim

ARRAYS = [(4, 4), (8, 8), (16, 16), (32, 32), (4, 8), (16, 8)]
SHAPES = [(1, 1, 1), (1, 7, 5), (16, 16, 16), (17, 33, 9), (100, 40, 70)]  # M, N, K

CONFIG = """[general]
run_name = table
[architecture_presets]
ArrayHeight: {rows}
ArrayWidth: {cols}
IfmapSramSzkB: 4096
FilterSramSzkB: 4096
OfmapSramSzkB: 4096
IfmapOffset: 0
FilterOffset: 10000000
OfmapOffset: 20000000
Dataflow: ws
Bandwidth: 10
ReadRequestBuffer: 512
WriteRequestBuffer: 512
[layout]
IfmapCustomLayout: False
IfmapSRAMBankBandwidth: 10
IfmapSRAMBankNum: 10
IfmapSRAMBankPort: 2
FilterCustomLayout: False
FilterSRAMBankBandwidth: 10
FilterSRAMBankNum: 10
FilterSRAMBankPort: 2
[sparsity]
SparsitySupport: false
SparseRep: ellpack_block
OptimizedMapping: false
BlockSize: 8
RandomNumberGeneratorSeed: 40
[run_presets]
InterfaceBandwidth: CALC
UseRamulatorTrace: False
"""

table = []
for rows, cols in ARRAYS:
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "config.cfg").write_text(CONFIG.format(rows=rows, cols=cols))
        lines = [f"job{i},{m},{n},{k},1:1,\n" for i, (m, n, k) in enumerate(SHAPES)]
        (folder / "gemm.csv").write_text("Layer,M,N,K,Sparsity,\n" + "".join(lines))
        (folder / "layout.csv").write_text("")
        sim = scalesim(
            save_disk_space=True,
            verbose=False,
            config=str(folder / "config.cfg"),
            topology=str(folder / "gemm.csv"),
            layout=str(folder / "layout.csv"),
            input_type_gemm=True,
        )
        sim.run_scale(top_path=str(folder))
        report = next(folder.rglob("COMPUTE_REPORT.csv"))
        with report.open() as lines:
            for (m, n, k), row in zip(SHAPES, list(csv.reader(lines))[1:], strict=True):
                # Columns: layer, total with prefetch, total, stalls, …
                table.append({"rows": rows, "cols": cols, "m": m, "n": n, "k": k, "cycles": int(row[2])})
path = pathlib.Path(__file__).with_name("cycles.json")
lines = ",\n".join(json.dumps(entry) for entry in table)
path.write_text(f'{{"source": "scalesim {version("scalesim")}", "table": [\n{lines}\n]}}\n')
