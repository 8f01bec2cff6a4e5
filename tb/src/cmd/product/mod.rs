//! What `magpie gemm`, `gemv` and `conv` share: options, operands, engines, output stage, report.

mod engine;
mod finish;
mod operands;
mod show;
pub mod vectors;

pub use engine::{Engine, Machine, Mode, Ran, Tally};
pub use finish::{Finish, Finished};
pub use operands::{Losses, Matrix, Operand, Side};
pub use show::Shown;

use crate::blocks::mvp::driver::Rates;
use crate::cmd::save_npy;
use crate::npy::Npy;
use crate::out;
use crate::wave::{Trace, TraceOptions};
use anyhow::{Context, bail};
use mvp::{Config, Datapath};
use numeric::{Format, IntFormat};
use std::path::PathBuf;

/// Most values of an operand or a result.
pub const MAX_VALUES: usize = 1 << 27;

/// Largest share of edges on which a port may stand still.
const MAX_STALL: f64 = 0.95;

/// The options of every product.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Format of A, and of B where --b-format is not given: int8 uint8 int4 (A in INT8) bf16 fp16 e4m3 e5m2 ffp8:s,e,f,bias
    #[arg(long, default_value = "int8", value_name = "FORMAT")]
    format: String,
    /// Format of B, if it is another
    #[arg(long, value_name = "FORMAT")]
    b_format: Option<String>,
    /// Rows and columns of the array
    #[arg(long, default_value = "32x32", value_name = "RxC")]
    array: String,
    /// Rows of the accumulator
    #[arg(long, default_value_t = 1024, value_name = "D")]
    depth: usize,
    /// L: pipeline stages of a float multiply-accumulate [default: 4]
    #[arg(long, value_name = "L")]
    mac_stages: Option<usize>,
    /// A: pipeline stages of the FP32 accumulator of a float format [default: 4]
    #[arg(long, value_name = "A")]
    adder_stages: Option<usize>,
    /// Clock every register, compute bits and cycles directly, or do both and compare [default: cycle]
    #[arg(long, value_enum)]
    engine: Option<Engine>,
    /// Let no tile overlap the next: cycles as SCALE-Sim counts them, by the transaction engine
    #[arg(long)]
    pub no_overlap: bool,
    /// Share of edges on which the consumer takes no row, 0 to 0.95: rows wait in the output FIFO of D, then the array does
    #[arg(long, default_value_t = 0.0, value_name = "P", allow_negative_numbers = true)]
    stall: f64,
    /// Share of edges on which no row of activations is on offer
    #[arg(long, default_value_t = 0.0, value_name = "P", allow_negative_numbers = true)]
    starve_x: f64,
    /// Share of edges on which no column (gemv: beat) of weights is on offer
    #[arg(long, default_value_t = 0.0, value_name = "P", allow_negative_numbers = true)]
    starve_w: f64,
    /// Seed of operands that no file gives, of stalls and of what --vectors draws
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Left operand (.npy): codes, or for a float format FP32 values that are rounded
    #[arg(long, value_name = "FILE")]
    a: Option<PathBuf>,
    /// Right operand (.npy), as --a
    #[arg(long, value_name = "FILE")]
    b: Option<PathBuf>,
    /// Bias of each column (.npy): int32, added to the sums, or float32, added after the scale
    #[arg(long, value_name = "FILE")]
    bias: Option<PathBuf>,
    /// Scale of each column, or one for all (.npy, float32)
    #[arg(long, value_name = "FILE")]
    scale: Option<PathBuf>,
    /// Zero point of A (.npy, one value of A's type)
    #[arg(long, value_name = "FILE")]
    zero_point: Option<PathBuf>,
    /// Zero point of each column of B, or one for all (.npy, B's type)
    #[arg(long, value_name = "FILE")]
    b_zero_point: Option<PathBuf>,
    /// max(y, 0) before the result is converted
    #[arg(long)]
    relu: bool,
    /// Format of the result: int32 int8 uint8 fp32 bf16 fp16 e4m3 e5m2 ffp8:… [default: int32, or fp32 of floats and scaled sums]
    #[arg(long, value_name = "FORMAT")]
    out_format: Option<String>,
    /// Zero point of an int8 or uint8 result
    #[arg(long, value_name = "Z", default_value_t = 0, allow_negative_numbers = true)]
    out_zero_point: i32,
    /// Write the result (.npy); floats other than FP32 and FP16 as their codes
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a waveform of the clocked run: .fst, or .vcd, which is several times as large
    #[arg(long, value_name = "FILE")]
    wave: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Options that were understood.
pub struct Setup<'a> {
    /// As given.
    pub options: &'a Options,
    /// The processor.
    pub config: Config,
    /// Which engine runs.
    pub engine: Engine,
    /// How A is stored.
    pub a: Side,
    /// How B is stored.
    pub b: Side,
    /// How often the ports are ready.
    pub rates: Rates,
}

