//! `magpie num`: the calculator for codes.

mod real;
mod show;
mod steps;

use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum};
use numeric::{
    FixedScale, Flags, FloatFormat, Format, IntFormat, Mode, NumericError, Overflow, Rounding, Specials, add,
    choose_ffp8, convert, fma, mul, requant_fixed, requant_onnx,
};
use serde_json::{Value, json};
use show::Shown;
use std::{ffi::OsString, process::ExitCode};

/// Calculates with codes, bit by bit: the bits, the exact value and the flags raised.
///
/// FORMAT is int4, int8, uint8, int32, mxint8, e2m1, e2m3, e3m2, e4m3, e5m2, e8m0, bf16, fp16, fp32, or
/// ffp8:s,e,f,bias or ffp8:s-e-f for a flexible 8-bit float. A value is a code (0x3c) or a number (1.5, -2e-3, 0x1.8p3, inf, nan),
/// which is rounded once, to nearest even, into its format.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
EXAMPLES
  magpie num decode e4m3 0x7e -2e-3                          a code; a number rounded into a code
  magpie num convert --from fp32 --to e4m3 --overflow ieee 464 464.1
  magpie num fma --format bf16 --steps 1.5 -2 0x40400000     with what each pipeline register holds
  magpie num requant --scale 0.0025 --zero-point 3 5000 -70000
  magpie num choose 0.1 -0.7 2.5                             the FFP8 format that fits best")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// What codes mean
    Decode {
        /// Format of the codes
        format: String,
        /// Codes, or numbers
        #[arg(required = true, allow_negative_numbers = true)]
        codes: Vec<String>,
    },
    /// From one format into another, with one rounding
    Convert {
        /// Format of the values
        #[arg(long, value_name = "FORMAT")]
        from: String,
        /// Format of the results
        #[arg(long, value_name = "FORMAT")]
        to: String,
        /// Rounding: to nearest even, or toward zero
        #[arg(long, value_enum, default_value_t = Round::Rne)]
        round: Round,
        /// Overflow: saturate, or the format's own rule; default: 8 bits and less saturate
        #[arg(long, value_enum)]
        overflow: Option<OverflowRule>,
        /// Codes, or numbers
        #[arg(required = true, allow_negative_numbers = true)]
        values: Vec<String>,
    },
    /// A + B in one format
    Add(Binary),
    /// A × B in one format
    Mul(Binary),
    /// A × B + C with one rounding; C and the result are FP32
    Fma {
        /// Format of A and B; any float but e8m0
        #[arg(long)]
        format: String,
        /// Format of B, if it is another
        #[arg(long, value_name = "FORMAT")]
        b_format: Option<String>,
        /// Show what each pipeline register of the hardware MAC holds
        #[arg(long)]
        steps: bool,
        /// First factor
        #[arg(allow_negative_numbers = true)]
        a: String,
        /// Second factor
        #[arg(allow_negative_numbers = true)]
        b: String,
        /// Addend, FP32
        #[arg(allow_negative_numbers = true)]
        c: String,
    },
    /// An INT32 accumulator to a narrow integer: by an FP32 scale (ONNX's rule), or by multiplier and shift (gemmlowp's)
    #[command(after_help = "\
