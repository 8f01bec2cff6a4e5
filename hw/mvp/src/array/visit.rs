use super::engine::{Engine, RowBits};
use crate::Code;
use crate::lanes::Lanes;
use crate::pe::code_format;
use numeric::{Mac, MacConfig, MacIn};
use rtl::{Format, Module, Visitor};

/// The registers of an element, but for those inside a float one's multiply-accumulate.
#[derive(Clone, Copy, PartialEq)]
struct Element {
    act: Code,
    weight: Code,
    shadow: Code,
    /// Valid, swap and load.
    bits: [bool; 3],
    psum: i32,
}

impl<K: Lanes, const W: usize> Engine<K, W> {
    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        let mut changed = Vec::new();
        for r in 0..self.config.rows {
            v.scope(("row", r), |v| self.visit_row(r, &mut changed, v));
            changed.drain(..).for_each(|(c, element)| self.replace(r, c, &element));
        }
    }

    /// Shows copies, and notes those that are not what they were: whoever only looks then finds nothing to write back.
    #[inline(always)]
    fn visit_row(&self, r: usize, changed: &mut Vec<(usize, Element)>, v: &mut impl Visitor) {
        let (cols, datapath) = (self.config.cols, self.config.datapath);
        let widths = [datapath.act_width(), datapath.weight_width()];
        let formats = [code_format(datapath, true), code_format(datapath, false)];
        let acts = &self.codes[r * self.stride + self.head..][..cols];
        let weights = &self.weight_codes[r * cols..][..cols];
        let shadows = &self.shadows[r * (cols + 1) + 1..][..cols];
        let psums = &self.psums[self.plane_of(self.stages) * self.plane + (r + 1) * cols..][..cols];
        let RowBits { valid, swap, load, .. } = self.bits[r];
        for c in 0..cols {
            let bits = [valid, swap, load].map(|bits| bits.get(c));
            let old = Element { act: acts[c], weight: weights[c], shadow: shadows[c], bits, psum: psums[c] };
            let mut new = old;
            v.scope(("pe", c), |v| {
                v.reg("act_q", widths[0], formats[0], &mut new.act);
                v.reg("valid_q", 1, Format::Unsigned, &mut new.bits[0]);
                v.reg("swap_q", 1, Format::Unsigned, &mut new.bits[1]);
                v.reg("weight_q", widths[1], formats[1], &mut new.weight);
                v.reg("shadow_q", widths[1], formats[1], &mut new.shadow);
                v.reg("load_q", 1, Format::Unsigned, &mut new.bits[2]);
                match self.mac {
                    None => v.reg("psum_q", 32, Format::Signed, &mut new.psum),
                    Some(mac) => {
                        let mut mac = self.mac_registers(mac, r, c);
                        v.scope("mac", |v| mac.visit(v));
                        new.psum = mac.out().result.value as i32;
                    }
                }
            });
            if new != old {
                changed.push((c, new));
            }
        }
    }

    #[cold]
    fn replace(&mut self, r: usize, c: usize, new: &Element) {
        let (act, element) = (r * self.stride + self.head + c, r * self.config.cols + c);
        self.codes[act] = new.act;
        if let Some(lane) = self.acts.get_mut(act) {
            *lane = self.kernel.act(new.act);
        }
        self.weight_codes[element] = new.weight;
        self.weights[element] = self.kernel.weight(new.weight);
        self.shadows[element + r + 1] = new.shadow;
        let south = self.plane_of(self.stages) * self.plane;
        self.psums[south + element + self.config.cols] = new.psum;
        let bits = &mut self.bits[r];
        bits.valid.set(c, new.bits[0]);
        bits.swap.set(c, new.bits[1]);
        bits.load.set(c, new.bits[2]);
        bits.summarise(&self.window, &self.columns);
    }

    /// The registers of an element's multiply-accumulate: one that has been given the operands of the last L edges.
    fn mac_registers(&self, config: MacConfig, r: usize, c: usize) -> Mac {
        let mut mac = Mac::new(config);
        for age in (0..self.age).rev() {
            let north = self.plane_of(age + 1 + self.stages) * self.plane + r * self.config.cols + c;
            let a = self.codes[r * self.stride + self.head + c + age] as u32;
            let b = self.weight_before(r, c, age) as u32;
            let valid = self.bits[r].valid.get(c + age);
            mac.clock(&MacIn { enable: true, valid, a, b, c: self.psums[north] as u32 });
        }
        mac
    }

    /// The weight that element (r, c) multiplied by `age` edges ago; each swap since then has pushed it back by one.
    fn weight_before(&self, r: usize, c: usize, age: usize) -> Code {
        let swaps = (0..age).filter(|&i| self.bits[r].swap.get(c + i)).count();
        match swaps {
            0 => self.weight_codes[r * self.config.cols + c],
            n => self.past[(r * (self.stages - 1) + n - 1) * self.config.cols + c],
        }
    }
}
