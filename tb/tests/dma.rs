//! Properties of the data-movement engine, and its strided views held against the `ndarray` crate.

use dma::{Descriptor, Element, Outcome, Region, Remap, Side};
use ndarray::{Array3, ShapeBuilder, s};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tb::blocks::dma::{bench, memory::Timing, random, reference::Image, refuse};

/// Cases of a property: `PROPTEST_CASES` times `factor`, or `few` where it is not set.
fn cases(factor: u64, few: u64) -> u64 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse::<u64>().ok()).map_or(few, |n| n * factor)
}

/// `make prop` makes this ten million.
#[test]
fn hostile_descriptors_neither_hang_nor_write_out_of_bounds() {
    let total = cases(500, 20_000);
    let threads = 2;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let (mut done, mut refused) = (0u64, 0u64);
                for n in (thread..total).step_by(threads as usize) {
                    let mut rng = Xoshiro256PlusPlus::seed_from_u64(n);
                    let wires = [refuse::wire(&mut rng), refuse::wire(&mut rng)];
                    let scenario = refuse::hostile_scenario(&mut rng, &wires);
                    match refuse::survives(&scenario).unwrap() {
                        Ok(outcomes) => {
                            done += outcomes.iter().filter(|c| c.outcome == Outcome::Done).count() as u64;
                            refused += outcomes.iter().filter(|c| c.outcome == Outcome::Refused).count() as u64;
                        }
                        Err(why) => panic!("seed {n}: {why}"),
                    }
                }
                // Both kinds must be common, or nothing is shown.
                assert!(
                    done * 20 > total / threads && refused * 20 > total / threads,
                    "{done} done, {refused} refused"
                );
            });
        }
    });
}

#[test]
fn both_engines_agree_in_bytes_and_cycles() {
    for n in 0..cases(1, 60) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(n);
        let difference = random::engines_differ(&mut rng).unwrap();
        assert!(difference.is_none(), "seed {n}: {}", difference.unwrap_or_default());
    }
}

/// Slices with steps of either sign and permuted axes of a volume, copied dense: what `ndarray` says of the same view.
#[test]
fn strided_views_are_those_of_ndarray() {
    for n in 0..cases(1, 200) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(n);
        let shape: [usize; 3] = std::array::from_fn(|_| rng.random_range(1..14));
        let data: Vec<u16> = (0..shape.iter().product()).map(|_| rng.next_u32() as u16).collect();
        let fortran = rng.random::<bool>();
        let volume = Array3::from_shape_vec(shape.set_f(fortran), data.clone()).unwrap();
        let mut slice = |d: usize| {
            let from = rng.random_range(0..shape[d] as i64);
            let to = rng.random_range(from..=shape[d] as i64);
            let step = *[-3, -2, -1, 1, 2, 3].get(rng.random_range(0..6)).unwrap();
            (from as isize, to as isize, step)
        };
        let [a, b, c] = [slice(0), slice(1), slice(2)];
        let view = volume.slice(s![a.0..a.1;a.2, b.0..b.1;b.2, c.0..c.1;c.2]);
        let axes = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]][rng.random_range(0..6)];
        let view = view.permuted_axes(axes);
        let expected: Vec<u8> = view.iter().flat_map(|v| v.to_le_bytes()).collect();

        // The view's own first element, shape and strides become the source side.
        let counts: [u32; 3] = std::array::from_fn(|d| view.shape()[d] as u32);
        let first = view.first().map_or(0, |f| (std::ptr::from_ref(f).addr() - volume.as_ptr().addr()) as i64);
        let strides = std::array::from_fn(|d| 2 * view.strides()[d] as i64);
        let row = 2 * i64::from(counts[2]);
        let descriptor = Descriptor {
            element: Element::B2,
            counts,
            source: Side { region: 0, offset: first, strides, index: None },
            destination: Side { region: 1, offset: 0, strides: [row * i64::from(counts[1]), row, 2], index: None },
            remap: if rng.random() { Remap::Direct } else { Remap::Transpose },
            ..Descriptor::default()
        };
        let mut bytes = descriptor.encode().to_vec();
        bytes.resize(256, 0);
        bytes.extend(data.iter().flat_map(|v| v.to_le_bytes()));
        let end = bytes.len() as u64;
        let out = end.next_multiple_of(64);
        bytes.resize(out as usize + expected.len() + 64, 0xcc);
        let scenario = bench::Scenario {
            config: dma::Config::default(),
            regions: vec![
                Region::read_only(256, end - 256),
                Region::read_write(out, expected.len() as u64),
                Region::read_only(0, 256),
            ],
            image: Image { base: 0, bytes },
            doorbells: vec![0],
            bad: Vec::new(),
            timing: Timing::fixed(7),
            host_busy: 0.0,
            seed: n,
        };
        let ran = bench::run(&scenario).unwrap();
        assert_eq!(ran.outcomes().iter().map(|c| c.outcome).collect::<Vec<_>>(), [Outcome::Done], "seed {n}");
        assert_eq!(&ran.bytes[out as usize..][..expected.len()], expected, "seed {n}: {descriptor:?}");
        assert!(ran.bytes[out as usize + expected.len()..].iter().all(|b| *b == 0xcc), "seed {n}: canary");
    }
}

