//! The clocked engines against the transaction engines: the same bits on the same edges, under any stall.

use nkz::clocked::*;
use nkz::{Address, Cause, Channel, Encoded, Encoder, Error, Header, Kind, Mode, Slot, TileIn};
use proptest::prelude::*;
use rtl::{Image, Module, Stream};

/// A stall pattern: whether something is offered or taken on an edge.
#[derive(Clone, Copy, Debug)]
struct Stall {
    seed: u64,
    /// Of 8.
    rate: u64,
}

impl Stall {
    fn open(self, edge: u64) -> bool {
        let x = (edge ^ self.seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (x >> 61) < self.rate
    }
}

fn stall() -> impl Strategy<Value = Stall> {
    (any::<u64>(), 1u64..=8).prop_map(|(seed, rate)| Stall { seed, rate })
}

#[derive(Clone, Debug)]
struct Job {
    width: usize,
    tokens: usize,
    mode: Mode,
    values: Vec<u16>,
    channels: Vec<Channel>,
    calibrated: bool,
    /// Flips of the stored bytes.
    flips: Vec<usize>,
}

fn job() -> impl Strategy<Value = Job> {
    let mode = prop_oneof![
        Just(Mode::Raw),
        Just(Mode::Lossless),
        (0u8..8).prop_map(|qp| Mode::Fixed { qp }),
        (0u8..20).prop_map(|qp| Mode::Entropy { qp }),
        (5usize..200).prop_map(|words| Mode::Slot { bytes: 8 * words }),
        Just(Mode::Mean),
    ];
    let special = prop_oneof![6 => Just(0u16), 1 => Just(0x7f80u16), 1 => Just(0x7e00u16), 1 => 0x4400u16..0x4800];
    (
        1usize..=8,
        1usize..=32,
        mode,
        any::<u64>(),
        any::<bool>(),
        special,
        proptest::option::weighted(0.3, any::<usize>()),
    )
        .prop_map(|(eighth, tokens, mode, seed, calibrated, special, flip)| {
            let width = 8 * eighth;
            let mode = match mode {
                Mode::Slot { bytes } => Mode::Slot { bytes: bytes.min(8 + 64 * width) },
                other => other,
            };
            let mut state = seed | 1;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as u16
            };
            let channels = (0..width)
                .map(|_| Channel {
                    mean: 0x3f80 + (next() & 0x3f),
                    step: -24 + (next() & 15) as i8,
                    spread: 16 + (next() & 15) as i8,
                    fixed_step: -6,
                    exponent: 126,
                    exponent_table: (next() & 15) as u8,
                })
                .collect();
            let mut values: Vec<u16> = (0..tokens * width).map(|_| 0x3f00 + (next() & 0x17f)).collect();
            if special != 0 {
                let at = usize::from(next()) % values.len();
                values[at] = special;
            }
            let lossy = !matches!(mode, Mode::Raw | Mode::Lossless);
            Job {
                width,
                tokens,
                mode,
                values,
                channels,
                calibrated: calibrated || lossy,
                flips: flip.into_iter().collect(),
            }
        })
}

fn address(n: usize) -> Address {
    Address { sequence: 9, layer: 2, head: 1, kind: Kind::Key, block: 0, tile: n as u32 }
}

fn tables(jobs: &[Job]) -> TableRam {
    let mut ram = TableRam::new(jobs.len());
    jobs.iter().enumerate().for_each(|(n, job)| ram.write(n, &job.channels));
    ram
}

fn encode(n: usize, job: &Job) -> (Encoded, Vec<u8>) {
    let channels = job.calibrated.then_some(&job.channels[..]);
    let tile = TileIn { address: address(n), values: &job.values, width: job.width, channels };
    let mut bytes = Vec::new();
    let done = Encoder::default().encode(&tile, job.mode, &mut bytes).unwrap();
    (done, bytes)
}

const LIMIT: u64 = 2_000_000;

