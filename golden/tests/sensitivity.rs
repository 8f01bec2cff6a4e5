//! The reverse pass against finite differences, and the estimate without one against it.

use golden::kv::{Kind, KvShape, PlainCache, Storage, Stream};
use golden::sensitivity::{Sensitivity, estimate, gradients, sensitivity};
use golden::{KvCache, Llm, Logits, log_softmax};
use std::sync::LazyLock;

static LLM: LazyLock<Llm> = LazyLock::new(|| golden::builtin().unwrap());

fn heldout() -> Vec<u32> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/models/kjv-1m/heldout.txt");
    LLM.tokenizer.encode(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// An exact cache that adds `epsilon` · direction to the K or V rows of one layer.
struct Moved<'a> {
    inner: PlainCache,
    layer: usize,
    kind: Kind,
    epsilon: f32,
    /// [T, kv_heads · head_dim].
    direction: &'a [f32],
}

impl KvCache for Moved<'_> {
    fn shape(&self) -> KvShape {
        self.inner.shape()
    }
    fn tokens(&self, layer: usize) -> usize {
        self.inner.tokens(layer)
    }
    fn append(&mut self, layer: usize, head: usize, k: &[f32], v: &[f32]) -> golden::Result<()> {
        let (mut k, mut v) = (k.to_vec(), v.to_vec());
        if layer == self.layer {
            let (d, width) = (self.shape().head_dim, self.shape().head_dim * self.shape().heads);
            let token = self.inner.rows(Stream { layer, head, kind: self.kind }).len() / d;
            let row = if self.kind == Kind::K { &mut k } else { &mut v };
            let direction = &self.direction[token * width + head * d..][..d];
            row.iter_mut().zip(direction).for_each(|(x, g)| *x += self.epsilon * g);
        }
        self.inner.append(layer, head, &k, &v)
    }
    fn read(&mut self, stream: Stream, first: usize, rows: &mut [f32]) -> golden::Result<()> {
        self.inner.read(stream, first, rows)
    }
    fn clear(&mut self) {
        self.inner.clear();
    }
}

/// Σ_t ln p(targets[t]) with one layer's K or V moved.
fn objective(ids: &[u32], targets: &[u32], layer: usize, kind: Kind, epsilon: f32, direction: &[f32]) -> f64 {
    let inner = PlainCache::new(KvShape::from(LLM.model.config()), Storage::F32);
    let mut cache = Moved { inner, layer, kind, epsilon, direction };
    let logits = LLM.model.forward(ids, &mut cache, &mut (), Logits::All).unwrap();
    targets.iter().enumerate().map(|(t, &y)| log_softmax(logits.row(t))[y as usize]).sum()
}

fn difference(ids: &[u32], targets: &[u32], layer: usize, kind: Kind, step: f32, direction: &[f32]) -> f64 {
    let at = |e| objective(ids, targets, layer, kind, e, direction);
    (at(step) - at(-step)) / (2.0 * f64::from(step))
}

#[test]
fn gradients_are_finite_differences() {
    let ids = &heldout()[..48];
    // Not the likeliest tokens but some tokens: gradients of a fit are near zero.
    let targets: Vec<u32> = ids.iter().map(|id| (id * 7 + 3) % 1024).collect();
    let g = gradients(&LLM.model, ids, &targets).unwrap();
    let (mut worst, mut checked) = (0f64, 0);
    for layer in 0..5 {
        for (kind, g) in [(Kind::K, &g.k[layer]), (Kind::V, &g.v[layer])] {
            // Along the gradient of all entries at once: the slope is its norm.
            let norm = g.data().iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            let unit: Vec<f32> = g.data().iter().map(|&x| (f64::from(x) / norm) as f32).collect();
            let mut cases = vec![(unit, norm)];
            // And single entries: the largest of each quarter of the rows.
            let quarter = g.data().len() / 4;
            for part in 0..4 {
                let best = (part * quarter..(part + 1) * quarter)
                    .max_by(|&a, &b| g.data()[a].abs().total_cmp(&g.data()[b].abs()));
                let best = best.unwrap();
                let mut one = vec![0f32; g.data().len()];
                one[best] = 1.0;
                cases.push((one, f64::from(g.data()[best])));
            }
            for (direction, want) in cases {
                let found = difference(ids, &targets, layer, kind, 0.02, &direction);
                let error = (found - want).abs() / want.abs();
                assert!(error <= 0.01, "layer {layer} {kind:?}: {found} by difference, {want} by reverse pass");
                worst = worst.max(error);
                checked += 1;
            }
        }
    }
    println!("{checked} slopes, largest error {:.3} %", 100.0 * worst);
    assert_eq!(checked, 50);
}

/// All streams of kjv-1m.
fn streams() -> impl Iterator<Item = Stream> {
    (0..5).flat_map(|layer| (0..2).flat_map(move |head| [Kind::K, Kind::V].map(|kind| Stream { layer, head, kind })))
}

