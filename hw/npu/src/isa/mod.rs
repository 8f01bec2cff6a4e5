//! The command set: what the host writes and the engines execute. docs/npu.md has the binary layout.

mod fields;
mod listing;
mod wire;

pub use fields::{Fields, IsaError};
pub use listing::{instruction, listing};
pub use wire::COMMAND_BYTES;

use numeric::FloatFormat;

/// An engine with an in-order queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// Data movement between DRAM and scratchpad.
    Dma,
    /// Matrix products.
    Mvp,
    /// Row operations in FP32.
    Vector,
    /// NeuKompression and the rotate unit.
    Nkz,
}

impl Engine {
    /// All, in the order in which they are granted banks in one cycle.
    pub const ALL: [Engine; 4] = [Engine::Dma, Engine::Mvp, Engine::Vector, Engine::Nkz];

    /// Its name in listings, counters and timelines.
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Dma => "dma",
            Engine::Mvp => "mvp",
            Engine::Vector => "vector",
            Engine::Nkz => "nkz",
        }
    }
}

/// Rows in the scratchpad: row i begins at byte `base + i·pitch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rows {
    /// First byte, 32 bits.
    pub base: u32,
    /// Bytes from row to row, 32 bits.
    pub pitch: u32,
}

impl Rows {
    /// Rows of `bytes` bytes without gaps.
    pub const fn packed(base: u32, bytes: u32) -> Self {
        Self { base, pitch: bytes }
    }
}

/// The K or V of a head of a layer of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stream {
    /// Sequence, 8 bits.
    pub sequence: u8,
    /// Layer, 8 bits.
    pub layer: u8,
    /// KV head, 8 bits.
    pub head: u8,
    /// Values, not keys.
    pub value: bool,
}

/// What a matrix product multiplies: formats of both operands and where their scales stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operands {
    /// Float codes of one format on both sides, no scales: BF16 and FP16 in 16 bits, others in 8.
    Float(FloatFormat),
    /// Codes of INT8 (`None`) or a float format of 8 bits on both sides; an FP32 scale per row of X and per column of W, applied by the output stage.
    PerChannel(Option<FloatFormat>),
    /// The same codes with an FP32 scale per `group` values along k on both sides, applied in the accumulator.
    PerGroup {
        /// INT8, or a float format of 8 bits.
        format: Option<FloatFormat>,
        /// g, values along k that share a scale.
        group: u16,
    },
    /// W as stored in GGUF blocks of 32 along k, X as INT8 with an FP32 scale per 32 values.
    Stored(Block),
}

/// Blocks of 32 weights along k, as GGUF stores them (ggml-common.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Block {
    /// FP16 scale, 32 codes of 4 bits, each minus 8: 18 bytes.
    Q40,
    /// FP16 scale, FP16 minimum, 32 unsigned codes of 4 bits: 20 bytes.
    Q41,
    /// FP16 scale, 32 codes of INT8: 34 bytes.
    Q80,
}

impl Block {
    /// Weights of a block.
    pub const VALUES: usize = 32;

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            Block::Q40 => 18,
            Block::Q41 => 20,
            Block::Q80 => 34,
        }
    }
}

/// How the array is used for a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Weight-stationary: W's tiles are loaded, X streams past.
    Gemm,
    /// X is stationary, W streams through the weight port. At most C rows of X.
    Gemv,
}

/// Y[M, N] = X[M, K] · W[K, N], FP32 sums in the specified order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matmul {
    /// How.
    pub mode: Mode,
    /// Formats and scales.
    pub operands: Operands,
    /// M, 32 bits.
    pub m: u32,
    /// N, 32 bits.
    pub n: u32,
    /// K, 32 bits.
    pub k: u32,
    /// X: rows of K codes.
    pub x: Rows,
    /// Scales of X: FP32, one a row, or rows of ⌈K/g⌉; unused without.
    pub x_scales: u32,
    /// W: K rows of N codes; stored blocks: ⌈K/32⌉ rows of N blocks.
    pub w: Rows,
    /// Scales of W: N in FP32, or ⌈K/g⌉ rows of N; unused without, and for stored blocks.
    pub w_scales: u32,
    /// Y: rows of N results.
    pub y: Rows,
    /// Y in BF16 instead of FP32.
    pub y_bf16: bool,
}

/// Codes that the vector unit quantises to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codes {
    /// INT8, ±127.
    Int8,
    /// A float format of 8 bits, saturating.
    Float(FloatFormat),
}

