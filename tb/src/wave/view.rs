use super::UNITS_PER_CYCLE;
use std::fmt::{self, Write};

/// How GTKWave prints a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Radix {
    /// Unsigned decimal.
    Unsigned,
    /// Two's complement decimal.
    Signed,
    /// Hexadecimal.
    Hex,
    /// A level: one bit.
    Bit,
    /// A text or real variable, printed as it is.
    Plain,
}

impl Radix {
    /// GTKWave's trace flags: right-justified (0x20) and the radix.
    fn flags(self) -> &'static str {
        match self {
            Self::Unsigned => "@24",
            Self::Signed => "@420",
            Self::Hex => "@22",
            Self::Bit | Self::Plain => "@28",
        }
    }
}

/// A colour of GTKWave's palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// The default, green.
    Normal = 0,
    /// Red.
    Red,
    /// Orange.
    Orange,
    /// Yellow.
    Yellow,
    /// Green.
    Green,
    /// Blue.
    Blue,
    /// Indigo.
    Indigo,
    /// Violet.
    Violet,
}

impl Colour {
    /// Colours that tell the rows or columns of an array apart.
    pub fn of(index: usize) -> Self {
        [Self::Orange, Self::Yellow, Self::Green, Self::Red, Self::Violet, Self::Blue][index % 6]
    }
}

/// A GTKWave save file (`.gtkw`) in the making: which signals, in which order, groups, radix and colour, and markers.
///
/// ```
/// use tb::wave::{Colour, Radix, View};
/// let mut view = View::new("counter");
/// view.group("state", |v| v.signal("count", "counter.count_q", 4, Radix::Unsigned, Colour::Normal));
/// view.marker("wraps", 16);
/// let text = view.text(20);
/// assert!(text.contains("+{count} counter.count_q[3:0]"));
/// ```
#[derive(Clone, Debug)]
pub struct View {
    name: String,
    body: String,
    markers: Vec<(String, u64)>,
    lines: u32,
}

/// Width of the window, in pixels.
const WINDOW: u32 = 1400;
/// Width of the name column.
const NAMES: u32 = 260;
/// Width of the folded tree and the window's edges.
const FRINGE: u32 = 150;
/// Pixels that GTKWave's zoom factor counts in.
const FRAME: f64 = 200.0;

impl View {
    /// A view of `NAME.vcd`, whose top scope has that name too; clock and cycle come first.
    pub fn new(name: &str) -> Self {
        let mut view = Self { name: name.into(), body: String::new(), markers: Vec::new(), lines: 0 };
        view.signal("clk", &format!("{name}.clk"), 1, Radix::Bit, Colour::Normal);
        view.signal("cycle", &format!("{name}.cycle"), 64, Radix::Unsigned, Colour::Normal);
        view
    }

    /// A group, open, with a title.
    pub fn group(&mut self, title: &str, body: impl FnOnce(&mut Self)) {
        let _ = writeln!(self.body, "@800200\n-{title}");
        self.lines += 2;
        body(self);
        let _ = writeln!(self.body, "@1000200\n-{title}");
    }

    /// A signal of `width` bits under the name `alias`. Texts and reals have width 1.
    pub fn signal(&mut self, alias: &str, path: &str, width: u32, radix: Radix, colour: Colour) {
        let range = if width > 1 { format!("[{}:0]", width - 1) } else { String::new() };
        let _ = writeln!(self.body, "{}\n[color] {}\n+{{{alias}}} {path}{range}", radix.flags(), colour as u8);
        self.lines += 1;
    }

    /// A named marker at the start of a cycle; the first 26 are shown.
    pub fn marker(&mut self, name: &str, cycle: u64) {
        self.markers.push((name.into(), cycle * UNITS_PER_CYCLE));
    }

    /// The file, zoomed so that `cycles` cycles fill the window.
    pub fn text(&self, cycles: u64) -> String {
        let span = (cycles * UNITS_PER_CYCLE).max(1) as f64;
        let zoom = -(span * FRAME / f64::from(WINDOW - NAMES - FRINGE)).log2();
        let primary = self.markers.first().map_or(-1, |m| m.1 as i64);
        let mut times = [-1i64; 26];
        for (slot, marker) in times.iter_mut().zip(&self.markers) {
            *slot = marker.1 as i64;
        }
        let times: String = times.iter().map(|t| format!(" {t}")).collect();
        let mut text = format!(
            "[*] GTKWave view of {name}.vcd, written by `magpie waves --views`\n[timestart] 0\n[size] {WINDOW} {height}\n[pos] -1 -1\n*{zoom:.6} {primary}{times}\n",
            name = self.name,
            height = (110 + 21 * self.lines).clamp(400, 1000),
        );
        for (letter, (name, _)) in ('A'..='Z').zip(&self.markers) {
            let _ = writeln!(text, "[markername] {letter}{name}");
        }
        let _ = write!(
            text,
            "[sst_width] 60\n[signals_width] {NAMES}\n[sst_expanded] 0\n{}[pattern_trace] 1\n[pattern_trace] 0\n",
            self.body
        );
        text
    }
}

/// A signal that a save file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Full path without range.
    pub path: String,
    /// Bits, from the range; 1 without.
    pub width: u32,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bits)", self.path, self.width)
    }
}

/// The signals that the text of a save file names, in order.
pub fn shown(text: &str) -> Vec<Shown> {
    let lines = text.lines().filter(|l| !l.starts_with(['[', '@', '*', '-', '^']) && !l.trim().is_empty());
    lines
        .map(|line| {
            let signal = line.strip_prefix("+{").and_then(|l| l.split_once("} ")).map_or(line, |(_, path)| path);
            let (path, range) = signal.split_once('[').unwrap_or((signal, ":"));
            let high: Option<u32> = range.split_once(':').and_then(|(high, _)| high.parse().ok());
            Shown { path: path.into(), width: high.map_or(1, |h| h + 1) }
        })
        .collect()
}
