//! An independent evaluation of networks: scalar loops in `f64` over hyper-dual numbers, which carry two first
//! derivatives and the mixed second one exactly (Fike and Alonso 2011). Nothing is shared with the engine but the
//! names of its layout.
#![allow(dead_code, unreachable_pub)] // each test file includes this module and uses a part of it

use coptidice_core::rng::{Rng, stream};
use coptidice_nn::{Activation, BlockSpec, Network, NetworkSpec};
use rand::RngExt;

/// `v + a e1 + b e2 + ab e1 e2`, `e1^2 = e2^2 = 0`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dual {
    pub v: f64,
    pub a: f64,
    pub b: f64,
    pub ab: f64,
}

impl From<f64> for Dual {
    fn from(v: f64) -> Self {
        Self { v, ..Self::default() }
    }
}

impl std::ops::Add for Dual {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        Self { v: self.v + o.v, a: self.a + o.a, b: self.b + o.b, ab: self.ab + o.ab }
    }
}

impl std::ops::Sub for Dual {
    type Output = Self;
    fn sub(self, o: Self) -> Self {
        self + o * Self::from(-1.0)
    }
}

impl std::ops::Mul for Dual {
    type Output = Self;
    fn mul(self, o: Self) -> Self {
        Self {
            v: self.v * o.v,
            a: self.a * o.v + self.v * o.a,
            b: self.b * o.v + self.v * o.b,
            ab: self.ab * o.v + self.a * o.b + self.b * o.a + self.v * o.ab,
        }
    }
}

impl Dual {
    /// `f(self)` given `f`, `f'` and `f''` at the value.
    fn map(self, f: f64, f1: f64, f2: f64) -> Self {
        Self { v: f, a: f1 * self.a, b: f1 * self.b, ab: f1 * self.ab + f2 * self.a * self.b }
    }

    fn inverse_root(self) -> Self {
        let f = self.v.powf(-0.5);
        self.map(f, -0.5 * f / self.v, 0.75 * f / (self.v * self.v))
    }

    fn activate(self, activation: Activation) -> Self {
        let y = self.v;
        match activation {
            Activation::Identity => self,
            Activation::Relu => {
                if y > 0.0 {
                    self
                } else {
                    Self::default()
                }
            }
            Activation::Elu => {
                if y > 0.0 {
                    self
                } else {
                    self.map(y.exp() - 1.0, y.exp(), y.exp())
                }
            }
            Activation::Tanh => {
                let t = y.tanh();
                self.map(t, 1.0 - t * t, -2.0 * t * (1.0 - t * t))
            }
        }
    }
}

fn tensor<'p>(network: &Network, params: &'p [Dual], name: &str) -> &'p [Dual] {
    let slice = network.layout().iter().find(|slice| slice.name == name).expect("the layout names it");
    &params[slice.offset..slice.offset + slice.len]
}

fn affine(network: &Network, params: &[Dual], name: &str, x: &[Dual]) -> Vec<Dual> {
    let weight = tensor(network, params, &format!("{name}.weight"));
    let bias = tensor(network, params, &format!("{name}.bias"));
    let dot = |row: &[Dual]| row.iter().zip(x).fold(Dual::default(), |sum, (&w, &x)| sum + w * x);
    weight.chunks(x.len()).zip(bias).map(|(row, &b)| dot(row) + b).collect()
}

fn layer_norm(network: &Network, params: &[Dual], name: &str, z: &[Dual]) -> Vec<Dual> {
    let mean = |values: &[Dual]| {
        values.iter().fold(Dual::default(), |sum, &v| sum + v) * Dual::from(1.0 / values.len() as f64)
    };
    let center = mean(z);
    let centered: Vec<Dual> = z.iter().map(|&z| z - center).collect();
    let squares: Vec<Dual> = centered.iter().map(|&c| c * c).collect();
    let r = (mean(&squares) + Dual::from(1e-5)).inverse_root();
    let gain = tensor(network, params, &format!("{name}.weight"));
    let shift = tensor(network, params, &format!("{name}.bias"));
    (0..z.len()).map(|i| centered[i] * r * gain[i] + shift[i]).collect()
}

/// The network's outputs for one sample.
pub fn evaluate(network: &Network, params: &[Dual], x: &[Dual]) -> Vec<Dual> {
    let mut x = x.to_vec();
    for (index, block) in network.spec().blocks.iter().enumerate() {
        let name = format!("layers.{index}");
        x = match block {
            BlockSpec::Dense { layer_norm: norm, activation, .. } => {
                let mut y = affine(network, params, &name, &x);
                if *norm {
                    y = layer_norm(network, params, &format!("{name}.norm"), &y);
                }
                y.into_iter().map(|y| y.activate(*activation)).collect()
            }
            BlockSpec::Residual { .. } => {
                let hidden = affine(network, params, &format!("{name}.inner"), &x);
                let hidden: Vec<Dual> = hidden.into_iter().map(|h| h.activate(Activation::Relu)).collect();
                let outer = affine(network, params, &format!("{name}.outer"), &hidden);
                let z: Vec<Dual> = x.iter().zip(outer).map(|(&x, o)| x + o).collect();
                layer_norm(network, params, &format!("{name}.norm"), &z)
            }
        };
    }
    affine(network, params, &format!("layers.{}", network.spec().blocks.len()), &x)
}

