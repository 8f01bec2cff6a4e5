//! `magpie gemv`: a matrix-vector product, weights streaming past vectors that stand still.

use super::product::{Finish, Finished, Machine, Mode, Options, Shown, check_size, write};
use anyhow::bail;
use mvp::{Gemv, GemvShape, Job};
use std::process::ExitCode;

/// Multiplies vectors A[V, K] by B[K, N] in the matrix-vector mode, B streaming, and says where the cycles went.
///
/// V vectors stand in the array, and C/V columns of B pass at a time. The bits are those of `magpie gemm V K N`. Exit code 0: done.
/// 1: an INT32 sum left 32 bits, by itself or with zero points and bias, or the two engines
/// differed. 2: the command could not be carried out.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
EXAMPLES
  magpie gemv 1536 576                               one token through a layer, INT8 on 32x32, clocked
  magpie gemv 1536 576 --batch 4 --engine both       four sequences at once
  magpie gemv 1536 576 --format int4 --json          two k-steps an edge
  magpie gemv 8 8 --array 4x4 --wave gemv.vcd        then: gtkwave gemv.vcd
  magpie gemv 5 9 --a x.npy --b w.npy --out y.npy    x [1, 9], w [9, 5]")]
pub struct Args {
    /// Outputs: columns of B
    n: usize,
    /// Length of the vectors: rows of B
    k: usize,
    /// V: vectors at once, at most C
    #[arg(long, default_value_t = 1, value_name = "V")]
    batch: usize,
    #[command(flatten)]
    options: Options,
}

/// Runs the command.
///
/// # Errors
/// Options that exclude each other, files that cannot be read or do not fit, a product that is too large.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let setup = args.options.setup()?;
    if args.options.no_overlap {
        bail!("--no-overlap belongs to gemm and conv: no weights are loaded here")
    }
    let job = Job { m: args.batch, n: args.n, k: args.k };
    for (what, extents) in [("A", [job.m, job.k]), ("B", [job.k, job.n]), ("the result", [job.m, job.n])] {
        check_size(what, &extents)?;
    }
    let shape = GemvShape { config: setup.config, outputs: setup.config.cols / job.m, vectors: job.m };
    let mut mode = Mode::Gemv(Box::new(Gemv::new(shape)?));
    let x = setup.a.matrix(setup.load_a()?, &[job.m, job.k], args.options.seed)?;
    let w = setup.b.matrix(setup.load_b()?, &[job.k, job.n], args.options.seed)?;
    let finish = Finish::new(&setup, job.n)?;
    let mut machine = Machine::new(&setup)?;
    let ran = machine.run(&mut mode, job, &x.matrix, &w.matrix)?;
    let Finished { codes, flags, wrapped } = finish.apply(&setup, job, &ran, (&x.matrix, &w.matrix), &finish.columns);
    let result = finish.npy(&[job.m, job.n], &codes)?;
    write(&args.options, &result)?;
    let shown = Shown {
        title: format!("gemv {} x {}, {} vectors", job.n, job.k, job.m),
        extents: serde_json::json!({ "n": job.n, "k": job.k, "vectors": job.m, "outputs_a_beat": shape.outputs }),
        feeds: "a beat of B streams past",
        tally: machine.finish()?,
        flags,
        wrapped,
        read: [x.read, w.read],
        format: finish.output.format,
        result,
    };
    Ok(shown.print(&setup))
}
