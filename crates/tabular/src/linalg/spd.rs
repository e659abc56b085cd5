//! Symmetric positive definite systems with a small border:
//!
//! ```text
//! [ H  B ] [x]   [f]      H: n×n, assembled from weighted outer products of sparse rows
//! [ Bᵀ C ] [z] = [g]      B: n×m, C: m×m symmetric, m at most a handful; C may be indefinite
//! ```
//!
//! solved by the Schur complement `C − BᵀH⁻¹B`. The border carries everything that is not sparse: the columns of
//! `lambda`, `mu` and `tau`, low-rank terms and equality constraints.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt;
use faer::sparse::linalg::cholesky::{
    CholeskySymbolicParams, LltRef, SymbolicCholesky, SymmetricOrdering, factorize_symbolic_cholesky,
};
use faer::sparse::{SparseColMatRef, SymbolicSparseColMatRef};
use faer::{Conj, MatMut, MatRef, Par, Side};

use super::DENSE_LIMIT;

/// Relative increase of every diagonal entry before factorisation: four orders above the rounding of a factor of
/// the sizes met here, so that matrices singular up to rounding still factor, and far below what slows Newton's
/// method. Being relative to each entry it respects occupancies of very different size.
const DIAGONAL_LIFT: f64 = 1e-12;

/// `H`, its factor and the workspace of both.
pub(crate) struct Spd {
    n: usize,
    storage: Storage,
}

enum Storage {
    Dense { values: Vec<f64>, memory: MemBuffer },
    Sparse(Box<Sparse>),
}

struct Sparse {
    column_start: Vec<usize>,
    row_index: Vec<usize>,
    values: Vec<f64>,
    symbolic: SymbolicCholesky<usize>,
    factor: Vec<f64>,
    memory: MemBuffer,
}

