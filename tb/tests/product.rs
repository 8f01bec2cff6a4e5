//! The commands that multiply, as a caller runs them.

use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tb::npy::{Dtype, Npy};

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("magpie-product-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn save(&self, name: &str, dtype: Dtype, shape: &[usize], data: Vec<u8>) {
        std::fs::write(self.0.join(name), Npy { dtype, shape: shape.to_vec(), data }.bytes()).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn magpie(folder: &Path, args: &str) -> Output {
    let args = args.split_whitespace();
    Command::new(env!("CARGO_BIN_EXE_magpie")).args(args).current_dir(folder).output().unwrap()
}

fn json(folder: &Path, args: &str) -> Value {
    let out = magpie(folder, &format!("{args} --json"));
    assert!(out.status.success(), "{args}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Exit code 2 and these words.
fn refused(folder: &Path, args: &str, words: &[&str]) {
    let out = magpie(folder, args);
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{args}: {text}");
    for word in words {
        assert!(text.contains(word), "{args}: {text:?} lacks {word:?}");
    }
}

const FORMATS: [&str; 9] = [
    "--format int8",
    "--format uint8",
    "--format int4",
    "--format bf16",
    "--format fp16",
    "--format e4m3",
    "--format e5m2",
    "--format ffp8:1,3,4,3",
    "--format bf16 --b-format e4m3",
];

#[test]
fn both_engines_print_the_same() {
    let here = Folder::new("engines");
    for format in FORMATS {
        for product in [
            "gemm 1 1 1",
            "gemm 5 9 7",
            "gemm 40 33 17",
            "gemv 1 1",
            "gemv 33 17",
            "gemv 150 9 --batch 3",
            "conv 2x4x5x6 6x2x3x2 --groups 2 --pad 1,0,2,1 --stride 2,1",
            "conv 1x7x5x3 4x3x2x3 --layout nhwc --dilation 2,1",
        ] {
            let args = format!("{product} {format} --array 4x8 --depth 16");
            let cycle = json(&here.0, &args);
            let transaction = json(&here.0, &format!("{args} --engine transaction"));
            for key in ["cycles", "rows", "counters", "utilisation", "overflow", "result"] {
                assert_eq!(cycle[key], transaction[key], "{args}: {key}");
            }
            assert_eq!(json(&here.0, &format!("{args} --engine both"))["engines_differ"], false, "{args}");
        }
    }
}

#[test]
fn both_modes_give_the_same_bits() {
    let here = Folder::new("modes");
    for format in FORMATS {
        let options = format!("{format} --array 4x8");
        let gemm = json(&here.0, &format!("gemm 3 21 10 {options}"));
        let gemv = json(&here.0, &format!("gemv 10 21 --batch 3 {options}"));
        assert_eq!(gemm["result"], gemv["result"], "{format}");
        assert!(gemm["result"]["fnv1a"].as_str().is_some_and(|digest| digest.len() == 16));
    }
}

/// A convolution whose kernel covers one pixel is the product of the pixels' channels with the filters; with padding, outside it
/// stands the zero point, which adds nothing.
#[test]
fn padding_is_the_zero_point() {
    let here = Folder::new("padding");
    let pixels = [200u8, 7, 131, 64];
    here.save("a.npy", Dtype::U8, &[1, 1, 2, 2], pixels.to_vec());
    here.save("b.npy", Dtype::I8, &[1, 1, 1, 1], vec![3]);
    here.save("z.npy", Dtype::U8, &[1], vec![131]);
    let out = magpie(
        &here.0,
        "conv 1x1x2x2 1x1x1x1 --pad 1 --format uint8 --b-format int8 --a a.npy --b b.npy --zero-point z.npy --out y.npy",
    );
    assert!(out.status.success(), "{out:?}");
    let y = Npy::read(&here.0.join("y.npy")).unwrap();
    assert_eq!(y.shape, [1, 1, 4, 4]);
    let mut expected = [0i32; 16];
    for (i, pixel) in pixels.into_iter().enumerate() {
        expected[(i / 2 + 1) * 4 + i % 2 + 1] = 3 * (i32::from(pixel) - 131);
    }
    assert_eq!(y.words(i32::from_le_bytes), expected);
}

#[test]
fn files_in_and_out() {
    let here = Folder::new("files");
    let (m, k, n) = (3, 5, 4);
    let a: Vec<i8> = (0..m * k).map(|i| (i * 37 % 256) as u8 as i8).collect();
    let b: Vec<i8> = (0..k * n).map(|i| (i * 91 % 256) as u8 as i8).collect();
    let bytes = |v: &[i8]| v.iter().map(|&v| v as u8).collect();
    here.save("a.npy", Dtype::I8, &[m, k], bytes(&a));
    here.save("b.npy", Dtype::I8, &[k, n], bytes(&b));
    here.save("bias.npy", Dtype::I32, &[n], [1000i32, -1, 0, 7].iter().flat_map(|v| v.to_le_bytes()).collect());
    here.save("z.npy", Dtype::I8, &[], vec![-3i8 as u8]);
    here.save("zb.npy", Dtype::I8, &[n], vec![1, 2, 3, 4]);
    let out = magpie(
        &here.0,
        "gemm --a a.npy --b b.npy --bias bias.npy --zero-point z.npy --b-zero-point zb.npy --array 2x3 --out y.npy",
    );
    assert!(out.status.success(), "{out:?}");
    let y = Npy::read(&here.0.join("y.npy")).unwrap();
    assert_eq!((y.dtype, y.shape.as_slice()), (Dtype::I32, &[m, n][..]));
    let expected: Vec<i32> = (0..m * n)
        .map(|i| {
            let (row, col) = (i / n, i % n);
            let dot = |k_: usize| (i32::from(a[row * k + k_]) + 3) * (i32::from(b[k_ * n + col]) - col as i32 - 1);
            (0..k).map(dot).sum::<i32>() + [1000, -1, 0, 7][col]
        })
        .collect();
    assert_eq!(y.words(i32::from_le_bytes), expected);
}

#[test]
fn a_single_tile_of_one_takes_the_closed_form_s_cycles() {
    // C + M + R·L + (C − 1) + A, by hand: 8 + 5 + 4 + 7 + 1.
    let here = Folder::new("cycles");
    assert_eq!(json(&here.0, "gemm 5 4 8 --array 4x8")["cycles"], 25);
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let here = Folder::new("refusals");
    here.save("short.npy", Dtype::I8, &[2, 3], vec![0; 6]);
    here.save("float.npy", Dtype::F64, &[2, 3], vec![0; 48]);
    let whole = Npy { dtype: Dtype::I8, shape: vec![2, 3], data: vec![0; 6] }.bytes();
    std::fs::write(here.0.join("torn.npy"), &whole[..whole.len() - 1]).unwrap();
    std::fs::write(here.0.join("text.npy"), "1 2 3").unwrap();
    for (args, words) in [
        ("gemm", &["M, K and N"][..]),
        ("gemm 0 1 1", &["A", "no values"]),
        ("gemm 99999999999 99999999999 99999999999", &["at most"]),
        ("gemm 1 1 1 --array 4", &["RxC"]),
        ("gemm 1 1 1 --array 0x4", &["0×4"]),
        ("gemm 1 1 1 --format int9", &["int9", "int8"]),
        ("gemm 1 1 1 --format int8 --b-format bf16", &["int8", "bf16"]),
        ("gemm 1 1 1 --engine cycle --no-overlap", &["--no-overlap"]),
        ("gemm 1 1 1 --engine transaction --wave x.vcd", &["--wave"]),
        ("gemm 1 1 1 --wave x.png", &["x.png"]),
        ("gemm 1 1 1 --out-format int8 --out-zero-point 128", &["-128..=127"]),
        ("gemm 2 3 4 --a torn.npy", &["--a torn.npy", "torn"]),
        ("gemm 2 3 4 --a text.npy", &["text.npy", "no .npy file"]),
        ("gemm 2 3 4 --a float.npy", &["<f8", "|i1"]),
        ("gemm 2 4 4 --a short.npy", &["[2, 3]", "[2, 4]"]),
        ("gemm 2 3 4 --bias short.npy", &["--bias short.npy", "<i4"]),
        ("gemm 2 3 4 --a missing.npy", &["missing.npy"]),
        ("gemv 4 4 --batch 9 --array 4x8", &["9"]),
        ("gemv 4 4 --no-overlap", &["--no-overlap"]),
        ("conv 1x3x8 1x3x3x3", &["1x3x8", "four extents"]),
        ("conv 1x3x8x8 1x2x3x3", &["2 channels"]),
        ("conv 1x3x8x8 1x3x9x3", &["does not fit"]),
        ("conv 1x3x8x8 1x3x3x3 --stride 0", &["stride"]),
        ("conv 1x3x8x8 1x3x3x3 --pad 1,2", &["--pad", "4"]),
        ("gemm 200 200 200000 --array 1x1", &["tiles", "--engine transaction"]),
        ("gemm 3 4 8 --array 4x1 --depth 1 --engine both", &["1 rows", "2..=65536", "halve"]),
        ("gemm 3 4 8 --array 4x1 --depth 1 --engine transaction", &["2..=65536"]),
        ("gemv 8 4 --array 4x4 --depth 1", &["2..=65536"]),
        ("gemm 8 4 1 --array 4x1 --depth 1 --format bf16 --adder-stages 1", &["2..=65536"]),
        ("gemm 1 1 1 --stall 1", &["--stall 1", "0.95"]),
        ("gemm 1 1 1 --starve-w -0.5", &["--starve-w"]),
        ("gemm 1 1 1 --starve-x 0.5 --engine both", &["--starve-x", "--engine"]),
        ("gemm 1 1 1 --stall 0.5 --no-overlap", &["--no-overlap"]),
        ("gemm 1 1 1 --mac-stages 3", &["--mac-stages", "int8"]),
        ("gemm 1 1 1 --format int4 --adder-stages 4", &["--adder-stages", "int4"]),
        ("gemm 1 1 1 --format bf16 --adder-stages 0", &["an accumulator of 0 stages"]),
        ("gemm 1 1 1 --format int4 --b-format int4", &["int4 is a format of B", "A in int8"]),
        ("gemm 1 1 1 --wave q.vcd --out ./q.vcd", &["--out and --wave", "one file"]),
    ] {
        refused(&here.0, args, words);
    }
}

/// D = 2 is the least there is, and the closed form holds where a row leaves on every edge.
#[test]
fn the_smallest_accumulator_keeps_the_closed_form() {
    let here = Folder::new("smallest");
    for args in
        ["gemm 3 4 8 --array 4x1", "gemv 8 4 --array 4x4", "gemm 8 4 1 --array 4x1 --format bf16 --adder-stages 1"]
    {
        let both = json(&here.0, &format!("{args} --depth 2 --engine both"));
        assert_eq!((&both["engines_differ"], &both["counters"]["blocked"]), (&false.into(), &0.into()), "{args}");
    }
}

#[test]
fn a_bias_that_wraps_is_counted() {
    let here = Folder::new("wraps");
    here.save("a.npy", Dtype::I8, &[1, 1], vec![1]);
    here.save("b.npy", Dtype::I8, &[1, 3], vec![1, 0, 2]);
    let bias = [i32::MAX, i32::MAX, i32::MIN];
    here.save("bias.npy", Dtype::I32, &[3], bias.iter().flat_map(|v| v.to_le_bytes()).collect());
    let args = "gemm --a a.npy --b b.npy --bias bias.npy --out y.npy";
    let out = magpie(&here.0, args);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("OVERFLOW: 1 results left 32 bits with zero points and bias"), "{text}");
    let y = Npy::read(&here.0.join("y.npy")).unwrap();
    assert_eq!(y.words(i32::from_le_bytes), [i32::MIN, i32::MAX, i32::MIN + 2]);
    let out = magpie(&here.0, &format!("{args} --json"));
    let read: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((out.status.code(), &read["wrapped"], &read["overflow"]), (Some(1), &1.into(), &false.into()));
    here.save("bias.npy", Dtype::I32, &[1], (i32::MAX - 2).to_le_bytes().to_vec());
    assert_eq!(json(&here.0, args)["wrapped"], 0);
}

#[test]
fn what_a_format_cannot_hold_is_counted() {
    let here = Folder::new("losses");
    let values = [1.0f32, 0.3, -2.0, 1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    here.save("a.npy", Dtype::F32, &[1, 7], values.iter().flat_map(|v| v.to_le_bytes()).collect());
    let codes = "rounded saturated overflowed nan_lost negative_lost";
    for (format, counts) in [
        ("ffp8:1,4,3,7", [1, 3, 0, 1, 0]),
        ("ffp8:0,4,4,7", [1, 2, 0, 1, 2]),
        ("e4m3", [1, 3, 0, 0, 0]),
        ("e5m2", [1, 3, 0, 0, 0]),
        ("fp16", [1, 0, 1, 0, 0]),
        ("bf16", [2, 0, 0, 0, 0]),
    ] {
        let converted = &json(&here.0, &format!("gemm 1 7 2 --format {format} --a a.npy"))["converted"];
        let got: Vec<_> = codes.split(' ').map(|name| converted["a"][name].as_u64().unwrap()).collect();
        assert_eq!(got, counts, "{format}: {converted}");
        assert_eq!((&converted["a"]["values"], &converted["b"]), (&7.into(), &Value::Null));
    }
    let text = magpie(&here.0, "gemm 1 7 2 --format ffp8:1-4-3 --a a.npy").stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(text.contains("--a: of 7 values 1 rounded, 3 saturated, 1 NaN became zero"), "{text}");
}

#[cfg(unix)]
#[test]
fn a_device_without_an_end_is_no_operand() {
    let here = Folder::new("endless");
    refused(&here.0, "gemm 1 1 1 --a /dev/zero", &["/dev/zero", "no .npy file"]);
}

/// Every change of every signal of a waveform, by path.
fn changes(path: &Path) -> HashMap<String, Vec<(u64, u64)>> {
    fn walk(items: &[vcd::ScopeItem], path: &str, names: &mut HashMap<vcd::IdCode, String>) {
        for item in items {
            match item {
                vcd::ScopeItem::Scope(scope) => walk(&scope.items, &format!("{path}{}.", scope.identifier), names),
                vcd::ScopeItem::Var(var) => drop(names.insert(var.code, format!("{path}{}", var.reference))),
                _ => {}
            }
        }
    }
    let mut parser = vcd::Parser::new(std::io::BufReader::new(std::fs::File::open(path).unwrap()));
    let (header, mut names, mut time) = (parser.parse_header().unwrap(), HashMap::new(), 0);
    walk(&header.items, "", &mut names);
    let mut changes: HashMap<String, Vec<(u64, u64)>> = HashMap::new();
    for command in parser {
        match command.unwrap() {
            vcd::Command::Timestamp(now) => time = now,
            vcd::Command::ChangeVector(code, bits) => {
                let value = bits.iter().fold(0, |v, bit| v << 1 | u64::from(bit == vcd::Value::V1));
                changes.entry(names[&code].clone()).or_default().push((time, value));
            }
            _ => {}
        }
    }
    changes
}

/// docs/mvp.md: when the partial sum of row m of tile f shows behind each element.
#[test]
fn partial_sums_show_when_the_documentation_says() {
    let here = Folder::new("psum");
    let (m, k, n, rows, cols) = (3, 7, 5, 4, 2);
    let a: Vec<i8> = (0..m * k).map(|i| (i * 3 % 11) as i8 - 5).collect();
    let b: Vec<i8> = (0..k * n).map(|i| (i * 5 % 13) as i8 - 6).collect();
    let bytes = |v: &[i8]| v.iter().map(|&v| v as u8).collect::<Vec<u8>>();
    let floats = |v: &[i8]| v.iter().flat_map(|&v| f32::from(v).to_le_bytes()).collect::<Vec<u8>>();
    for (format, latency, adders) in [("int8", 1, 1), ("bf16", 4, 4), ("bf16", 3, 5)] {
        let (dtype, x, w) = match format {
            "int8" => (Dtype::I8, bytes(&a), bytes(&b)),
            _ => (Dtype::F32, floats(&a), floats(&b)),
        };
        here.save("a.npy", dtype, &[m, k], x);
        here.save("b.npy", dtype, &[k, n], w);
        let stages = match format {
            "int8" => String::new(),
            _ => format!("--mac-stages {latency} --adder-stages {adders}"),
        };
        let out = magpie(
            &here.0,
            &format!("gemm --a a.npy --b b.npy --array {rows}x{cols} --format {format} {stages} --wave w.vcd"),
        );
        assert!(out.status.success(), "{out:?}");
        let changes = changes(&here.0.join("w.vcd"));
        let mut start = cols;
        for panel in 0..n.div_ceil(cols) {
            for tile in 0..k.div_ceil(rows) {
                for (row, r, c) in (0..m).flat_map(|m| (0..rows).flat_map(move |r| (0..cols).map(move |c| (m, r, c)))) {
                    let t = 10 * (start + row + r * latency + c + 2 + (latency - 1)) as u64;
                    let register = match format {
                        "int8" => "psum_q".to_string(),
                        _ => format!("mac.stage_{}.result_q", latency - 1),
                    };
                    let seen = &changes[&format!("mvp.array.row_{r}.pe_{c}.{register}")];
                    let value = seen.iter().take_while(|(time, _)| *time <= t).last().unwrap().1;
                    let column = panel * cols + c;
                    let sum = if column < n {
                        let ks = tile * rows..k.min(tile * rows + r + 1);
                        ks.map(|k_| i32::from(a[row * k + k_]) * i32::from(b[k_ * n + column])).sum()
                    } else {
                        0
                    };
                    let wanted = if format == "int8" { sum as u32 } else { (sum as f32).to_bits() };
                    assert_eq!(
                        value as u32, wanted,
                        "{format}: tile {panel}.{tile}, row {row}, PE({r}, {c}), time {t}"
                    );
                }
                start += m.max(cols).max(adders);
            }
        }
    }
}

/// Slow ports change the time by exactly what the counters say, and never a bit.
#[test]
fn slow_ports_are_counted_and_change_no_bit() {
    let here = Folder::new("stalls");
    let mut seeds_differ = false;
    for product in ["gemm 40 9 17 --array 4x8", "gemv 60 40 --array 4x8 --batch 2", "conv 1x2x6x6 3x2x3x3 --array 4x2"]
    {
        let args = format!("{product} --depth 4");
        let free = json(&here.0, &args);
        for (option, counter) in
            [("--stall 0.9", "blocked"), ("--starve-x 0.5", "starved_x"), ("--starve-w 0.5", "starved_w")]
        {
            let slow = json(&here.0, &format!("{args} {option}"));
            assert_eq!(slow["result"], free["result"], "{args} {option}");
            let count = |of: &Value, name: &str| of["counters"][name].as_u64().unwrap();
            let lost = count(&slow, counter);
            assert!(lost > 0, "{args} {option}");
            assert_eq!(count(&slow, "cycles"), count(&free, "cycles") + lost, "{args} {option}");
            assert_eq!(slow, json(&here.0, &format!("{args} {option}")));
            seeds_differ |= slow["cycles"] != json(&here.0, &format!("{args} {option} --seed 2"))["cycles"];
        }
    }
    assert!(seeds_differ);
}
