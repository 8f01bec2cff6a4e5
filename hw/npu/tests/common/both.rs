//! Both engines side by side.

use npu::isa::{Command, Engine};
use npu::{Config, Counters, KvSetup, Npu, Report, RunError, clocked};

/// The transaction engine and the cycle engine with the same memories.
pub(crate) struct Both {
    pub(crate) transaction: Npu,
    pub(crate) clocked: clocked::Npu,
}

/// What both engines count.
fn shared(report: Report) -> Report {
    let Counters { cycles, dispatch_stalls, engines, macs, port_stalls, kv_raw, kv_stored, .. } = report.counters;
    let blank = Counters::default();
    let counters = Counters { cycles, dispatch_stalls, engines, macs, port_stalls, kv_raw, kv_stored, ..blank };
    Report { counters, ..report }
}

impl Both {
    pub(crate) fn new(config: Config, setup: KvSetup) -> Self {
        let mut transaction = Npu::new(config.clone(), setup.clone()).unwrap();
        transaction.record(true);
        Self { transaction, clocked: clocked::Npu::new(config, setup).unwrap() }
    }

    /// The cycle engine's memories become those of the transaction engine.
    pub(crate) fn share(&mut self) {
        self.clocked.memory_mut().clone_from(self.transaction.memory());
    }

    /// Runs a program on both and holds the cycle engine to the other.
    pub(crate) fn run(&mut self, program: &[Command]) -> Result<Report, RunError> {
        let expected = self.transaction.run(program).map(shared);
        let found = self.clocked.run(program).map(shared);
        match (&expected, &found) {
            (Ok(expected), Ok(found)) => {
                for (e, f) in expected.spans.iter().zip(&found.spans) {
                    assert_eq!(f, e, "{:?}", program[e.command]);
                }
                assert_eq!(found, expected);
                for engine in Engine::ALL {
                    let waits = expected.spans.iter().filter(|s| s.engine == engine).map(|s| s.waits);
                    let [tokens, banks] = waits.fold([0; 2], |sum, w| [sum[0] + w.tokens, sum[1] + w.banks]);
                    let counted = expected.counters.engine(engine);
                    assert_eq!([tokens, banks], [counted.waits_tokens, counted.waits_banks], "{}", engine.name());
                }
            }
            (Err(e), Err(f)) => {
                // The cycle engine finds some faults on the way, when other memories have changed.
                assert_eq!(f, e);
                return expected;
            }
            (Err(e), Ok(_)) => panic!("the transaction engine alone refuses: {e}"),
            (Ok(_), Err(e)) => panic!("the cycle engine alone refuses: {e}"),
        }
        if let Some(difference) = self.transaction.memory().difference(self.clocked.memory()) {
            panic!("{difference} differs");
        }
        assert!(self.transaction.kv() == self.clocked.kv(), "the KV index differs");
        expected
    }
}