/// A row operation. X and Y are rows of `len` FP32 values unless said otherwise; Y may be X.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vector {
    /// y = x · w / √(mean(x²) + ε).
    RmsNorm {
        /// `len` FP32 weights.
        weight: u32,
        /// ε, bits of an FP32.
        epsilon: u32,
        /// Y in BF16.
        bf16: bool,
    },
    /// Absmax scales per row (`group` 0) or per `group` values, and codes of one byte. Scales: rows of FP32.
    Quantize {
        /// Of the codes.
        codes: Codes,
        /// Values that share a scale; 0: the row.
        group: u16,
        /// Where the scales go.
        scales: Rows,
    },
    /// y = softmax(scale · x) over the first `visible + ⌊row · step⌋` values of a row, the rest 0; Y in BF16.
    Softmax {
        /// Scale, bits of an FP32.
        scale: u32,
        /// Values that row 0 sees.
        visible: u32,
        /// Further values that each next row sees: 0 or 1.
        step: u8,
    },
    /// Rotates each head of a row (`len` is a multiple of the head dimension that the KV path was set up for) by the row's
    /// position, with the same frequencies and pairing; Y in BF16.
    Rope {
        /// Position of row 0.
        position: u32,
        /// Positions from row to row: 0 or 1.
        step: u8,
    },
    /// y = silu(x) · up.
    SwiGlu {
        /// `up`: rows of FP32.
        up: Rows,
    },
    /// y = x + b.
    Add {
        /// `b`: rows of FP32.
        b: Rows,
    },
    /// FP32 to BF16.
    ToBf16,
    /// BF16 to FP32.
    ToFp32,
    /// Index of each row's largest value, the first among equals: a 32-bit integer a row.
    Argmax,
}

/// A vector command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowOp {
    /// What.
    pub op: Vector,
    /// Rows, 32 bits.
    pub rows: u32,
    /// Values of a row, 32 bits.
    pub len: u32,
    /// X.
    pub x: Rows,
    /// Y.
    pub y: Rows,
}

/// Where the KV path writes BF16 tokens: token-major for V and for raw rows, or channel-major for K, so that both are W's
/// of a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tokens {
    /// Rows of a token, or of a channel where `transposed`.
    pub to: Rows,
    /// Column t holds token t.
    pub transposed: bool,
    /// RoPE on the way, by each token's position, rounded once to BF16.
    pub rotated: bool,
}

/// A command's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Runs the chain of DMA descriptors at a DRAM address.
    Dma {
        /// Address of the first descriptor, a multiple of 64.
        chain: u64,
        /// Banks of the scratchpad that the chain may touch, bit by bit: the engine holds them while it runs.
        banks: u64,
    },
    /// Loads stored tiles `first..first + tiles` of a stream, found through the index and the block table, to `to`, without gaps.
    KvLoad {
        /// Whose.
        stream: Stream,
        /// First tile.
        first: u32,
        /// How many.
        tiles: u32,
        /// Where to.
        to: u32,
    },
    /// Stores the tile last encoded at `from` to its place.
    KvStore {
        /// Whose.
        stream: Stream,
        /// Which.
        tile: u32,
        /// Where it lies.
        from: u32,
    },
    /// A matrix product.
    Matmul(Matmul),
    /// A row operation.
    Vector(RowOp),
    /// Encodes 32 tokens of BF16 as the stream's next tile and enters it into the index.
    KvEncode {
        /// Whose.
        stream: Stream,
        /// Which: the number of tiles that the index holds.
        tile: u32,
        /// Rows of head_dim BF16 values.
        from: Rows,
        /// Where the tile goes.
        to: u32,
    },
    /// Decodes tiles `first..first + tiles` that lie at `from` as [`Op::KvLoad`] leaves them.
    KvDecode {
        /// Whose.
        stream: Stream,
        /// First tile.
        first: u32,
        /// How many.
        tiles: u32,
        /// Where they lie.
        from: u32,
        /// Where the tokens go.
        tokens: Tokens,
    },
    /// Sends raw rows of BF16 the decoder's way.
    KvRaw {
        /// Tokens.
        rows: u32,
        /// Channels.
        width: u32,
        /// Position of the first.
        position: u32,
        /// Where they lie.
        from: Rows,
        /// Where they go.
        tokens: Tokens,
    },
}

impl Op {
    /// Which engine executes it.
    pub const fn engine(&self) -> Engine {
        match self {
            Op::Dma { .. } | Op::KvLoad { .. } | Op::KvStore { .. } => Engine::Dma,
            Op::Matmul(_) => Engine::Mvp,
            Op::Vector(_) => Engine::Vector,
            Op::KvEncode { .. } | Op::KvDecode { .. } | Op::KvRaw { .. } => Engine::Nkz,
        }
    }
}

/// Token counters that commands wait for and signal.
pub const TOKENS: usize = 32;

/// A command: waits for a token of each counter in `wait` and takes them, runs, then adds one to each in `signal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Command {
    /// Counters to take a token from, bit by bit.
    pub wait: u32,
    /// Counters to add a token to.
    pub signal: u32,
    /// For the timeline and `--at`: layer, operation and tile as the host numbers them.
    pub tag: u32,
    /// What.
    pub op: Op,
}
