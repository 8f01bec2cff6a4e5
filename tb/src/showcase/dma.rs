//! The data-movement engine gathers three planes of a volume.

use super::Showcase;
use crate::blocks::dma::bench::{Bench, Scenario};
use crate::blocks::dma::memory::Timing;
use crate::blocks::dma::reference::Image;
use crate::wave::{Colour, Radix, Trace, View, WaveError};
use dma::{Config, Element, List, Place, Preset, Region, chain};

pub(super) const DMA: Showcase = Showcase {
    name: "dma",
    about: "a 3D gather: descriptor, index list, addresses, bursts, data, completion",
    scopes: &[],
    run: gather,
};

/// Three planes of four rows of 48 bytes, rows 80 bytes apart, out of a volume of eight planes: 5, 0, 6.
fn scenario() -> Result<Scenario, dma::PresetError> {
    let gather = Preset::GatherPlanes {
        element: Element::B1,
        shape: [3, 4, 48],
        source: Place::new(0, 0),
        source_pitches: [512, 80],
        destination: Place::new(1, 0),
        destination_pitches: [192, 48],
        list: List { region: 2, offset: 0, bound: 8, wide: false, clamp: false },
    };
    // A byte of the source says where it is from: plane in the high nibble, row in the low one.
    let source = (0..4096u32).map(|i| (i / 512 * 16 + i % 512 / 80) as u8);
    let mut bytes = chain(&gather.descriptors()?, 0);
    bytes.resize(1024, 0);
    bytes.extend([5, 0, 0, 0, 6, 0]);
    bytes.resize(4096, 0);
    bytes.extend(source);
    bytes.resize(3 * 4096, 0xcc);
    let regions = vec![
        Region::read_only(4096, 4096),
        Region::read_write(8192, 576),
        Region::read_only(1024, 6),
        Region::read_only(0, 1024),
    ];
    Ok(Scenario {
        config: Config { reads_in_flight: 8, writes_in_flight: 8, ..Config::default() },
        regions,
        image: Image { base: 0, bytes },
        doorbells: vec![0],
        bad: Vec::new(),
        timing: Timing::fixed(12),
        host_busy: 0.0,
        seed: 0,
    })
}

fn gather(trace: &mut Trace) -> Result<View, WaveError> {
    let scenario = scenario().expect("the shape is small");
    let mut bench = Bench::new(&scenario).expect("the sizes are legal");
    // First cycles of what the markers name: descriptor, list, data, write, answer.
    let (mut bursts, mut first_write, mut last_answer) = (Vec::new(), None, 0);
    while !bench.quiet() && !bench.hung() {
        let cycle = bench.cycle();
        trace.sample(cycle, &mut bench.dma)?;
        let port = bench.step();
        if port.ar.0.fires(port.ar.1) {
            bursts.push(cycle);
        }
        if port.w.0.fires(port.w.1) {
            first_write.get_or_insert(cycle);
        }
        if port.b.0.fires(port.b.1) {
            last_answer = cycle;
        }
    }
    let mut view = View::new("dma");
    view.group("front end: descriptor and list", |v| {
        v.signal("state", "dma.front.state_q_state", 1, Radix::Plain, Colour::Yellow);
        v.signal("descriptor bytes", "dma.front.received_q", 8, Radix::Unsigned, Colour::Yellow);
        v.signal("index word", "dma.front.index_word_q_0", 64, Radix::Hex, Colour::Yellow);
        v.signal("index word valid", "dma.front.index_valid_q", 1, Radix::Bit, Colour::Yellow);
    });
    view.group("mid end: addresses (nibbles)", |v| {
        v.signal("plane", "dma.mid.read.walk.inner.index_q_0", 32, Radix::Unsigned, Colour::Orange);
        v.signal("row", "dma.mid.read.walk.inner.index_q_1", 32, Radix::Unsigned, Colour::Orange);
        v.signal("segment valid", "dma.mid.read.segment_valid_q", 1, Radix::Bit, Colour::Orange);
        v.signal("segment, before the index", "dma.mid.read.segment.address_q", 50, Radix::Hex, Colour::Orange);
        v.signal("runs queued", "dma.mid.read.queue.level_q", 3, Radix::Unsigned, Colour::Orange);
    });
    view.group("port: reads", |v| {
        v.signal("ARVALID", "dma.back.ar_valid", 1, Radix::Bit, Colour::Green);
        v.signal("ARADDR", "dma.back.ar_address", 48, Radix::Hex, Colour::Green);
        v.signal("beats", "dma.back.ar_beats", 9, Radix::Unsigned, Colour::Green);
        v.signal("in flight", "dma.back.reader.in_flight.level_q", 4, Radix::Unsigned, Colour::Green);
    });
    view.group("data", |v| {
        v.signal("R beats waiting", "dma.back.reader.r.level_q", 2, Radix::Unsigned, Colour::Blue);
        v.signal("realigner, nibbles", "dma.back.reader.hold.nibbles_q", 9, Radix::Unsigned, Colour::Blue);
        v.signal("realigner, first bytes", "dma.back.reader.hold.hold_low_q_0", 64, Radix::Hex, Colour::Blue);
        v.signal("stream buffer, beats", "dma.mid.stream.level_q", 7, Radix::Unsigned, Colour::Blue);
    });
    view.group("port: writes", |v| {
        v.signal("AWVALID", "dma.back.aw_valid", 1, Radix::Bit, Colour::Red);
        v.signal("AWADDR", "dma.back.aw_address", 48, Radix::Hex, Colour::Red);
        v.signal("beats", "dma.back.aw_beats", 9, Radix::Unsigned, Colour::Red);
        v.signal("WVALID", "dma.back.w_valid", 1, Radix::Bit, Colour::Red);
        v.signal("WSTRB", "dma.back.w_strobe", 64, Radix::Hex, Colour::Red);
        v.signal("jobs completed", "dma.back.retired_q", 8, Radix::Unsigned, Colour::Violet);
    });
    let names = ["descriptor", "index_list", "first_row"];
    for (name, cycle) in names.into_iter().zip(bursts) {
        view.marker(name, cycle);
    }
    view.marker("first_write", first_write.unwrap_or(0));
    view.marker("last_answer", last_answer);
    Ok(view)
}