impl Spd {
    /// A matrix of order `n` whose entries will come from outer products of `rows` (index lists, strictly
    /// increasing), dense when small.
    pub(crate) fn new<'a>(n: usize, rows: impl Iterator<Item = &'a [u32]>) -> Self {
        if n <= DENSE_LIMIT { Self::dense(n) } else { Self::sparse(n, rows) }
    }

    /// As [`Spd::new`], dense.
    fn dense(n: usize) -> Self {
        let scratch = llt::factor::cholesky_in_place_scratch::<f64>(n, Par::Seq, Default::default());
        let memory = MemBuffer::new(scratch);
        Self { n, storage: Storage::Dense { values: vec![0.0; n * n], memory } }
    }

    /// As [`Spd::new`], sparse.
    fn sparse<'a>(n: usize, rows: impl Iterator<Item = &'a [u32]>) -> Self {
        let mut entries: Vec<u64> = (0..n as u64).map(|i| i << 32 | i).collect();
        for row in rows {
            for (j, &column) in row.iter().enumerate() {
                entries.extend(row[j..].iter().map(|&i| u64::from(column) << 32 | u64::from(i)));
            }
        }
        entries.sort_unstable();
        entries.dedup();
        let mut column_start = vec![0; n + 1];
        let mut row_index = Vec::with_capacity(entries.len());
        for entry in entries {
            row_index.push((entry & 0xffff_ffff) as usize);
            column_start[(entry >> 32) as usize + 1] = row_index.len();
        }
        let pattern = SymbolicSparseColMatRef::new_checked(n, n, &column_start, None, &row_index);
        let symbolic = factorize_symbolic_cholesky(
            pattern,
            Side::Lower,
            SymmetricOrdering::Amd,
            CholeskySymbolicParams::default(),
        )
        .expect("orders below 2^32 do not overflow the 64-bit index");
        let scratch = symbolic
            .factorize_numeric_llt_scratch::<f64>(Par::Seq, Default::default())
            .or(symbolic.solve_in_place_scratch::<f64>(1, Par::Seq));
        let factor = vec![0.0; symbolic.len_val()];
        let values = vec![0.0; row_index.len()];
        let memory = MemBuffer::new(scratch);
        let sparse = Sparse { column_start, row_index, values, symbolic, factor, memory };
        Self { n, storage: Storage::Sparse(Box::new(sparse)) }
    }

    /// Sets every entry to zero.
    pub(crate) fn clear(&mut self) {
        match &mut self.storage {
            Storage::Dense { values, .. } => values.fill(0.0),
            Storage::Sparse(s) => s.values.fill(0.0),
        }
    }

    /// `H += weight · v vᵀ` for the sparse vector `v` with strictly increasing `index`.
    pub(crate) fn add_outer(&mut self, index: &[u32], v: &[f64], weight: f64) {
        let n = self.n;
        match &mut self.storage {
            Storage::Dense { values, .. } => {
                for (j, (&column, &vj)) in index.iter().zip(v).enumerate() {
                    let scaled = weight * vj;
                    let target = &mut values[column as usize * n..(column as usize + 1) * n];
                    for (&row, &vi) in index[j..].iter().zip(&v[j..]) {
                        target[row as usize] += scaled * vi;
                    }
                }
            }
            Storage::Sparse(s) => {
                for (j, (&column, &vj)) in index.iter().zip(v).enumerate() {
                    let scaled = weight * vj;
                    let range = s.column_start[column as usize]..s.column_start[column as usize + 1];
                    let rows = &s.row_index[range.clone()];
                    let mut from = 0;
                    for (&row, &vi) in index[j..].iter().zip(&v[j..]) {
                        from += rows[from..].partition_point(|&r| r < row as usize);
                        s.values[range.start + from] += scaled * vi;
                    }
                }
            }
        }
    }

    /// `H[i,i] += value`.
    pub(crate) fn add_diagonal(&mut self, i: usize, value: f64) {
        match &mut self.storage {
            Storage::Dense { values, .. } => values[i * self.n + i] += value,
            // The diagonal is the first entry of each column of the lower triangle.
            Storage::Sparse(s) => s.values[s.column_start[i]] += value,
        }
    }

    /// `H[i,j] += value` and its mirror image, `i ≠ j`, within the pattern.
    pub(crate) fn add_symmetric(&mut self, i: usize, j: usize, value: f64) {
        let (row, column) = if i > j { (i, j) } else { (j, i) };
        match &mut self.storage {
            Storage::Dense { values, .. } => values[column * self.n + row] += value,
            Storage::Sparse(s) => {
                let range = s.column_start[column]..s.column_start[column + 1];
                let place = range.start + s.row_index[range].partition_point(|&r| r < row);
                s.values[place] += value;
            }
        }
    }

    /// Largest diagonal entry.
    pub(crate) fn largest_diagonal(&self) -> f64 {
        let entry = |i: usize| match &self.storage {
            Storage::Dense { values, .. } => values[i * self.n + i],
            Storage::Sparse(s) => s.values[s.column_start[i]],
        };
        (0..self.n).map(entry).fold(0.0, f64::max)
    }

    /// The lower triangle, column-major, when held dense.
    pub(crate) fn dense_mut(&mut self) -> Option<&mut [f64]> {
        match &mut self.storage {
            Storage::Dense { values, .. } => Some(values),
            Storage::Sparse(_) => None,
        }
    }

    /// Factorises `H + diag(lift·H_ii + floor)`. Returns whether it is positive definite. The assembled values
    /// are lost in the dense case.
    pub(crate) fn factor(&mut self, floor: f64) -> bool {
        let n = self.n;
        match &mut self.storage {
            Storage::Dense { values, memory } => {
                for i in 0..n {
                    values[i * n + i] += DIAGONAL_LIFT * values[i * n + i] + floor;
                }
                llt::factor::cholesky_in_place(
                    MatMut::from_column_major_slice_mut(values, n, n),
                    Default::default(),
                    Par::Seq,
                    MemStack::new(memory),
                    Default::default(),
                )
                .is_ok()
            }
            Storage::Sparse(s) => {
                for i in 0..n {
                    let place = s.column_start[i];
                    s.values[place] += DIAGONAL_LIFT * s.values[place] + floor;
                }
                let pattern = SymbolicSparseColMatRef::new_checked(n, n, &s.column_start, None, &s.row_index);
                s.symbolic
                    .factorize_numeric_llt(
                        &mut s.factor,
                        SparseColMatRef::new(pattern, &s.values),
                        Side::Lower,
                        Default::default(),
                        Par::Seq,
                        MemStack::new(&mut s.memory),
                        Default::default(),
                    )
                    .is_ok()
            }
        }
    }

    /// Solves `H X = F` in place for the columns of `columns`, each of length `n`.
    pub(crate) fn solve(&mut self, columns: &mut [f64]) {
        let n = self.n;
        if n == 0 {
            return;
        }
        match &mut self.storage {
            Storage::Dense { values, memory } => {
                let m = columns.len() / n;
                llt::solve::solve_in_place(
                    MatRef::from_column_major_slice(values, n, n),
                    MatMut::from_column_major_slice_mut(columns, n, m),
                    Par::Seq,
                    MemStack::new(memory),
                );
            }
            Storage::Sparse(s) => {
                for column in columns.chunks_mut(n) {
                    LltRef::new(&s.symbolic, &s.factor).solve_in_place_with_conj(
                        Conj::No,
                        MatMut::from_column_major_slice_mut(column, n, 1),
                        Par::Seq,
                        MemStack::new(&mut s.memory),
                    );
                }
            }
        }
    }

    /// Solves the bordered system for one or several right-hand sides. `border` holds the `m` columns of `B`
    /// followed by the columns `f`, and is overwritten: the latter become `x`. `corner` is `C` row-major. `g` holds
    /// the border's right-hand sides, `m` for each column `f`, and becomes `z`. Returns `false` when the Schur
    /// complement is singular; then `x` solves `Hx = f` and `z = 0`.
    pub(crate) fn solve_bordered(
        &mut self,
        m: usize,
        border: &mut [f64],
        corner: &[f64],
        g: &mut [f64],
    ) -> bool {
        let n = self.n;
        let original: Vec<f64> = border[..n * m].to_vec();
        self.solve(border);
        let (solved, solutions) = border.split_at_mut(m * n);
        let mut regular = true;
        for (x, z) in solutions.chunks_mut(n.max(1)).zip(g.chunks_mut(m.max(1))) {
            let mut schur = vec![0.0; m * m];
            let mut scale = vec![1.0; m];
            // Entries before anything cancels in them.
            let mut sizes = vec![0.0_f64; m * m];
            for i in 0..m {
                let b = &original[i * n..(i + 1) * n];
                for j in 0..m {
                    let through = dot(b, &solved[j * n..(j + 1) * n]);
                    schur[i * m + j] = corner[i * m + j] - through;
                    sizes[i * m + j] = corner[i * m + j].abs().max(through.abs());
                }
                scale[i] = equaliser(sizes[i * m + i]);
                z[i] -= dot(b, x);
            }
            // The unknowns of the border have units of their own.
            balance(&sizes, &mut scale);
            for i in 0..m {
                (0..m).for_each(|j| schur[i * m + j] *= scale[i] * scale[j]);
                z[i] *= scale[i];
            }
            if !solve_small(&mut schur, z) {
                regular = false;
                z.fill(0.0);
            }
            z.iter_mut().zip(&scale).for_each(|(z, s)| *z *= s);
            for (j, &zj) in z.iter().enumerate() {
                for (xi, &s) in x.iter_mut().zip(&solved[j * n..(j + 1) * n]) {
                    *xi -= zj * s;
                }
            }
        }
        regular
    }
}

