use super::engine::Engine;
use crate::Code;
use crate::lanes::Lanes;
use crate::pe::code_format;
use numeric::{Mac, MacConfig, MacIn};
use rtl::{Format, Module, Visitor};

impl<K: Lanes, const W: usize> Engine<K, W> {
    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        for r in 0..self.config.rows {
            v.scope(("row", r), |v| {
                for c in 0..self.config.cols {
                    v.scope(("pe", c), |v| self.visit_element(r, c, v));
                }
            });
        }
    }

    #[inline]
    fn visit_element(&mut self, r: usize, c: usize, v: &mut impl Visitor) {
        // The later stages' operands are those before this visit changes anything.
        let mac = self.mac.map(|mac| self.mac_registers(mac, r, c));
        let datapath = self.config.datapath;
        let widths = [datapath.act_width(), datapath.weight_width()];
        let formats = [code_format(datapath, true), code_format(datapath, false)];
        let (act, element) = (r * self.stride + self.head + c, r * self.config.cols + c);
        let bits = &self.bits[r];
        let old =
            (self.codes[act], self.weight_codes[element], [&bits.valid, &bits.swap, &bits.load].map(|b| b.get(c)));
        let [mut valid, mut swap, mut load] = old.2;
        v.reg("act_q", widths[0], formats[0], &mut self.codes[act]);
        v.reg("valid_q", 1, Format::Unsigned, &mut valid);
        v.reg("swap_q", 1, Format::Unsigned, &mut swap);
        v.reg("weight_q", widths[1], formats[1], &mut self.weight_codes[element]);
        v.reg("shadow_q", widths[1], formats[1], &mut self.shadows[element + r + 1]);
        v.reg("load_q", 1, Format::Unsigned, &mut load);
        if old != (self.codes[act], self.weight_codes[element], [valid, swap, load]) {
            if let Some(lane) = self.acts.get_mut(act) {
                *lane = self.kernel.act(self.codes[act]);
            }
            self.weights[element] = self.kernel.weight(self.weight_codes[element]);
            let bits = &mut self.bits[r];
            bits.valid.set(c, valid);
            bits.swap.set(c, swap);
            bits.load.set(c, load);
            bits.summarise(&self.window, &self.columns);
        }
        let sum = self.plane_of(self.stages) * self.plane + (r + 1) * self.config.cols + c;
        match mac {
            None => v.reg("psum_q", 32, Format::Signed, &mut self.psums[sum]),
            Some(mut mac) => {
                v.scope("mac", |v| mac.visit(v));
                self.psums[sum] = mac.out().result.value as i32;
            }
        }
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
