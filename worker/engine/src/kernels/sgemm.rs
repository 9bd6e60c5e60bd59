//! Matrix products with several rows.

/// A matrix in a slice: element (row, column) is at `row * row_stride + column * column_stride`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operand<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_stride: usize,
    pub(crate) column_stride: usize,
}

impl Operand<'_> {
    /// Returns the length that a slice needs for these sizes and strides, unless it overflows.
    fn extent(&self) -> Option<usize> {
        extent(self.rows, self.columns, self.row_stride, self.column_stride)
    }
}

fn extent(rows: usize, columns: usize, row_stride: usize, column_stride: usize) -> Option<usize> {
    if rows == 0 || columns == 0 {
        return Some(0);
    }
    let last_row = (rows - 1).checked_mul(row_stride)?;
    let last_column = (columns - 1).checked_mul(column_stride)?;
    let extent = last_row.checked_add(last_column)?.checked_add(1)?;
    isize::try_from(extent).is_ok().then_some(extent)
}

/// Computes `c = factor·a·b + keep·c`, where `c` has rows with `row_stride` elements. With `keep`
/// 0, `c`'s previous content has no effect.
///
/// # Panics
/// If the sizes do not fit each other or the slices. They follow from the model's sizes, which
/// are checked when it is loaded.
#[expect(
    unsafe_code,
    reason = "matrixmultiply takes pointers; the assertions before the call are its conditions"
)]
pub(crate) fn multiply(
    factor: f32,
    a: Operand<'_>,
    b: Operand<'_>,
    keep: f32,
    c: &mut [f32],
    row_stride: usize,
) {
    assert_eq!(a.columns, b.rows, "sizes of a product");
    assert!(b.columns <= row_stride || a.rows <= 1, "rows of c overlap");
    let fits = |extent: Option<usize>, length| extent.is_some_and(|extent| extent <= length);
    assert!(fits(a.extent(), a.data.len()), "length of a");
    assert!(fits(b.extent(), b.data.len()), "length of b");
    assert!(
        fits(extent(a.rows, b.columns, row_stride, 1), c.len()),
        "length of c"
    );
    // SAFETY: every element that the call reads or writes lies in its slice by the assertions above,
    // strides fit isize because the extents do, no two `c` elements share an address, and `c` is
    // borrowed mutably, so it overlaps neither `a` nor `b`.
    unsafe {
        matrixmultiply::sgemm(
            a.rows,
            a.columns,
            b.columns,
            factor,
            a.data.as_ptr(),
            a.row_stride as isize,
            a.column_stride as isize,
            b.data.as_ptr(),
            b.row_stride as isize,
            b.column_stride as isize,
            keep,
            c.as_mut_ptr(),
            row_stride as isize,
            1,
        );
    }
}
