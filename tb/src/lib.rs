//! The benches and the magpie command.
