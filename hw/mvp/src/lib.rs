//! The matrix-vector processor.
