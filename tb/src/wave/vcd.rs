use super::output::{LINE, LINES, Output};
use super::{Backend, Change, Kind, VarId, WaveError};
use rtl::Role;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Eight binary digits of each byte, most significant first.
static DIGITS: [[u8; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut digit = 0;
        while digit < 8 {
            table[byte][digit] = b'0' + (byte >> (7 - digit) & 1) as u8;
            digit += 1;
        }
        byte += 1;
    }
    table
};

/// The end of a change's line, ` code\n`, at most 7 bytes for 2³² codes, and in the last byte its length.
type Ending = [u8; 8];

/// The Value Change Dump (IEEE 1364-2005, clause 18). The `vcd` crate writes the hierarchy, a table-driven path the changes.
///
/// Vectors are written without their leading zeros, as the standard allows (18.2.1). Texts are the `string` variables
/// that GTKWave, Surfer and wellen know.
pub struct Vcd<W: Write = File> {
    writer: vcd::Writer<Output<W>>,
    endings: Vec<Ending>,
    path: PathBuf,
}

impl Vcd<File> {
    /// Creates the file, replacing one that is there.
    ///
    /// # Errors
    /// [`WaveError::Create`].
    pub fn create(path: &Path) -> Result<Self, WaveError> {
        let file = File::create(path).map_err(|reason| WaveError::Create { path: path.into(), reason })?;
        Ok(Self { path: path.into(), ..Self::new(file) })
    }
}

impl<W: Write> Vcd<W> {
    /// Writes to `sink`, which needs no buffer.
    pub fn new(sink: W) -> Self {
        let mut writer = vcd::Writer::new(Output::new(sink));
        // `Output` keeps its errors for `check`; the writer never sees one.
        let _ = writer.version("Magpie");
        let _ = writer.timescale(1, vcd::TimescaleUnit::NS);
        Self { writer, endings: Vec::new(), path: "(stream)".into() }
    }

    /// The sink; what [`finish`](Backend::finish) has not written out is lost.
    pub fn into_inner(self) -> W
    where
        W: Default,
    {
        let Self { mut writer, .. } = self;
        std::mem::take(writer.writer().sink())
    }

    fn error(&self, reason: std::io::Error) -> WaveError {
        WaveError::Write { path: self.path.clone(), reason }
    }
}

/// Writes the upper N octets of `bits`, in binary digits, behind the line's first byte.
#[inline(always)]
fn octets<const N: usize>(line: &mut [u8; LINE], bits: u64) {
    for (octet, byte) in line[1..].as_chunks_mut::<8>().0.iter_mut().zip(bits.to_be_bytes()).take(N) {
        *octet = DIGITS[usize::from(byte)];
    }
}

/// Writes a vector's change and returns the bytes of its line.
#[inline(always)]
fn change(line: &mut [u8; LINE], ending: Ending, width: u32, value: u64) -> usize {
    let length = usize::from(ending[7]);
    if width == 1 {
        // A scalar has no space before its code.
        line[..8].copy_from_slice(&ending);
        line[0] = b'0' + (value & 1) as u8;
        return length;
    }
    let digits = (u64::BITS - value.leading_zeros()).max(1);
    let rest = value << (u64::BITS - digits);
    line[0] = b'b';
    // More octets than digits, their number known from the width alone: a loop that ends with the digits cannot be foreseen.
    match width {
        2..=8 => octets::<1>(line, rest),
        9..=32 => octets::<4>(line, rest),
        _ => octets::<8>(line, rest),
    }
    let end = 1 + digits as usize;
    line[end..end + 8].copy_from_slice(&ending);
    end + length
}

impl<W: Write> Backend for Vcd<W> {
    fn enter(&mut self, scope: &str) {
        let _ = self.writer.add_module(scope);
    }

    fn leave(&mut self) {
        let _ = self.writer.upscope();
    }

    fn declare(&mut self, name: &str, role: Role, kind: Kind) -> Option<VarId> {
        let id = self.endings.len() as u32;
        let (var, width) = match (kind, role) {
            (Kind::Bits(width), Role::Register) => (vcd::VarType::Reg, width),
            (Kind::Bits(width), Role::Wire) => (vcd::VarType::Wire, width),
            (Kind::Real, _) => (vcd::VarType::Real, 64),
            (Kind::Text, _) => (vcd::VarType::String, 1),
        };
        let code = vcd::IdCode::from(id);
        let _ = self.writer.var_def(var, width, code, name, None);
        let text = format!(" {code}\n");
        let mut ending = [0; 8];
        ending[..text.len()].copy_from_slice(text.as_bytes());
        ending[7] = text.len() as u8;
        self.endings.push(ending);
        Some(VarId(id))
    }

    fn start(&mut self) {
        let _ = self.writer.enddefinitions();
    }

    fn time(&mut self, time: u64) {
        let _ = self.writer.timestamp(time);
    }

    fn initial(&mut self, begin: bool) {
        let _ = if begin { self.writer.begin(vcd::SimulationCommand::Dumpvars) } else { self.writer.end() };
    }

    fn bits(&mut self, var: VarId, width: u32, value: u64) {
        self.changes(&[Change { var, width, value }]);
    }

    fn changes(&mut self, changes: &[Change]) {
        for changes in changes.chunks(LINES) {
            let output = self.writer.writer();
            let lines = output.lines();
            let mut used = 0;
            for &Change { var, width, value } in changes {
                // Each line overwrites what the one before it left beyond its end.
                let Some(line) = lines[used..].first_chunk_mut() else { break };
                used += change(line, self.endings[var.0 as usize], width, value);
            }
            output.advance(used);
        }
    }

    fn real(&mut self, var: VarId, value: f64) {
        // Exponents keep the line short: 1e300 has 301 digits otherwise.
        let _ = writeln!(self.writer.writer(), "r{value:e} {}", vcd::IdCode::from(var.0));
    }

    fn text(&mut self, var: VarId, value: &str) {
        let _ = self.writer.change_string(vcd::IdCode::from(var.0), value);
    }

    fn bytes(&mut self) -> u64 {
        self.writer.writer().bytes()
    }

    fn check(&mut self) -> Result<(), WaveError> {
        match self.writer.writer().take_error() {
            Some(reason) => Err(self.error(reason)),
            None => Ok(()),
        }
    }

    fn finish(&mut self, end: u64) -> Result<(), WaveError> {
        self.time(end);
        self.writer.flush().map_err(|reason| self.error(reason))
    }
}
