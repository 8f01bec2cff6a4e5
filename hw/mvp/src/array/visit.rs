use super::engine::Engine;
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

/// Where an element's registers are.
struct Place {
    r: usize,
    c: usize,
    act: usize,
    element: usize,
    psum: usize,
}

impl<K: Lanes, const W: usize> Engine<K, W> {
    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        let (cols, south) = (self.config.cols, self.plane_of(self.stages) * self.plane);
        for r in 0..self.config.rows {
            v.scope(("row", r), |v| {
                for c in 0..cols {
                    let (act, element) = (r * self.stride + self.head + c, r * cols + c);
                    let place = Place { r, c, act, element, psum: south + element + cols };
                    v.scope(("pe", c), |v| self.visit_element(&place, v));
                }
            });
        }
    }

    #[inline]
    fn visit_element(&mut self, place: &Place, v: &mut impl Visitor) {
        let Place { r, c, act, element, psum } = *place;
        // The later stages' operands are those before this visit changes anything.
        let mac = self.mac.map(|mac| self.mac_registers(mac, r, c));
        let datapath = self.config.datapath;
        let widths = [datapath.act_width(), datapath.weight_width()];
        let formats = [code_format(datapath, true), code_format(datapath, false)];
        let bits = &self.bits[r];
        let old = Element {
            act: self.codes[act],
            weight: self.weight_codes[element],
            shadow: self.shadows[element + r + 1],
            bits: [&bits.valid, &bits.swap, &bits.load].map(|bits| bits.get(c)),
            psum: self.psums[psum],
        };
        // A copy is shown: whoever only looks then finds nothing to write back.
        let mut new = old;
        v.reg("act_q", widths[0], formats[0], &mut new.act);
        v.reg("valid_q", 1, Format::Unsigned, &mut new.bits[0]);
        v.reg("swap_q", 1, Format::Unsigned, &mut new.bits[1]);
        v.reg("weight_q", widths[1], formats[1], &mut new.weight);
        v.reg("shadow_q", widths[1], formats[1], &mut new.shadow);
        v.reg("load_q", 1, Format::Unsigned, &mut new.bits[2]);
        match mac {
            None => v.reg("psum_q", 32, Format::Signed, &mut new.psum),
            Some(mut mac) => {
                v.scope("mac", |v| mac.visit(v));
                new.psum = mac.out().result.value as i32;
            }
        }
        if new != old {
            self.replace(place, new);
        }
    }

    #[cold]
    fn replace(&mut self, place: &Place, new: Element) {
        let Place { r, c, act, element, psum } = *place;
        self.codes[act] = new.act;
        if let Some(lane) = self.acts.get_mut(act) {
            *lane = self.kernel.act(new.act);
        }
        self.weight_codes[element] = new.weight;
        self.weights[element] = self.kernel.weight(new.weight);
        self.shadows[element + r + 1] = new.shadow;
        self.psums[psum] = new.psum;
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
