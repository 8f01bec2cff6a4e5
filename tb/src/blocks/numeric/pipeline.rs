//! The MAC as a clocked module: the same bits whatever the depth, whenever it stalls.

use super::stimulus;
use crate::verify::Case;
use crate::wave::Tracer;
use numeric::{Flags, Mac, MacConfig, MacIn, MacOut, fma};
use rand::RngExt;
use rtl::{Image, Module};
use std::collections::VecDeque;

const CYCLES: u64 = 3_000;
/// Cycles kept on each side of a mismatch in a failing case's waveform.
const CONTEXT: u64 = 200;

/// Test: operands, bubbles, stalls and resets in any cycle; every result against the core, in order, on its cycle.
pub(super) fn mac_pipeline(case: &mut Case) -> anyhow::Result<()> {
    let formats = super::operators::OPERANDS;
    let (a_name, a) = formats[case.index % formats.len()];
    let (b_name, b) = formats[case.rng.random_range(0..formats.len())];
    let stages = case.index / 3 % 8 + 1;
    let stall = ["none", "random", "long"][case.index % 3];
    case.label(format!("{a_name} × {b_name}, {stages} stages, stalls {stall}"));
    let mut mac = Mac::new(MacConfig::new(a, b, stages)?);
    let idle = Image::of(&mut mac);
    // What each register holds: the model is a queue of results that moves on enabled edges only.
    let mut queue: VecDeque<MacOut> = vec![MacOut::default(); stages].into();
    let mut stalled = 0;
    let mut probe = case.probe("mac", CONTEXT)?;
    for cycle in 0..CYCLES {
        probe.sample(cycle, &mut mac)?;
        let want = queue[0];
        let got = mac.out();
        if got.valid {
            probe.output(cycle, &got.result);
        }
        let same = want.valid == got.valid && (!want.valid || want == got);
        if !same {
            case.mismatch_at(cycle);
            case.differed(format_args!("result: cycle {cycle}: expected {want:?}, got {got:?}"));
        }
        case.agreed(1);
        let enable = match stall {
            "none" => true,
            "random" => case.rng.random_bool(0.5),
            _ => {
                stalled = if stalled == 0 && case.rng.random_bool(0.05) { 40 } else { stalled.max(1) - 1 };
                stalled == 0
            }
        };
        if case.rng.random_bool(0.002) {
            mac.reset();
            queue.iter_mut().for_each(|slot| *slot = MacOut::default());
            case.check(idle.differences(&Image::of(&mut mac)).is_empty(), "a reset MAC differs from a new one");
            continue;
        }
        let (x, y, c) = stimulus::triple(&mut case.rng);
        let (x, y) = (x >> (32 - a.width()), y >> (32 - b.width()));
        let valid = case.rng.random_bool(0.8);
        mac.clock(&MacIn { enable, valid, a: x, b: y, c });
        if enable {
            let mut flags = Flags::NONE;
            let value = fma(a, x, b, y, c, &mut flags);
            queue.pop_front();
            queue.push_back(MacOut { valid, result: numeric::MacResult { value, flags } });
        }
    }
    probe.rest(&mut mac);
    probe.finish()?;
    let depth = if stages > 5 { "deeper" } else { ["1", "2", "3", "4", "5"][stages - 1] };
    case.cover("mac", &[("stages", depth), ("stall", stall)]);
    case.cycles(CYCLES);
    Ok(())
}

/// Test: a MAC restored from the image of another one in full flight continues exactly like it, so the visitor shows
/// all of the state.
pub(super) fn mac_registers(case: &mut Case) -> anyhow::Result<()> {
    let (name, format) = super::operators::OPERANDS[case.index % super::operators::OPERANDS.len()];
    case.label(name);
    for stages in 1..=6 {
        let config = MacConfig::new(format, format, stages)?;
        let (mut mac, mut copy) = (Mac::new(config), Mac::new(config));
        let mut operands = || {
            let (a, b, c) = stimulus::triple(&mut case.rng);
            let shift = 32 - format.width();
            MacIn { enable: true, valid: true, a: a >> shift, b: b >> shift, c }
        };
        let run: Vec<MacIn> = (0..20).map(|_| operands()).collect();
        let (before, after) = run.split_at(8);
        before.iter().for_each(|i| mac.clock(i));
        Image::of(&mut mac).restore(&mut copy);
        for i in after {
            case.equal(format_args!("{stages} stages, output of the restored MAC"), mac.out(), copy.out());
            mac.clock(i);
            copy.clock(i);
        }
    }
    Ok(())
}
