//! The clocked unit against the transaction engine: the same bits, and the closed forms' edges, under any stalls.

mod drive;

use drive::{Case, Stalls, run};
use proptest::prelude::*;
use vector::{Algorithm, Command, Config, Function, Masking, Op, Pairing, Ramp, cycles};

fn ramp() -> impl Strategy<Value = Ramp> {
    (0usize..200, 1usize..4, 1usize..5).prop_map(|(first, every, wrap)| Ramp { first, every, wrap })
}

/// An operation, with what its row length must be a multiple of.
fn op() -> impl Strategy<Value = (Op, usize)> {
    let mask = prop_oneof![Just(Masking::None), ramp().prop_map(Masking::Count), Just(Masking::Stream)];
    let algorithm = prop_oneof![Just(Algorithm::ThreePass), Just(Algorithm::Online)];
    let pairing = prop_oneof![Just(Pairing::Halves), Just(Pairing::Interleaved)];
    let group = prop_oneof![Just(None), (3u32..7).prop_map(|p| Some(1usize << p))];
    prop_oneof![
        Just((Op::Convert, 1)),
        prop::sample::select(Function::ALL.to_vec()).prop_map(|f| (Op::Function(f), 1)),
        Just((Op::Add, 1)),
        Just((Op::Multiply, 1)),
        any::<f32>().prop_map(|factor| (Op::Scale { factor }, 1)),
        Just((Op::SwiGlu, 1)),
        (0f32..1.0).prop_map(|epsilon| (Op::RmsNorm { epsilon }, 1)),
        (algorithm, -2f32..2.0, mask).prop_map(|(algorithm, scale, mask)| (Op::Softmax { algorithm, scale, mask }, 1)),
        (pairing, ramp()).prop_map(|(pairing, positions)| (Op::Rope { pairing, positions }, 2)),
        Just((Op::ArgMax, 1)),
        group.clone().prop_map(|group| (Op::AbsMax { group }, group.unwrap_or(1))),
        group.prop_map(|group| (Op::Quantise { group }, group.unwrap_or(1))),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let formats = ["fp32", "bf16", "fp16", "int8", "e4m3", "e5m2", "ffp8:1,3,4,5", "int4", "uint8"];
    let format = prop::sample::select(formats.to_vec());
    let shape = (3u32..7, 1usize..150, 1usize..12);
    (op(), shape, [format.clone(), format.clone(), format], any::<u64>(), any::<bool>()).prop_map(
        |((op, multiple), (lanes, len, rows), formats, seed, special)| {
            let config = Config::new(1 << lanes).unwrap();
            let len = len.div_ceil(multiple) * multiple;
            let [a, b, y] = formats.map(|f| f.parse().unwrap());
            Case { config, command: Command { op, len, rows, a, b, y }, seed, special }
        },
    )
}

proptest! {
    #[test]
    fn both_engines_give_the_same_bits_on_the_same_edge(case in case()) {
        let unstalled = run(&case, Stalls::none());
        prop_assert_eq!(&unstalled.got, &unstalled.want);
        prop_assert_eq!(unstalled.edges, cycles(&case.config, &case.command), "edges of {:?}", case);
        prop_assert_eq!(unstalled.counters.busy, unstalled.edges);
        prop_assert_eq!(unstalled.counters.unstalled(), unstalled.edges);
        let stalled = run(&case, Stalls::random(case.seed));
        prop_assert_eq!(&stalled.got, &stalled.want);
        prop_assert_eq!(stalled.counters.unstalled(), unstalled.edges);
    }
}

#[test]
fn rows_longer_than_a_batch_of_the_row_buffer() {
    for (op, y) in [
        (Op::Softmax { algorithm: Algorithm::Online, scale: 1.0, mask: Masking::None }, "bf16"),
        (Op::Softmax { algorithm: Algorithm::ThreePass, scale: 1.0, mask: Masking::None }, "fp32"),
        (Op::Quantise { group: None }, "int8"),
        (Op::RmsNorm { epsilon: 1e-5 }, "fp32"),
    ] {
        let config = Config::new(64).unwrap();
        for (len, rows) in [(30_000, 3), (65_536, 2), (65, 130)] {
            let command = Command::new(op, len, rows).into_format(y.parse::<numeric::Format>().unwrap());
            let case = Case { config, command, seed: 9, special: false };
            let done = run(&case, Stalls::none());
            assert!(done.got == done.want, "{case:?}");
            assert_eq!(done.edges, cycles(&config, &command), "{case:?}");
        }
    }
}

#[test]
fn a_reset_in_the_middle_of_a_command_twice_and_then_a_clean_run() {
    for op in [
        Op::Softmax { algorithm: Algorithm::Online, scale: 1.0, mask: Masking::None },
        Op::RmsNorm { epsilon: 1e-5 },
        Op::Function(Function::Silu),
    ] {
        let config = Config::new(8).unwrap();
        let case = Case { config, command: Command::new(op, 40, 9), seed: 4, special: false };
        for edges in [3, 60, 150] {
            let done = drive::run_after_resets(&case, edges);
            assert_eq!(done.got, done.want, "{op:?}");
            assert_eq!(done.edges, cycles(&config, &case.command));
        }
    }
}

#[test]
fn what_the_unit_would_refuse_is_named() {
    let config = Config::default();
    let refused = |op, len, rows| Command::new(op, len, rows).check(&config).unwrap_err().to_string();
    let rope = |positions| Op::Rope { pairing: Pairing::Halves, positions };
    assert!(Config::new(12).unwrap_err().to_string().contains("12 lanes"));
    assert!(refused(Op::Add, 0, 1).contains("rows of 0"));
    assert!(refused(Op::Add, 70_000, 1).contains("70000"));
    assert!(refused(Op::Add, 8, 0).contains("0 rows"));
    assert!(refused(rope(Ramp::from(0)), 63, 1).contains("63"));
    assert!(refused(rope(Ramp::from(0)), 514, 1).contains("514"));
    assert!(refused(rope(Ramp::from(1 << 24)), 64, 2).contains("16777217"));
    assert!(refused(rope(Ramp { first: 0, every: 0, wrap: 1 }), 64, 2).contains("0 rows"));
    assert!(refused(Op::Quantise { group: Some(24) }, 48, 1).contains("groups of 24"));
    assert!(refused(Op::Quantise { group: Some(32) }, 48, 1).contains("groups of 32"));
    assert!(refused(Op::RmsNorm { epsilon: f32::NAN }, 48, 1).contains("epsilon"));
    let extreme = numeric::FloatFormat::ffp8(true, 4, 130).unwrap();
    let command = Command::new(Op::Quantise { group: None }, 8, 1).into_format(numeric::Format::Float(extreme));
    assert!(command.check(&config).unwrap_err().to_string().contains("no scales"));
}

#[test]
fn what_the_unit_has_no_room_for_is_refused() {
    let config = Config::new(8).unwrap();
    let check = |op, len, rows| Command::new(op, len, rows).check(&config);
    assert!(check(Op::LoadFrequencies, 256, 1).is_ok());
    assert!(check(Op::LoadFrequencies, 257, 1).is_err() && check(Op::LoadFrequencies, 256, 2).is_err());
    assert!(check(Op::Add, 1, 1).is_ok() && check(Op::Add, 1, u32::MAX as usize).is_ok());
    assert!(
        check(Op::Add, 1, 0).is_err() && check(Op::Add, 1, 1 << 32).is_err() && check(Op::Add, 1, 1 << 40).is_err()
    );
    assert!(check(Op::Add, 0, 1).is_err() && check(Op::Add, vector::MAX_LEN + 1, 1).is_err());
}

/// The second of two units, which took the same command, takes the first one's registers in the middle of it, and both go on alike.
#[test]
fn a_run_goes_on_from_an_image_of_its_registers() {
    use rtl::{Image, Module, Stream};
    use vector::{OperandBeat, UnitIn, VectorUnit};
    let config = Config::new(8).unwrap();
    let mask = Masking::None;
    for op in [
        Op::SwiGlu,
        Op::RmsNorm { epsilon: 1e-5 },
        Op::Softmax { algorithm: Algorithm::Online, scale: 0.5, mask },
        Op::Softmax { algorithm: Algorithm::ThreePass, scale: 0.5, mask },
        Op::Quantise { group: None },
    ] {
        let y = if matches!(op, Op::Quantise { .. }) { "int8" } else { "bf16" };
        let command = Command { y: y.parse().unwrap(), ..Command::new(op, 30, 7) };
        for at in [3, 40, 90, 150] {
            let mut unit = VectorUnit::new(config).unwrap();
            let mut other = VectorUnit::new(config).unwrap();
            for edge in 0..at + 300 {
                if edge == at {
                    Image::of(&mut unit).restore(&mut other);
                }
                let beat = OperandBeat((0..8).map(|lane| (0.1 * (lane + edge % 13) as f32).to_bits()).collect());
                let port = Stream { valid: edge % 5 != 0, data: &beat };
                let i = UnitIn {
                    command: Stream { valid: edge == 0, data: &command },
                    a: port,
                    b: port,
                    ready: edge % 7 != 0,
                };
                unit.clock(&i);
                if edge == 0 || edge >= at {
                    other.clock(&i);
                }
                if edge >= at {
                    let (left, right) = (unit.out(), other.out());
                    assert_eq!(
                        (left.idle, left.a_ready, left.b_ready, left.y),
                        (right.idle, right.a_ready, right.b_ready, right.y)
                    );
                    assert_eq!((left.counters, left.flags), (right.counters, right.flags));
                }
            }
        }
    }
}
