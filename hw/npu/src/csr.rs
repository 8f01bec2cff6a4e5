//! Control and status registers as data: the same table makes the register file, the page and the SystemVerilog header.

use crate::isa::{COMMAND_BYTES, Command, Engine};
use crate::{Counters, Npu, RunError};
use std::fmt::Write;

/// What software may do with a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
    /// A write does something; reads give zero.
    WriteOnly,
    /// Reads; a one written to a bit clears it.
    ClearByOne,
}

impl Access {
    /// As register tables write it.
    pub const fn name(self) -> &'static str {
        match self {
            Access::ReadOnly => "RO",
            Access::ReadWrite => "RW",
            Access::WriteOnly => "WO",
            Access::ClearByOne => "W1C",
        }
    }
}

/// A register of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Byte offset.
    pub offset: u32,
    /// Name.
    pub name: &'static str,
    /// Access.
    pub access: Access,
    /// Value after reset.
    pub reset: u32,
    /// What it holds.
    pub text: &'static str,
}

const fn register(offset: u32, name: &'static str, access: Access, reset: u32, text: &'static str) -> Register {
    Register { offset, name, access, reset, text }
}

/// `MAGP`.
const ID_VALUE: u32 = 0x4d41_4750;
/// Major version in the upper half, minor in the lower.
const VERSION_VALUE: u32 = 0x0001_0000;

/// Offsets of the registers that the register file itself uses.
const CONTROL: u32 = 0x08;
const STATUS: u32 = 0x0c;
const INTERRUPT: u32 = 0x10;
const INTERRUPT_ENABLE: u32 = 0x14;
const PROGRAM_LOW: u32 = 0x18;
const PROGRAM_HIGH: u32 = 0x1c;
const PROGRAM_COUNT: u32 = 0x20;
const DOORBELL: u32 = 0x24;
const ERROR_COMMAND: u32 = 0x28;
/// First counter: 64 bits each, low word first.
const COUNTERS: u32 = 0x100;

/// Bits of STATUS and INTERRUPT.
const DONE: u32 = 1;
const ERROR: u32 = 2;
const DEADLOCK: u32 = 4;

/// The control registers; the counters follow from [`COUNTER_NAMES`].
pub const REGISTERS: [Register; 11] = [
    register(0x00, "ID", Access::ReadOnly, ID_VALUE, "`MAGP`"),
    register(0x04, "VERSION", Access::ReadOnly, VERSION_VALUE, "major version in bits 31:16, minor in 15:0"),
    register(
        CONTROL,
        "CONTROL",
        Access::WriteOnly,
        0,
        "bit 0: reset; empties queues, token counters and the register file. Memories keep their contents",
    ),
    register(
        STATUS,
        "STATUS",
        Access::ReadOnly,
        0,
        "of the last program: bit 0 done, bit 1 a command failed, bit 2 deadlock. Zero before the first",
    ),
    register(
        INTERRUPT,
        "INTERRUPT",
        Access::ClearByOne,
        0,
        "the same bits, sticky; the interrupt line is high while one is set and enabled",
    ),
    register(INTERRUPT_ENABLE, "INTERRUPT_ENABLE", Access::ReadWrite, 0, "which bits of INTERRUPT raise the line"),
    register(PROGRAM_LOW, "PROGRAM_LOW", Access::ReadWrite, 0, "DRAM address of the program, bits 31:0"),
    register(PROGRAM_HIGH, "PROGRAM_HIGH", Access::ReadWrite, 0, "the same, bits 47:32"),
    register(PROGRAM_COUNT, "PROGRAM_COUNT", Access::ReadWrite, 0, "commands of the program"),
    register(DOORBELL, "DOORBELL", Access::WriteOnly, 0, "any write runs the program"),
    register(ERROR_COMMAND, "ERROR_COMMAND", Access::ReadOnly, 0, "place in the program of the command that failed"),
];

/// Counters of 64 bits, read as two words from offset 0x100 on.
pub fn counters(c: &Counters) -> Vec<(String, u64)> {
    let mut all = vec![("CYCLES".to_string(), c.cycles), ("DISPATCH_STALLS".into(), c.dispatch_stalls)];
    for engine in Engine::ALL {
        let e = c.engine(engine);
        let fields = [
            ("COMMANDS", e.commands),
            ("BUSY", e.busy),
            ("CONFLICTS", e.conflicts),
            ("WAITS_TOKENS", e.waits_tokens),
            ("WAITS_BANKS", e.waits_banks),
            ("IDLE", e.idle),
        ];
        all.extend(fields.map(|(name, value)| (format!("{}_{name}", engine.name().to_uppercase()), value)));
    }
    all.extend([("MACS".into(), c.macs), ("PORT_STALLS".into(), c.port_stalls)]);
    for (way, kinds) in [("READ", &c.dram_read), ("WRITTEN", &c.dram_written)] {
        let fields = [("ACTIVATIONS", kinds.activations), ("WEIGHTS", kinds.weights), ("KV", kinds.kv)];
        all.extend(fields.map(|(name, value)| (format!("{way}_{name}"), value)));
    }
    all.extend([("KV_RAW".into(), c.kv_raw), ("KV_STORED".into(), c.kv_stored)]);
    all
}

