/// The forward half of a valid/ready handshake; `ready` comes back on its own wire.
///
/// A transfer happens on an edge where both are high. While `valid` is high and `ready` low, `data` must not change and
/// `valid` must not fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream<T> {
    /// The producer has data.
    pub valid: bool,
    /// Meaningful only while `valid`; driven all the same, as wires are.
    pub data: T,
}

impl<T> Stream<T> {
    /// A beat on offer.
    pub fn offer(data: T) -> Self {
        Self { valid: true, data }
    }

    /// Nothing on offer; the wires show `data`.
    pub fn idle(data: T) -> Self {
        Self { valid: false, data }
    }

    /// Whether this cycle's edge transfers the beat.
    pub fn fires(&self, ready: bool) -> bool {
        self.valid && ready
    }
}

impl<T> From<Option<T>> for Stream<T>
where
    T: Default,
{
    fn from(beat: Option<T>) -> Self {
        Self { valid: beat.is_some(), data: beat.unwrap_or_default() }
    }
}
