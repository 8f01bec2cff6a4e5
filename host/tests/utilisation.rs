//! What the array could do at most, by the format of the products.

use host::{Logits, Options, Session, Source};
use npu::Config;

#[test]
fn four_bit_weights_are_multiplied_in_pairs() {
    let source = Source::builtin().unwrap();
    let ids = source.llm().tokenizer.encode("And God said, Let there be light: and there was light.").unwrap();
    let config = Config::preset("edge").unwrap();
    let elements = (config.array.rows * config.array.cols) as u64;
    for (format, macs) in [("bf16", 1), ("int8/32", 1), ("q8_0", 1), ("q4_0", 2), ("q4_1", 2)] {
        let options = Options { format: format.parse().unwrap(), ..Options::new(config.clone()) };
        let mut session = Session::new(&source, &options).unwrap();
        assert_eq!(session.peak_macs(), macs * elements, "{format}");
        assert_eq!(session.utilisation(session.counters()), 0.0, "nothing ran");
        session.prefill(0, &ids, Logits::Last).unwrap();
        let counters = session.counters();
        let used = counters.macs as f64 / (counters.cycles * macs * elements) as f64;
        assert!(
            (session.utilisation(counters) - used).abs() < 1e-12 && (0.01..1.0).contains(&used),
            "{format}: {used}"
        );
    }
}
