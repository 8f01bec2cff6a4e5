//! What the property tests share.

use proptest::test_runner::{Config, FileFailurePersistence};

/// Proptest's number of cases (`PROPTEST_CASES`, 256 by default) over `cost`; failing seeds are kept in the file `seeds`.
pub(crate) fn config(seeds: &'static str, cost: u32) -> Config {
    let default = Config::default();
    let failure_persistence = Some(Box::new(FileFailurePersistence::Direct(seeds)) as _);
    Config { cases: (default.cases / cost).max(1), failure_persistence, ..default }
}

/// The file that keeps failing seeds of tests called `name`.
macro_rules! seeds {
    ($name:literal) => {
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions/", $name, ".txt")
    };
}
pub(crate) use seeds;
