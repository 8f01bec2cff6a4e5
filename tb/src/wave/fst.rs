use super::output::Output;
use super::{Backend, Kind, VarId, WaveError};
use fst_writer::{
    FstBodyWriter, FstFileType, FstHeaderWriter, FstInfo, FstScopeType, FstSignalId, FstSignalType, FstVarDirection,
    FstVarType, FstWriteError,
};
use rtl::Role;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Changes held in memory before a section is compressed and written.
const SECTION: usize = 16 << 20;

/// GTKWave's compressed format: for long traces. Texts are left out (the format has no fitting kind).
pub struct Fst {
    stage: Stage,
    variables: Vec<FstSignalId>,
    path: PathBuf,
    written: Arc<AtomicU64>,
    /// A section may end only right before a new time.
    error: Option<FstWriteError>,
}

enum Stage {
    Hierarchy(FstHeaderWriter<Counted>),
    Body(FstBodyWriter<Counted>),
    Closed,
}

/// Keeps the file's length, which the FST writer does not tell. It goes back to write over its header.
struct Counted {
    output: Output<File>,
    position: u64,
    written: Arc<AtomicU64>,
}

impl Write for Counted {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let n = self.output.write(data)?;
        self.position += n as u64;
        self.written.fetch_max(self.position, Ordering::Relaxed);
        Ok(n)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.output.flush()
    }
}

impl Seek for Counted {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.position = self.output.seek(to)?;
        Ok(self.position)
    }
}

impl Fst {
    /// Creates the file, replacing one that is there.
    ///
    /// # Errors
    /// [`WaveError::Create`], [`WaveError::Write`].
    pub fn create(path: &Path) -> Result<Self, WaveError> {
        let file = File::create(path).map_err(|reason| WaveError::Create { path: path.into(), reason })?;
        let written = Arc::new(AtomicU64::new(0));
        let info = FstInfo {
            start_time: 0,
            timescale_exponent: -9,
            version: "Magpie".into(),
            date: String::new(),
            file_type: FstFileType::Verilog,
        };
        let counted = Counted { output: Output::new(file), position: 0, written: written.clone() };
        let writer = FstHeaderWriter::new(counted, &info).map_err(|e| write_error(path, e))?;
        Ok(Self { stage: Stage::Hierarchy(writer), variables: Vec::new(), path: path.into(), written, error: None })
    }

    fn keep<T>(&mut self, result: fst_writer::Result<T>) -> Option<T> {
        result.map_err(|e| self.error.get_or_insert(e)).ok()
    }

    fn change(&mut self, var: VarId, value: &[u8]) {
        if let (Stage::Body(body), None) = (&mut self.stage, &self.error) {
            let result = body.signal_change(self.variables[var.0 as usize], value);
            self.keep(result);
        }
    }
}

fn write_error(path: &Path, error: FstWriteError) -> WaveError {
    let reason = match error {
        FstWriteError::Io(reason) => reason,
        other => std::io::Error::other(other),
    };
    WaveError::Write { path: path.into(), reason }
}

impl Backend for Fst {
    fn enter(&mut self, scope: &str) {
        if let Stage::Hierarchy(header) = &mut self.stage {
            let result = header.scope(scope, "", FstScopeType::Module);
            self.keep(result);
        }
    }

    fn leave(&mut self) {
        if let Stage::Hierarchy(header) = &mut self.stage {
            let result = header.up_scope();
            self.keep(result);
        }
    }

    fn declare(&mut self, name: &str, role: Role, kind: Kind) -> Option<VarId> {
        let Stage::Hierarchy(header) = &mut self.stage else { return None };
        let (signal, var) = match (kind, role) {
            (Kind::Bits(width), Role::Register) => (FstSignalType::bit_vec(width), FstVarType::Reg),
            (Kind::Bits(width), Role::Wire) => (FstSignalType::bit_vec(width), FstVarType::Wire),
            (Kind::Real, _) => (FstSignalType::real(), FstVarType::Real),
            (Kind::Text, _) => return None,
        };
        let result = header.var(name, signal, var, FstVarDirection::Implicit, None);
        let id = VarId(self.variables.len() as u32);
        self.keep(result).map(|v| {
            self.variables.push(v);
            id
        })
    }

    fn start(&mut self) {
        if let Stage::Hierarchy(header) = std::mem::replace(&mut self.stage, Stage::Closed) {
            let result = header.finish();
            self.stage = self.keep(result).map_or(Stage::Closed, Stage::Body);
        }
    }

    fn time(&mut self, time: u64) {
        if let (Stage::Body(body), None) = (&mut self.stage, &self.error) {
            let flushed = if body.size() > SECTION { body.flush() } else { Ok(()) };
            let result = flushed.and_then(|()| body.time_change(time));
            self.keep(result);
        }
    }

    fn initial(&mut self, _: bool) {}

    fn bits(&mut self, var: VarId, width: u32, value: u64) {
        let digits: [u8; 64] = std::array::from_fn(|i| b'0' + (value >> (63 - i) & 1) as u8);
        self.change(var, &digits[64 - width as usize..]);
    }

    fn real(&mut self, var: VarId, value: f64) {
        self.change(var, &value.to_le_bytes());
    }

    fn text(&mut self, _: VarId, _: &str) {}

    fn bytes(&mut self) -> u64 {
        let held = if let Stage::Body(body) = &self.stage { body.size() as u64 } else { 0 };
        self.written.load(Ordering::Relaxed) + held
    }

    fn check(&mut self) -> Result<(), WaveError> {
        self.error.take().map_or(Ok(()), |e| Err(write_error(&self.path, e)))
    }

    fn finish(&mut self, end: u64) -> Result<(), WaveError> {
        self.time(end);
        self.check()?;
        if let Stage::Body(body) = std::mem::replace(&mut self.stage, Stage::Closed) {
            let mut output = body.finish().map_err(|e| write_error(&self.path, e))?;
            output.flush().map_err(|e| write_error(&self.path, e.into()))?;
        }
        Ok(())
    }
}
