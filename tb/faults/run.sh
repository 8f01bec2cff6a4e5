#!/bin/sh
# Proves that the bench would notice: breaks the design with each patch of a block, and expects `magpie verify` to fail
# with a replay command and, where the block's bench traces, a waveform.
#
# usage: tb/faults/run.sh BLOCK [PATCH...]     e.g. tb/faults/run.sh mvp pe_drops_a_sum_bit
# Works on a copy under target/faults; the tree itself is not touched. Exit code 0: every fault was caught.
set -u
cd "$(dirname "$0")/../.." || exit 2
block=${1:?usage: tb/faults/run.sh BLOCK [PATCH...]}
shift
[ -d "tb/faults/$block" ] || { echo "no faults for block \`$block\`: there are $(cd tb/faults && ls -d */ | tr -d / | tr '\n' ' ')" >&2; exit 2; }
root=$PWD
copy=$root/target/faults/tree
# Afresh: a file that is gone from the tree must not stay in the copy.
rm -rf "$copy"
mkdir -p "$copy"
tar --exclude=./target --exclude=./.git --exclude=./models -cf - . | tar -xf - -C "$copy"
# Restored files may be older than the last build of a patched one.
find "$copy" -name '*.rs' -exec touch {} +
export CARGO_TARGET_DIR=$root/target/faults/build
# The bench is built anew for each patch: less optimised, and no more of it than the patch reaches.
export CARGO_INCREMENTAL=1 CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_CODEGEN_UNITS=64

escaped=0
for patch in "tb/faults/$block"/*.patch; do
    name=$(basename "$patch" .patch)
    case " $* " in "  " | *" $name "*) ;; *) continue ;; esac
    patch -s -d "$copy" -p1 <"$patch" || { echo "$name: the patch does not apply" >&2; exit 2; }
    rm -rf "$copy/report"
    log=$copy/fault.log
    (cd "$copy" && ${CARGO:-cargo} run --quiet --release --package tb --bin magpie -- verify --block "$block") >"$log" 2>&1
    code=$?
    patch -s -R -d "$copy" -p1 <"$patch"
    replay=$(grep -m1 'replay:' "$log" | sed 's/ *replay: *//')
    wave=$(grep -m1 'waveform:' "$log" | sed 's/ *waveform: *//')
    points=$(grep '^FAILED ' "$log" | awk '$2 ~ /\./ {print $2}' | sort -u | tr '\n' ' ')
    if [ "$code" = 1 ] && [ -n "$replay" ]; then
        printf 'caught   %-32s by %s\n         %s\n' "$name" "$points" "$replay"
        [ -z "$wave" ] || printf '         %s (%s bytes)\n' "$wave" "$(wc -c <"$copy/$wave" | tr -d ' ')"
    else
        printf 'ESCAPED  %-32s exit code %s\n' "$name" "$code"
        tail -n 20 "$log"
        escaped=1
    fi
done
exit $escaped