/// All registers: the control registers and two words a counter.
pub fn registers() -> Vec<(u32, String, Access, u32, String)> {
    let fixed = REGISTERS.iter().map(|r| (r.offset, r.name.to_string(), r.access, r.reset, r.text.to_string()));
    let counted = counters(&Counters::default()).into_iter().enumerate().flat_map(|(i, (name, _))| {
        let word = |half: u32, suffix: &str, bits: &str| {
            let offset = COUNTERS + 8 * i as u32 + 4 * half;
            (offset, format!("{name}_{suffix}"), Access::ReadOnly, 0, format!("counter, bits {bits}"))
        };
        [word(0, "LOW", "31:0"), word(1, "HIGH", "63:32")]
    });
    fixed.chain(counted).collect()
}

/// The register table in Markdown.
pub fn markdown() -> String {
    let mut text = String::from("| offset | register | access | reset | |\n| --- | --- | --- | --- | --- |\n");
    for (offset, name, access, reset, what) in registers() {
        let written = writeln!(text, "| {offset:#05x} | `{name}` | {} | {reset:#x} | {what} |", access.name());
        debug_assert!(written.is_ok());
    }
    text
}

/// The SystemVerilog header: offsets and reset values.
pub fn header() -> String {
    let mut text = String::from(
        "// Control and status registers of the NPU. Generated by `magpie registers --sv`.\n\
         `ifndef MAGPIE_CSR_SVH\n`define MAGPIE_CSR_SVH\n",
    );
    for (offset, name, access, reset, _) in registers() {
        let written = writeln!(
            text,
            "localparam logic [11:0] CSR_{name} = 12'h{offset:03x};\nlocalparam logic [31:0] CSR_{name}_RESET = 32'h{reset:08x}; // {}",
            access.name()
        );
        debug_assert!(written.is_ok());
    }
    text.push_str("`endif\n");
    text
}

/// What the register file holds.
#[derive(Clone, Debug, Default)]
pub struct Csr {
    status: u32,
    interrupt: u32,
    interrupt_enable: u32,
    program: u64,
    count: u32,
    error_command: u32,
    /// Why the last program failed, for the host's software.
    pub error: Option<RunError>,
}

impl Npu {
    /// Reads a register; offsets without one read as zero.
    pub fn read_register(&self, offset: u32) -> u32 {
        let csr = &self.csr;
        match offset {
            STATUS => csr.status,
            INTERRUPT => csr.interrupt,
            INTERRUPT_ENABLE => csr.interrupt_enable,
            PROGRAM_LOW => csr.program as u32,
            PROGRAM_HIGH => (csr.program >> 32) as u32,
            PROGRAM_COUNT => csr.count,
            ERROR_COMMAND => csr.error_command,
            _ if offset >= COUNTERS && offset.is_multiple_of(4) => {
                let at = ((offset - COUNTERS) / 8) as usize;
                let value = counters(self.counters()).get(at).map_or(0, |(_, value)| *value);
                (value >> (32 * ((offset / 4) & 1))) as u32
            }
            _ => REGISTERS.iter().find(|r| r.offset == offset && r.access == Access::ReadOnly).map_or(0, |r| r.reset),
        }
    }

    /// Writes a register; offsets without one, and read-only registers, ignore it.
    pub fn write_register(&mut self, offset: u32, value: u32) {
        let csr = &mut self.csr;
        match offset {
            CONTROL if value & 1 == 1 => self.csr = Csr::default(),
            INTERRUPT => csr.interrupt &= !value,
            INTERRUPT_ENABLE => csr.interrupt_enable = value & (DONE | ERROR | DEADLOCK),
            PROGRAM_LOW => csr.program = csr.program >> 32 << 32 | u64::from(value),
            PROGRAM_HIGH => csr.program = csr.program & 0xffff_ffff | u64::from(value & 0xffff) << 32,
            PROGRAM_COUNT => csr.count = value,
            DOORBELL => self.doorbell(),
            _ => {}
        }
    }

    /// Whether the interrupt line is high.
    pub fn interrupt(&self) -> bool {
        self.csr.interrupt & self.csr.interrupt_enable != 0
    }

    /// The register file.
    pub fn csr(&self) -> &Csr {
        &self.csr
    }

    fn doorbell(&mut self) {
        let result = self.fetch_program().and_then(|program| self.run(&program));
        let (status, number) = match &result {
            Ok(_) => (DONE, 0),
            Err(RunError::Command { number, .. } | RunError::Fetch { number, .. }) => (DONE | ERROR, *number as u32),
            Err(RunError::Deadlock { .. }) => (DONE | DEADLOCK, 0),
        };
        (self.csr.status, self.csr.error_command) = (status, number);
        self.csr.interrupt |= status;
        self.csr.error = result.err();
    }

    fn fetch_program(&self) -> Result<Vec<Command>, RunError> {
        let mut program = Vec::new();
        for number in 0..self.csr.count as usize {
            let fails = |cause: String| RunError::Fetch { number, cause };
            let address = self.csr.program + (number * COMMAND_BYTES) as u64;
            let bytes = self.memory().dram.read(address, COMMAND_BYTES).map_err(|e| fails(e.to_string()))?;
            let bytes: Option<&[u8; COMMAND_BYTES]> = bytes.and_then(|b| b.try_into().ok());
            let bytes = bytes.ok_or_else(|| fails(format!("nobody wrote {COMMAND_BYTES} bytes at {address:#x}")))?;
            program.push(Command::decode(bytes).map_err(|e| fails(e.to_string()))?);
        }
        Ok(program)
    }
}
