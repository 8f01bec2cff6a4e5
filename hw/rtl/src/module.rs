use crate::Visitor;

/// A synchronous block: one clock, one synchronous active-high reset.
///
/// Between two edges, [`out`](Module::out) may be read as often as one likes: it is a function of state alone, so no
/// combinational path crosses a module and no order of evaluation can be got wrong. A parent's `clock` reads the wires
/// of all its children first (or clocks the consumer before the producer, which is the same), then clocks each once.
pub trait Module {
    /// Every boundary input of one cycle. Wide buses are borrowed.
    type In<'a>;
    /// Every boundary output. Wide buses are borrowed from the registers that drive them.
    type Out<'a>
    where
        Self: 'a;

    /// The wires that the block drives, from its registers alone.
    fn out(&self) -> Self::Out<'_>;

    /// The rising edge: all registers at once, from old state and inputs.
    fn clock(&mut self, i: &Self::In<'_>);

    /// An edge with reset high. Memory contents survive; every register takes its reset value.
    fn reset(&mut self);

    /// Shows each register (and each output port) once, in an order that never changes, with width and format.
    fn visit(&mut self, v: &mut impl Visitor);
}
