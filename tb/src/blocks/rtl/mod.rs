//! Bench of the RTL kernel: each part against a plain model of what it promises.

use crate::verify::{Case, Test};
use crate::wave::Tracer;
use rand::RngExt;
use rtl::{
    AddressGenerator, AddressIn, BankIn, BankedSram, Fifo, FifoIn, Loops, Module, SkidBuffer, SkidIn, Sram, SramFault,
    SramIn, SramWrite, Stream, WriteMode,
};
use std::collections::VecDeque;

/// The tests of this block.
pub const TESTS: &[Test] = &[
    Test::new("rtl", "fifo", 3, 20, fifo),
    Test::new("rtl", "skid", 1, 20, skid),
    Test::new("rtl", "sram", 2, 20, sram),
    Test::new("rtl", "banked", 3, 20, banked),
    Test::new("rtl", "address", 9, 200, address),
];

/// Cycles of one stream case.
const CYCLES: u64 = 2_000;
/// Cycles kept on each side of a mismatch in a failing case's waveform.
const CONTEXT: u64 = 200;

fn fifo(case: &mut Case) -> anyhow::Result<()> {
    let depth = case.random.map_or(case.index + 1, |_| case.rng.random_range(1..20));
    let (offer_rate, pop_rate) = (case.rng.random_range(0.1..1.0), case.rng.random_range(0.1..1.0));
    let mut fifo = Fifo::new(depth, 0u32);
    let mut model = VecDeque::new();
    let mut probe = case.probe("fifo", CONTEXT)?;
    for n in 0..CYCLES as u32 {
        probe.sample(n.into(), &mut fifo)?;
        let out = fifo.out();
        probe.output(n.into(), &(out.ready, out.level, out.head.valid.then_some(out.head.data)));
        case.equal("ready", model.len() < depth, out.ready);
        case.equal("level", model.len(), out.level);
        case.equal("head", model.front().copied(), out.head.valid.then_some(*out.head.data));
        let offer = case.rng.random_bool(offer_rate);
        let pop = case.rng.random_bool(pop_rate);
        let (pushes, pops) = (offer && out.ready, pop && out.head.valid);
        let depth_class = ["1", "2", "more"][depth.min(3) - 1];
        let state = if model.is_empty() {
            "empty"
        } else if model.len() == depth {
            "full"
        } else {
            "between"
        };
        let class = match (pushes, pops) {
            (true, true) => "both",
            (true, false) => "push",
            (false, true) => "pop",
            (false, false) if offer => "refused",
            (false, false) => "none",
        };
        case.cover("fifo", &[("depth", depth_class), ("state", state), ("move", class)]);
        if pops {
            model.pop_front();
        }
        if pushes {
            model.push_back(n);
        }
        fifo.clock(&FifoIn { push: Stream { valid: offer, data: &n }, pop });
    }
    probe.rest(&mut fifo);
    probe.finish()?;
    case.cycles(CYCLES);
    Ok(())
}

fn skid(case: &mut Case) -> anyhow::Result<()> {
    let (offer_rate, ready_rate) = match case.random {
        Some(_) => (case.rng.random_range(0.1..1.0), case.rng.random_range(0.1..1.0)),
        None => (1.0, 1.0),
    };
    let mut skid = SkidBuffer::new(0u32);
    let (mut sent, mut received) = (0u32, 0u32);
    let mut probe = case.probe("skid", CONTEXT)?;
    for cycle in 0..CYCLES {
        probe.sample(cycle, &mut skid)?;
        let out = skid.out();
        probe.output(cycle, &(out.ready, out.head.valid.then_some(out.head.data)));
        let ready = case.rng.random_bool(ready_rate);
        if out.head.fires(ready) {
            case.equal("beat", received, *out.head.data);
            received += 1;
        }
        case.check(sent - received <= 2, "more than two beats are inside");
        let offer = case.rng.random_bool(offer_rate);
        let takes = offer && out.ready;
        skid.clock(&SkidIn { push: Stream { valid: offer, data: &sent }, ready });
        sent += u32::from(takes);
    }
    probe.rest(&mut skid);
    probe.finish()?;
    if case.random.is_none() {
        case.equal("beats at full rate", CYCLES as u32 - 1, received);
    }
    case.cycles(CYCLES);
    Ok(())
}

