//! The matrix-vector mode, clocked, against plain loops: streams stalled now and then, registers reset and put back under way.

use mvp::{Beat, Beats, Code, Config, Datapath, Gemv, GemvIn, GemvJob, GemvShape, gemv_cycles};
use numeric::{Flags, FloatFormat, Mode, convert};
use proptest::prelude::*;
use rtl::{Image, Module, Stream};

const BF16_BY_E4M3: Datapath = Datapath::Float { act: FloatFormat::BF16, weight: FloatFormat::E4M3 };

/// A small whole number as a code.
fn code(datapath: Datapath, act: bool, value: i32) -> Code {
    match datapath {
        Datapath::Float { act: a, weight } => {
            let bits = (value as f32).to_bits();
            let format = if act { a } else { weight };
            convert(FloatFormat::FP32.into(), format.into(), bits, Mode::IEEE, &mut Flags::default()) as Code
        }
        _ => value as Code,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn products_are_those_of_plain_loops(
        datapath in prop::sample::select(vec![Datapath::Int8, BF16_BY_E4M3]),
        (rows, depth, outputs, vectors) in (1usize..5, 2usize..6, 1usize..4, 1usize..3),
        (n, k) in (1usize..20, 1usize..13),
        values in prop::collection::vec(-7i32..8, 20 * 13 + 2 * 13),
        stalls in any::<[u64; 3]>(),
        stalled in any::<bool>(),
        put_back in 7u64..60,
    ) {
        let config = Config { rows, cols: outputs * vectors, depth, datapath, ..Config::default() };
        let shape = GemvShape { config, outputs, vectors };
        let job = GemvJob { n, k };
        let weight = |n: usize, k: usize| values[13 * n + k];
        let x = |u: usize, k: usize| values[20 * 13 + 13 * u + k];
        let (mut xs, mut ws, mut want) = (Vec::new(), Vec::new(), Vec::new());
        let beats = n.div_ceil(outputs);
        let lanes = |mut beat: Beat, chunk: usize, act: bool, at: &dyn Fn(usize) -> i32| {
            let codes = (0..rows).map(|r| chunk * rows + r).map(|i| if i < k { code(datapath, act, at(i)) } else { 1 });
            beat.codes = codes.collect();
            beat
        };
        for panel in (0..beats).step_by(depth) {
            let panel = panel..beats.min(panel + depth);
            for chunk in 0..k.div_ceil(rows) {
                xs.push(Beats((0..vectors).map(|u| lanes(Beat::row(config), chunk, true, &|i| x(u, i))).collect()));
                for beat in panel.clone() {
                    let row = |j| if beat * outputs + j < n { beat * outputs + j } else { 0 };
                    ws.push(Beats((0..outputs).map(|j| lanes(Beat::column(config), chunk, false, &|i| weight(row(j), i))).collect()));
                }
            }
            for beat in panel {
                let outputs = beat * outputs..n.min((beat + 1) * outputs);
                let dot = |n: usize, u: usize| (0..k).map(|i| weight(n, i) * x(u, i)).sum::<i32>();
                want.push(outputs.flat_map(|n| (0..vectors).map(move |u| dot(n, u))).collect::<Vec<_>>());
            }
        }
        let mut engine = Gemv::new(shape).unwrap();
        let (blank_x, blank_w) = (xs[0].clone(), ws[0].clone());
        let (mut started, mut at_x, mut at_w, mut got) = (false, 0, 0, Vec::new());
        for edge in 0..20_000u64 {
            // Each stream goes on at least one edge in 64.
            let open = |i: usize| !stalled || stalls[i] >> (edge % 64) & 1 == 0 || edge % 64 == i as u64;
            let out = engine.out();
            if started && out.idle && got.len() == want.len() {
                break;
            }
            if out.y.fires(open(2)) {
                let values = &out.y.data.values[..usize::from(out.y.data.lanes)];
                let whole = |v: &i32| if datapath.is_float() { f32::from_bits(*v as u32) as i32 } else { *v };
                got.push(values.iter().map(whole).collect::<Vec<_>>());
            }
            let i = GemvIn {
                start: (!started).then_some(job),
                x: Stream { valid: open(0) && at_x < xs.len(), data: xs.get(at_x).unwrap_or(&blank_x) },
                w: Stream { valid: open(1) && at_w < ws.len(), data: ws.get(at_w).unwrap_or(&blank_w) },
                ready: open(2),
            };
            at_x += usize::from(i.x.fires(out.x_ready));
            at_w += usize::from(i.w.fires(out.w_ready));
            engine.clock(&i);
            started = true;
            if edge % put_back == put_back - 1 {
                let image = Image::of(&mut engine);
                engine.reset();
                image.restore(&mut engine);
                prop_assert!(Image::of(&mut engine) == image);
            }
        }
        prop_assert_eq!(got, want);
        let counters = engine.out().counters;
        let lost = counters.starved_x + counters.starved_w + counters.blocked;
        prop_assert_eq!((counters.active, counters.cycles), ((n * k * vectors) as u64, gemv_cycles(shape, job) + lost));
        prop_assert!(engine.out().fault.is_none() && (stalled || lost == 0));
    }
}
