//! The clocked processor against plain loops, and a run that goes on from an image of its registers.

use mvp::{Beat, Config, Job, Mesh, Processor, ProcessorIn, gemm_cycles};
use proptest::prelude::*;
use rtl::{Image, Module, Stream};

/// A product of small INT8 matrices on a small array.
#[derive(Clone, Debug)]
struct Product {
    config: Config,
    job: Job,
    x: Vec<i8>,
    w: Vec<i8>,
    /// Edges modulo 64 on which X, W and the consumer stand still, a bit each.
    stalls: [u64; 3],
}

fn product() -> impl Strategy<Value = Product> {
    let shape = (1usize..20, 1usize..12, 1usize..12);
    (1usize..5, 1usize..5, 2usize..6, shape).prop_flat_map(|(rows, cols, depth, (m, n, k))| {
        let config = Config { rows, cols, depth, ..Config::default() };
        let codes = |len| prop::collection::vec(any::<i8>(), len);
        // Never, or as drawn, but on one edge in 64.
        let stall = prop_oneof![Just(0), any::<u64>().prop_map(|edges| edges & !1)];
        (codes(m * k), codes(k * n), [stall.clone(), stall.clone(), stall]).prop_map(move |(x, w, stalls)| Product {
            config,
            job: Job { m, n, k },
            x,
            w,
            stalls,
        })
    })
}

impl Product {
    /// Rows of X and columns of W in the order in which the ports take them; lanes past a tile carry garbage.
    fn beats(&self) -> (Vec<Beat>, Vec<Beat>) {
        let (Config { rows, cols, depth, .. }, Job { m, n, k }) = (self.config, self.job);
        let (mut xs, mut ws) = (Vec::new(), Vec::new());
        let fill = |mut beat: Beat, chunk: usize, code: &dyn Fn(usize) -> i8| {
            for (r, lane) in beat.codes.iter_mut().enumerate() {
                let at = chunk * rows + r;
                *lane = if at < k { code(at).into() } else { 99 };
            }
            beat
        };
        for first in (0..m).step_by(depth) {
            for panel in (0..n).step_by(cols) {
                for chunk in 0..k.div_ceil(rows) {
                    let row = |m: usize| fill(Beat::row(self.config), chunk, &|at| self.x[m * k + at]);
                    let column = |col: usize| fill(Beat::column(self.config), chunk, &|at| self.w[at * n + col]);
                    xs.extend((first..m.min(first + depth)).map(row));
                    ws.extend((panel..n.min(panel + cols)).rev().map(column));
                }
            }
        }
        (xs, ws)
    }
}

/// What the processor shows in a cycle.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    /// Values, Σa, whether it is the job's last.
    row: Option<(Vec<i32>, i32, bool)>,
    idle: bool,
    active: u64,
    cycles: u64,
    /// Of them, those lost to X, W and the consumer.
    lost: [u64; 3],
    /// And those without a row because weights had to come first, and of the final drain.
    without: [u64; 2],
}

/// The host's side of a job: what is still to be offered.
#[derive(Clone)]
struct Host<'a> {
    job: Job,
    x: &'a [Beat],
    w: &'a [Beat],
    started: bool,
    stalls: [u64; 3],
    edges: u32,
}