fn sram(case: &mut Case) -> anyhow::Result<()> {
    let mode = if case.index.is_multiple_of(2) { WriteMode::ReadFirst } else { WriteMode::WriteFirst };
    let (depth, lanes) = (case.rng.random_range(1..20), case.rng.random_range(1..4));
    let mut sram = Sram::<i32>::new(depth, lanes, mode);
    let mut model: Vec<Option<Vec<i32>>> = vec![None; depth];
    let mut probe = case.probe("sram", CONTEXT)?;
    for cycle in 0..CYCLES {
        probe.sample(cycle, &mut sram)?;
        let read = case.rng.random_range(0..depth);
        let write = case.rng.random_range(0..depth);
        let data: Vec<i32> = (0..lanes).map(|_| case.rng.random()).collect();
        let before = model[read].clone();
        model[write] = Some(data.clone());
        let expected = if mode == WriteMode::ReadFirst { before } else { model[read].clone() };
        sram.clock(&SramIn { read: Some(read), write: Some(SramWrite { address: write, data: &data }) });
        probe.output(cycle, &(sram.out().fault, expected.is_some().then_some(sram.out().data)));
        match expected {
            Some(word) => case.equal_slices("word", &word, sram.out().data),
            None => case.equal("fault", Some(SramFault::Uninitialised { address: read }), sram.out().fault),
        };
        sram.reset(); // clears the fault, keeps the contents
    }
    probe.rest(&mut sram);
    probe.finish()?;
    case.cycles(CYCLES);
    Ok(())
}

/// What became of a requester's wish: granted without or before others that want the bank, or not.
fn arbitration(requester: usize, banks: usize, wishes: &[Option<usize>]) -> &'static str {
    let Some(address) = wishes[requester] else { return "none" };
    let rival = |w: &Option<usize>| w.is_some_and(|a| a % banks == address % banks);
    if wishes[..requester].iter().any(rival) {
        "refused"
    } else if wishes[requester + 1..].iter().any(rival) {
        "won"
    } else {
        "alone"
    }
}

