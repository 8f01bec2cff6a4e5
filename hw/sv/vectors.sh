#!/bin/sh
# Vectors of products and of data movement, through the commands that their own READMEs give: the twin passes, and a broken twin does not.
# vectors.sh MAGPIE FOLDER, from the repository's root. Needs Icarus Verilog; with Verilator installed, it takes part.
set -eu
magpie=$1
out=$2
rm -rf "$out"
mkdir -p "$out"

# The commands of a README for a simulator, one after the other; they run in a folder of their own, with the twins of SOURCES.
commands() { # README SIMULATOR
    awk -v name="^With $2" '$0 ~ name { on = 1; next } on && /^  / { print; next } { on = 0 }' "$1"
}

# Runs a folder's README against the twins in a folder of hw/sv; leaves what was printed in FOLDER.log and returns the exit code.
replay() { # FOLDER SIMULATOR ROOT
    commands "$1/README" "$2" >"$1.sh"
    [ "$(wc -l <"$1.sh")" = 2 ] || { echo "$1/README has no two commands for $2"; exit 1; }
    (cd "$3" && sh -e "$1.sh") >"$1.log" 2>&1
}

passes() { # FOLDER SIMULATOR ROOT
    replay "$1" "$2" "$3" && grep -q PASSED "$1.log" || { cat "$1.log"; echo "$1, $2: the twin must pass"; exit 1; }
    echo "$(basename "$1"), $2: $(grep PASSED "$1.log")"
}

# A fault: the twin of FILE edited by a sed expression that must change it, then the vectors must fail, by their verdict and by exit code.
fails() { # FOLDER NAME FILE EXPRESSION
    mutant=$out/mutant
    rm -rf "$mutant"
    mkdir -p "$mutant/hw"
    cp -r hw/sv "$mutant/hw/sv"
    sed "$4" "hw/sv/$3" >"$mutant/hw/sv/$3"
    if cmp -s "hw/sv/$3" "$mutant/hw/sv/$3"; then echo "$2: the edit changes nothing in $3"; exit 1; fi
    if replay "$1" Icarus "$mutant"; then cat "$1.log"; echo "$(basename "$1"): $2 and exit code 0"; exit 1; fi
    grep -q FAILED "$1.log" || { cat "$1.log"; echo "$(basename "$1"): $2 and no FAILED"; exit 1; }
    echo "$(basename "$1"): $2: $(grep FAILED "$1.log")"
}

here=$(pwd)
case $out in /*) ;; *) out=$here/$out ;; esac
simulators="Icarus"
# The commands leave their builds where they run.
root=$out/root
mkdir -p "$root/hw"
cp -r hw/sv "$root/hw/sv"
command -v verilator >/dev/null && simulators="Icarus Verilator"

# A depth and a size that are not the reader's own.
"$magpie" gemm 6 19 7 --array 8x4 --vectors "$out/int8" >/dev/null
"$magpie" gemm 6 9 7 --array 4x3 --depth 64 --format bf16 --vectors "$out/bf16" >/dev/null
"$magpie" gemm 1 1 1 --array 16x2 --depth 2 --seed 7 --vectors "$out/int8-small" >/dev/null
for simulator in $simulators; do
    for set in int8 bf16 int8-small; do
        passes "$out/$set" "$simulator" "$root"
    done
done
for set in int8 bf16; do
    fails "$out/$set" "elements ignore enable" mvp_pe.sv 's/else if (enable) begin/else begin/'
    fails "$out/$set" "overflow is stuck at 1" mvp_accumulator.sv "s/assign overflow  = overflow_q;/assign overflow = 1'b1;/"
    fails "$out/$set" "the deskew ignores enable" mvp_deskew.sv 's/else if (enable)/else/'
    fails "$out/$set" "the feeder ignores enable" mvp_feeder.sv 's/else if (enable)/else/'
    fails "$out/$set" "the accumulator ignores enable" mvp_accumulator.sv 's/if (enable) row_q/row_q/'
    fails "$out/$set" "the deskew ignores reset" mvp_deskew.sv 's/if (rst)/if (1'"'b0"')/'
    fails "$out/$set" "elements ignore reset" mvp_pe.sv 's/if (rst)/if (1'"'b0"')/'
    fails "$out/$set" "the weight that stands ignores reset" mvp_pe.sv "s/weight_q <= {WIDTH{1'b0}};/weight_q <= weight_q;/"
    fails "$out/$set" "the weight behind it ignores reset" mvp_pe.sv "s/shadow_q <= {WIDTH{1'b0}};/shadow_q <= shadow_q;/"
    fails "$out/$set" "the accumulator's tag ignores reset" mvp_accumulator.sv "s/} <= 4'd0;/} <= {tag_valid, tag_first, tag_last, tag_end};/"
    fails "$out/$set" "the last row is not marked" mvp_accumulator.sv "s/assign end_out   = done_end;/assign end_out = 1'b0;/"
done
fails "$out/int8" "a bit of the partial sum is lost" mvp_pe.sv 's/psum_in + {{16{product\[15\]}}, product}/(psum_in + {{16{product[15]}}, product}) \& ~32'"'d1"'/'
fails "$out/bf16" "ties go away from zero" mvp_round.sv 's/guard & (sticky | sig\[0\])/guard/'
fails "$out/bf16" "a NaN is an infinity" mvp_round.sv "s/32'h7fc0_0000/32'h7f80_0000/"
fails "$out/bf16" "sums are rounded wrongly" mvp_round.sv 's/guard & (sticky | sig\[0\])/guard \& sticky \& sig[0]/'
fails "$out/int8" "overflow is stuck at 0" mvp_accumulator.sv "s/assign overflow  = overflow_q;/assign overflow = 1'b0;/"
fails "$out/int8" "overflow counts every column" mvp_accumulator.sv 's/(c < tag_lanes_q) &//'
fails "$out/int8" "overflow is not sticky" mvp_accumulator.sv 's/overflow_q | (tag_valid_q/(tag_valid_q/'
fails "$out/int8" "overflow ignores reset" mvp_accumulator.sv "s/overflow_q    <= 1'b0;//"

# Data movement: the recorded beats pass, and with a beat that differs they do not.
seq 20000 | head -c 65536 >"$out/in.bin"
"$magpie" dma tb/examples/dma/gather.toml --memory "$out/in.bin" --out "$out/out.bin" --vectors "$out/dma" >/dev/null
passes "$out/dma" Icarus "$out/dma"
sed '1,8s/.$/f/' "$out/dma/w.hex" >"$out/w.hex" # digits and line ends have no such byte
cp "$out/w.hex" "$out/dma/w.hex"
if replay "$out/dma" Icarus "$out/dma"; then echo "dma: wrong beats and exit code 0"; exit 1; fi
grep -q FAILED "$out/dma.log"
echo "dma: wrong beats: $(grep FAILED "$out/dma.log")"
echo "hw/sv: the vectors pass the twins, and every broken one fails"
