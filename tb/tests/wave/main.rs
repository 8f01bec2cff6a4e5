//! Waveforms read back with two readers that we did not write, and compared with what the trace was given.

mod read;
mod toy;

use proptest::prelude::*;
use read::{Value, Waves, by_vcd, by_wellen};
use rtl::{Fifo, FifoIn, Format, Module, Stream, Visitor};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use tb::wave::{Backend, Kind, Summary, Trace, TraceOptions, Tracer, Trigger, VarId, Vcd, WaveError};
use toy::{Ledger, Toy, toy};

/// A file that goes away with its name.
struct Scratch(PathBuf);

impl Scratch {
    fn new(extension: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("magpie-wave-{}-{n}.{extension}", std::process::id())))
    }
    fn bytes(&self) -> u64 {
        std::fs::metadata(&self.0).unwrap().len()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn run(file: &Scratch, toy: &mut Toy, cycles: u64, options: &TraceOptions) -> Summary {
    let mut trace = Trace::create(&file.0, "top", options).unwrap();
    for cycle in 0..cycles {
        trace.sample(cycle, toy).unwrap();
        toy.clock(&cycle);
    }
    trace.finish().unwrap()
}

/// What a run of the toy looks like from cycle `from` up to and without `to`.
fn expected(toy: &mut Toy, cycles: u64, from: u64, to: u64) -> Ledger {
    let mut ledger = Ledger::new("top");
    for cycle in 0..cycles {
        if (from..to).contains(&cycle) {
            ledger.cycle(cycle, toy);
        }
        toy.clock(&cycle);
    }
    ledger
}

/// wellen's view differs in the widths of reals and texts, which it does not keep.
fn same_changes(a: &Waves, b: &Waves) -> Result<(), TestCaseError> {
    prop_assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (path, wave) in a {
        prop_assert_eq!(&wave.changes, &b[path].changes, "{}", path);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn both_readers_find_what_the_trace_was_given(module in toy(), cycles in 1..40u64) {
        let file = Scratch::new("vcd");
        let summary = run(&file, &mut module.clone(), cycles, &TraceOptions::default());
        let ledger = expected(&mut module.clone(), cycles, 0, cycles);
        prop_assert_eq!(&by_vcd(&file.0), &ledger.waves); // only changes, and all of them; each from time 0 on
        same_changes(&by_wellen(&file.0), &ledger.waves)?;
        let changes: usize = ledger.waves.values().map(|w| w.changes.len()).sum();
        prop_assert_eq!(summary.changes, changes as u64);
        prop_assert_eq!((summary.cycles, summary.bytes), (cycles, file.bytes()));
        prop_assert_eq!(summary.variables, ledger.waves.len());
    }

    #[test]
    fn an_fst_holds_the_same(module in toy(), cycles in 2..40u64) {
        let file = Scratch::new("fst");
        run(&file, &mut module.clone(), cycles, &TraceOptions::default());
        let mut ledger = expected(&mut module.clone(), cycles, 0, cycles);
        ledger.waves.retain(|path, _| !path.ends_with("_state")); // no texts in this format
        same_changes(&by_wellen(&file.0), &ledger.waves)?;
    }

    #[test]
    fn scopes_and_window_cut_out_their_part(
        module in toy(), cycles in 4..40u64, window in (0..20u64, 1..20u64), picks in prop::collection::vec(any::<prop::sample::Index>(), 1..3),
    ) {
        let (from, to) = (window.0 % cycles, (window.0 % cycles + window.1).min(cycles));
        let mut ledger = expected(&mut module.clone(), cycles, from, to);
        let paths: Vec<String> = ledger.waves.keys().filter(|p| !p.ends_with("_value") && !p.ends_with("_state")).cloned().collect();
        // Signals, or the scopes that hold them.
        let scopes: Vec<String> = picks.iter().map(|p| {
            let path = p.get(&paths);
            let scope = path.rsplit_once('.').unwrap().0;
            if scope == "top" && path.len() > 9 { path.clone() } else { scope.into() }
        }).filter(|s| s != "top.cycle").collect();
        prop_assume!(!scopes.is_empty());
        // A signal takes its shadow along.
        let shadows = scopes.iter().flat_map(|s| [s.clone(), format!("{s}_value"), format!("{s}_state")]);
        ledger.keep(&shadows.collect::<Vec<_>>());
        let file = Scratch::new("vcd");
        let summary = run(&file, &mut module.clone(), cycles, &TraceOptions { scopes, window: from..to, ..TraceOptions::default() });
        prop_assert_eq!(by_vcd(&file.0), ledger.waves);
        prop_assert_eq!(summary.span, Some((from, to - 1)));
    }

    #[test]
    fn a_trigger_keeps_the_cycles_around_it(at in 0..60u64, pre in 0..20u64, post in 0..20u64, start in 0..70u64) {
        let file = Scratch::new("vcd");
        let mut counter = Counter { count: 0, scope: 3 };
        let trigger = Trigger { path: "top.deep.count_q".into(), value: at, pre, post };
        let options = TraceOptions { scopes: vec!["top.other".into()], window: start..64, trigger: Some(trigger), ..TraceOptions::default() };
        let mut trace = Trace::create(&file.0, "top", &options).unwrap();
        for cycle in 0..64 {
            trace.sample(cycle, &mut counter).unwrap();
            counter.clock(&());
        }
        let summary = trace.finish().unwrap();
        let hit = at >= start;
        let span = (start.max(at.saturating_sub(pre)), (at + post).min(63));
        prop_assert_eq!(summary.span, hit.then_some(span));
        let waves = by_vcd(&file.0);
        prop_assert_eq!(waves.keys().collect::<Vec<_>>(), ["top.clk", "top.cycle", "top.other.twice"]);
        let changes = if hit { (span.0..=span.1).map(|c| (10 * c, Value::Bits(2 * c))).collect() } else { Vec::new() };
        prop_assert_eq!(&waves["top.other.twice"].changes, &changes);
    }
}

/// Counts in `deep`, shows twice that in `other`, and has scopes that nobody asks for.
struct Counter {
    count: u64,
    scope: usize,
}

impl Module for Counter {
    type In<'a> = ();
    type Out<'a> = ();
    fn out(&self) {}
    fn clock(&mut self, (): &()) {
        self.count += 1;
    }
    fn reset(&mut self) {}
    fn visit(&mut self, v: &mut impl Visitor) {
        for i in 0..self.scope {
            v.scope(("idle", i), |v| v.wire("w", 8, Format::Hex, 0u8));
        }
        v.scope("deep", |v| v.reg("count_q", 64, Format::Unsigned, &mut self.count));
        v.scope("other", |v| v.wire("twice", 64, Format::Unsigned, 2 * self.count));
    }
}

#[test]
fn names_are_made_legal_and_unique() {
    struct Awkward;
    impl Module for Awkward {
        type In<'a> = ();
        type Out<'a> = ();
        fn out(&self) {}
        fn clock(&mut self, (): &()) {}
        fn reset(&mut self) {}
        fn visit(&mut self, v: &mut impl Visitor) {
            for name in ["a b", "a$b", "q[3]", "1st", "", "clk", "x", "x", "x_2", "y_value"] {
                v.wire(name, 4, Format::Hex, 5u8);
            }
            v.wire("y", 4, Format::Real(|c| c as f64), 5u8);
            v.scope("x", |v| v.wire("x", 4, Format::Hex, 5u8));
            v.scope("empty", |_| ());
        }
    }
    let file = Scratch::new("vcd");
    let mut trace = Trace::create(&file.0, "my top", &TraceOptions::default()).unwrap();
    trace.sample(0, &mut Awkward).unwrap();
    trace.finish().unwrap();
    let waves = by_vcd(&file.0);
    let names: Vec<&str> = waves.keys().map(|k| k.strip_prefix("my_top.").unwrap()).collect();
    let expected = "_ _1st a_b a_b_2 clk clk_2 cycle q_3_ x x_2 x_2_2 x_3.x y y_value y_value_2";
    assert_eq!(names.join(" "), expected);
    same_changes(&by_wellen(&file.0), &waves).unwrap();
}

/// A mesh of counters, 32×32: as many signals as a small array has.
struct Mesh(Vec<u32>);

impl Module for Mesh {
    type In<'a> = ();
    type Out<'a> = ();
    fn out(&self) {}
    fn clock(&mut self, (): &()) {
        for (i, v) in self.0.iter_mut().enumerate() {
            *v = v.wrapping_mul(1_664_525).wrapping_add(i as u32);
        }
    }
    fn reset(&mut self) {}
    fn visit(&mut self, v: &mut impl Visitor) {
        for (i, value) in self.0.iter_mut().enumerate() {
            v.scope(("pe", i / 32, i % 32), |v| {
                v.reg("psum_q", 32, Format::Signed, value);
                v.wire("valid", 1, Format::Unsigned, *value & 1 == 1);
                v.wire("activation", 8, Format::Signed, (*value >> 8) as i8);
                v.wire("weight", 8, Format::Signed, (*value >> 16) as i8);
            });
        }
    }
}

#[test]
fn one_element_over_a_thousand_cycles_of_a_million_is_small() {
    let file = Scratch::new("vcd");
    let mut mesh = Mesh((0..1024).collect());
    let window = 500_000..501_000;
    let options =
        TraceOptions { scopes: vec!["array.pe_3_5".into()], window: window.clone(), ..TraceOptions::default() };
    let mut trace = Trace::create(&file.0, "array", &options).unwrap();
    for cycle in 0..1_000_000 {
        trace.sample(cycle, &mut mesh).unwrap();
        if cycle % 100 == 0 || window.contains(&cycle) {
            mesh.clock(&());
        }
        assert_eq!(trace.is_done(), cycle >= 500_999);
    }
    let summary = trace.finish().unwrap();
    assert_eq!((summary.cycles, summary.variables), (1000, 6));
    assert!(file.bytes() < 1_000_000, "{} bytes", file.bytes());
    assert_eq!(by_vcd(&file.0)["array.pe_3_5.psum_q"].changes.len(), 1000);
}

#[test]
fn outside_its_window_and_scopes_a_trace_walks_nothing() {
    /// Counts the walks into each of its scopes.
    struct Watched([u32; 2]);
    impl Module for Watched {
        type In<'a> = ();
        type Out<'a> = ();
        fn out(&self) {}
        fn clock(&mut self, (): &()) {}
        fn reset(&mut self) {}
        fn visit(&mut self, v: &mut impl Visitor) {
            for (i, walks) in self.0.iter_mut().enumerate() {
                v.scope(("part", i), |v| {
                    *walks += 1;
                    v.wire("w", 1, Format::Hex, 1u8);
                });
            }
        }
    }
    let file = Scratch::new("vcd");
    let mut watched = Watched([0; 2]);
    // The second `**` has to look into every scope once, and no more than once.
    let options = TraceOptions {
        scopes: vec!["**.part_1".into(), "**.part_1.**.w".into()],
        window: 10..20,
        ..TraceOptions::default()
    };
    let mut trace = Trace::create(&file.0, "top", &options).unwrap();
    for cycle in 0..100 {
        trace.sample(cycle, &mut watched).unwrap();
    }
    trace.finish().unwrap();
    assert_eq!(watched.0, [1, 11], "one walk to declare, ten in the window");
}

#[test]
fn a_size_limit_ends_the_trace_in_good_order() {
    let file = Scratch::new("vcd");
    let mut mesh = Mesh((0..1024).collect());
    let mut trace =
        Trace::create(&file.0, "array", &TraceOptions { max_bytes: 400_000, ..TraceOptions::default() }).unwrap();
    for cycle in 0..1_000 {
        trace.sample(cycle, &mut mesh).unwrap();
        mesh.clock(&());
    }
    let summary = trace.finish().unwrap();
    assert!(summary.truncated && summary.cycles < 20, "{summary:?}");
    assert!((400_000..500_000).contains(&file.bytes()));
    same_changes(&by_wellen(&file.0), &by_vcd(&file.0)).unwrap();
}

fn sample_fifo(path: &str, options: &TraceOptions) -> Result<Summary, WaveError> {
    let mut fifo = Fifo::new(2, 0u8);
    let mut trace = Trace::create(path, "top", options)?;
    for cycle in 0..20_000 {
        trace.sample(cycle, &mut fifo)?;
        fifo.clock(&FifoIn { push: Stream::offer(&(cycle as u8)), pop: true });
    }
    trace.finish()
}

#[test]
fn errors_reach_the_caller_and_say_what_to_do() {
    let all = TraceOptions::default();
    let text = |r: Result<Summary, WaveError>| r.unwrap_err().to_string();
    let file = Scratch::new("vcd");
    let path = file.0.to_str().unwrap();
    assert!(text(sample_fifo("/nowhere/at/all.vcd", &all)).contains("cannot create the waveform /nowhere/at/all.vcd"));
    assert!(text(sample_fifo("x.ghw", &all)).contains(".vcd or .fst"));
    let scopes = |s: &str| TraceOptions { scopes: vec![s.into()], ..TraceOptions::default() };
    assert!(text(sample_fifo(path, &scopes("top..a"))).contains("two dots"));
    let message = text(sample_fifo(path, &scopes("top.pe_0")));
    assert!(message.contains("`top.pe_0` matches nothing") && message.contains("top.read_q"), "{message}");
    let trigger = |path: &str, pre| TraceOptions {
        trigger: Some(Trigger { path: path.into(), value: 1, pre, post: 1 }),
        ..TraceOptions::default()
    };
    assert!(text(sample_fifo(path, &trigger("top.x.level_q", 1))).contains("top.level_q"));
    assert!(text(sample_fifo(path, &trigger("top.level_q", 1 << 60))).contains("keep fewer"));

    let mut fifo = Fifo::new(2, 0u8);
    let mut trace = Trace::create(path, "top", &all).unwrap();
    trace.sample(5, &mut fifo).unwrap();
    assert!(matches!(trace.sample(5, &mut fifo), Err(WaveError::TimeBackwards { last: 5, cycle: 5 })));
    assert!(matches!(trace.sample(u64::MAX - 1, &mut fifo), Err(WaveError::TimeTooLarge(_))));
    assert!(matches!(trace.sample(6, &mut Fifo::new(3, 0u8)), Err(WaveError::WalkChanged { expected: 5, found: 6 })));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_not_a_short_file() {
    for name in ["vcd", "fst"] {
        let link = Scratch::new(name);
        std::os::unix::fs::symlink("/dev/full", &link.0).unwrap();
        let error = sample_fifo(link.0.to_str().unwrap(), &TraceOptions::default()).unwrap_err();
        assert!(
            matches!(&error, WaveError::Write { reason, .. } if reason.kind() == std::io::ErrorKind::StorageFull),
            "{error}"
        );
    }
}

#[test]
fn a_trace_that_is_off_takes_no_space_and_writes_nothing() {
    fn bench(mut tracer: impl Tracer) {
        let mut fifo = Fifo::new(2, 0u8);
        for cycle in 0..10 {
            tracer.sample(cycle, &mut fifo).unwrap();
        }
    }
    bench(());
    bench(None::<Trace>);
    let file = Scratch::new("vcd");
    bench(Some(Trace::create(&file.0, "top", &TraceOptions::default()).unwrap()));
    assert_eq!(size_of_val(&()), 0);
}

#[test]
fn every_width_and_value_is_written_as_the_standard_says() {
    let mut vcd = Vcd::new(Vec::new());
    vcd.enter("t");
    let vars: Vec<VarId> = (1..=64).map(|w| vcd.declare("v", rtl::Role::Wire, Kind::Bits(w)).unwrap()).collect();
    vcd.leave();
    vcd.start();
    let mut expected = String::new();
    for (i, &var) in vars.iter().enumerate() {
        let width = i as u32 + 1;
        let code = vcd::IdCode::from(var.0);
        for value in [0, 1, rtl::mask(width), rtl::mask(width) / 3 * 2, 1 << i] {
            vcd.bits(var, width, value);
            expected += &if width == 1 { format!("{value}{code}\n") } else { format!("b{value:b} {code}\n") };
        }
    }
    vcd.finish(7).unwrap();
    let text = String::from_utf8(vcd.into_inner()).unwrap();
    assert_eq!(text.split_once("$enddefinitions $end\n").unwrap().1, expected + "#7\n");
}
