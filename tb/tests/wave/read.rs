//! Two readers that we did not write, brought to one form.

use std::collections::BTreeMap;
use std::path::Path;

/// A value: bits as a number, a real as its bits, a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Bits(u64),
    Real(u64),
    Text(String),
    /// Unknown bits.
    X,
}

/// A variable's width and all its changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wave {
    pub(crate) width: u32,
    pub(crate) changes: Vec<(u64, Value)>,
}

/// Dotted path to wave.
pub(crate) type Waves = BTreeMap<String, Wave>;

fn bits(digits: impl Iterator<Item = char>) -> Value {
    let text: String = digits.collect();
    u64::from_str_radix(&text, 2).map_or(Value::X, Value::Bits)
}

fn real(value: f64) -> Value {
    // The sign of a NaN does not survive a text.
    Value::Real(if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() })
}

/// Reads a VCD with the `vcd` crate: every change that is written, repeated or not.
pub(crate) fn by_vcd(path: &Path) -> Waves {
    let mut parser = vcd::Parser::new(std::io::BufReader::new(std::fs::File::open(path).unwrap()));
    let header = parser.parse_header().unwrap();
    assert_eq!(header.timescale, Some((1, vcd::TimescaleUnit::NS)));
    let mut names = BTreeMap::new();
    let mut waves = Waves::new();
    flatten("", &header.items, &mut names, &mut waves);
    let mut time = None;
    for command in parser {
        let (code, value) = match command.unwrap() {
            vcd::Command::Timestamp(t) => {
                assert!(time.is_none_or(|last| last < t), "time {t} after {time:?}");
                time = Some(t);
                continue;
            }
            vcd::Command::ChangeScalar(code, v) => (code, bits(v.to_string().chars())),
            vcd::Command::ChangeVector(code, v) => {
                (code, bits(v.iter().flat_map(|b| b.to_string().chars().collect::<Vec<_>>())))
            }
            vcd::Command::ChangeReal(code, v) => (code, real(v)),
            vcd::Command::ChangeString(code, v) => (code, Value::Text(v)),
            vcd::Command::Begin(vcd::SimulationCommand::Dumpvars) | vcd::Command::End(_) => continue,
            other => panic!("{other:?}"),
        };
        let wave = waves.get_mut(&names[&code]).unwrap();
        wave.changes.push((time.expect("a time before the first change"), value));
    }
    waves
}

fn flatten(prefix: &str, items: &[vcd::ScopeItem], names: &mut BTreeMap<vcd::IdCode, String>, waves: &mut Waves) {
    for item in items {
        match item {
            vcd::ScopeItem::Scope(scope) => {
                flatten(&format!("{prefix}{}.", scope.identifier), &scope.items, names, waves)
            }
            vcd::ScopeItem::Var(var) => {
                let path = format!("{prefix}{}", var.reference);
                assert!(names.insert(var.code, path.clone()).is_none(), "a code given twice");
                assert!(
                    waves.insert(path, Wave { width: var.size, changes: Vec::new() }).is_none(),
                    "a path given twice"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Reads a VCD or FST with wellen, which drops repeated values.
pub(crate) fn by_wellen(path: &Path) -> Waves {
    let mut file = wellen::simple::read(path).unwrap();
    let vars: Vec<_> = file.hierarchy().all_vars().collect();
    let mut waves = Waves::new();
    for var in vars {
        let hierarchy = file.hierarchy();
        let (name, signal) = (hierarchy[var].full_name(hierarchy), hierarchy[var].signal_ref());
        let width = hierarchy[var].length(hierarchy).unwrap_or(64);
        file.load_signals(&[signal]);
        let times = file.time_table();
        let changes = file.get_signal(signal).unwrap().iter_changes().map(|(t, v)| {
            let value = match v {
                wellen::SignalValueRef::BitVec(b) => bits(b.bit_string().chars()),
                wellen::SignalValueRef::Real(r) => real(r),
                wellen::SignalValueRef::String(s) => Value::Text(s.into()),
                wellen::SignalValueRef::Event => panic!("no events"),
            };
            (times[t as usize], value)
        });
        let wave = Wave { width, changes: changes.collect() };
        assert!(waves.insert(name, wave).is_none());
    }
    waves
}
