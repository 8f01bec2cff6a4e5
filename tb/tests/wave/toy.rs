//! Random modules: trees of scopes and signals whose values jump about.

use crate::read::{Value, Wave, Waves};
use proptest::prelude::*;
use rtl::{Format, Module, Name, Role, Signal, Visitor, mask};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(crate) enum Node {
    Scope(Vec<Node>),
    Signal { width: u32, kind: u8, role: Role, value: u64, calm: u32 },
}

#[derive(Clone, Debug)]
pub(crate) struct Toy(pub(crate) Vec<Node>);

fn half(code: u64) -> f64 {
    // Codes of one value, infinities and NaNs among them.
    match code & 7 {
        6 => f64::INFINITY,
        7 => f64::NAN,
        _ => -(((code as i64) >> 1) as f64) * 0.1,
    }
}

pub(crate) static STATES: [&str; 3] = ["IDLE", "LOAD", "two words"];

pub(crate) fn format(kind: u8) -> Format {
    match kind {
        0 => Format::Unsigned,
        1 => Format::Signed,
        2 => Format::Hex,
        3 => Format::Real(half),
        _ => Format::Enum(&STATES),
    }
}

fn step(nodes: &mut [Node], state: &mut u64) {
    for node in nodes {
        match node {
            Node::Scope(inner) => step(inner, state),
            Node::Signal { value, width, calm, .. } => {
                *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if ((*state >> 33) as u32).is_multiple_of(*calm + 1) {
                    *value = (*state ^ *state >> 29) & mask(*width);
                }
            }
        }
    }
}

fn walk(nodes: &mut [Node], v: &mut impl Visitor) {
    for (i, node) in nodes.iter_mut().enumerate() {
        match node {
            Node::Scope(inner) => v.scope(("scope", i), |v| walk(inner, v)),
            Node::Signal { width, kind, role: Role::Register, value, .. } => {
                v.reg(("r_q", i, 7), *width, format(*kind), value)
            }
            Node::Signal { width, kind, value, .. } => v.wire(("w", i), *width, format(*kind), *value),
        }
    }
}

impl Module for Toy {
    type In<'a> = u64;
    type Out<'a> = ();
    fn out(&self) {}
    fn clock(&mut self, seed: &u64) {
        step(&mut self.0, &mut seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
    fn reset(&mut self) {}
    fn visit(&mut self, v: &mut impl Visitor) {
        walk(&mut self.0, v);
    }
}

pub(crate) fn toy() -> impl Strategy<Value = Toy> {
    let width = prop_oneof![Just(1u32), Just(64), 2..=63u32];
    let signal = (width, 0..5u8, any::<bool>(), any::<u64>(), 0..4u32).prop_map(|(width, kind, wire, value, calm)| {
        let role = if wire { Role::Wire } else { Role::Register };
        Node::Signal { width, kind, role, value: value & mask(width), calm }
    });
    let tree = signal.prop_recursive(3, 24, 6, |inner| prop::collection::vec(inner, 0..6).prop_map(Node::Scope));
    prop::collection::vec(tree, 1..8).prop_map(Toy)
}

/// What a trace should hold, taken down the slow way: by name, in a map.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) waves: Waves,
    path: Vec<String>,
    pub(crate) time: u64,
}

impl Ledger {
    pub(crate) fn new(top: &str) -> Self {
        Self { path: vec![top.into()], ..Self::default() }
    }

    pub(crate) fn put(&mut self, name: String, width: u32, value: Value) {
        let path = format!("{}.{name}", self.path.join("."));
        let wave = self.waves.entry(path).or_insert(Wave { width, changes: Vec::new() });
        if wave.changes.last().is_none_or(|(_, last)| *last != value) {
            wave.changes.push((self.time, value));
        }
    }

    pub(crate) fn cycle(&mut self, cycle: u64, toy: &mut Toy) {
        self.time = 10 * cycle;
        self.put("clk".into(), 1, Value::Bits(1));
        self.put("cycle".into(), 64, Value::Bits(cycle));
        toy.visit(self);
        self.time += 5;
        self.put("clk".into(), 1, Value::Bits(0));
    }

    /// Only these scopes, and the clock.
    pub(crate) fn keep(&mut self, prefixes: &[String]) {
        let keep = |path: &str| {
            let within =
                |p: &String| path.strip_prefix(p.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            path == "top.clk" || path == "top.cycle" || prefixes.iter().any(within)
        };
        self.waves = std::mem::take(&mut self.waves).into_iter().filter(|(p, _)| keep(p)).collect::<BTreeMap<_, _>>();
    }
}

impl Visitor for Ledger {
    fn enter(&mut self, name: Name) -> bool {
        self.path.push(name.to_string());
        true
    }
    fn leave(&mut self) {
        self.path.pop();
    }
    fn signal(&mut self, signal: Signal, value: u64) -> u64 {
        let name = signal.name.to_string();
        self.put(name.clone(), signal.width, Value::Bits(value));
        match signal.format {
            Format::Real(f) => {
                let real = if f(value).is_nan() { f64::NAN } else { f(value) };
                self.put(name + "_value", 64, Value::Real(real.to_bits()));
            }
            Format::Enum(names) => {
                let text = names.get(value as usize).map_or(format!("code_{value}"), |n| n.replace(' ', "_"));
                self.put(name + "_state", 1, Value::Text(text));
            }
            _ => {}
        }
        value
    }
}
