//! Number formats and operators, bit by bit.
