//! `magpie sweep`: one design question, asked of every point of a grid.

mod grid;
mod measure;
mod plot;
mod style;
mod table;

pub use grid::{Grid, Point};
pub use measure::{Measured, Study};
pub use plot::plots;
pub use table::{Line, Table, columns, key, names};
