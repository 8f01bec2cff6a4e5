//! The output stage against plain sums, with every stream stalled now and then and its registers reset and put back under way.

use mvp::{Column, Columns, Config, Job, OutRow, Output, OutputJob, OutputStage, OutputStageIn, Side};
use proptest::prelude::*;
use rtl::{Image, Module, Stream};

/// Columns, and rows of an M-block.
const COLS: usize = 3;
const DEPTH: usize = 4;

/// A job and what belongs to it, in the order in which the stage takes it.
#[derive(Clone, Debug)]
struct Work {
    task: OutputJob,
    columns: Vec<Columns>,
    rows: Vec<OutRow>,
    /// INT32 results and whether each row is the last.
    want: Vec<(Vec<i32>, bool)>,
}

fn work() -> impl Strategy<Value = Work> {
    let shape = (1usize..11, 1usize..8, 1usize..9, -128i32..128);
    (shape, any::<u64>()).prop_map(|((m, n, k, x_zero), seed)| {
        let mut state = seed | 1;
        let mut draw = |bits: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as i32 >> (31 - bits)
        };
        let task = OutputJob { job: Job { m, n, k }, output: Output { x_zero, ..Output::raw(false) } };
        let mut work = Work { task, columns: vec![], rows: vec![], want: vec![] };
        let parameters: Vec<Column> = (0..n)
            .map(|_| Column { weight_sum: draw(12), w_zero: draw(8) - 128, bias: draw(20), ..Column::default() })
            .collect();
        let blank = |c: usize| if c < n { parameters[c] } else { Column { bias: -1, ..Column::default() } };
        for first in (0..m).step_by(DEPTH) {
            for panel in (0..n).step_by(COLS) {
                work.columns.push(Columns((panel..panel + COLS).map(blank).collect()));
                for row in first..m.min(first + DEPTH) {
                    let lanes = (n - panel).min(COLS);
                    let values: Vec<i32> = (0..COLS).map(|_| draw(30)).collect();
                    let side = Side { sum: draw(12), scale: 1.0 };
                    let end = row + 1 == m && panel + COLS >= n;
                    let t = |c: usize| {
                        let p = &parameters[panel + c];
                        values[c] - x_zero * p.weight_sum - p.w_zero * side.sum + k as i32 * x_zero * p.w_zero + p.bias
                    };
                    work.want.push(((0..lanes).map(t).collect(), end));
                    work.rows.push(OutRow { values, lanes: lanes as u16, end, side });
                }
            }
        }
        work
    })
}

proptest! {
    #[test]
    fn rows_of_job_after_job_are_those_of_plain_sums(
        jobs in prop::collection::vec(work(), 1..4),
        [row_gaps, column_gaps, stalls] in any::<[u64; 3]>(),
        put_back in 5usize..40,
    ) {
        let tasks: Vec<_> = jobs.iter().map(|j| j.task).collect();
        let columns: Vec<_> = jobs.iter().flat_map(|j| j.columns.clone()).collect();
        let rows: Vec<_> = jobs.iter().flat_map(|j| j.rows.clone()).collect();
        let want: Vec<_> = jobs.iter().flat_map(|j| j.want.clone()).collect();
        let mut stage = OutputStage::new(Config { rows: 2, cols: COLS, depth: DEPTH, ..Config::default() });
        let (mut job, mut column, mut row, mut got) = (0, 0, 0, Vec::new());
        for edge in 0..20_000 {
            let open = |pattern: u64| pattern >> (edge % 64) & 1 == 0;
            let out = stage.out();
            if got.len() == want.len() && out.idle {
                break;
            }
            let ready = open(stalls) || edge % 64 == 0;
            if out.y.fires(ready) {
                let values = out.y.data.codes[..usize::from(out.y.data.lanes)].iter().map(|&code| code as i32);
                got.push((values.collect::<Vec<_>>(), out.y.data.end));
            }
            let i = OutputStageIn {
                start: tasks.get(job).copied(),
                row: Stream { valid: (open(row_gaps) || edge % 64 == 1) && row < rows.len(), data: &rows[row.min(rows.len() - 1)] },
                columns: Stream {
                    valid: (open(column_gaps) || edge % 64 == 2) && column < columns.len(),
                    data: &columns[column.min(columns.len() - 1)],
                },
                ready,
            };
            let taken = (i.row.fires(out.row_ready), i.columns.fires(out.columns_ready), out.idle && i.start.is_some());
            stage.clock(&i);
            (row, column, job) = (row + usize::from(taken.0), column + usize::from(taken.1), job + usize::from(taken.2));
            if edge % put_back == put_back - 1 {
                let image = Image::of(&mut stage);
                stage.reset();
                image.restore(&mut stage);
                prop_assert!(Image::of(&mut stage) == image);
            }
        }
        prop_assert_eq!(got, want);
        prop_assert_eq!((job, row, column), (tasks.len(), rows.len(), columns.len()));
    }
}
