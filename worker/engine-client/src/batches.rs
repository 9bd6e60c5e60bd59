//! Divides sequences into calls with a bounded size.

use std::ops::Range;

/// A call's approximate maximum size to an external engine, in bytes. gRPC servers accept 4 MB by
/// default.
pub const CALL_MAX_EXTERNAL: usize = 3 << 20;

/// One row's size in a call, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowSize {
    /// The bytes that only this row has.
    pub own: usize,
    /// The bytes to which all other rows in the call are padded.
    pub padded: usize,
}

/// Divides rows into calls with at most `rows_max` rows and about `bytes_max` bytes. A row that is
/// larger than that has its own call.
pub fn split(
    sizes: impl IntoIterator<Item = RowSize>,
    rows_max: usize,
    bytes_max: usize,
) -> Vec<Range<usize>> {
    let mut calls: Vec<Range<usize>> = Vec::new();
    let (mut own, mut padded) = (0, 0);
    for (at, size) in sizes.into_iter().enumerate() {
        let (longer_own, longer_padded) = (own + size.own, padded.max(size.padded));
        match calls.last_mut() {
            Some(call)
                if call.len() < rows_max
                    && longer_own + longer_padded * (call.len() + 1) <= bytes_max =>
            {
                call.end = at + 1;
                (own, padded) = (longer_own, longer_padded);
            }
            _ => {
                calls.push(at..at + 1);
                (own, padded) = (size.own, size.padded);
            }
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(own: usize, padded: usize) -> RowSize {
        RowSize { own, padded }
    }

    #[test]
    fn calls_have_bounded_rows_and_bytes() {
        assert!(split([], 64, 100).is_empty());
        assert_eq!(split([size(1, 1); 5], 2, 100), [0..2, 2..4, 4..5]);
        assert_eq!(split([size(40, 0); 5], 64, 100), [0..2, 2..4, 4..5]);
        // The long row would pad the others.
        let sizes = [size(1, 10), size(1, 10), size(1, 60), size(1, 10)];
        assert_eq!(split(sizes, 64, 100), [0..2, 2..3, 3..4]);
    }

    #[test]
    fn large_row_has_its_own_call() {
        let sizes = [size(1, 1), size(500, 1), size(1, 1)];
        assert_eq!(split(sizes, 64, 100), [0..1, 1..2, 2..3]);
    }
}
