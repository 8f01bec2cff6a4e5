//! The write half of the network, and completion.

use super::{Net, Sent};
use crate::{BusFault, Bytes, Completion, Latency, MAX_BUS, Outcome, Response, write_lanes};

impl<L: Latency> Net<L> {
    pub(super) fn write_walk(&mut self) -> bool {
        let mut moved = self.write.fire();
        while let (Some(idle), Some((seen, plan))) = (self.write.idle(), self.write_jobs.head()) {
            let (t, plan) = (idle.max(seen), *plan);
            self.write_jobs.pop(t);
            self.write.load(t, &plan);
            self.write.fire();
            moved = true;
        }
        moved
    }

    pub(super) fn write_build(&mut self) -> bool {
        let mut moved = false;
        while let Some(room) = self.aw.room() {
            let mut t = (self.write_built + 1).max(room);
            let hungry = self.write_builder.hungry(self.bus);
            let offer = self.write.runs.head().map(|(seen, run)| (seen, *run)).filter(|_| hungry);
            if hungry {
                let Some((seen, _)) = offer else { return moved };
                t = t.max(seen);
            }
            let build = self.write_builder.step(offer.as_ref().map(|o| &o.1), self.bus);
            self.write_builder.apply(&build);
            if build.consume {
                self.write.runs.pop(t);
            }
            if let Some(run) = build.emit {
                self.aw.push(t, run);
            }
            self.write_built = t;
            moved = true;
        }
        moved
    }

    pub(super) fn write_addresses(&mut self) -> bool {
        let mut moved = false;
        while let (Some((seen, &run)), Some(a), Some(b)) =
            (self.aw.head(), self.bursts.room(), self.write_in_flight.room())
        {
            let t = self.aw_next.max(seen).max(a).max(b);
            self.aw_next = t + 1;
            self.aw.pop(t);
            self.bursts.push(t, run);
            self.write_in_flight.push(t, run);
            self.traffic.write_bursts += 1;
            moved = true;
        }
        moved
    }

    pub(super) fn send(&mut self) -> bool {
        let mut moved = false;
        while let (Some((seen, &run)), Some(room)) = (self.bursts.head(), self.w.room()) {
            let (lane, bytes) = write_lanes(&run, self.write_done, self.bus);
            let mut t = (self.sent + 1).max(seen).max(room);
            if self.write_hold.nibbles / 2 < bytes {
                let Some((seen, beat)) = self.stream.head() else { return moved };
                self.write_starved += seen.saturating_sub(t);
                t = t.max(seen);
                self.write_hold.append(&beat.data, 0, 2 * u32::from(beat.count));
                self.poison |= beat.poison;
                self.stream.pop(t);
            }
            self.sent = t;
            moved = true;
            if self.write_hold.nibbles / 2 < bytes {
                continue;
            }
            let mut data = [0; MAX_BUS];
            let (from, count) = (lane as usize, bytes as usize);
            data[from..from + count].copy_from_slice(&self.write_hold.bytes()[..count]);
            self.write_hold.drop(bytes);
            let address = (run.address >> 1) + u64::from(self.write_done) - u64::from(lane);
            self.write_done += bytes;
            let last = u64::from(self.write_done) == run.nibbles / 2;
            let strobe = if self.poison { 0 } else { rtl::mask(bytes) << lane };
            self.w.push(t, Sent { address, strobe, data, last });
            if last {
                self.write_done = 0;
                self.bursts.pop(t);
                self.poison &= !run.job_end;
            }
        }
        moved
    }

    /// The W channel.
    pub(super) fn deliver(&mut self, memory: &mut impl Bytes) -> bool {
        let mut moved = false;
        while let Some((seen, beat)) = self.w.head() {
            let t = self.w_next.max(seen);
            self.w_next = t + 1;
            let response = memory.write(beat.address, &beat.data[..self.bus as usize], beat.strobe);
            if response != Response::Okay {
                self.response = response;
            }
            self.traffic.write_beats += 1;
            self.traffic.useful_bytes += u64::from(beat.strobe.count_ones());
            if beat.last {
                self.response_ready = self.response_ready.max(t + self.latency.write(beat.address));
                self.responses.push_back((self.response_ready, std::mem::take(&mut self.response)));
            }
            self.w.pop(t);
            moved = true;
        }
        moved
    }

    /// The B channel.
    pub(super) fn answers(&mut self) -> bool {
        let mut moved = false;
        while let (Some(&(ready, response)), Some((_, &run))) = (self.responses.front(), self.write_in_flight.head()) {
            let t = ready.max(self.b_next);
            self.b_next = t + 1;
            self.responses.pop_front();
            self.write_in_flight.pop(t);
            if response != Response::Okay && !self.write_fault.raised() {
                self.write_fault = BusFault { response, address: run.address >> 1 };
            }
            if run.block_end {
                self.read.tokens.push_back(t + 2);
            }
            if run.job_end {
                self.write_status.push_back((t + 1, std::mem::take(&mut self.write_fault)));
            }
            self.traffic.cycles = t + 1 - self.first_ar.unwrap_or(t + 1);
            moved = true;
        }
        moved
    }

    pub(super) fn complete(&mut self) -> bool {
        let mut moved = false;
        while let (Some((seen, ticket)), Some(room)) = (self.tickets.head(), self.completions.room()) {
            let mut t = (self.completed + 1).max(seen).max(room);
            let mut done = ticket.completion;
            if ticket.moves {
                let (Some(&(read_at, read)), Some(&(write_at, write))) =
                    (self.read_status.front(), self.write_status.front())
                else {
                    return moved;
                };
                t = t.max(read_at).max(write_at);
                if let Some((outcome, fault)) =
                    [(Outcome::ReadError, read), (Outcome::WriteError, write)].into_iter().find(|(_, f)| f.raised())
                {
                    done = Completion { outcome, response: fault.response, value: fault.address, ..done };
                }
                self.read_status.pop_front();
                self.write_status.pop_front();
            }
            self.tickets.pop(t);
            self.completed = t;
            self.retired = t + 1;
            // The host takes it as soon as it stands.
            self.completions.push(t, ());
            self.host = (self.host + 1).max(t + 1);
            self.completions.pop(self.host);
            self.finished.push((self.host, done));
            moved = true;
        }
        moved
    }
}
