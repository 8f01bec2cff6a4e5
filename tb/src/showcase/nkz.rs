//! NeuKompression stores a tile and reads it back.

use super::Showcase;
use crate::wave::{Colour, Radix, Trace, View, WaveError};
use nkz::clocked::{DecodeCommand, Decoder, DecoderIn, EncodeCommand, EncoderIn, TableRam, TileEncoder};
use nkz::{Channel, Mode};
use rtl::{Format, Module, Stream, Visitor};

pub(super) const NKZ: Showcase = Showcase {
    name: "nkz",
    about: "a tile of 8 tokens × 16 channels is surveyed, coded last value first, stored, checked and decoded",
    scopes: &[],
    run: tile,
};

const TOKENS: usize = 8;
const WIDTH: usize = 16;

/// The encoder and the decoder on one clock.
struct Pair {
    encoder: TileEncoder,
    decoder: Decoder,
}

impl Module for Pair {
    type In<'a> = (&'a EncoderIn<'a>, &'a DecoderIn<'a>);
    type Out<'a> = ();
    fn out(&self) {}
    fn clock(&mut self, (encoder, decoder): &Self::In<'_>) {
        self.encoder.clock(encoder);
        self.decoder.clock(decoder);
    }
    fn reset(&mut self) {
        self.encoder.reset();
        self.decoder.reset();
    }
    fn visit(&mut self, v: &mut impl Visitor) {
        let (word, row) = (self.encoder.out().word, self.decoder.out().row);
        v.wire("stored_valid", 1, Format::Unsigned, word.valid);
        v.wire("stored_index", 10, Format::Unsigned, word.data.index);
        v.wire("stored_word", 64, Format::Hex, word.data.data);
        v.wire("row_valid", 1, Format::Unsigned, row.valid);
        v.scope("encoder", |v| self.encoder.visit(v));
        v.scope("decoder", |v| self.decoder.visit(v));
    }
}

/// A ripple around each channel's mean, some steps high, with one value that stands out.
fn value(token: usize, channel: usize) -> u16 {
    let ripple = ((token * 5 + channel * 3) % 7) as f32 - 3.0;
    let outlier = if (token, channel) == (4, 6) { 40.0 } else { 0.0 };
    let x = 1.0 + channel as f32 / 16.0 + (ripple + outlier) / 64.0;
    (x.to_bits() >> 16) as u16
}

fn tile(trace: &mut Trace) -> Result<View, WaveError> {
    let lines: Vec<Channel> = (0..WIDTH)
        .map(|c| Channel {
            mean: ((1.0 + c as f32 / 16.0).to_bits() >> 16) as u16,
            step: -22,
            spread: 12,
            ..Channel::default()
        })
        .collect();
    let mut tables = TableRam::new(1);
    tables.write(0, &lines);
    let mut pair = Pair { encoder: TileEncoder::new(tables.clone()), decoder: Decoder::new(tables, 1) };
    let encode = EncodeCommand {
        width: WIDTH as u8,
        tokens: TOKENS as u8,
        mode: Mode::Entropy { qp: 0 },
        table: Some(0),
        ..EncodeCommand::default()
    };
    let mut view = view();
    // The memory between the two, its words, and how far each side is.
    let (mut memory, mut words) = (vec![0u64; 64], None);
    let (mut commands, mut token, mut loaded, mut cycle) = ([false; 2], 0, 0, 0);
    loop {
        let row: [u16; 64] = std::array::from_fn(|c| if c < WIDTH { value(token.min(TOKENS - 1), c) } else { 0 });
        let decode =
            DecodeCommand { width: WIDTH as u8, words: words.unwrap_or(1), table: Some(0), ..DecodeCommand::default() };
        let to_encoder = EncoderIn {
            command: Stream { valid: !commands[0], data: &encode },
            row: Stream { valid: token < TOKENS, data: &row },
            word_ready: true,
            status_ready: true,
        };
        let to_decoder = DecoderIn {
            command: Stream { valid: words.is_some() && !commands[1], data: &decode },
            word: Stream { valid: commands[1] && loaded < decode.words, data: memory[usize::from(loaded)] },
            row_ready: true,
            status_ready: true,
        };
        trace.sample(cycle, &mut pair)?;
        let (stored, read) = (pair.encoder.out(), pair.decoder.out());
        let mut first = |flag: &mut bool, fires: bool, name: &str| {
            if fires && !*flag {
                view.marker(name, cycle);
            }
            *flag |= fires;
        };
        let mut flags = commands;
        first(&mut flags[0], to_encoder.command.fires(stored.command_ready), "rows");
        first(&mut flags[1], to_decoder.command.fires(read.command_ready), "read");
        token += usize::from(to_encoder.row.fires(stored.row_ready));
        if stored.word.fires(true) {
            memory[usize::from(stored.word.data.index)] = stored.word.data.data;
        }
        if stored.status.fires(true) {
            words = Some(stored.status.data.words);
        }
        loaded += u16::from(to_decoder.word.fires(read.word_ready));
        let ended = read.status.fires(true);
        pair.clock(&(&to_encoder, &to_decoder));
        commands = flags;
        cycle += 1;
        if ended {
            view.marker("end", cycle - 1);
            return Ok(view);
        }
    }
}