pub fn lift(values: &[f32]) -> Vec<Dual> {
    values.iter().map(|&v| Dual::from(f64::from(v))).collect()
}

/// Parameters with a direction in `a`.
pub fn lift_along(values: &[f32], direction: &[f64]) -> Vec<Dual> {
    values.iter().zip(direction).map(|(&v, &a)| Dual { v: f64::from(v), a, ..Dual::default() }).collect()
}

/// `sum_o out_o` and its derivative with respect to the sample, each with its derivative along the parameters'
/// direction `a`.
pub fn input_gradient(network: &Network, params: &[Dual], x: &[f32]) -> Vec<(f64, f64)> {
    (0..x.len())
        .map(|i| {
            let mut x = lift(x);
            x[i].b = 1.0;
            let out = evaluate(network, params, &x);
            (out.iter().map(|o| o.b).sum(), out.iter().map(|o| o.ab).sum())
        })
        .collect()
}

/// The penalty's value and its derivative along the parameters' direction.
pub fn penalty(
    network: &Network,
    params: &[Dual],
    x: &[f32],
    batch: usize,
    coefficient: f64,
    bound: f64,
) -> (f64, f64) {
    let (mut value, mut slope) = (0.0, 0.0);
    for row in x.chunks(x.len() / batch) {
        let g = input_gradient(network, params, row);
        let norm = g.iter().map(|(g, _)| g * g).sum::<f64>().sqrt();
        let excess = norm - bound;
        if excess > 0.0 {
            value += coefficient * excess * excess / batch as f64;
            let d_norm = g.iter().map(|(g, d)| g * d).sum::<f64>() / norm;
            slope += 2.0 * coefficient * excess * d_norm / batch as f64;
        }
    }
    (value, slope)
}

pub fn normal(rng: &mut Rng, len: usize, scale: f32) -> Vec<f32> {
    // Three uniforms, centred, of unit variance: close enough to a normal draw for test data.
    (0..len).map(|_| ((0..3).map(|_| rng.random::<f32>()).sum::<f32>() - 1.5) * 2.0 * scale).collect()
}

/// Random parameters that are not those of an initialisation: gains and biases are all different.
pub fn parameters(network: &Network, seed: u64) -> Vec<f32> {
    let mut rng = stream(seed, "test parameters", 0);
    let mut params = network.init(&mut rng);
    let noise = normal(&mut rng, params.len(), 0.2);
    for (p, n) in params.iter_mut().zip(noise) {
        *p += n;
    }
    params
}

pub fn dense(width: usize, layer_norm: bool, activation: Activation) -> BlockSpec {
    BlockSpec::Dense { width, layer_norm, activation }
}

/// One network for each kind of layer, and some stacks of them.
pub fn zoo() -> Vec<Network> {
    let mut specs = vec![NetworkSpec { input: 3, blocks: vec![], output: 2 }];
    for activation in [Activation::Identity, Activation::Relu, Activation::Elu, Activation::Tanh] {
        for layer_norm in [false, true] {
            specs.push(NetworkSpec {
                input: 3,
                blocks: vec![dense(6, layer_norm, activation), dense(5, false, activation)],
                output: 2,
            });
        }
    }
    specs.push(NetworkSpec { input: 4, blocks: vec![BlockSpec::Residual { width: 5 }], output: 1 });
    specs.push(NetworkSpec {
        input: 3,
        blocks: vec![
            dense(6, true, Activation::Tanh),
            dense(7, false, Activation::Identity),
            BlockSpec::Residual { width: 5 },
            BlockSpec::Residual { width: 8 },
            dense(4, true, Activation::Elu),
        ],
        output: 3,
    });
    specs.push(NetworkSpec {
        input: 2,
        blocks: vec![
            dense(8, true, Activation::Tanh),
            dense(8, false, Activation::Elu),
            dense(4, false, Activation::Elu),
        ],
        output: 1,
    });
    specs.into_iter().map(|spec| Network::new(spec).expect("widths are positive")).collect()
}

/// Asserts closeness relative to the largest of the expected values.
pub fn assert_close(what: &str, got: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1e-12_f64, |max, e| max.max(e.abs()));
    for (index, (&g, &e)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(g) - e).abs();
        assert!(error <= tolerance * scale, "{what}[{index}]: {g} for {e} (largest {scale}), error {error}");
    }
}