fn banked(case: &mut Case) -> anyhow::Result<()> {
    let banks = case.random.map_or(case.index + 1, |_| case.rng.random_range(1..9));
    let requesters = case.random.map_or(3, |_| case.rng.random_range(1..6));
    let (rows, lanes) = (case.rng.random_range(1..6), case.rng.random_range(1..4));
    let depth = banks * rows;
    let mode = if case.index.is_multiple_of(2) { WriteMode::ReadFirst } else { WriteMode::WriteFirst };
    let mut memory = BankedSram::<i32>::new(depth, lanes, banks, requesters, mode);
    let mut words: Vec<Option<Vec<i32>>> = vec![None; depth];
    // What each bank's read register shows; nothing once a word that was never written went there.
    let mut shown: Vec<Option<Vec<i32>>> = vec![Some(vec![0; lanes]); banks];
    let mut faults: Vec<Option<SramFault>> = vec![None; banks];
    let mut looks = vec![0; requesters];
    let mut probe = case.probe("banked", CONTEXT)?;
    for cycle in 0..CYCLES {
        probe.sample(cycle, &mut memory)?;
        let mut wish = || case.rng.random_bool(0.6).then(|| case.rng.random_range(0..depth));
        let reads: Vec<_> = (0..requesters).map(|_| wish()).collect();
        let writes: Vec<_> = (0..requesters).map(|_| wish()).collect();
        let data: Vec<Vec<i32>> = (0..requesters).map(|_| (0..lanes).map(|_| case.rng.random()).collect()).collect();
        let requests: Vec<_> = (0..requesters)
            .map(|r| SramIn { read: reads[r], write: writes[r].map(|address| SramWrite { address, data: &data[r] }) })
            .collect();
        let classes: Vec<_> =
            (0..requesters).map(|r| [&reads, &writes].map(|wishes| arbitration(r, banks, wishes))).collect();
        let granted = |class: &str| matches!(class, "alone" | "won");
        let grants: Vec<_> = classes.iter().map(|&[read, write]| (granted(read), granted(write))).collect();
        case.equal_slices("grants", &grants, &memory.grants(&requests));
        let many = |n: usize| ["1", "2", "more"][n.min(3) - 1];
        for [read, write] in classes {
            case.cover(
                "banked",
                &[("banks", many(banks)), ("requesters", many(requesters)), ("read", read), ("write", write)],
            );
        }
        let before = words.clone();
        for r in 0..requesters {
            if let (Some(address), true) = (writes[r], grants[r].1) {
                words[address] = Some(data[r].clone());
            }
        }
        for r in 0..requesters {
            if let (Some(address), true) = (reads[r], grants[r].0) {
                let from = if mode == WriteMode::ReadFirst { &before } else { &words };
                (looks[r], shown[address % banks]) = (address % banks, from[address].clone());
                if from[address].is_none() {
                    faults[address % banks].get_or_insert(SramFault::Uninitialised { address: address / banks });
                }
            }
        }
        memory.clock(&BankIn { requests: &requests, grants: &grants });
        let fault = faults.iter().enumerate().find_map(|(bank, fault)| Some((bank, (*fault)?)));
        case.equal("fault", fault, memory.out().fault());
        let seen: Vec<_> = (0..requesters).map(|r| shown[looks[r]].as_ref().map(|_| memory.out().data(r))).collect();
        probe.output(cycle, &(fault, &seen));
        for (r, got) in seen.iter().enumerate() {
            if let (Some(want), Some(got)) = (&shown[looks[r]], got) {
                case.equal_slices("word", want, got);
            }
        }
        if case.rng.random_bool(0.01) {
            memory.reset(); // clears registers and faults, keeps the contents
            (faults, looks) = (vec![None; banks], vec![0; requesters]);
            shown.fill(Some(vec![0; lanes]));
        }
    }
    probe.rest(&mut memory);
    probe.finish()?;
    case.cycles(CYCLES);
    Ok(())
}

fn address(case: &mut Case) -> anyhow::Result<()> {
    let classes = [("negative", -3), ("zero", 0), ("positive", 5)];
    let mut loops = Loops { base: case.rng.random_range(-1000..1000), counts: [0; 4], strides: [0; 4] };
    for d in 0..4 {
        loops.counts[d] = case.rng.random_range(1..5);
        loops.strides[d] = case.rng.random_range(-500..500);
    }
    if case.random.is_none() {
        let d = case.rng.random_range(0..4);
        loops.strides[d] = classes[case.index / 3].1;
        loops.counts[d] = [0, 1, 4][case.index % 3];
        case.cover(
            "address",
            &[("stride", classes[case.index / 3].0), ("count", ["zero", "one", "many"][case.index % 3])],
        );
    }
    let mut generator = AddressGenerator::<4>::default();
    generator.clock(&AddressIn { start: Some(&loops), step: false });
    let [a, b, c, d] = loops.counts.map(i64::from);
    let mut probe = case.probe("address", CONTEXT)?;
    let mut cycle = 0;
    for n in 0..a * b * c * d {
        let index = [n / (b * c * d), n / (c * d) % b, n / d % c, n % d];
        let expected = loops.base + index.iter().zip(loops.strides).map(|(i, s)| i * s).sum::<i64>();
        while case.rng.random_bool(0.2) {
            probe.sample(cycle, &mut generator)?;
            generator.clock(&AddressIn { start: None, step: false });
            cycle += 1;
        }
        probe.sample(cycle, &mut generator)?;
        let out = generator.out();
        probe.output(cycle, &(out.valid.then_some((out.address, out.index, out.last))));
        cycle += 1;
        case.equal("address", (true, expected), (out.valid, out.address));
        case.equal("index", index.map(|i| i as u32), out.index);
        case.equal("done", n + 1 == a * b * c * d, out.done());
        generator.clock(&AddressIn { start: None, step: true });
    }
    case.check(!generator.out().valid, "an address stands after the last");
    probe.rest(&mut generator);
    probe.finish()?;
    Ok(())
}
