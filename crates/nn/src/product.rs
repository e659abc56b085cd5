//! Matrix products, the one place that knows the `gemm` crate.

/// A strided view of a matrix inside a slice.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> View<'a> {
    /// `[rows, columns]`, row-major, rows `stride` apart.
    pub(crate) fn row_major(data: &'a [f32], rows: usize, columns: usize, stride: usize) -> Self {
        assert!(columns <= stride);
        assert!(rows == 0 || columns == 0 || (rows - 1) * stride + columns <= data.len());
        Self { data, rows, columns, row_stride: stride, column_stride: 1 }
    }

    /// The transpose, without moving anything.
    pub(crate) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// `out = a b` or, if `accumulate`, `out += a b`; `out` is `[a.rows, b.columns]`, row-major and contiguous.
/// Runs on the calling thread.
pub(crate) fn multiply(out: &mut [f32], a: View<'_>, b: View<'_>, accumulate: bool) {
    assert_eq!(a.columns, b.rows);
    assert_eq!(out.len(), a.rows * b.columns);
    if out.is_empty() {
        return;
    }
    if a.columns == 0 {
        if !accumulate {
            out.fill(0.0);
        }
        return;
    }
    // SAFETY: `out` is exclusively borrowed, contiguous and of `a.rows * b.columns` elements (asserted above); every
    // element of the views lies inside their slices (asserted at construction, transposing keeps the set of
    // elements); strides and sides are below `isize::MAX` since they index slices.
    #[allow(clippy::cast_possible_wrap)]
    unsafe {
        gemm::gemm(
            a.rows,
            b.columns,
            a.columns,
            out.as_mut_ptr(),
            1,
            b.columns as isize,
            accumulate,
            a.data.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
