//! The encoder and the decoder with every register clocked, and the closed forms that give their cycles without.

mod decoder;
mod encoder;
mod merger;
mod tables;
mod timing;

pub use decoder::{DecodeCommand, DecodeStatus, Decoder, DecoderIn, DecoderOut, RowBeat};
pub use encoder::{EncodeCommand, EncodeStatus, EncoderIn, EncoderOut, TileEncoder};
pub use merger::WordBeat;
pub use tables::TableRam;
pub use timing::{DecodeEdges, EncodeEdges, decode_edges, encode_edges};
