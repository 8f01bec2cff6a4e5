use crate::{BusFault, Field, Refusal, Response};
use rtl::{Format, Name, Payload, Visitor};
use thiserror::Error;

/// How a job ended: the code in the status register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// 0: everything moved.
    #[default]
    Done,
    /// 1: a field of the descriptor is wrong; nothing moved.
    Refused,
    /// 2: an index is out of range; nothing was written.
    BadIndex,
    /// 3: a read failed; nothing that follows it in element order was written.
    ReadError,
    /// 4: a write failed.
    WriteError,
    /// 5: the index list could not be read; nothing was written.
    IndexError,
    /// 6: the descriptor could not be read; the chain ends.
    DescriptorError,
}

const OUTCOMES: [Outcome; 7] = [
    Outcome::Done,
    Outcome::Refused,
    Outcome::BadIndex,
    Outcome::ReadError,
    Outcome::WriteError,
    Outcome::IndexError,
    Outcome::DescriptorError,
];

/// What the host gets for a job: exactly one, in the order of the jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The descriptor's tag, 32 bits.
    pub tag: u32,
    /// How it ended, 3 bits.
    pub outcome: Outcome,
    /// Response of a bus error, 2 bits.
    pub response: Response,
    /// Field that is to blame, 8 bits.
    pub field: Field,
    /// The field's value, the bad index or the address of the bus error, 64 bits.
    pub value: u64,
    /// Position of a bad index in its list, 12 bits.
    pub position: u32,
}

/// Why a job failed, for software.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum JobError {
    /// A field of the descriptor.
    #[error("{0}: nothing was moved; correct the field, or the region that it points into")]
    Refused(Refusal),
    /// An index.
    #[error("{field}: entry {position} is {value}, out of range: nothing was written; correct the list, or set clamp")]
    BadIndex {
        /// The bound that it broke.
        field: Field,
        /// Entry of the list.
        position: u32,
        /// The index.
        value: i64,
    },
    /// The bus.
    #[error("{access} at {address:#x} failed with {response:?}; what follows it in the job was not written")]
    Bus {
        /// What was accessed.
        access: Access,
        /// SLVERR or DECERR.
        response: Response,
        /// Byte address.
        address: u64,
    },
}

/// What a bus error hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The source.
    Read,
    /// The destination.
    Write,
    /// An index list.
    Index,
    /// The descriptor.
    Descriptor,
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "a read of the source",
            Self::Write => "a write to the destination",
            Self::Index => "a read of the index list",
            Self::Descriptor => "a read of the descriptor",
        })
    }
}

impl Completion {
    /// A refused descriptor.
    pub(crate) fn refused(tag: u32, r: Refusal) -> Self {
        Self { tag, outcome: Outcome::Refused, field: r.field, value: r.value, ..Self::default() }
    }

    /// A bus error of the front end.
    pub(crate) fn fault(tag: u32, outcome: Outcome, fault: &BusFault) -> Self {
        Self { tag, outcome, response: fault.response, value: fault.address, ..Self::default() }
    }

    /// The outcome as software takes it.
    ///
    /// # Errors
    /// [`JobError`] for everything but [`Outcome::Done`].
    pub fn result(&self) -> Result<(), JobError> {
        let bus = |access| JobError::Bus { access, response: self.response, address: self.value };
        Err(match self.outcome {
            Outcome::Done => return Ok(()),
            Outcome::Refused => JobError::Refused(Refusal { field: self.field, value: self.value }),
            Outcome::BadIndex => {
                JobError::BadIndex { field: self.field, position: self.position, value: self.value as i64 }
            }
            Outcome::ReadError => bus(Access::Read),
            Outcome::WriteError => bus(Access::Write),
            Outcome::IndexError => bus(Access::Index),
            Outcome::DescriptorError => bus(Access::Descriptor),
        })
    }
}

impl Payload for Completion {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            v.reg("tag_q", 32, Format::Hex, &mut self.tag);
            let mut outcome = self.outcome as u8;
            let names =
                &["done", "refused", "bad_index", "read_error", "write_error", "index_error", "descriptor_error"];
            v.reg("outcome_q", 3, Format::Enum(names), &mut outcome);
            self.outcome = OUTCOMES[usize::from(outcome) % OUTCOMES.len()];
            let mut code = self.response.code();
            v.reg("resp_q", 2, Format::Unsigned, &mut code);
            self.response = Response::from_code(code);
            v.reg("field_q", 8, Format::Unsigned, &mut self.field.0);
            v.reg("value_q", 64, Format::Hex, &mut self.value);
            v.reg("position_q", 12, Format::Unsigned, &mut self.position);
        });
    }
}

/// A dispatched job, until it completes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket {
    /// Its completion, as far as the front end knows it.
    pub completion: Completion,
    /// It moves data: reads and writes have their say.
    pub moves: bool,
}

impl Payload for Ticket {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            self.completion.visit("completion".into(), v);
            v.reg("moves_q", 1, Format::Unsigned, &mut self.moves);
        });
    }
}
