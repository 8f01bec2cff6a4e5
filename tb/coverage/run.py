#!/usr/bin/env python3
"""Lines of the hardware and of the reference that tests and benches run.

Builds with the compiler's instrumentation, runs the tests of the crates under hw/, of golden and of host, then the whole testplan, and
counts. The compiler sets its counters before it optimises, so that an optimised build counts the same lines. Threads would fight for
the counters: each process has one, and as many processes run as there are cores. Lines of unit tests do not count.
Needs Debian's llvm-19, or the tools that LLVM_PROFDATA and LLVM_COV name.
Prints each crate's share and the lines that nothing ran; `--write` renews tb/results/lines.json.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "target/coverage"
BLOCKS = ["rtl", "numeric", "mvp", "dma", "nkz", "vector", "npu"]
FOLDERS = {**{b: f"hw/{b}/src" for b in BLOCKS}, "golden": "golden/src"}
# Parts of the testplan, for balance.
SHARDS = 8
CARGO = os.environ.get("CARGO", "cargo")


def die(text):
    print(text, file=sys.stderr)
    sys.exit(2)


def tool(name):
    found = os.environ.get(name.upper().replace("-", "_")) or shutil.which(f"{name}-19")
    return found or die(f"{name} is not installed. Debian: sudo apt-get install llvm-19; or name one in {name.upper().replace('-', '_')}.")


def programs(env, *args):
    """Builds and gives the programs with the folders of their crates."""
    command = [CARGO, *args, "--release", "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        die("the build fails")
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    return [(m["executable"], Path(m["manifest_path"]).parent) for m in messages if m.get("executable")]


def execute(env, command, folder):
    done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        die(f"{' '.join(map(str, command))} fails:\n{done.stdout[-4000:]}")


def first_test_line(path):
    """Unit tests end a file."""
    for n, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("#[cfg(test)]"):
            return n
    return 1 << 30


def ranges(lines):
    """1, 2, 3, 7 as 1-3 7."""
    out = []
    for n in sorted(lines):
        if out and out[-1][1] + 1 == n:
            out[-1][1] = n
        else:
            out.append([n, n])
    return " ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in out)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--write", action="store_true", help="write tb/results/lines.json")
    p.add_argument("--least", type=float, default=95.0, help="share of every crate under hw/, percent (95)")
    args = p.parse_args()
    profdata, cov = tool("llvm-profdata"), tool("llvm-cov")
    profiles = WORK / "profiles"
    shutil.rmtree(profiles, ignore_errors=True)
    env = os.environ | {
        "CARGO_TARGET_DIR": str(WORK / "build"),
        # Only what is ours is instrumented.
        "RUSTC_WORKSPACE_WRAPPER": str(Path(__file__).with_name("instrumented")),
        "CARGO_INCREMENTAL": "0",
        "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
        "CARGO_PROFILE_RELEASE_DEBUG": "false",
        # Their lines count, too.
        "CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS": "true",
        # One file a program, to which its runs are added.
        "LLVM_PROFILE_FILE": str(profiles / "%m.profraw"),
    }
    packages = [a for b in [*BLOCKS, "golden", "host"] for a in ("--package", b)]
    tests = programs(env, "test", "--no-run", *packages)
    bench = programs(env, "build", "--package", "tb", "--bin", "magpie")
    shards = WORK / "shards"
    shutil.rmtree(shards, ignore_errors=True)
    shards.mkdir(parents=True)
    verify = lambda i: ["verify", "--threads", "1", "--shard", f"{i}/{SHARDS}", "--results", shards / f"{i}.json"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [([bench[0][0], *verify(i)], ROOT) for i in range(1, SHARDS + 1)]
        jobs += [([program, "--quiet", "--test-threads", "1"], folder) for program, folder in tests]
        for _ in pool.map(lambda job: execute(env, *job), jobs):
            pass

    merged = WORK / "merged.profdata"
    subprocess.run([profdata, "merge", "--sparse", *map(str, profiles.glob("*.profraw")), "-o", merged], check=True)
    objects = [a for program, _ in [*bench, *tests] for a in ("--object", program)][1:]
    lcov = subprocess.run([cov, "export", "--format=lcov", f"--instr-profile={merged}", *objects, *(str(ROOT / f) for f in FOLDERS.values())],
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    seen = {}
    for record in lcov.split("end_of_record"):
        if not (name := re.search(r"^SF:(.*)$", record, re.M)):
            continue
        path = Path(name[1])
        limit, lines = first_test_line(path), seen.setdefault(path.relative_to(ROOT), {})
        for n, count in re.findall(r"^DA:(\d+),(\d+)", record, re.M):
            if int(n) < limit:
                lines[int(n)] = lines.get(int(n), 0) + int(count)
    blocks, low = {}, []
    for crate, folder in FOLDERS.items():
        files = {f: l for f, l in seen.items() if str(f).startswith(folder)}
        total = sum(map(len, files.values()))
        run = sum(1 for l in files.values() for count in l.values() if count)
        blocks[crate] = {"run": run, "total": total}
        share = 100 * run / max(total, 1)
        low += [crate] if crate in BLOCKS and share < args.least else []
        print(f"{crate:<8} {run:>6} of {total:>6} lines: {share:.1f} %")
        for file, lines in sorted(files.items()):
            if missed := [n for n, count in lines.items() if not count]:
                print(f"    {file}: {ranges(missed)}")
    hw = [blocks[b] for b in BLOCKS]
    run, total = sum(b["run"] for b in hw), sum(b["total"] for b in hw)
    print(f"hw       {run:>6} of {total:>6} lines: {100 * run / total:.1f} %")
    if args.write:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        text = {"command": "make coverage", "revision": head.stdout.strip(), "blocks": blocks}
        (ROOT / "tb/results/lines.json").write_text(json.dumps(text, indent=2) + "\n")
    sys.exit(1 if low else 0)


if __name__ == "__main__":
    main()