impl Host<'_> {
    fn edge(&mut self, processor: &mut Processor<Mesh>) -> Seen {
        let blank = Beat::row(processor.config());
        let [stalled_x, stalled_w, stalled] = self.stalls.map(|edges| edges >> (self.edges % 64) & 1 == 1);
        self.edges += 1;
        let (x, w) = (self.x.first().filter(|_| !stalled_x), self.w.first().filter(|_| !stalled_w));
        let out = processor.out();
        let lanes = usize::from(out.y.data.lanes);
        let seen = Seen {
            row: (out.y.valid && !stalled)
                .then(|| (out.y.data.values[..lanes].to_vec(), out.y.data.side.sum, out.y.data.end)),
            idle: out.idle,
            active: out.counters.active,
            cycles: out.counters.cycles,
            lost: [out.counters.starved_x, out.counters.starved_w, out.counters.blocked],
            without: [out.counters.exposed, out.counters.drain],
        };
        let taken = (x.is_some() && out.x_ready, w.is_some() && out.w_ready);
        processor.clock(&ProcessorIn {
            start: (!self.started).then_some(self.job),
            x: Stream { valid: x.is_some(), data: x.unwrap_or(&blank) },
            w: Stream { valid: w.is_some(), data: w.unwrap_or(&blank) },
            ready: !stalled,
        });
        self.started = true;
        self.x = &self.x[usize::from(taken.0)..];
        self.w = &self.w[usize::from(taken.1)..];
        seen
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn products_row_sums_and_counts_are_those_of_plain_loops(p in product()) {
        let Job { m, n, k } = p.job;
        let (x, w) = p.beats();
        let mut processor = Processor::<Mesh>::new(p.config);
        let mut host = Host { job: p.job, x: &x, w: &w, started: false, stalls: p.stalls, edges: 0 };
        let mut rows = Vec::new();
        let mut last = None;
        for _ in 0..20_000 {
            let seen = host.edge(&mut processor);
            rows.extend(seen.row.clone());
            if seen.idle && rows.last().is_some_and(|(.., end)| *end) {
                last = Some(seen);
                break;
            }
        }
        let last = last.expect("the job ends");
        let mut expected = Vec::new();
        for first in (0..m).step_by(p.config.depth) {
            for panel in (0..n).step_by(p.config.cols) {
                for row in first..m.min(first + p.config.depth) {
                    let product = |at: usize, col: usize| i32::from(p.x[row * k + at]) * i32::from(p.w[at * n + col]);
                    let dot = |col: usize| (0..k).map(|at| product(at, col)).sum();
                    let values: Vec<i32> = (panel..n.min(panel + p.config.cols)).map(dot).collect();
                    let sum: i32 = p.x[row * k..][..k].iter().map(|&x| i32::from(x)).sum();
                    expected.push((values, sum, false));
                }
            }
        }
        expected.last_mut().unwrap().2 = true;
        prop_assert_eq!(rows, expected);
        let lost: u64 = last.lost.iter().sum();
        prop_assert_eq!((last.active, last.cycles), ((m * n * k) as u64, gemm_cycles(p.config, p.job) + lost));
        let Config { rows, cols, .. } = p.config;
        let entered = (m * n.div_ceil(cols) * k.div_ceil(rows)) as u64;
        let drain = (rows * p.config.mac_latency() + cols - 1 + p.config.accumulator_latency()) as u64;
        prop_assert_eq!(last.without, [last.cycles - lost - entered - drain, drain]);
        if p.stalls == [0; 3] {
            prop_assert_eq!(lost, 0);
        }
    }

    #[test]
    fn a_run_goes_on_from_an_image_of_its_registers(p in product(), at in 1usize..60) {
        let (x, w) = p.beats();
        let mut first = Processor::<Mesh>::new(p.config);
        let mut host = Host { job: p.job, x: &x, w: &w, started: false, stalls: p.stalls, edges: 0 };
        (0..at).for_each(|_| drop(host.edge(&mut first)));
        let image = Image::of(&mut first);
        let mut second = Processor::<Mesh>::new(p.config);
        image.restore(&mut second);
        let mut again = host.clone();
        for edge in at..at + 400 {
            prop_assert_eq!(again.edge(&mut second), host.edge(&mut first), "edge {}", edge);
        }
    }
}

#[test]
fn a_consumer_that_stands_still_blocks_the_array_for_so_long() {
    let config = Config { rows: 4, cols: 4, depth: 64, ..Config::default() };
    let job = Job { m: 64, n: 8, k: 4 };
    let p = Product { config, job, x: vec![3; 64 * 4], w: vec![-5; 4 * 8], stalls: [0; 3] };
    let (x, w) = p.beats();
    // Takes a row on one edge of 64.
    let stalls = [0, 0, !1];
    let mut processor = Processor::<Mesh>::new(config);
    let mut host = Host { job, x: &x, w: &w, started: false, stalls, edges: 0 };
    let (mut rows, mut last) = (0, None);
    for _ in 0..20_000 {
        let seen = host.edge(&mut processor);
        rows += usize::from(seen.row.is_some());
        if rows == 2 * 64 {
            last = Some(processor.out().counters);
            break;
        }
    }
    let counters = last.expect("the job ends");
    assert_eq!(counters.cycles, gemm_cycles(config, job) + counters.blocked);
    assert_eq!((counters.starved_x, counters.starved_w), (0, 0));
    // The FIFO holds an M-block of 64 rows; for as many more to leave before the last one enters, the array waits.
    assert!((60 * 64..=64 * 64).contains(&counters.blocked), "{counters:?}");
}