EXAMPLES
  magpie num requant --scale 0.0025 5000 -70000              ONNX: FP32 product, half to even
  magpie num requant --scale 0.0025 --fixed 5000             the same scale by gemmlowp's rule
  magpie num requant --multiplier 1374389535 --shift -8 5000 multiplier / 2^31 x 2^shift
  magpie num requant --scale 0.0025 --zero-point 128 --to uint8 5000")]
    Requant {
        /// FP32 scale, a code or a number
        #[arg(long, conflicts_with_all = ["multiplier", "shift"], allow_negative_numbers = true)]
        scale: Option<String>,
        /// Turn the scale into multiplier and shift, and use gemmlowp's rule
        #[arg(long, requires = "scale")]
        fixed: bool,
        /// 31-bit multiplier
        #[arg(long, requires = "shift", required_unless_present = "scale")]
        multiplier: Option<i32>,
        /// Shift, −31 to 30, positive to the left
        #[arg(long, requires = "multiplier", allow_negative_numbers = true)]
        shift: Option<i32>,
        /// Zero point of the result
        #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
        zero_point: i32,
        /// int8, uint8 or int4
        #[arg(long, default_value = "int8", value_name = "FORMAT")]
        to: String,
        /// Accumulators
        #[arg(required = true, allow_negative_numbers = true)]
        accumulators: Vec<i32>,
    },
    /// The flexible 8-bit float with the least mean squared error over some values
    Choose {
        /// Numbers
        #[arg(required = true, allow_negative_numbers = true)]
        values: Vec<String>,
    },
    /// The formats and their landmarks
    Formats,
}

#[derive(clap::Args, Debug)]
struct Binary {
    /// Format of A, B and the result
    #[arg(long)]
    format: String,
    /// First operand
    #[arg(allow_negative_numbers = true)]
    a: String,
    /// Second operand
    #[arg(allow_negative_numbers = true)]
    b: String,
}

#[derive(Clone, Copy, ValueEnum, Debug)]
enum Round {
    Rne,
    Rtz,
}

#[derive(Clone, Copy, ValueEnum, Debug)]
enum OverflowRule {
    Sat,
    Ieee,
}

/// Lets `-2e-3`, `-0x1p3` and `-inf` pass as values, which the command-line parser takes for options: they get a leading blank, which
/// [`real::code`] ignores.
pub fn shield_negative_numbers(words: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let shield = |word: OsString| match word.to_str() {
        Some(text)
            if text.starts_with('-')
                && text.parse::<i32>().is_err()
                && real::real(&text.to_ascii_lowercase()).is_ok() =>
        {
            format!(" {text}").into()
        }
        _ => word,
    };
    words.map(shield)
}

/// Results on their way out: lines, and the same as JSON.
#[derive(Default)]
struct Output {
    lines: Vec<String>,
    json: Vec<Value>,
}

impl Output {
    fn add(&mut self, line: impl Into<String>, json: Value) {
        self.lines.push(line.into());
        self.json.push(json);
    }
}

