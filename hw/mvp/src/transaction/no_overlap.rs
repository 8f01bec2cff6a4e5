use crate::{Config, Job};

/// Cycles of a job whose tiles do not overlap: the weights of a tile enter only when the last sum of the tile before has left the
/// last element. Σ over all tiles of (C + M_f + R·L + C − 2), then 1 + A.
///
/// The last row of a tile takes R·L − 1 edges down and C − 1 across after it entered, so M_f + R·L + C − 2 edges pass from the tile's
/// first row to an empty array; the row of sums then enters the accumulator (1) and is written (A). With a single tile this is
/// [`gemm_cycles`](crate::gemm_cycles). It is the assumption of SCALE-Sim, for comparison; the processor overlaps.
pub fn gemm_cycles_no_overlap(config: Config, job: Job) -> u64 {
    let [r, c, l, a] = [config.rows, config.cols, config.mac_latency(), config.accumulator_latency()].map(|v| v as u64);
    let (m, depth) = (job.m as u64, config.depth as u64);
    let tiles = job.n.div_ceil(config.cols) as u64 * config.k_tiles(job.k) as u64;
    // Every row of Y passes once with each tile of its block.
    tiles * (m + m.div_ceil(depth) * (2 * c + r * l - 2)) + 1 + a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm_cycles;

    #[test]
    fn one_tile_has_nothing_to_overlap_and_more_tiles_only_lose() {
        let config = Config { rows: 5, cols: 7, depth: 16, ..Config::default() };
        for m in [1, 3, 16, 17, 40] {
            for (n, k) in [(7, 5), (1, 1), (8, 5), (7, 6), (30, 30)] {
                let job = Job { m, n, k };
                let (without, with) = (gemm_cycles_no_overlap(config, job), gemm_cycles(config, job));
                let single = m <= 16 && n <= 7 && k <= 5;
                assert!(if single { without == with } else { without > with }, "{job:?}: {without}, {with}");
            }
        }
    }
}
