//! What stands in a folder of vectors, and how to use it.

use super::parts::Part;
use mvp::Config;
use std::fmt::Write;
use std::path::Path;

/// A table of ports, from bit 0 up.
fn table(ports: &[(&str, usize, &str)]) -> String {
    let (mut text, mut from) = (String::new(), 0);
    for (name, width, meaning) in ports {
        let bits = if *width == 1 { from.to_string() } else { format!("{}:{from}", from + width - 1) };
        let _ = writeln!(text, "  {bits:<11} {name:<12} {meaning}");
        from += width;
    }
    text
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// The README of these vectors.
pub(super) fn readme(dir: &Path, config: Config, parts: &[Part]) -> String {
    let Config { rows, cols, depth, datapath, .. } = config;
    let (float, width) = (u8::from(datapath.is_float()), datapath.act_width() as usize);
    let cycles: usize = parts.iter().map(|part| part.cycles.len()).sum();
    let lane = format!("{width} bits a row of the array, row 0 lowest");
    let inputs = table(&[
        ("act", width * rows, &format!("activations before the skew, {lane}")),
        ("valid", rows, "the activation counts; a bit a row"),
        (
            "swap",
            rows,
            "with the first row of activations of a tile: the element takes the weight behind the one it holds",
        ),
        ("weight", width * rows, &format!("a column of weights, column {} first; {lane}", cols - 1)),
        ("load", rows, "the column of weights counts"),
        ("keep", rows, "high from the second column of a load to its last"),
        ("tag_valid", 1, "a row leaves the deskew in this cycle and goes into the accumulator"),
        ("tag_first", 1, "... from the first tile along k: it is not added to anything"),
        ("tag_last", 1, "... from the last tile along k: the sum is a result, and offered"),
        ("tag_end", 1, "... the last of all"),
        ("tag_address", 16, "... row of the accumulator's memory"),
        ("tag_lanes", 9, "... columns that count, from column 0"),
        ("enable", 1, "low: a stall, every register stands still"),
        ("rst", 1, "synchronous; goes before enable"),
    ]);
    let outputs = table(&[
        ("sum_out", 32 * cols, "sums, 32 bits a column, column 0 lowest"),
        ("lanes_out", 9, "columns that count"),
        ("end_out", 1, "the last row of the product"),
        ("offers", 1, "a row of results stands at the output"),
        ("overflow", 1, "a sum of a column that counts has left 32 bits since the last reset"),
    ]);
    let mut story = String::new();
    let mut from = 0;
    for part in parts {
        let to = from + part.cycles.len() - 1;
        let span = if from == to { from.to_string() } else { format!("{from}-{to}") };
        let _ = writeln!(story, "  {span:<14} {}", part.what);
        from = to + 1;
    }
    let dir = quoted(dir);
    let parameters = [("ROWS", rows), ("COLS", cols), ("DEPTH", depth), ("FLOAT", float.into()), ("MANY", cycles)];
    let icarus: String = parameters.iter().map(|(name, value)| format!(" -P mvp_vectors.{name}={value}")).collect();
    let verilator: String = parameters.iter().map(|(name, value)| format!(" -G{name}={value}")).collect();
    format!("\
Vectors of the matrix-vector processor's datapath (feeder, array, deskew, accumulator): {rows}x{cols} elements, {datapath}, D = {depth}. The ports
are those of hw/sv/mvp_datapath.sv, the schedule is docs/mvp.md's. Words for $readmemh, one a cycle, {cycles} cycles: the inputs of the cycle, and
the outputs that stand before its rising edge.

stimulus.hex, bits of a word
{inputs}
expected.hex, bits of a word
{outputs}
Compared before every rising edge but the first: offers and overflow in every cycle; where offers is 1, end_out, lanes_out, and sum_out
of the columns below lanes_out. All else in expected.hex counts for nothing. An unknown bit (x) is a difference.

What happens, by cycles
{story}
In a stall (enable 0) and at a reset every other input carries junk, and in a stall the outputs stay what they are. After a reset every register is
zero, but for the accumulator's memory, whose words are not read before they are written.

shape.hex       ROWS, COLS, DEPTH, FLOAT (0: INT8 into INT32, 1: BF16 into FP32 with L = A = 4), cycles: 32 bits each
mvp_vectors.sv  reads all this, drives the module mvp_datapath and checks it; the simulator ends with PASSED and exit code 0, or FAILED and another

With Icarus Verilog, from the folder that holds hw/sv (put your own files in the place of hw/sv/mvp_*.sv):
  iverilog -g2012 -s mvp_vectors{icarus} -o check {dir}/mvp_vectors.sv hw/sv/mvp_*.sv
  vvp check +vectors={dir}
With Verilator:
  verilator --binary --timescale 1ns/1ns --top-module mvp_vectors{verilator} -Mdir check_obj {dir}/mvp_vectors.sv hw/sv/mvp_*.sv
  check_obj/Vmvp_vectors +vectors={dir}
")
}