/// Runs the command.
///
/// # Errors
/// Unknown formats, codes that a format does not have, numbers that are none.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let output = compute(&args.command)?;
    if args.json {
        outln!("{:#}", Value::Array(output.json));
    } else {
        output.lines.iter().for_each(|line| outln!("{line}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn compute(command: &Command) -> anyhow::Result<Output> {
    let mut out = Output::default();
    match command {
        Command::Decode { format, codes } => {
            let format: Format = format.parse()?;
            for text in codes {
                let (code, flags) = real::code(format, text)?;
                let shown = Shown::new(format, code, flags);
                out.add(shown.line(), shown.json());
            }
        }
        Command::Convert { from, to, round, overflow, values } => {
            let (from, to): (Format, Format) = (from.parse()?, to.parse()?);
            let mode = mode(to, *round, *overflow);
            for text in values {
                conversion(from, to, mode, text, &mut out)?;
            }
        }
        Command::Add(operands) => binary("+", add, operands, &mut out)?,
        Command::Mul(operands) => binary("×", mul, operands, &mut out)?,
        Command::Fma { format, b_format, steps, a, b, c } => {
            let a_format: FloatFormat = format.parse()?;
            let b_format: FloatFormat = b_format.as_deref().unwrap_or(format).parse()?;
            if let Some(scale) = [a_format, b_format].into_iter().find(|f| f.specials() == Specials::Scale) {
                bail!(NumericError::NotAnOperand { format: scale.to_string() })
            }
            let operands = [(a_format, a), (b_format, b), (FloatFormat::FP32, c)];
            fused(operands, *steps, &mut out)?;
        }
        Command::Requant { scale, fixed, multiplier, shift, zero_point, to, accumulators } => {
            let rule = match (scale, multiplier, shift) {
                (Some(scale), ..) => {
                    let (code, _) = real::code(FloatFormat::FP32.into(), scale)?;
                    if *fixed { Rule::Fixed(FixedScale::from_f32(code)?) } else { Rule::Onnx(code) }
                }
                (None, Some(multiplier), Some(shift)) => Rule::Fixed(FixedScale::new(*multiplier, *shift)?),
                _ => bail!("give --scale, or --multiplier and --shift"),
            };
            for acc in accumulators {
                requantise(*acc, rule, *zero_point, to, &mut out)?;
            }
        }
        Command::Choose { values } => choose(values, &mut out)?,
        Command::Formats => Format::NAMED.into_iter().for_each(|(name, format)| landmarks(name, format, &mut out)),
    }
    Ok(out)
}

fn mode(to: Format, round: Round, overflow: Option<OverflowRule>) -> Mode {
    let rounding = match round {
        Round::Rne => Rounding::NearestEven,
        Round::Rtz => Rounding::TowardZero,
    };
    let overflow = match overflow {
        Some(OverflowRule::Sat) => Overflow::Saturate,
        Some(OverflowRule::Ieee) => Overflow::Own,
        None => Mode::default_of(to).overflow,
    };
    Mode { rounding, overflow }
}

fn conversion(from: Format, to: Format, mode: Mode, text: &str, out: &mut Output) -> anyhow::Result<()> {
    let (code, on_entry) = real::code(from, text)?;
    let mut flags = Flags::NONE;
    let result = convert(from, to, code, mode, &mut flags);
    let source = Shown::new(from, code, on_entry);
    let target = Shown::new(to, result, flags);
    out.add(format!("{}\n  → {}", source.line(), target.line()), json!({ "from": source.json(), "to": target.json() }));
    Ok(())
}

type Operator = fn(FloatFormat, u32, u32, Mode, &mut Flags) -> u32;

fn binary(sign: &str, operator: Operator, operands: &Binary, out: &mut Output) -> anyhow::Result<()> {
    let format: FloatFormat = operands.format.parse()?;
    let ((a, a_flags), (b, b_flags)) =
        (real::code(format.into(), &operands.a)?, real::code(format.into(), &operands.b)?);
    let mut flags = Flags::NONE;
    let result = operator(format, a, b, Mode::default_of(format.into()), &mut flags);
    let a = Shown::new(format.into(), a, a_flags);
    let b = Shown::new(format.into(), b, b_flags);
    let result = Shown::new(format.into(), result, flags);
    let line = format!("    {}\n  {sign} {}\n  = {}", a.line(), b.line(), result.line());
    out.add(line, json!({ "a": a.json(), "b": b.json(), "result": result.json() }));
    Ok(())
}

fn fused(operands: [(FloatFormat, &String); 3], with_steps: bool, out: &mut Output) -> anyhow::Result<()> {
    let mut shown = Vec::new();
    let mut codes = [0; 3];
    for ((format, text), place) in operands.into_iter().zip(&mut codes) {
        let (code, flags) = real::code(format.into(), text)?;
        *place = code;
        shown.push(Shown::new(format.into(), code, flags));
    }
    let [a, b, c] = codes;
    let mut flags = Flags::NONE;
    let result = fma(operands[0].0, a, operands[1].0, b, c, &mut flags);
    let result = Shown::new(FloatFormat::FP32.into(), result, flags);
    let mut line =
        format!("    {}\n  × {}\n  + {}\n  = {}", shown[0].line(), shown[1].line(), shown[2].line(), result.line());
    let mut object = json!({
        "a": shown[0].json(), "b": shown[1].json(), "c": shown[2].json(), "result": result.json(),
    });
    if with_steps {
        let steps = steps::of(operands[0].0, a, operands[1].0, b, c)?;
        for step in &steps {
            line += &format!("\n  {:<10} {}", step.name, step.text());
        }
        object["steps"] = steps.iter().map(steps::Step::json).collect();
    }
    out.add(line, object);
    Ok(())
}

#[derive(Clone, Copy)]
enum Rule {
    Onnx(u32),
    Fixed(FixedScale),
}

fn requantise(acc: i32, rule: Rule, zero_point: i32, to: &str, out: &mut Output) -> anyhow::Result<()> {
    let format: Format = to.parse()?;
    let target = match format {
        Format::Int(i) if [IntFormat::INT4, IntFormat::INT8, IntFormat::UINT8].contains(&i) => i,
        _ => bail!("an accumulator is requantised to int8, uint8 or int4, not to {to}"),
    };
    let mut flags = Flags::NONE;
    let (code, how, scale) = match rule {
        Rule::Onnx(scale) => {
            let shown = Shown::new(FloatFormat::FP32.into(), scale, Flags::NONE);
            (requant_onnx(acc, scale, zero_point, target, &mut flags), "onnx", shown.decimal())
        }
        Rule::Fixed(scale) => {
            let text = format!("{} × 2^({} − 31)", scale.multiplier(), scale.shift());
            (requant_fixed(acc, scale, zero_point, target, &mut flags), "gemmlowp", text)
        }
    };
    let result = Shown::new(format, code, flags);
    let line = format!("{acc} × {scale} + {zero_point} by the {how} rule\n  → {}", result.line());
    let object = json!({
        "accumulator": acc, "rule": how, "scale": scale, "zero_point": zero_point, "result": result.json(),
    });
    out.add(line, object);
    Ok(())
}

fn choose(values: &[String], out: &mut Output) -> anyhow::Result<()> {
    let fp32: Format = FloatFormat::FP32.into();
    let numbers: Vec<f32> =
        values.iter().map(|text| Ok(f32::from_bits(real::code(fp32, text)?.0))).collect::<anyhow::Result<_>>()?;
    let choice = choose_ffp8(&numbers).context("choosing a format")?;
    let line = format!("{}  mean squared error {:e}", choice.format, choice.mse);
    out.add(line, json!({ "format": choice.format.to_string(), "mse": choice.mse }));
    Ok(())
}

fn landmarks(name: &str, format: Format, out: &mut Output) {
    let show = |code| Shown::new(format, code, Flags::NONE);
    let hex = |code| show(code).hex();
    let (line, object) = match format {
        Format::Float(f) => {
            let smallest = (f.frac_bits() > 0).then(|| show(1).hex_float());
            let special = |code: Option<u32>| code.map_or("none".into(), hex);
            (
                format!(
                    "{name:<7} {}-{}-{}, bias {}: max {} ({}), min normal {}, min subnormal {}, NaN {}, infinity {}",
                    f.signed() as u8,
                    f.exp_bits(),
                    f.frac_bits(),
                    f.bias(),
                    show(f.max_finite()).hex_float(),
                    hex(f.max_finite()),
                    show(f.min_normal()).hex_float(),
                    smallest.as_deref().unwrap_or("none"),
                    special(f.canonical_nan()),
                    special(f.infinity())
                ),
                json!({
                    "name": name, "sign": f.signed(), "exponent": f.exp_bits(), "fraction": f.frac_bits(),
                    "bias": f.bias(), "max": show(f.max_finite()).decimal(),
                    "min_normal": show(f.min_normal()).hex_float(), "min_subnormal": smallest,
                    "nan": f.canonical_nan().map(hex), "infinity": f.infinity().map(hex),
                }),
            )
        }
        Format::Int(i) => {
            let step = f64::from(i.lsb()).exp2();
            let [least, most] = [i.min(), i.max()].map(|code| code as f64 * step);
            let codes = if i.lsb() == 0 { String::new() } else { format!(" (codes {} to {})", i.min(), i.max()) };
            (
                format!("{name:<7} {} bits in steps of 2^{}: {least} to {most}{codes}", i.width(), i.lsb()),
                json!({
                    "name": name, "bits": i.width(), "lsb": i.lsb(), "min": i.min(), "max": i.max(),
                    "min_value": least, "max_value": most,
                }),
            )
        }
    };
    out.add(line, object);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        num: Args,
    }

    fn lines(words: &str) -> anyhow::Result<String> {
        let words = std::iter::once("num").chain(words.split(' ')).map(OsString::from);
        let cli = Cli::try_parse_from(shield_negative_numbers(words))?;
        Ok(compute(&cli.num.command)?.lines.join("\n"))
    }

    #[test]
    fn the_edges_of_e4m3_are_told_apart() {
        let text = lines("convert --from fp32 --to e4m3 --overflow ieee -- 464 464.1 -inf").unwrap();
        assert!(text.contains("→ e4m3 0x7e  [0 1111 110]  normal  = 448 = 0x1.cp+8  flags: inexact"), "{text}");
        assert!(text.contains("→ e4m3 0x7f  [0 1111 111]  NaN  = nan = nan  flags: overflow inexact"), "{text}");
        let text = lines("convert --from fp32 --to e4m3 -inf").unwrap();
        assert!(text.contains("e4m3 0xfe"), "{text}");
        let text = lines("convert --from fp32 --to e4m3 1e9 -1e9").unwrap();
        assert!(text.contains("e4m3 0x7e") && text.contains("e4m3 0xfe"), "{text}");
    }

    #[test]
    fn integer_formats_show_values_and_codes() {
        let text = lines("formats").unwrap();
        for shown in
            ["8 bits in steps of 2^-6: -2 to 1.984375 (codes -128 to 127)", "8 bits in steps of 2^0: -128 to 127"]
        {
            assert!(text.lines().any(|line| line.ends_with(shown)), "{text}");
        }
    }

    #[test]
    fn negative_numbers_of_every_notation_are_values() {
        let text = lines("decode e4m3 -2e-3 -0x1p-3 -3 -inf --json").unwrap();
        let codes: Vec<_> = text.lines().map(|l| l.split(' ').nth(1).unwrap()).collect();
        assert_eq!(codes, ["0x81", "0xa0", "0xc4", "0xfe"]);
        assert!(lines("decode e4m3 1 --jsn").is_err());
    }

    #[test]
    fn a_multiply_add_shows_result_flags_and_registers() {
        let text = lines("fma --format bf16 --steps 1.5 -2 0x40400000").unwrap();
        assert!(text.contains("= fp32 0x00000000"), "{text}");
        assert!(text.contains("align") && text.contains("sum_low"), "{text}");
    }

    #[test]
    fn both_requantisation_rules_are_named() {
        assert!(lines("requant --scale 0.5 --zero-point 3 5").unwrap().contains("→ int8 0x05")); // 2.5 → 2, + 3
        assert!(lines("requant --scale 0.5 --fixed --zero-point 3 5").unwrap().contains("→ int8 0x06")); // 2.5 → 3, + 3
        assert!(lines("requant --multiplier 1073741824 --shift -3 --to uint8 -100").unwrap().contains("uint8 0x00"));
    }

    #[test]
    fn errors_say_what_would_do() {
        let error = |words| format!("{:#}", lines(words).unwrap_err());
        assert!(error("decode e4m4 0").contains("no number format is called `e4m4`"));
        assert!(error("decode e4m3 0x1ff").contains("codes end at 0xff"));
        assert!(error("decode e4m3 x").contains("neither a code (0x3c) nor a number"));
        for format in ["int8", "e8m0", "bf16 --b-format e8m0"] {
            let refusal = format!("{:#}", lines(&format!("fma --format {format} 1 2 3")).unwrap_err());
            assert!(refusal.contains("cannot be an operand of the float MAC"), "{format}: {refusal}");
        }
        assert!(error("requant --scale 1 --to fp32 3").contains("int8, uint8 or int4"));
        assert!(error("requant 3").contains("--multiplier"));
        assert!(error("choose nan").contains("no finite value"));
    }
}
