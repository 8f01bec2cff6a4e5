//! The clocked engines against the transaction engines: bits, and edges under stalls.

use super::sample::{self, MODES, OUTLIERS, Sample};
use crate::verify::Case;
use crate::wave::Tracer;
use nkz::clocked::{
    DecodeCommand, DecodeStatus, Decoder, DecoderIn, EncodeCommand, EncodeStatus, EncoderIn, TableRam, TileEncoder,
    decode_edges, encode_edges,
};
use nkz::{Cause, Error, Header};
use rand::RngExt;
use rtl::{Module, Stream};

/// Edges after which a tile hangs.
const LIMIT: u64 = 100_000;
/// Cycles kept on each side of a mismatch in a failing case's waveform.
const CONTEXT: u64 = 2_000;

/// Whether a port is open on an edge: a fixed pseudo-random pattern of some rate.
fn open(seed: u64, rate: u64, edge: u64) -> bool {
    (edge ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61 < rate
}

/// Stall patterns of four ports; directed cases run without stalls.
fn stalls(case: &mut Case) -> [(u64, u64); 4] {
    let directed = case.random.is_none();
    std::array::from_fn(|_| (case.rng.random(), if directed { 8 } else { case.rng.random_range(1..=8) }))
}

pub(super) fn encoder(case: &mut Case) -> anyhow::Result<()> {
    let [command, row, word, status] = stalls(case).map(|(s, r)| move |edge| open(s, r, edge));
    let name = MODES[case.index % 6];
    let tokens = case.rng.random_range(1..=32);
    let outlier = OUTLIERS[case.rng.random_range(0..4)];
    let s = Sample::new(&mut case.rng, tokens, outlier);
    let mode = sample::mode(&mut case.rng, name, s.width);
    let mut tables = TableRam::new(1);
    tables.write(0, &s.channels);
    let mut engine = TileEncoder::new(tables);
    let (address, width) = (s.address, s.width as u8);
    let order = EncodeCommand { address, width, tokens: tokens as u8, mode, table: Some(0) };
    let (mut stored, mut token, mut edge, mut accepted) = (Vec::new(), 0, 0, false);
    let (mut indices, mut ends) = (Vec::new(), Vec::new());
    let mut probe = case.probe("encoder", CONTEXT)?;
    loop {
        probe.sample(edge, &mut engine)?;
        let mut lanes = [0x7fff; 64];
        if let Some(values) = s.values.get(token * s.width..(token + 1) * s.width) {
            lanes[..s.width].copy_from_slice(values);
        }
        let i = EncoderIn {
            command: Stream { valid: command(edge) && !accepted, data: &order },
            row: Stream { valid: row(edge) && token < tokens, data: &lanes },
            word_ready: word(edge),
            status_ready: status(edge),
        };
        let out = engine.out();
        accepted |= i.command.fires(out.command_ready);
        token += usize::from(i.row.fires(out.row_ready));
        if out.word.fires(i.word_ready) {
            let index = usize::from(out.word.data.index);
            stored.resize(stored.len().max(index + 1), 0);
            stored[index] = out.word.data.data;
            indices.push(index);
            probe.output(edge, out.word.data);
        }
        let ended = out.status.fires(i.status_ready);
        if ended {
            probe.output(edge, &out.status.data);
            ends.push(out.status.data);
        }
        engine.clock(&i);
        if ended || edge > LIMIT {
            break;
        }
        edge += 1;
    }
    probe.rest(&mut engine);
    probe.finish()?;
    let mut bytes = Vec::new();
    let done = super::encode(&s, mode, &mut bytes)?;
    let got: Vec<u8> = stored.iter().flat_map(|w| w.to_le_bytes()).collect();
    case.equal_slices("stored bytes", &bytes, &got);
    let expected = EncodeStatus { address, format: done.header.format, words: (bytes.len() / 8) as u16 };
    case.equal_slices("status", &[expected], &ends);
    indices.sort_unstable();
    case.equal_slices("words stored once", &(0..bytes.len() / 8).collect::<Vec<_>>(), &indices);
    let edges = encode_edges(&done, s.width, mode, None, (command, row), (word, status));
    if !case.equal("edge of the status", edges.status, edge) {
        case.mismatch_at(edge);
    }
    case.cycles(edge + 1);
    Ok(())
}

pub(super) fn decoder(case: &mut Case) -> anyhow::Result<()> {
    let [command, word, row, status] = stalls(case).map(|(s, r)| move |edge| open(s, r, edge));
    let depth = 1 + case.index % 2;
    let samples: Vec<Sample> = (0..4)
        .map(|_| {
            let tokens = case.rng.random_range(1..=32);
            Sample::new(&mut case.rng, tokens, "none")
        })
        .collect();
    let mut tables = TableRam::new(samples.len());
    let mut tiles = Vec::new();
    for (n, s) in samples.iter().enumerate() {
        tables.write(n, &s.channels);
        let name = MODES[case.rng.random_range(0..6)];
        let mode = sample::mode(&mut case.rng, name, s.width);
        let mut bytes = Vec::new();
        super::encode(s, mode, &mut bytes)?;
        if case.rng.random_bool(0.3) {
            let bit = case.rng.random_range(0..8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        tiles.push(bytes);
    }
    let mut engine = Decoder::new(tables, depth);
    let (mut commands, mut loaded, mut edge, mut ends) = (0, 0, 0u64, Vec::new());
    let mut rows: Vec<Vec<u16>> = samples.iter().map(|s| vec![0; 32 * s.width]).collect();
    let mut places = vec![Vec::new(); samples.len()];
    let mut probe = case.probe("decoder", CONTEXT)?;
    while ends.len() < tiles.len() && edge < LIMIT {
        probe.sample(edge, &mut engine)?;
        let order = samples.get(commands).map_or_else(DecodeCommand::default, |s| DecodeCommand {
            address: s.address,
            width: s.width as u8,
            words: (tiles[commands].len() / 8) as u16,
            table: Some(commands as u32),
        });
        let loading = commands.checked_sub(1).and_then(|n| tiles[n].get(loaded..loaded + 8));
        let data = loading.map_or(0, |b| b.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b)));
        let i = DecoderIn {
            command: Stream { valid: command(edge) && commands < tiles.len(), data: &order },
            word: Stream { valid: word(edge) && loading.is_some(), data },
            row_ready: row(edge),
            status_ready: status(edge),
        };
        let out = engine.out();
        if out.row.fires(i.row_ready) {
            let (n, beat) = (ends.len(), out.row.data);
            places[n].push((beat.token, beat.group, beat.count));
            let at = usize::from(beat.token) * samples[n].width + 8 * usize::from(beat.group);
            let count = usize::from(beat.count);
            rows[n][at..at + count].copy_from_slice(&beat.values[..count]);
            probe.output(edge, &(beat.token, beat.group, &beat.values[..count]));
        }
        loaded += 8 * usize::from(i.word.fires(out.word_ready));
        if i.command.fires(out.command_ready) {
            (commands, loaded) = (commands + 1, 0);
        }
        if out.status.fires(i.status_ready) {
            probe.output(edge, &out.status.data);
            ends.push((out.status.data, edge));
        }
        engine.clock(&i);
        edge += 1;
    }
    probe.rest(&mut engine);
    probe.finish()?;
    case.cycles(edge);
    case.equal("tiles ended", tiles.len(), ends.len());
    let mut history = Vec::new();
    for (n, (ended, at)) in ends.into_iter().enumerate() {
        let (s, bytes) = (&samples[n], &tiles[n]);
        let mut expected = vec![0; 32 * s.width];
        let (cause, overflow) = match super::slot(s).decode(bytes, &mut expected) {
            Ok(decoded) => (None, decoded.overflow),
            Err(Error::Corrupt(c)) => (Some(c.cause), None),
            Err(other) => return Err(other.into()),
        };
        case.equal("status", DecodeStatus { address: s.address, cause, overflow }, ended);
        if cause.is_none() {
            case.equal_slices("values", &expected, &rows[n]);
            let beat = 8 * depth;
            let tokens = if overflow.is_some() { 0 } else { s.values.len() / s.width };
            let order = (0..tokens).flat_map(|t| (0..s.width).step_by(beat).map(move |c| (t, c)));
            let order: Vec<_> = order.map(|(t, c)| (t as u8, (c / 8) as u8, beat.min(s.width - c) as u8)).collect();
            case.equal_slices("places of the rows", &order, &places[n]);
        }
        let header = Header::unpack(bytes[..8].iter().rev().fold(0, |w, &b| w << 8 | u64::from(b)));
        let late = matches!(cause, Some(Cause::Lane | Cause::State | Cause::Padding));
        let before = [n.checked_sub(1).map(|k| &history[k]), n.checked_sub(2).map(|k| &history[k])];
        let edges = decode_edges(
            (&header.unwrap_or_default(), bytes.len() / 8, s.width, depth),
            cause.filter(|_| !late),
            before,
            (command, word),
            (row, status),
        );
        case.equal("edge of the status", edges.status, at);
        history.push(edges);
        let end = if cause.is_some() { "corrupt" } else { "good" };
        case.cover(
            "decoder",
            &[("bank", ["first", "second"][n % 2]), ("depth", ["one", "two"][depth - 1]), ("end", end)],
        );
    }
    Ok(())
}
