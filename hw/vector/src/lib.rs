//! The vector unit: RMSNorm, softmax, RoPE, SiLU and SwiGLU, the residual, absmax, quantisation, argmax, conversions, and the
//! elementary functions under them.
//!
//! [`transaction`] gives the bits and [`cycles`] the edges of a command. docs/vector.md has the ports, the steps of every operation,
//! the worst errors and the derivation of the closed forms.
//!
//! ```
//! use vector::{Command, Config, Op, Algorithm, Masking, cycles, transaction};
//!
//! let config = Config::default();
//! let scores = [1.0, 3.0, 2.0, 0.0];
//! let mut weights = [0.0; 4];
//! transaction::softmax(&config, Algorithm::ThreePass, 4, 1.0, transaction::Mask::None, &scores, &mut weights).unwrap();
//! assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
//!
//! let op = Op::Softmax { algorithm: Algorithm::ThreePass, scale: 1.0, mask: Masking::None };
//! assert!(cycles(&config, &Command::new(op, 4, 1)) > 3);
//! ```

mod clocked;
mod command;
mod config;
mod cycles;
mod error;
mod function;
mod program;
mod quantum;
mod steps;
pub mod transaction;

pub use clocked::{Counters, MAX_STEPS, OperandBeat, ResultBeat, UnitIn, UnitOut, VectorUnit};
pub use command::{Algorithm, Command, Masking, Op, Pairing, Ramp};
pub use config::{Config, MAX_BATCH, MAX_FREQUENCIES, MAX_LEN, STEP_EDGES};
pub use cycles::cycles;
pub use error::VectorError;
pub use function::Function;
