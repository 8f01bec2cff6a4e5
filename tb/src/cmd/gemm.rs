//! `magpie gemm`: a matrix product, its cycles and its bits.

use super::product::{Finish, Finished, Machine, Mode, Options, Shown, check_size, vectors, write};
use anyhow::bail;
use mvp::{Job, Processor};
use std::path::PathBuf;
use std::process::ExitCode;

/// Multiplies A[M, K] by B[K, N] on the systolic array, B stationary, and says where the cycles went.
///
/// Operands come from a seed or from NumPy files. Exit code 0: done. 1: an INT32 sum left 32 bits, by itself or with zero points
/// and bias, or the two engines differed. 2: the command could not be carried out.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
EXAMPLES
  magpie gemm 128 576 1536                          prefill of a layer, INT8 on 32x32, clocked
  magpie gemm 128 576 1536 --array 16x16 --engine transaction
  magpie gemm 128 576 1536 --format bf16 --mac-stages 4 --json
  magpie gemm 6 8 8 --array 4x4 --wave gemm.vcd     then: gtkwave gemm.vcd
  magpie gemm 6 9 7 --array 4x4 --vectors v         v/README says how to hold your own RTL against it

  python3 -c \"import numpy as n; r = n.random.default_rng(1)
  n.save('a', r.integers(-128, 128, (4, 9), 'int8')); n.save('b', r.integers(-128, 128, (9, 5), 'int8'))\"
  magpie gemm --a a.npy --b b.npy --out y.npy       shapes are the files'
  python3 -c \"import numpy as n; a, b, y = (n.load(f + '.npy').astype(int) for f in 'aby'); print((a @ b == y).all())\"")]
pub struct Args {
    /// M, K and N; may be left out where --a and --b are given
    #[arg(value_names = ["M", "K", "N"], num_args = 3)]
    extents: Vec<usize>,
    /// Write stimulus and expected outputs of the datapath, cycle by cycle, as $readmemh files with a SystemVerilog reader (int8, bf16)
    #[arg(long, value_name = "DIR")]
    vectors: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// Runs the command.
///
/// # Errors
/// Options that exclude each other, files that cannot be read or do not fit, a product that is too large.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let setup = args.options.setup()?;
    let a = setup.load_a()?;
    let b = setup.load_b()?;
    let job = match args.extents.as_slice() {
        &[m, k, n] => Job { m, n, k },
        _ => match (&a, &b) {
            (Some(a), Some(b)) => match (a.shape.as_slice(), b.shape.as_slice()) {
                (&[m, k], &[_, n]) => Job { m, n, k },
                _ => bail!("A of shape {:?} and B of shape {:?}: matrices have two dimensions", a.shape, b.shape),
            },
            _ => bail!("give M, K and N, or both --a and --b"),
        },
    };
    for (what, extents) in [("A", [job.m, job.k]), ("B", [job.k, job.n]), ("the result", [job.m, job.n])] {
        check_size(what, &extents)?;
    }
    let x = setup.a.matrix(a, &[job.m, job.k], args.options.seed)?;
    let w = setup.b.matrix(b, &[job.k, job.n], args.options.seed)?;
    let finish = Finish::new(&setup, job.n)?;
    let mut machine = Machine::new(&setup)?;
    let mut mode = Mode::Gemm(Box::new(Processor::new(setup.config)));
    let ran = machine.run(&mut mode, job, &x.matrix, &w.matrix)?;
    if let Some(dir) = &args.vectors {
        let sums: Vec<u32> = (0..job.m * job.n).map(|i| ran.sums.bits(i)).collect();
        vectors::write(dir, setup.config, job, (&x.matrix.clocked(), &w.matrix.clocked()), &sums, args.options.seed)?;
    }
    let Finished { codes, flags, wrapped } = finish.apply(&setup, job, &ran, (&x.matrix, &w.matrix), &finish.columns);
    let result = finish.npy(&[job.m, job.n], &codes)?;
    write(&args.options, &result)?;
    let shown = Shown {
        title: format!("gemm {} x {} x {}", job.m, job.k, job.n),
        extents: serde_json::json!({ "m": job.m, "k": job.k, "n": job.n }),
        feeds: "a row of A enters",
        tally: machine.finish()?,
        flags,
        wrapped,
        read: [x.read, w.read],
        format: finish.output.format,
        result,
    };
    Ok(shown.print(&setup))
}