/// `magpie dma` on a file of jobs over an image of 4 KiB.
fn command(jobs: &str, options: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("jobs.toml"), jobs).unwrap();
    std::fs::write(at("in.bin"), (0..4096).map(|i| (i * 7 + i / 256) as u8).collect::<Vec<u8>>()).unwrap();
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_magpie"))
        .args(["dma", "jobs.toml", "--memory", "in.bin", "--out", "out.bin"])
        .args(options)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let [stdout, stderr] = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (out.status.code(), stdout, stderr)
}

/// Two copies of 64 bytes, by hand; `head` before the regions, `field` within the first job.
fn jobs(head: &str, field: &str) -> String {
    let side = |region: u32, offset: u32| format!("{{ region = {region}, offset = {offset}, strides = [0, 0, 1] }}");
    let job = |field: &str, offset| {
        let (source, destination) = (side(0, 0), side(1, offset));
        format!(
            "[[job]]\nelement = \"b1\"\ncounts = [1, 1, 64]\nsource = {source}\ndestination = {destination}\n{field}\n"
        )
    };
    let region = |base: u32, access: &str| format!("[[region]]\nbase = {base}\nbytes = 2048\naccess = \"{access}\"\n");
    [head.to_string() + "\n", region(0, "r"), region(2048, "w"), job(field, 0), job("", 64)].concat()
}

#[test]
fn a_latency_out_of_range_is_refused_and_a_long_one_is_no_hang() {
    for latency in ["0", "100001", "18446744073709551615"] {
        for options in [&[][..], &["--fast"]] {
            let (code, _, said) = command(&jobs(&format!("latency = {latency}"), ""), options);
            assert!(code == Some(2) && said.contains("latency"), "{latency}: {said}");
        }
    }
    let long = jobs("latency = 100000", "");
    let (clocked, fast) = (command(&long, &[]), command(&long, &["--fast"]));
    assert_eq!((clocked.0, &clocked.1), (Some(0), &fast.1), "{}", clocked.2);
}

#[test]
fn tags_are_shown_and_links_refused() {
    let tagged = jobs("", "tag = 0xabcd");
    let (code, said, _) = command(&tagged, &[]);
    assert!(code == Some(0) && said.contains("job 0, tag 0xabcd: done") && said.contains("job 1: done"), "{said}");
    let (_, said, _) = command(&tagged, &["--json"]);
    let read: serde_json::Value = serde_json::from_str(&said).unwrap();
    let tags: Vec<_> = read["jobs"].as_array().unwrap().iter().map(|job| job["tag"].as_u64()).collect();
    assert_eq!(tags, [Some(0xabcd), Some(1)]);
    let (code, _, said) = command(&jobs("", "link = 64"), &[]);
    assert!(code == Some(2) && said.contains("job 0: link"), "{said}");
}

#[test]
fn a_trace_and_an_image_are_two_files() {
    let (code, _, said) = command(&jobs("", ""), &["--trace", "./out.bin"]);
    assert!(code == Some(2) && said.contains("--out and --trace are one file"), "{said}");
}
