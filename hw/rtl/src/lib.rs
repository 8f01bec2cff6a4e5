//! The RTL kernel: what every block is built of.
