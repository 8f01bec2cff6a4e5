//! Reading codes and real numbers without loss.

use anyhow::{Context, bail, ensure};
use numeric::{Exact, Flags, Format, Mode, Unpacked};
use std::cmp::Ordering;

/// Longer numbers than this are refused: no code needs a tenth of it.
const MAX_LENGTH: usize = 1_000;

/// A code as given on the command line: `0x…` is the code itself, anything else a real number, rounded once, to
/// nearest even, into the format. Returns the flags of that rounding.
///
/// # Errors
/// Text that is neither, and codes that the format does not have.
pub(super) fn code(format: Format, text: &str) -> anyhow::Result<(u32, Flags)> {
    let mut flags = Flags::NONE;
    let lower = text.trim().to_ascii_lowercase();
    if let Some(digits) = lower.strip_prefix("0x")
        && !lower.contains('p')
    {
        let code = u64::from_str_radix(&digits.replace('_', ""), 16)
            .with_context(|| format!("`{text}` is no code: write it as 0x and up to 8 hexadecimal digits"))?;
        return Ok((format.check_code(code)?, flags));
    }
    let value = real(&lower)
        .with_context(|| format!("`{text}` is neither a code (0x3c) nor a number (1.5, -2e-3, 0x1.8p3, inf, nan)"))?;
    let code = format.pack(value, Mode::default_of(format), &mut flags);
    Ok((code, flags))
}

/// A real number: decimal, hexadecimal with a binary exponent, `inf` or `nan`, with or without a sign.
pub(super) fn real(text: &str) -> anyhow::Result<Unpacked> {
    ensure!(text.len() <= MAX_LENGTH, "a number of {} characters is too long: at most {MAX_LENGTH}", text.len());
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    match digits {
        "inf" | "infinity" => return Ok(Unpacked::Infinite { negative }),
        "nan" => return Ok(Unpacked::Nan { signaling: false }),
        _ => {}
    }
    let magnitude = match digits.strip_prefix("0x") {
        Some(hex) => hex_float(hex)?,
        None => decimal(digits)?,
    };
    Ok(Unpacked::Finite(Exact { negative, ..magnitude }))
}

/// `1.8p3`: hexadecimal digits, times a power of two.
fn hex_float(text: &str) -> anyhow::Result<Exact> {
    let (digits, exponent) = text.split_once('p').context("a hexadecimal number needs an exponent: 0x1.8p3")?;
    let exponent: i32 = exponent.parse().with_context(|| format!("`{exponent}` is no binary exponent"))?;
    ensure!(exponent.abs() <= 10_000, "the exponent {exponent} is out of reach: at most ±10000");
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    ensure!(!all.is_empty() && all.bytes().all(|b| b.is_ascii_hexdigit()), "`{digits}` is not hexadecimal");
    ensure!(all.trim_start_matches('0').len() <= 30, "`{digits}` has more than 30 hexadecimal digits");
    let sig = u128::from_str_radix(&all, 16).with_context(|| format!("`{digits}`"))?;
    Ok(Exact { negative: false, exp: exponent - 4 * fraction.len() as i32, sig })
}

/// A decimal number as its nearest FP64, and a sticky bit for what that leaves out: enough for one exact rounding into
/// any format, and never two.
fn decimal(text: &str) -> anyhow::Result<Exact> {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    ensure!(!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()), "`{mantissa}` is not decimal");
    let sign_free = exponent.trim_start_matches(['+', '-']);
    ensure!(
        !sign_free.is_empty() && sign_free.bytes().all(|b| b.is_ascii_digit()) && exponent.len() <= sign_free.len() + 1,
        "`{exponent}` is no exponent"
    );
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Ok(Exact::zero(false));
    }
    let nearest: f64 = text.parse().with_context(|| format!("`{text}`"))?;
    if nearest == 0.0 || nearest.is_infinite() {
        // Beyond FP64, and so beyond every format.
        return Ok(Exact { negative: false, exp: if nearest == 0.0 { -2_000 } else { 2_000 }, sig: 1 });
    }
    // Not beyond FP64, so the exponent is a small number.
    let exponent: i64 = exponent.parse().with_context(|| format!("`{exponent}`"))?;
    let leading = exponent + whole.len() as i64 - (digits.len() - significant.len()) as i64 - 1;
    // FP64's own decimal digits are exact within 767.
    let printed = format!("{nearest:.780e}");
    let Some((own, own_exponent)) = printed.split_once('e') else { bail!("`{text}`") };
    let own_digits = own.replace('.', "");
    let own_leading: i64 = own_exponent.parse()?;
    let order = leading.cmp(&own_leading).then_with(|| {
        significant.trim_end_matches('0').cmp(own_digits.trim_end_matches('0')) // no prefix is equal: both end in a digit that counts
    });
    let bits = nearest.to_bits();
    let field = (bits >> 52) as i32;
    let fraction = bits & ((1 << 52) - 1);
    let (sig, exp) = if field == 0 { (fraction, -1_074) } else { (fraction | 1 << 52, field - 1_075) };
    let sig = (sig as u128) << 2;
    let sticky = match order {
        Ordering::Less => sig - 1,
        Ordering::Equal => sig,
        Ordering::Greater => sig + 1,
    };
    Ok(Exact { negative: false, exp: exp - 2, sig: sticky })
}

#[cfg(test)]
mod tests {
    use super::*;
    use numeric::FloatFormat;

    fn fp32(text: &str) -> f32 {
        let mut flags = Flags::NONE;
        f32::from_bits(FloatFormat::FP32.pack(real(text).unwrap(), Mode::IEEE, &mut flags))
    }

    #[test]
    fn decimals_round_once() {
        for text in
            ["0.1", "1", "-2.5e-3", "3.4028235e38", "1e-45", "7.0064923e-46", "16777217", "123456789e-20", ".5", "5."]
        {
            assert_eq!(fp32(text), text.parse::<f32>().unwrap(), "{text}");
        }
        // Just above a tie of FP32, by less than FP64 can tell: two roundings would lose it.
        let text = "1.00000005960464477539062500000000000000000001";
        assert_eq!(fp32(text), f32::from_bits(0x3f80_0001));
        assert_eq!(fp32("1.000000059604644775390625"), 1.0);
        assert_eq!(fp32("1e-400"), 0.0);
        assert_eq!(fp32("-1e400"), f32::NEG_INFINITY);
        assert_eq!(fp32("1e-99999999999999999999"), 0.0);
    }

    #[test]
    fn hexadecimal_floats_are_exact() {
        assert_eq!(fp32("0x1.8p3"), 12.0);
        assert_eq!(fp32("-0x.8p-148"), -f32::from_bits(1));
        assert_eq!(fp32("0x0p0"), 0.0);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in
            ["", "-", "1..2", "1e", "1e+-2", "0x", "0x1.8", "0xp3", "abc", "1e5x", "0x1p99999999999", "1_0", "e5", "."]
        {
            assert!(real(text).is_err(), "{text}");
        }
        assert!(real(&"1".repeat(2_000)).is_err());
        let e4m3 = Format::Float(FloatFormat::E4M3);
        let error = code(e4m3, "0x100").unwrap_err().to_string();
        assert!(error.contains("no code of e4m3") && error.contains("0xff"), "{error}");
        assert!(code(e4m3, "0xzz").unwrap_err().to_string().contains("no code"));
        assert_eq!(code(e4m3, "0x7e").unwrap(), (0x7e, Flags::NONE));
    }
}
