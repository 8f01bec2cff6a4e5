/// Integer multiply-accumulate: `acc` + a × b, wrapped to 32 bits. `overflow` is sticky: it is set when the sum left
/// the 32 bits. The operands are values of at most 9 bits (INT4, INT8, UINT8 or a difference to a zero point).
#[inline]
pub fn int_mac(acc: i32, a: i16, b: i16, overflow: &mut bool) -> i32 {
    accumulate(acc, a as i64 * b as i64, overflow)
}

/// Two k-steps in one cycle (INT4×INT8): `acc` + a₀ × b₀ + a₁ × b₁ through one adder, so overflow is judged on the
/// whole sum.
#[inline]
pub fn int_mac_pair(acc: i32, a: [i16; 2], b: [i16; 2], overflow: &mut bool) -> i32 {
    accumulate(acc, a[0] as i64 * b[0] as i64 + a[1] as i64 * b[1] as i64, overflow)
}

#[inline]
fn accumulate(acc: i32, product: i64, overflow: &mut bool) -> i32 {
    let sum = acc as i64 + product;
    *overflow |= sum != sum as i32 as i64;
    sum as i32
}