/// Every register is read out, reset and put back, now and then.
fn put_back(engine: &mut impl Module, edge: u64) {
    if edge % 211 == 97 {
        let image = Image::of(engine);
        engine.reset();
        image.restore(engine);
        assert!(Image::of(engine) == image);
    }
}

fn check_encoder(jobs: &[Job], [command, row, word, status]: [Stall; 4]) -> Result<(), TestCaseError> {
    let mut engine = TileEncoder::new(tables(jobs));
    let (mut n, mut token, mut edge, mut accepted) = (0, 0, 0u64, false);
    let mut stored: Vec<u64> = Vec::new();
    let mut before: Option<EncodeEdges> = None;
    let (mut at_command, mut at_row) = (0, 0);
    while n < jobs.len() {
        prop_assert!(edge < LIMIT, "hangs");
        let job = &jobs[n];
        let order = EncodeCommand {
            address: address(n),
            width: job.width as u8,
            tokens: job.tokens as u8,
            mode: job.mode,
            table: job.calibrated.then_some(n as u32),
        };
        // Lanes past the width carry poison.
        let mut lanes = [0x7fff; 64];
        if token < job.tokens {
            lanes[..job.width].copy_from_slice(&job.values[token * job.width..][..job.width]);
        }
        let out = engine.out();
        let i = EncoderIn {
            command: Stream { valid: command.open(edge) && !accepted, data: &order },
            row: Stream { valid: row.open(edge) && token < job.tokens, data: &lanes },
            word_ready: word.open(edge),
            status_ready: status.open(edge),
        };
        if i.command.fires(out.command_ready) {
            (accepted, at_command) = (true, edge);
        }
        if i.row.fires(out.row_ready) {
            token += 1;
            at_row = edge;
        }
        if out.word.fires(i.word_ready) {
            let index = usize::from(out.word.data.index);
            stored.resize(stored.len().max(index + 1), 0);
            stored[index] = out.word.data.data;
        }
        let ended = out.status.fires(i.status_ready).then_some(out.status.data);
        engine.clock(&i);
        put_back(&mut engine, edge);
        if let Some(ended) = ended {
            let (done, bytes) = encode(n, job);
            let edges = encode_edges(
                &done,
                job.width,
                job.mode,
                before.as_ref(),
                (|e| command.open(e), |e| row.open(e)),
                (|e| word.open(e), |e| status.open(e)),
            );
            prop_assert_eq!(
                (at_command, at_row, edge),
                (edges.command, edges.row, edges.status),
                "{:?} {:?}",
                job.mode,
                done
            );
            let got: Vec<u8> = stored.iter().flat_map(|w| w.to_le_bytes()).collect();
            prop_assert!(got == bytes, "{:?}: other bytes than the transaction engine's", job.mode);
            prop_assert_eq!((ended.format, usize::from(ended.words)), (done.header.format, bytes.len() / 8));
            before = Some(edges);
            (n, token, accepted) = (n + 1, 0, false);
            stored.clear();
        }
        edge += 1;
    }
    Ok(())
}

