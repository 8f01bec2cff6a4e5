#!/usr/bin/env python3
"""Mutation testing of the hardware: does anything notice when a line of it is changed?

cargo-mutants lists the changes; each is judged by its own crate's tests and, if those notice nothing, by the block's own
bench (`magpie verify --block B`, one seed). Verdicts are appended to target/mutants/verdicts/BLOCK.jsonl as they come, so a run
that was broken off goes on where it was. Works on a copy of the tree under target/mutants; the tree itself is not touched.

A test that hangs is found by the CPU time that it takes, never by the clock on the wall: a machine that stands still for a
while condemns nobody.
"""

import argparse
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = ["rtl", "numeric", "mvp", "dma", "nkz", "vector", "npu"]
CARGO = os.environ.get("CARGO", "cargo")
WORK = ROOT / "target/mutants"
RESULTS = ROOT / "tb/results/mutants.json"
REASONS = ROOT / "tb/mutants/survivors.json"
# Seconds of CPU that a test may take: so many times what it takes on the design as it is, and some more.
TIMES, MORE = 10, 20
# Bytes of address space that a test may take.
MEMORY = 12 << 30


def die(text):
    print(text, file=sys.stderr)
    sys.exit(2)


def cargo_mutants(*args):
    done = subprocess.run([CARGO, "mutants", *args], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        if "no such command" in done.stderr:
            die("cargo-mutants is not installed: cargo install --locked cargo-mutants")
        die(done.stderr)
    return done.stdout


def mutants(block):
    """All mutants of a block's crate, each with a key that a change elsewhere in its file leaves alone."""
    listed = json.loads(cargo_mutants("--list", "--json", "--diff", "--package", block))
    seen = {}
    for m in listed:
        function = (m.get("function") or {}).get("function_name", "")
        start = m["span"]["start"]
        original = m["diff"].split("\n")
        change = "\n".join(l for l in original if l[:1] in "+-" and l[:3] not in ("+++", "---"))
        text = "|".join([m["file"], function, m["genre"], m["replacement"], change])
        seen[text] = seen.get(text, 0) + 1
        m["key"] = hashlib.sha256(f"{text}|{seen[text]}".encode()).hexdigest()[:16]
        m["place"] = f"{m['file']}:{start['line']}:{start['column']}"
    return listed


def committed():
    return json.loads(RESULTS.read_text())["blocks"]


def sample(block, args):
    """The block's mutants in the order in which the seed draws them; or those that survived the last run."""
    if args.survivors:
        keys = {s["key"] for s in committed().get(block, {}).get("survivors", ())}
        return [m for m in mutants(block) if m["key"] in keys]
    drawn = sorted(mutants(block), key=lambda m: hashlib.sha256(f"{args.seed}|{m['key']}".encode()).digest())
    drawn = drawn if args.all else drawn[: args.sample]
    i, n = args.shard
    return drawn[i - 1 :: n]


def verdicts(block):
    found = {}
    # The latest verdict counts.
    for path in sorted(WORK.glob(f"verdicts/{block}-*.jsonl"), key=lambda p: p.stat().st_mtime):
        for line in path.read_text().splitlines():
            verdict = json.loads(line)
            found[verdict["key"]] = verdict
    return found


class Tree:
    """A copy of the sources with its own folder of builds."""

    def __init__(self, name):
        self.root = WORK / name / "tree"
        self.target = WORK / name / "build"
        self.limits = {}
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )
        kept = set(listed.stdout.split("\n")) - {""}
        for path in list(self.root.rglob("*")):
            if path.is_file() and str(path.relative_to(self.root)) not in kept:
                path.unlink()
        for file in kept:
            self.write(file, (ROOT / file).read_bytes()) if (ROOT / file).is_file() else None

    def write(self, file, data):
        """Writes a file only if it differs: what is rebuilt follows from the times of files."""
        path = self.root / file
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            shutil.copymode(ROOT / file, path)

    def mutate(self, mutant):
        file = self.root / mutant["file"]
        done = subprocess.run(["patch", "-s", "--no-backup-if-mismatch", str(file)], input=mutant["diff"], text=True)
        if done.returncode:
            die(f"{mutant['name']}: the change does not apply")

    def restore(self, mutant):
        self.write(mutant["file"], (ROOT / mutant["file"]).read_bytes())

    def cargo(self, *args, release=False):
        env = os.environ | {
            "CARGO_TARGET_DIR": str(self.target),
            "CARGO_INCREMENTAL": "1",
            # The bench is built anew for each mutant: without overflow checks, as users run it, but less optimised.
            "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1",
            "CARGO_PROFILE_RELEASE_DEBUG": "false",
            "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "64",
        }
        env.pop("RUSTFLAGS", None)
        flags = ["--release"] if release else []
        command = [CARGO, *args, *flags, "--quiet", "--message-format=json"]
        return subprocess.run(command, cwd=self.root, env=env, capture_output=True, text=True)

    def programs(self, *args, release=False):
        """Builds and gives the programs; None if it does not build."""
        built = self.cargo(*args, release=release)
        if built.returncode:
            self.errors = built.stderr + "".join(re.findall(r'"rendered":"(error.*?)"[,}]', built.stdout))[-2000:]
            return None
        messages = [json.loads(l) for l in built.stdout.splitlines() if l.startswith("{")]
        return [m["executable"] for m in messages if m.get("executable")]

    def run(self, what, command, cwd):
        """Runs within limits: (exit code, CPU seconds)."""
        seconds = self.limits.get(what, 3600)

        def limit():
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        with subprocess.Popen(command, cwd=cwd, preexec_fn=limit, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as p:
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
        return p.returncode, usage.ru_utime + usage.ru_stime

    def tests(self, block):
        """The crate's tests: None if they do not build, else the name of one that fails, or nothing."""
        programs = self.programs("test", "--no-run", "--package", block)
        if programs is None:
            return None
        # The fastest first.
        for program in sorted(programs, key=lambda p: self.limits.get(Path(p).name.rsplit("-", 1)[0], 0)):
            name = Path(program).name.rsplit("-", 1)[0]
            code, used = self.run(name, [program, "--test-threads", "1"], self.root / "hw" / block)
            if code:
                return name
            self.limits.setdefault(name, int(TIMES * used) + MORE)
        return ""

    def bench(self, block):
        """The block's bench: None if it does not build, else what it ended with."""
        programs = self.programs("build", "--package", "tb", "--bin", "magpie", release=True)
        if programs is None:
            return None
        shutil.rmtree(self.root / "report", ignore_errors=True)
        command = [programs[0], "verify", "--block", block, "--threads", "1"]
        code, used = self.run("bench", command, self.root)
        self.limits.setdefault("bench", int(TIMES * used) + MORE)
        return code

    def judge(self, mutant, by):
        """What a step makes of a mutant."""
        self.mutate(mutant)
        try:
            return by(mutant)
        finally:
            self.restore(mutant)

    def by_tests(self, mutant):
        failed = self.tests(mutant["package"])
        if failed is None:
            return {"verdict": "unviable"}
        return {"verdict": "tests", "by": failed} if failed else {"verdict": "open"}

    def by_bench(self, mutant):
        code = self.bench(mutant["package"])
        if code is None:
            # Its crate was built before: another crate does not build with it, or the machine is at its end.
            print(self.errors, file=sys.stderr)
            return {"verdict": "unviable"}
        return {"verdict": "bench", "by": f"exit code {code}"} if code else {"verdict": "survived"}


def run_step(tree, block, args, by, wanted):
    """Takes those mutants of a block that are `wanted` by their verdicts through a step."""
    done = verdicts(block)
    todo = [m for m in sample(block, args) if done.get(m["key"], {}).get("verdict") in wanted]
    if not todo:
        return
    # The limits follow from the design as it is, which must pass.
    tree.limits = {}
    if by == tree.by_tests and tree.tests(block) != "":
        die(f"{block}: the tests fail on the design as it is")
    if by == tree.by_bench and tree.bench(block) != 0:
        die(f"{block}: the bench fails on the design as it is")
    out = WORK / "verdicts" / f"{block}-{tree.root.parent.name}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    for n, mutant in enumerate(todo, 1):
        verdict = tree.judge(mutant, by)
        line = {"key": mutant["key"], "mutant": mutant["name"], **verdict}
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{block} {n}/{len(todo)} {verdict['verdict']:<9} {mutant['name']}", flush=True)


def reasons():
    return json.loads(REASONS.read_text()) if REASONS.exists() else {}


def report(args):
    """Writes tb/results/mutants.json from the verdicts, and says the scores."""
    known, blocks, holes = reasons(), committed() if args.survivors else {}, 0
    for block in args.blocks:
        done = verdicts(block)
        drawn = sample(block, args)
        verdict = lambda m: done.get(m["key"], {}).get("verdict", "unjudged")
        unjudged = [m for m in drawn if verdict(m) in ("unjudged", "open")]
        if unjudged:
            print(f"{block}: {len(unjudged)} of {len(drawn)} mutants not judged yet", file=sys.stderr)
        of = lambda kind: sum(verdict(m) == kind for m in drawn)
        survivors = []
        for m in drawn:
            if verdict(m) not in ("survived", "open") and not (args.survivors and verdict(m) == "unjudged"):
                continue
            reason = known.get(block, {}).get(m["key"], {}).get("reason")
            holes += reason is None
            hole = "a hole" if verdict(m) == "survived" else "the crate's tests pass; the bench has not judged it yet"
            survivors.append({"key": m["key"], "mutant": m["name"], "reason": reason or hole})
            print(f"{block}: {m['key']} {m['name']}: {reason or hole}")
        before = blocks.get(block, {})
        counts = {kind: before.get(kind, 0) + of(kind) for kind in ("tests", "bench", "unviable")}
        blocks[block] = {**counts, "survivors": survivors}
        killed = counts["tests"] + counts["bench"]
        viable = killed + len(survivors)
        print(f"{block:<8} {viable + counts['unviable']:>5} mutants, {viable:>5} viable: {counts['tests']} killed by the crate's tests, "
              f"{counts['bench']} by the bench, {len(survivors)} survived: {100 * killed / max(viable, 1):.1f} %")
    killed = sum(b["tests"] + b["bench"] for b in blocks.values())
    viable = killed + sum(len(b["survivors"]) for b in blocks.values())
    print(f"all      {killed} of {viable} viable: {100 * killed / max(viable, 1):.1f} %, {holes} survivors without a reason")
    if args.write:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        text = json.loads(RESULTS.read_text()) if args.survivors else {
            "command": "make mutants" + (" ALL=1" if args.all else f" SAMPLE={args.sample} SEED={args.seed}"), "revision": head}
        if args.survivors:
            # The others were judged at the revision before.
            text["revision"] = f"{text['revision'].split(',')[0]}, its survivors again at {head}"
        RESULTS.write_text(json.dumps({**text, "blocks": blocks}, indent=2) + "\n")


def shard(text):
    i, n = map(int, text.split("/"))
    if not 1 <= i <= n:
        raise ValueError
    return i, n


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--blocks", type=lambda t: t.split(","), default=BLOCKS, help="only these, with commas between")
    p.add_argument("--sample", type=int, default=30, help="mutants a block (30)")
    p.add_argument("--all", action="store_true", help="all mutants instead of a sample")
    p.add_argument("--seed", type=int, default=1, help="seed of the sample (1)")
    p.add_argument("--shard", type=shard, default=(1, 1), metavar="I/N", help="every N-th mutant, from the I-th")
    p.add_argument("--tree", default="tree", help="copy of the sources to work in; runs side by side, of other blocks or shards, need one each")
    p.add_argument("--again", action="store_true", help="judge again what survived so far")
    p.add_argument("--survivors", action="store_true", help="judge the survivors in tb/results/mutants.json alone, and move those that are killed now")
    p.add_argument("--tests", action="store_true", help="the crates' tests alone, without the benches")
    p.add_argument("--report", action="store_true", help="judge nothing, say what is there")
    p.add_argument("--write", action="store_true", help="write tb/results/mutants.json")
    args = p.parse_args()
    if unknown := [b for b in args.blocks if b not in BLOCKS]:
        die(f"no block `{unknown[0]}`: there are {', '.join(BLOCKS)}")
    cargo_mutants("--version")
    if not args.report:
        tree = Tree(args.tree)
        # The tests of all blocks first: they are fast, and the bench is built anew for each mutant that they let through.
        for block in args.blocks:
            run_step(tree, block, args, tree.by_tests, (None, "open", "survived") if args.again else (None,))
        for block in args.blocks if not args.tests else ():
            run_step(tree, block, args, tree.by_bench, ("open",))
    if args.shard == (1, 1):
        report(args)


if __name__ == "__main__":
    main()
