//! The table and the plot of formats on SmolLM2 in the README: `cargo run --release -p tb --example formats -- TEXT… > table.md`
//! writes docs/img/formats.svg too. `make smollm2` and golden/dev/fetch-texts.sh fetch model and texts.

use host::{Logits, Options, Session};
use std::fmt::Write;
use tb::run::{Comparison, judge, source};

/// Tokens of each text, and positions left out at its start.
const TOKENS: usize = 384;
const SKIP: usize = 64;

const FORMATS: [&str; 9] =
    ["bf16", "ffp8/32", "q4_1", "int8/32", "ffp8/channel", "e4m3/32", "int8/channel", "e4m3/channel", "e5m2/32"];

/// A format's name and its mean figures.
struct Line {
    name: String,
    kl: f64,
    top1: f64,
    perplexity: f64,
    kls: Vec<f64>,
}

fn main() -> anyhow::Result<()> {
    let texts: Vec<String> = std::env::args().skip(1).collect();
    anyhow::ensure!(!texts.is_empty(), "give texts of {TOKENS} tokens or more");
    let source = source("smollm2")?;
    let llm = source.llm();
    let mut references = Vec::new();
    for text in &texts {
        let ids = llm.tokenizer.encode(&String::from_utf8_lossy(&std::fs::read(text)?))?;
        anyhow::ensure!(ids.len() >= TOKENS, "{text}: {} tokens", ids.len());
        let ids = ids[..TOKENS].to_vec();
        references.push((llm.logits(&ids)?, ids));
    }
    let mut lines = Vec::new();
    for format in FORMATS {
        let options = Options { format: format.parse()?, ..Options::new(npu::Config::default()) };
        let mut session = Session::new(&source, &options)?;
        let mut found: Vec<Comparison> = Vec::new();
        for (reference, ids) in &references {
            session.forget(0);
            let answer = session.prefill(0, ids, Logits::All)?;
            found.push(judge(reference, &answer.logits, ids, SKIP)?);
        }
        let mean = |f: &dyn Fn(&Comparison) -> f64| found.iter().map(f).sum::<f64>() / found.len() as f64;
        let line = Line {
            name: session.format().to_string(),
            kl: mean(&|c| c.kl),
            top1: 100.0 * mean(&|c| c.top1),
            perplexity: 100.0 * (mean(&|c| (c.perplexity / c.reference_perplexity).ln()).exp() - 1.0),
            kls: found.iter().map(|c| c.kl).collect(),
        };
        eprintln!("{}: {:.5}", line.name, line.kl);
        lines.push(line);
    }
    println!("| format | mean KL | KL by text | top-1 % | perplexity |\n| --- | --- | --- | --- | --- |");
    for l in &lines {
        let kls: Vec<_> = l.kls.iter().map(|kl| format!("{kl:.5}")).collect();
        println!("| {} | {:.5} | {} | {:.1} | {:+.2} % |", l.name, l.kl, kls.join(", "), l.top1, l.perplexity);
    }
    std::fs::write("docs/img/formats.svg", svg(&lines))?;
    Ok(())
}

/// A bar a format, KL on a logarithmic axis, the texts as dots.
fn svg(lines: &[Line]) -> String {
    const LEFT: f64 = 130.0;
    const WIDTH: f64 = 720.0;
    const ROW: f64 = 26.0;
    const TOP: f64 = 34.0;
    let height = TOP + ROW * lines.len() as f64 + 30.0;
    let x = |kl: f64| LEFT + (kl.clamp(1e-4, 1.0).log10() + 4.0) / 4.0 * (WIDTH - LEFT - 60.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"18\">mean KL to the f32 reference, nats (SmolLM2-135M; dots: the single texts)</text>\n"
    );
    // Writing to a string does not fail.
    for power in -4..=0 {
        let at = x(10f64.powi(power));
        let bottom = height - 26.0;
        let _ = writeln!(out, "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>");
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{}\">1e{power}</text>", at - 10.0, height - 10.0);
    }
    for (i, l) in lines.iter().enumerate() {
        let y = TOP + ROW * i as f64;
        let _ = writeln!(out, "<text x=\"8\" y=\"{:.1}\">{}</text>", y + 17.0, l.name);
        let width = x(l.kl) - LEFT;
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"14\" fill=\"#9ec5fe\"/>",
            y + 5.0
        );
        for kl in &l.kls {
            let _ = writeln!(out, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"#0a58ca\"/>", x(*kl), y + 12.0);
        }
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{:.5}</text>", x(l.kl) + 10.0, y + 17.0, l.kl);
    }
    out + "</svg>\n"
}