/// The power of two by which an unknown is scaled whose diagonal entry has this size before anything cancels in it, so
/// that the entry becomes one, to a factor of two. A power of two changes no digit.
fn equaliser(size: f64) -> f64 {
    if size > 0.0 && size.is_finite() { 2.0_f64.powi((-0.5 * size.log2()).round() as i32) } else { 1.0 }
}

/// Lowers scales where couplings would outgrow the diagonal: an unknown with next to no entry of its own, as the value of
/// an episode's end where none is near, is held by what it is coupled to.
fn balance(sizes: &[f64], scale: &mut [f64]) {
    let m = scale.len();
    for _ in 0..8 {
        for i in 0..m {
            let largest = (0..m).map(|j| scale[i] * scale[j] * sizes[i * m + j]).fold(0.0, f64::max);
            if largest > LARGEST_COUPLING {
                scale[i] *= equaliser(largest * largest);
            }
        }
    }
}

/// In units of the diagonal.
const LARGEST_COUPLING: f64 = 1024.0;

/// Inner product.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(&x, &y)| x * y).sum()
}

/// Gaussian elimination with partial pivoting on a handful of unknowns, row-major, in place. `false` if singular.
pub(crate) fn solve_small(a: &mut [f64], b: &mut [f64]) -> bool {
    let m = b.len();
    let scale = a.iter().fold(0.0_f64, |x, y| x.max(y.abs()));
    for k in 0..m {
        let pivot = (k..m).max_by(|&i, &j| a[i * m + k].abs().total_cmp(&a[j * m + k].abs())).unwrap_or(k);
        if a[pivot * m + k].abs() <= 1e-300 + 1e-16 * scale || !a[pivot * m + k].is_finite() {
            return false;
        }
        for j in 0..m {
            a.swap(k * m + j, pivot * m + j);
        }
        b.swap(k, pivot);
        for i in k + 1..m {
            let factor = a[i * m + k] / a[k * m + k];
            for j in k..m {
                a[i * m + j] -= factor * a[k * m + j];
            }
            b[i] -= factor * b[k];
        }
    }
    for k in (0..m).rev() {
        for j in k + 1..m {
            b[k] -= a[k * m + j] * b[j];
        }
        b[k] /= a[k * m + k];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt as _;

    /// `H = I + Σ v vᵀ` by hand, with an indefinite border, dense and sparse against the residual.
    #[test]
    fn bordered_solution_satisfies_the_equations() {
        for n in [7, DENSE_LIMIT + 5] {
            let mut rng = coptidice_core::rng::stream(1, "spd", n as u64);
            let rows: Vec<[u32; 2]> = (0..n as u32 - 1).map(|i| [i, i + 1]).collect();
            let values: Vec<[f64; 2]> =
                rows.iter().map(|_| [rng.random::<f64>() + 0.5, -rng.random::<f64>()]).collect();
            let mut h = Spd::new(n, rows.iter().map(|r| &r[..]));
            h.clear();
            let apply = |x: &[f64]| {
                let mut y = x.to_vec();
                for (r, v) in rows.iter().zip(&values) {
                    let s = 2.0 * (v[0] * x[r[0] as usize] + v[1] * x[r[1] as usize]);
                    y[r[0] as usize] += s * v[0];
                    y[r[1] as usize] += s * v[1];
                }
                y
            };
            for i in 0..n {
                h.add_diagonal(i, 1.0);
            }
            for (r, v) in rows.iter().zip(&values) {
                h.add_outer(r, v, 2.0);
            }
            assert!(h.factor(0.0));
            let (b1, b2): (Vec<f64>, Vec<f64>) =
                (0..n).map(|_| (rng.random::<f64>(), rng.random::<f64>())).unzip();
            let f: Vec<f64> = (0..n).map(|i| (i as f64).sin()).collect();
            let corner = [0.0, 0.3, 0.3, -1.0];
            let mut g = [0.5, -2.0];
            let mut border = [b1.clone(), b2.clone(), f.clone()].concat();
            assert!(h.solve_bordered(2, &mut border, &corner, &mut g));
            let x = &border[2 * n..];
            let hx = apply(x);
            for i in 0..n {
                // The lift of 1e-12 is the difference between H and what was factored; norms here are O(10).
                assert!((hx[i] + b1[i] * g[0] + b2[i] * g[1] - f[i]).abs() < 1e-9);
            }
            assert!((dot(&b1, x) + 0.3 * g[1] - 0.5).abs() < 1e-9);
            assert!((dot(&b2, x) + 0.3 * g[0] - g[1] + 2.0).abs() < 1e-9);
        }
    }

    /// What `DENSE_LIMIT` rests on: prints milliseconds of an assembled factor and a solution, dense and sparse, on
    /// the pattern that the dual of a random CMDP has (4 actions, 4 successors each).
    #[test]
    #[ignore = "prints times; run it in release, nothing else running"]
    fn dense_or_sparse() {
        for n in [50, 100, 200, 400, 800, 1200, 1600, 2400] {
            let mut rng = coptidice_core::rng::stream(2, "pattern", n as u64);
            let rows: Vec<Vec<u32>> = (0..4 * n)
                .map(|pair| {
                    let mut row: Vec<u32> = (0..4).map(|_| rng.random_range(0..n as u32)).collect();
                    row.push((pair / 4) as u32);
                    row.sort_unstable();
                    row.dedup();
                    row
                })
                .collect();
            let milliseconds = |h: &mut Spd| {
                crate::linalg::median_milliseconds(|| {
                    h.clear();
                    for row in &rows {
                        h.add_outer(row, &[0.25, 0.25, 0.25, 0.25, -1.0][..row.len()], 1.0);
                    }
                    assert!(h.factor(1e-3));
                    h.solve(&mut vec![1.0; n]);
                })
            };
            let dense = milliseconds(&mut Spd::dense(n));
            let sparse = milliseconds(&mut Spd::sparse(n, rows.iter().map(Vec::as_slice)));
            println!("{n} states: dense {dense:.3} ms, sparse {sparse:.3} ms");
        }
    }

    #[test]
    fn indefinite_is_reported() {
        let mut h = Spd::new(2, std::iter::empty());
        h.clear();
        h.add_diagonal(0, 1.0);
        h.add_diagonal(1, -1.0);
        assert!(!h.factor(0.0));
        assert!(!solve_small(&mut [1.0, 1.0, 1.0, 1.0], &mut [1.0, 2.0]));
    }
}