fn view() -> View {
    let mut view = View::new("nkz");
    view.group("encoder: rows in, survey of four table offsets", |v| {
        v.signal("phase", "nkz.encoder.phase_q_state", 1, Radix::Plain, Colour::Yellow);
        v.signal("token", "nkz.encoder.token_q", 6, Radix::Unsigned, Colour::Yellow);
        for (offset, name) in ["cost at -2, 1/32 bit", "cost at -1", "cost at 0", "cost at +1"].into_iter().enumerate()
        {
            v.signal(name, &format!("nkz.encoder.cost_q_{offset}"), 24, Radix::Unsigned, Colour::Yellow);
        }
    });
    view.group("encoder: lanes, last value first", |v| {
        v.signal("group of eight", "nkz.encoder.group_q", 3, Radix::Unsigned, Colour::Orange);
        for lane in [0, 6] {
            v.signal(
                &format!("state of lane {lane}"),
                &format!("nkz.encoder.state_q_{lane}"),
                13,
                Radix::Unsigned,
                Colour::Orange,
            );
        }
        v.signal("stack pointer, bits", "nkz.encoder.stack_q", 16, Radix::Unsigned, Colour::Orange);
    });
    view.group("stored words", |v| {
        v.signal("valid", "nkz.stored_valid", 1, Radix::Bit, Colour::Green);
        v.signal("place in the tile", "nkz.stored_index", 10, Radix::Unsigned, Colour::Green);
        v.signal("word", "nkz.stored_word", 64, Radix::Hex, Colour::Green);
        v.signal("CRC so far", "nkz.encoder.merger.crc_q", 16, Radix::Hex, Colour::Green);
    });
    view.group("decoder: load and check", |v| {
        v.signal("loader", "nkz.decoder.load_q_state", 1, Radix::Plain, Colour::Blue);
        v.signal("words", "nkz.decoder.loaded_q", 10, Radix::Unsigned, Colour::Blue);
        v.signal("CRC so far", "nkz.decoder.crc_q", 16, Radix::Hex, Colour::Blue);
    });
    view.group("decoder: eight values a cycle", |v| {
        v.signal("drain", "nkz.decoder.drain_q_state", 1, Radix::Plain, Colour::Violet);
        v.signal("token", "nkz.decoder.token_q", 6, Radix::Unsigned, Colour::Violet);
        v.signal("bit in the payload", "nkz.decoder.position_q", 16, Radix::Unsigned, Colour::Violet);
        for lane in [0, 6] {
            v.signal(
                &format!("state of lane {lane}"),
                &format!("nkz.decoder.state_q_{lane}"),
                13,
                Radix::Unsigned,
                Colour::Violet,
            );
        }
        v.signal("row valid", "nkz.row_valid", 1, Radix::Bit, Colour::Violet);
        v.signal("channel 6 of 8", "nkz.decoder.row_q.value_q_6", 16, Radix::Hex, Colour::Violet);
    });
    view
}
