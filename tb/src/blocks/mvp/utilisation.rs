//! How busy the elements are, by the processor's counters and by the registers themselves.

use super::driver::{self, Operands, Rates};
use super::formats::{self, Draw};
use crate::verify::Case;
use mvp::{Array, Config, Datapath, Job, Processor, gemm_cycles};
use numeric::FloatFormat;
use rtl::{Image, Layout, Module};

/// INT8 and BF16: on 32×32 by the counters, on 8×8 register by register.
pub(super) const CASES: usize = 4;

/// Counts the elements whose `valid_q` is high, cycle by cycle: what a waveform of the array shows.
struct ValidBits {
    fresh: Option<Image>,
    is_valid: Vec<bool>,
    seen: u64,
}

impl crate::wave::Tracer for &mut ValidBits {
    fn sample<M: Module>(&mut self, _: u64, module: &mut M) -> Result<(), crate::wave::WaveError> {
        let image = Image::of(module);
        let Some(fresh) = &self.fresh else {
            let paths = Layout::of(module).paths;
            // The element's own bit, not those of the stages inside its float pipeline.
            let is_valid = |path: &str| {
                let parent = path.strip_suffix(".valid_q").and_then(|parent| parent.rsplit('.').next());
                parent.is_some_and(|parent| parent.starts_with("pe_"))
            };
            self.is_valid = paths.iter().map(|p| is_valid(&p.path)).collect();
            self.fresh = Some(image);
            return Ok(());
        };
        self.seen += fresh.differences(&image).iter().filter(|d| self.is_valid[d.signal]).count() as u64;
        Ok(())
    }
}

/// M = N = K = 1,024 on 32×32: at least 99 % of all element-edges of the run do a wanted multiply-accumulate.
pub(super) fn utilisation(case: &mut Case) -> anyhow::Result<()> {
    let datapath = [Datapath::Int8, Datapath::float(FloatFormat::BF16)][case.index % 2];
    let whole = case.index < 2;
    let (side, size) = if whole { (32, 1024) } else { (8, 40) };
    let config = Config { rows: side, cols: side, depth: size, datapath, ..Config::default() }.checked()?;
    let job = Job { m: size, n: size, k: size };
    case.label(format!("{datapath} {side}x{side}, M = N = K = {size}"));
    let operands: Operands = formats::operands(config, job, Draw::Near, &mut case.rng);
    let mut processor = Processor::<Array>::new(config);
    let counters = if whole {
        driver::run(&mut processor, job, &operands, Rates::FULL, &mut case.rng, ())?.counters
    } else {
        let mut bits = ValidBits { fresh: None, is_valid: Vec::new(), seen: 0 };
        let run = driver::run(&mut processor, job, &operands, Rates::FULL, &mut case.rng, &mut bits)?;
        case.equal("valid elements seen", run.counters.active, bits.seen);
        run.counters
    };
    case.equal("cycles", gemm_cycles(config, job), counters.cycles);
    case.equal("multiply-accumulates", (size * size * size) as u64, counters.active);
    case.equal(
        "fill and drain",
        counters.cycles,
        (size * size * size / side / side) as u64 + counters.exposed + counters.drain,
    );
    if whole {
        case.measure("utilisation", counters.utilisation(config));
        case.check(
            counters.utilisation(config) >= 0.99,
            format_args!("{:.4} of the run", counters.utilisation(config)),
        );
    }
    case.cycles(counters.cycles);
    Ok(())
}