fn check_decoder(jobs: &[Job], depth: usize, [command, word, row, status]: [Stall; 4]) -> Result<(), TestCaseError> {
    let mut tiles: Vec<Vec<u8>> = jobs.iter().enumerate().map(|(n, job)| encode(n, job).1).collect();
    for (job, bytes) in jobs.iter().zip(&mut tiles) {
        for flip in &job.flips {
            let at = flip % (8 * bytes.len());
            bytes[at / 8] ^= 1 << (at % 8);
        }
    }
    // Every second flipped tile gets a CRC that fits, so that the lanes themselves must notice.
    for (n, (job, bytes)) in jobs.iter().zip(&mut tiles).enumerate() {
        let header = Header::unpack(u64::from_le_bytes(bytes[..8].try_into().unwrap()));
        if let Ok(mut header) = header
            && n % 2 == 1
            && !job.flips.is_empty()
            && header.payload() + 8 <= bytes.len()
        {
            header.crc = header.checksum(&address(n), &bytes[8..8 + header.payload()]);
            bytes[..8].copy_from_slice(&header.pack().to_le_bytes());
        }
    }
    let mut engine = Decoder::new(tables(jobs), depth);
    let (mut commands, mut statuses, mut loaded, mut edge) = (0, 0, 0, 0u64);
    let mut rows: Vec<Vec<u16>> = jobs.iter().map(|job| vec![0; 32 * job.width]).collect();
    let mut history: Vec<DecodeEdges> = Vec::new();
    let mut at_command = vec![0; jobs.len()];
    while statuses < jobs.len() {
        prop_assert!(edge < LIMIT, "hangs");
        let order = jobs.get(commands).map(|job| DecodeCommand {
            address: address(commands),
            width: job.width as u8,
            words: (tiles[commands].len() / 8) as u16,
            table: job.calibrated.then_some(commands as u32),
        });
        let order = order.unwrap_or_default();
        let loading = commands.checked_sub(1).filter(|&n| loaded < tiles[n].len());
        let data = loading.map_or(0, |n| u64::from_le_bytes(tiles[n][loaded..loaded + 8].try_into().unwrap()));
        let i = DecoderIn {
            command: Stream { valid: command.open(edge) && commands < jobs.len(), data: &order },
            word: Stream { valid: word.open(edge) && loading.is_some(), data },
            row_ready: row.open(edge),
            status_ready: status.open(edge),
        };
        let out = engine.out();
        if out.row.fires(i.row_ready) {
            let beat = out.row.data;
            let at = usize::from(beat.token) * jobs[statuses].width + 8 * usize::from(beat.group);
            rows[statuses][at..at + usize::from(beat.count)].copy_from_slice(&beat.values[..usize::from(beat.count)]);
        }
        if i.word.fires(out.word_ready) {
            loaded += 8;
        }
        let ended = out.status.fires(i.status_ready).then_some(out.status.data);
        if i.command.fires(out.command_ready) {
            at_command[commands] = edge;
            (commands, loaded) = (commands + 1, 0);
        }
        if let Some(ended) = ended {
            let n = statuses;
            let job = &jobs[n];
            let channels = job.calibrated.then_some(&job.channels[..]);
            let slot = Slot { address: address(n), width: job.width, channels };
            let mut expected = vec![0; 32 * job.width];
            let result = slot.decode(&tiles[n], &mut expected);
            let (cause, overflow) = match result {
                Ok(decoded) => (None, decoded.overflow),
                Err(Error::Corrupt(c)) => (Some(c.cause), None),
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            };
            prop_assert_eq!((ended.cause, ended.overflow, ended.address), (cause, overflow, address(n)));
            if cause.is_none() {
                prop_assert!(rows[n] == expected, "other values than the transaction engine's");
            }
            let bits = u64::from_le_bytes(tiles[n][..8].try_into().unwrap());
            let header = Header::unpack(bits).unwrap_or_default();
            let before = [n.checked_sub(1).map(|k| &history[k]), n.checked_sub(2).map(|k| &history[k])];
            let late = matches!(cause, Some(Cause::Lane | Cause::State | Cause::Padding));
            let edges = decode_edges(
                (&header, tiles[n].len() / 8, job.width, depth),
                cause.filter(|_| !late),
                before,
                (|e| command.open(e), |e| word.open(e)),
                (|e| row.open(e), |e| status.open(e)),
            );
            prop_assert_eq!(
                (at_command[n], edge),
                (edges.command, edges.status),
                "tile {} {:?} {:?}",
                n,
                job.mode,
                cause
            );
            history.push(edges);
            statuses += 1;
        }
        engine.clock(&i);
        put_back(&mut engine, edge);
        edge += 1;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("PROPTEST_CASES").ok().and_then(|c| c.parse().ok()).unwrap_or(60), ..Default::default() })]

    #[test]
    fn encoders_agree(jobs in proptest::collection::vec(job(), 1..4), stalls in [stall(), stall(), stall(), stall()]) {
        check_encoder(&jobs, stalls)?;
    }

    #[test]
    fn decoders_agree(jobs in proptest::collection::vec(job(), 1..6), depth in 1usize..=2, stalls in [stall(), stall(), stall(), stall()]) {
        check_decoder(&jobs, depth, stalls)?;
    }
}

