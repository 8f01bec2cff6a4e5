/// How long the memory behind the port takes. Reads answer in order, so a short latency behind a long one waits for it.
pub trait Latency {
    /// Cycles from the AR handshake of a burst at `address` to its first beat of R, at least 1. Called once a burst, in their order.
    fn read(&mut self, address: u64) -> u64;
    /// Cycles from the last beat of W of a burst to its B, at least 1. `address`: of that beat.
    fn write(&self, address: u64) -> u64;
}

/// The same for all.
impl Latency for u64 {
    fn read(&mut self, _: u64) -> u64 {
        (*self).max(1)
    }

    fn write(&self, _: u64) -> u64 {
        (*self).max(1)
    }
}
