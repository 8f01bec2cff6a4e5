//! Operands directed at the edges.

use rand::{Rng, RngExt};

/// Specials, ends of ranges and round numbers of FP32.
const LANDMARKS: [u32; 12] = [
    0x0000_0000,
    0x0000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x3f00_0000,
    0x3f80_0000,
    0x4b00_0000,
    0x4f00_0000,
    0x7f7f_ffff,
    0x7f80_0000,
    0x7f80_0001,
    0x7fc0_0000,
];

/// An FP32 code, often a neighbour of a landmark or of `near`, often with few significand bits, sometimes just random.
pub fn fp32(rng: &mut impl Rng, near: u32) -> u32 {
    let few = rng.random_range(-3i32..=3) as u32;
    let fraction = rng.random::<u32>() & 0x7f_ffff;
    let code = match rng.random_range(0..9) {
        0 => rng.random(),
        1 => LANDMARKS[rng.random_range(0..LANDMARKS.len())],
        2 => LANDMARKS[rng.random_range(0..LANDMARKS.len())].wrapping_add(few),
        3 => near.wrapping_add(few),
        4 => near & 0x7f80_0000 | fraction,
        // Another exponent within reach of an addition.
        5 | 6 => (near >> 23 & 0xff).saturating_add_signed(rng.random_range(-50..=50)).min(0xfe) << 23 | fraction,
        7 => rng.random::<u32>() & 0x7f80_0000 | fraction & (u32::MAX << rng.random_range(0..23)),
        _ => fraction >> rng.random_range(0..23), // subnormal
    };
    code & 0x7fff_ffff | rng.random::<u32>() & 0x8000_0000
}

/// Three FP32 codes for a fused multiply-add: the addend is often near the product, and near its negative.
pub fn triple(rng: &mut impl Rng) -> (u32, u32, u32) {
    let a = fp32(rng, 0x3f80_0000);
    let b = match rng.random_range(0..4) {
        // So that the product is near the smallest or the largest numbers.
        0 => {
            let target = if rng.random_bool(0.5) { rng.random_range(0..48) } else { 254 };
            let exponent = (target + 127 - (a >> 23 & 0xff) as i32).clamp(0, 254) as u32;
            exponent << 23 | rng.random::<u32>() & 0x807f_ffff
        }
        _ => fp32(rng, a),
    };
    let product = f32::from_bits(a) * f32::from_bits(b);
    let c = match rng.random_range(0..4) {
        0 => (-product).to_bits().wrapping_add(rng.random_range(-2i32..=2) as u32),
        _ => fp32(rng, product.to_bits()),
    };
    (a, b, c)
}

/// An INT32, of any magnitude, often next to a power of two.
pub fn int32(rng: &mut impl Rng) -> i32 {
    let size = rng.random_range(0..32);
    match rng.random_range(0..4) {
        0 => rng.random(),
        1 => (1i32 << size).wrapping_add(rng.random_range(-3..=3)),
        2 => (-1i32 << size).wrapping_add(rng.random_range(-3..=3)),
        _ => rng.random::<i32>() >> size,
    }
}
