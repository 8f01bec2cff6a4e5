//! The commands that multiply, as a caller runs them.

use serde_json::Value;
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
    ] {
        refused(&here.0, args, words);
    }
}