impl Options {
    /// Reads formats and sizes.
    ///
    /// # Errors
    /// An unknown format, a pair that no element multiplies, an array that cannot be built, options that exclude each other.
    pub fn setup(&self) -> anyhow::Result<Setup<'_>> {
        let int8 = Format::Int(IntFormat::INT8);
        let b: Format = self.b_format.as_ref().unwrap_or(&self.format).parse()?;
        let mut a: Format = self.format.parse()?;
        if a == Format::Int(IntFormat::INT4) && self.b_format.is_none() {
            a = int8;
        }
        let (a, b) = (Side { name: "a", format: a }, Side { name: "b", format: b });
        let datapath = Datapath::of(a.inside(), b.inside())
            .with_context(|| match a.format == Format::Int(IntFormat::INT4) {
                true => format!(
                    "no element multiplies {} by {}: int4 is a format of B; --format int4 alone is A in int8 and B in int4",
                    a.format, b.format
                ),
                false => format!("no element multiplies {} by {}", a.format, b.format),
            })?;
        let stages = [("--mac-stages", self.mac_stages), ("--adder-stages", self.adder_stages)];
        if let Some((option, _)) = stages.iter().find(|(_, given)| given.is_some() && !datapath.is_float()) {
            bail!("{option} belongs to float formats: elements and accumulator of {datapath} have one stage")
        }
        let [mac_stages, adder_stages] = stages.map(|(_, given)| given.unwrap_or(4));
        let sides = self.array.split_once(['x', 'X', '×']);
        let Some((Ok(rows), Ok(cols))) = sides.map(|(r, c)| (r.trim().parse(), c.trim().parse())) else {
            bail!("--array {}: rows and columns are written RxC, as in 32x32", self.array)
        };
        let config =
            Config { rows, cols, depth: self.depth, datapath, mac_stages, adder_stages, group: None }.checked()?;
        let engine = match (self.engine, self.no_overlap) {
            (None, true) => Engine::Transaction,
            (Some(Engine::Cycle | Engine::Both), true) => {
                bail!("--no-overlap counts cycles of a machine that is not ours: only --engine transaction can")
            }
            (engine, _) => engine.unwrap_or(Engine::Cycle),
        };
        let rates = self.rates()?;
        if rates != Rates::FULL && engine != Engine::Cycle {
            bail!(
                "--stall, --starve-x and --starve-w act on ports, and the transaction engine has none: leave --engine and --no-overlap out"
            )
        }
        if self.wave.is_some() && engine == Engine::Transaction {
            bail!("--wave shows registers, and the transaction engine has none: leave --engine and --no-overlap out")
        }
        self.out.iter().try_for_each(|path| out::probe_file("--out", path))?;
        out::distinct([("--out", self.out.as_deref()), ("--wave", self.wave.as_deref())])?;
        Ok(Setup { options: self, config, engine, a, b, rates })
    }

    /// How often the ports are ready.
    fn rates(&self) -> anyhow::Result<Rates> {
        let [x, w, y] = [("--starve-x", self.starve_x), ("--starve-w", self.starve_w), ("--stall", self.stall)].map(
            |(option, share)| match (0.0..=MAX_STALL).contains(&share) {
                true => Ok(1.0 - share),
                false => bail!("{option} {share}: a share from 0 to {MAX_STALL}"),
            },
        );
        Ok(Rates { x: x?, w: w?, y: y? })
    }

    /// The waveform that was asked for.
    ///
    /// # Errors
    /// If it cannot be written or its ending is unknown.
    pub fn trace(&self) -> anyhow::Result<Option<Trace>> {
        let open = |path| Trace::create(path, "mvp", &TraceOptions::default());
        Ok(self.wave.as_ref().map(open).transpose()?)
    }
}

impl Setup<'_> {
    /// A, where a file gives it.
    ///
    /// # Errors
    /// As [`Side::load`].
    pub fn load_a(&self) -> anyhow::Result<Option<Operand>> {
        self.options.a.as_ref().map(|path| self.a.load(path)).transpose()
    }

    /// B, where a file gives it.
    ///
    /// # Errors
    /// As [`Side::load`].
    pub fn load_b(&self) -> anyhow::Result<Option<Operand>> {
        self.options.b.as_ref().map(|path| self.b.load(path)).transpose()
    }
}

/// Writes the result where it was asked for.
///
/// # Errors
/// If the file cannot be written.
pub fn write(options: &Options, result: &Npy) -> anyhow::Result<()> {
    let Some(path) = &options.out else { return Ok(()) };
    save_npy("--out", path, result)
}

/// Refuses operands and results that are too large to hold.
///
/// # Errors
/// Names the extents.
pub fn check_size(what: &str, extents: &[usize]) -> anyhow::Result<()> {
    let values = extents.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent));
    match values {
        Some(1..=MAX_VALUES) => Ok(()),
        Some(0) => bail!("{what} of shape {extents:?} has no values"),
        _ => bail!("{what} of shape {extents:?}: at most {MAX_VALUES} values"),
    }
}