const OPEN: Stall = Stall { seed: 0, rate: 8 };

#[test]
fn a_full_tile_takes_the_documented_cycles() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut job = loop {
        use proptest::strategy::ValueTree;
        let job = job().new_tree(&mut runner).unwrap().current();
        if job.width == 64 && job.tokens == 32 && !job.values.iter().any(|x| x & 0x7f80 >= 0x7e00) {
            break job;
        }
    };
    (job.mode, job.calibrated) = (Mode::Entropy { qp: 0 }, true);
    let (done, bytes) = encode(0, &job);
    let edges = encode_edges(&done, 64, job.mode, None, (|_| true, |_| true), (|_| true, |_| true));
    let pieces: u64 = u64::from(done.stream.div_ceil(64));
    let padding = u64::from(!done.stream.is_multiple_of(64));
    assert_eq!(edges.status, 32 + 1 + (32 * 8 + 1) + pieces + padding + 3);
    check_encoder(&[job.clone()], [OPEN; 4]).unwrap();
    let words = bytes.len() / 8;
    let decode = |depth| {
        decode_edges((&done.header, words, 64, depth), None, [None; 2], (|_| true, |_| true), (|_| true, |_| true))
            .status
    };
    assert_eq!(decode(1), words as u64 + 1 + 32 * 8 + 3);
    assert_eq!(decode(2), words as u64 + 1 + 32 * 4 + 3);
}

#[test]
fn reset_in_the_middle_leaves_nothing_behind() {
    let mut encoder = TileEncoder::new(TableRam::new(1));
    let mut decoder = Decoder::new(TableRam::new(1), 1);
    let order = EncodeCommand { tokens: 4, width: 16, mode: Mode::Lossless, ..EncodeCommand::default() };
    let lanes = [0x3f80; 64];
    let fetch = DecodeCommand { width: 16, words: 9, ..DecodeCommand::default() };
    for edges in [1, 3, 7, 20, 40] {
        for _ in 0..edges {
            encoder.clock(&EncoderIn {
                command: Stream::offer(&order),
                row: Stream::offer(&lanes),
                word_ready: false,
                status_ready: false,
            });
            decoder.clock(&DecoderIn {
                command: Stream::offer(&fetch),
                word: Stream::offer(1 | 8 << 19),
                row_ready: false,
                status_ready: false,
            });
        }
        for _ in 0..2 {
            encoder.reset();
            decoder.reset();
            let out = encoder.out();
            assert!(out.command_ready && !out.row_ready && !out.word.valid && !out.status.valid);
            let out = decoder.out();
            assert!(out.command_ready && !out.word_ready && !out.row.valid && !out.status.valid);
        }
    }
}

#[test]
fn a_checkpoint_goes_on_where_it_was_taken() {
    let order = EncodeCommand { tokens: 4, width: 16, mode: Mode::Lossless, ..EncodeCommand::default() };
    let lanes = std::array::from_fn(|i| 0x3f80 + i as u16);
    let step = |engine: &mut TileEncoder| {
        let i = EncoderIn {
            command: Stream::offer(&order),
            row: Stream::offer(&lanes),
            word_ready: true,
            status_ready: true,
        };
        engine.clock(&i);
    };
    let mut engine = TileEncoder::new(TableRam::new(1));
    (0..13).for_each(|_| step(&mut engine));
    let image = Image::of(&mut engine);
    let mut other = TileEncoder::new(TableRam::new(1));
    image.restore(&mut other);
    for _ in 0..40 {
        step(&mut engine);
        step(&mut other);
        assert_eq!(Image::of(&mut engine).differences(&Image::of(&mut other)), []);
    }
}