#[test]
fn statistics_are_those_of_the_cache() {
    let ids = heldout();
    let windows = [&ids[..100], &ids[100..260]];
    let s = sensitivity(&LLM.model, &windows, 4, 1, &mut |_, _| ()).unwrap();
    assert_eq!((s.positions(), s), (96 + 156, sensitivity(&LLM.model, &windows, 4, 1, &mut |_, _| ()).unwrap()));
    let s = sensitivity(&LLM.model, &windows, 4, 1, &mut |_, _| ()).unwrap();
    let mut caches = windows.map(|_| LLM.cache());
    for (window, cache) in windows.iter().zip(&mut caches) {
        LLM.model.forward(window, cache, &mut (), Logits::Skip).unwrap();
    }
    for stream in streams() {
        let rows: Vec<&[f32]> = caches.iter().flat_map(|c| c.rows(stream).chunks(32).skip(4)).collect();
        for (c, channel) in s.channels(stream).iter().enumerate() {
            let n = rows.len() as f64;
            let mean = rows.iter().map(|r| f64::from(r[c])).sum::<f64>() / n;
            let variance = rows.iter().map(|r| (f64::from(r[c]) - mean).powi(2)).sum::<f64>() / n;
            assert!((channel.mean - mean).abs() < 1e-4 && (channel.variance - variance).abs() < 1e-3 * variance);
            assert!(channel.sensitivity > 0.0);
        }
    }
}

/// Predicted KL of noise: ½ Σ positions · noise² · S; here noise is a constant share of a channel's deviation.
fn predicted(s: &Sensitivity, share: f64) -> f64 {
    let channel = |c: &golden::sensitivity::Channel| c.variance * c.sensitivity;
    streams().flat_map(|stream| s.channels(stream)).map(channel).sum::<f64>() * share * share * 0.5
}

#[test]
fn half_the_noise_squared_by_s_is_the_divergence() {
    let ids = heldout();
    let windows: Vec<&[u32]> = ids.chunks_exact(256).take(8).collect();
    let s = sensitivity(&LLM.model, &windows, 4, 1, &mut |_, _| ()).unwrap();
    let e = estimate(&LLM.model, &windows[..2], 4, 1, &mut |_, _| ()).unwrap();
    // Noise of 10 % of each channel's deviation on every cached value past the sinks, by a generator of its own.
    let share = 0.1;
    let (mut kl, mut positions, mut state) = (0.0, 0, 1u32);
    for window in &windows {
        struct Noise<'a>(PlainCache, &'a Sensitivity, &'a mut u32);
        impl KvCache for Noise<'_> {
            fn shape(&self) -> KvShape {
                self.0.shape()
            }
            fn tokens(&self, layer: usize) -> usize {
                self.0.tokens(layer)
            }
            fn append(&mut self, layer: usize, head: usize, k: &[f32], v: &[f32]) -> golden::Result<()> {
                let rows = [(Kind::K, k), (Kind::V, v)].map(|(kind, row)| {
                    let stream = Stream { layer, head, kind };
                    let sink = self.0.rows(stream).len() < 4 * row.len();
                    let noise =
                        self.1.channels(stream).iter().map(|c| if sink { 0.0 } else { 0.1 * c.variance.sqrt() });
                    row.iter()
                        .zip(noise)
                        .map(|(x, n)| {
                            *self.2 = self.2.wrapping_mul(1664525).wrapping_add(1013904223);
                            x + if *self.2 >> 31 == 0 { n } else { -n } as f32
                        })
                        .collect::<Vec<f32>>()
                });
                self.0.append(layer, head, &rows[0], &rows[1])
            }
            fn read(&mut self, stream: Stream, first: usize, rows: &mut [f32]) -> golden::Result<()> {
                self.0.read(stream, first, rows)
            }
            fn clear(&mut self) {
                self.0.clear();
            }
        }
        let exact = LLM.logits(window).unwrap();
        let mut cache = Noise(LLM.cache(), &s, &mut state);
        let noisy = LLM.model.forward(window, &mut cache, &mut (), Logits::All).unwrap();
        kl += (0..256).map(|t| golden::kl(exact.row(t), noisy.row(t))).sum::<f64>();
        positions += 252;
    }
    let measured = kl / f64::from(positions);
    let (fisher, estimated) = (predicted(&s, share), predicted(&e, share));
    println!("KL a position: {measured:.5} measured, {fisher:.5} by S, {estimated:.5} by the estimate");
    // Second order and a sampled Fisher: within a quarter, far from a factor that a wrong definition would make (2, T).
    assert!((fisher / measured - 1.0).abs() < 0.25 && (estimated / measured - 1.0).abs() < 0.25);
    // The estimate also ranks channels within a layer: rank correlation of S over a stream's channels.
    let mut sum = [0.0; 2];
    for stream in streams() {
        let of = |s: &Sensitivity| s.channels(stream).iter().map(|c| c.sensitivity).collect::<Vec<_>>();
        sum[usize::from(stream.kind == Kind::V)] += rank_correlation(&of(&s), &of(&e)) / 10.0;
    }
    println!("mean rank correlation with S over a stream's channels: K {:.2}, V {:.2}", sum[0], sum[1]);
    assert!(sum.iter().all(|&r| r > 0.3));
}

fn rank_correlation(a: &[f64], b: &[f64]) -> f64 {
    let ranks = |x: &[f64]| x.iter().map(|v| x.iter().filter(|w| *w < v).count() as f64).collect::<Vec<_>>();
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 - 1.0) / 2.0;
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt()
}
