//! Progress of long work.

use crate::verify::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;

/// A bar on a terminal, a line every tenth of the way elsewhere.
pub(crate) struct Meter {
    command: &'static str,
    unit: &'static str,
    bar: Option<ProgressBar>,
    /// Most shown so far: threads may report out of order.
    shown: Mutex<usize>,
}

impl Meter {
    /// Of a command, which counts by a unit.
    pub(crate) fn new(command: &'static str, unit: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template(&format!(
                "{{elapsed:>4}} {{wide_bar}} {{pos}}/{{len}} {unit}, {{eta}} to go  {{msg}}"
            ));
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { command, unit, bar, shown: Mutex::new(0) }
    }
}

impl Progress for Meter {
    fn tick(&self, done: usize, total: usize, name: &str) {
        let Ok(mut shown) = self.shown.lock() else { return };
        if done <= *shown {
            return;
        }
        let before = std::mem::replace(&mut *shown, done);
        if let Some(bar) = &self.bar {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            bar.set_message(name.to_string());
            if done == total {
                bar.finish_and_clear();
            }
        } else if before * 10 / total < done * 10 / total {
            eprintln!("{}: {done} of {total} {}", self.command, self.unit);
        }
    }
}
