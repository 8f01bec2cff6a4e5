//! The lanes' generators against the patches, and the product against a convolution written as its definition.

use super::*;
use crate::{Codes, Sums, sums};
use proptest::prelude::*;

fn conv() -> impl Strategy<Value = Conv> {
    let two = |range: Range<usize>| [range.clone(), range];
    (
        (prop::bool::ANY, 1..4usize, 1..4usize, 1..4usize, 1..4usize),
        (two(1..9), two(1..4), two(1..4), two(1..3), prop::array::uniform4(0..3usize)),
    )
        .prop_map(|((nhwc, batch, groups, channels, filters), (size, kernel, stride, dilation, padding))| Conv {
            layout: if nhwc { Layout::Nhwc } else { Layout::Nchw },
            batch,
            channels: groups * channels,
            size,
            filters: groups * filters,
            kernel,
            stride,
            padding,
            dilation,
            groups,
        })
        .prop_filter_map("the kernel fits", |conv| conv.checked().ok())
}

fn codes(n: usize, seed: i8) -> Vec<i8> {
    (0..n).map(|i| (i as i8).wrapping_mul(37).wrapping_add(seed) ^ (i >> 5) as i8).collect()
}

/// The definition: a sum over the kernel for every pixel and filter.
fn direct(conv: &Conv, image: &[i8], weights: &[i8], padding: i8) -> Vec<i32> {
    let [height, width] = conv.out_size();
    let per_group = conv.channels / conv.groups;
    let nchw = conv.layout == Layout::Nchw;
    let at = |sizes: [usize; 3], n: usize, c: usize, r: usize, q: usize| {
        let [channels, rows, cols] = sizes;
        if nchw { ((n * channels + c) * rows + r) * cols + q } else { ((n * rows + r) * cols + q) * channels + c }
    };
    let mut y = vec![0; conv.lengths()[2]];
    for n in 0..conv.batch {
        for f in 0..conv.filters {
            for row in 0..height {
                for col in 0..width {
                    let mut sum = 0;
                    for c in 0..per_group {
                        for i in 0..conv.kernel[0] {
                            for j in 0..conv.kernel[1] {
                                let r = (row * conv.stride[0] + i * conv.dilation[0]) as i64 - conv.padding[0] as i64;
                                let q = (col * conv.stride[1] + j * conv.dilation[1]) as i64 - conv.padding[1] as i64;
                                let inside = r >= 0 && q >= 0 && r < conv.size[0] as i64 && q < conv.size[1] as i64;
                                let channel = f / (conv.filters / conv.groups) * per_group + c;
                                let x = if inside {
                                    let sizes = [conv.channels, conv.size[0], conv.size[1]];
                                    image[at(sizes, n, channel, r as usize, q as usize)]
                                } else {
                                    padding
                                };
                                let w = weights[at([per_group, conv.kernel[0], conv.kernel[1]], f, c, i, j)];
                                sum += i32::from(x) * i32::from(w);
                            }
                        }
                    }
                    y[at([conv.filters, height, width], n, f, row, col)] = sum;
                }
            }
        }
    }
    y
}

proptest! {
    #[test]
    fn equals_the_definition(conv in conv(), depth in 2..40usize, seed in any::<i8>(), padding in any::<i8>()) {
        let config = Config { rows: 5, cols: 3, depth, ..Config::default() };
        let [x, w, y] = conv.lengths();
        let (image, weights) = (codes(x, seed), codes(w, !seed));
        let mut result = vec![i32::MIN; y];
        let mut pixels = 0;
        for job in conv.jobs(depth) {
            prop_assert!(job.job.m <= depth);
            pixels += job.job.m * job.job.n;
            let (x, w) = (conv.patches(&job, &image, padding), conv.weights(job.group, &weights));
            let Sums::Int32(y) = sums(config, job.job, Codes::Int(&x), Codes::Int(&w)).unwrap().sums else { panic!() };
            conv.place(&job, &y, &mut result);
        }
        prop_assert_eq!(pixels, y, "the boxes cover the result once");
        prop_assert_eq!(result, direct(&conv, &image, &weights, padding));
    }

    #[test]
    fn the_generators_walk_the_patches(conv in conv(), depth in 1..40usize, lanes in 1..9usize) {
        let image = codes(conv.lengths()[0], 3);
        let mut feeder = PatchFeeder::new(lanes);
        let mut row = Vec::new();
        for job in conv.jobs(depth) {
            let x = conv.patches(&job, &image, -7);
            for k in (0..job.job.k).step_by(lanes) {
                let k = k..(k + lanes).min(job.job.k);
                feeder.start(&conv, &job, k.clone());
                for x in x.chunks_exact(job.job.k) {
                    feeder.row(&image, -7, &mut row);
                    prop_assert_eq!(&row, &x[k.clone()]);
                    feeder.step();
                }
                feeder.row(&image, -7, &mut row);
                prop_assert!(row.is_empty(), "the box ends");
            }
        }
    }
}

#[test]
fn what_cannot_be_run_is_refused_by_name() {
    let good = Conv {
        layout: Layout::Nchw,
        batch: 1,
        channels: 4,
        size: [5, 5],
        filters: 6,
        kernel: [3, 3],
        stride: [1, 1],
        padding: [0; 4],
        dilation: [1, 1],
        groups: 2,
    };
    assert_eq!(good.checked(), Ok(good));
    let refused = |conv: Conv| conv.checked().unwrap_err().to_string();
    assert!(refused(Conv { stride: [0, 1], ..good }).starts_with("stride down = 0"));
    assert!(refused(Conv { groups: 3, ..good }).contains("channels = 4"));
    assert!(refused(Conv { groups: 4, ..good }).contains("filters = 6"));
    assert!(refused(Conv { dilation: [1, 3], ..good }).contains("spans 7"));
    assert!(refused(Conv { padding: [0, 0, 0, usize::MAX], ..good }).contains("padding"));
    let wide = Conv { batch: 1 << 20, size: [1 << 10, 1 << 10], ..good };
    assert!(refused(wide).contains("an image"));
}
