use super::WaveError;
use rtl::Role;

/// A variable of the file, in the order of declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VarId(pub u32);

/// What a variable holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A vector of 1..=64 bits.
    Bits(u32),
    /// A double.
    Real,
    /// A word without white space.
    Text,
}

/// A new value of a vector.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Of which variable.
    pub var: VarId,
    /// Its bits, 1..=64.
    pub width: u32,
    /// The value.
    pub value: u64,
}

/// A file format. First the hierarchy, then [`start`](Backend::start), then times and changes.
///
/// Changes are far too many to check one by one: an error is kept, everything after it ignored, and
/// [`check`](Backend::check) hands it out.
pub trait Backend {
    /// Opens a scope.
    fn enter(&mut self, scope: &str);
    /// Closes the scope opened last.
    fn leave(&mut self);
    /// Declares a variable in the open scope. `None`: the format has no such kind.
    fn declare(&mut self, name: &str, role: Role, kind: Kind) -> Option<VarId>;
    /// Ends the hierarchy.
    fn start(&mut self);
    /// Moves to a later time.
    fn time(&mut self, time: u64);
    /// Brackets the first value of every variable: before them with `true`, after them with `false`.
    fn initial(&mut self, begin: bool);
    /// Changes a vector.
    fn bits(&mut self, var: VarId, width: u32, value: u64);
    /// Changes vectors, one after the other.
    #[inline]
    fn changes(&mut self, changes: &[Change]) {
        changes.iter().for_each(|change| self.bits(change.var, change.width, change.value));
    }
    /// Changes a real.
    fn real(&mut self, var: VarId, value: f64);
    /// Changes a text.
    fn text(&mut self, var: VarId, value: &str);
    /// Bytes so far, those in buffers included.
    fn bytes(&mut self) -> u64;
    /// The first error since the last call.
    fn check(&mut self) -> Result<(), WaveError>;
    /// Completes the file, whose last time is `end`.
    fn finish(&mut self, end: u64) -> Result<(), WaveError>;
}

impl<B: Backend + ?Sized> Backend for Box<B> {
    fn enter(&mut self, scope: &str) {
        (**self).enter(scope);
    }
    fn leave(&mut self) {
        (**self).leave();
    }
    fn declare(&mut self, name: &str, role: Role, kind: Kind) -> Option<VarId> {
        (**self).declare(name, role, kind)
    }
    fn start(&mut self) {
        (**self).start();
    }
    fn time(&mut self, time: u64) {
        (**self).time(time);
    }
    fn initial(&mut self, begin: bool) {
        (**self).initial(begin);
    }
    fn bits(&mut self, var: VarId, width: u32, value: u64) {
        (**self).bits(var, width, value);
    }
    fn changes(&mut self, changes: &[Change]) {
        (**self).changes(changes);
    }
    fn real(&mut self, var: VarId, value: f64) {
        (**self).real(var, value);
    }
    fn text(&mut self, var: VarId, value: &str) {
        (**self).text(var, value);
    }
    fn bytes(&mut self) -> u64 {
        (**self).bytes()
    }
    fn check(&mut self) -> Result<(), WaveError> {
        (**self).check()
    }
    fn finish(&mut self, end: u64) -> Result<(), WaveError> {
        (**self).finish(end)
    }
}
