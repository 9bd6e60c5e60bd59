//! The expected calibration error's bins: in each, the mean confidence is compared with the
//! right-prediction share.

/// Equal-width bins for items with a prediction.
pub const BINS: usize = 15;

/// Returns the bin for a confidence from 0 to 1. A bin includes its upper end; the first one
/// includes 0 as well.
pub fn bin(confidence: f64) -> usize {
    let upper = |bin: usize| (bin + 1) as f64 / BINS as f64;
    let mut bin = ((confidence * BINS as f64).ceil() as usize).clamp(1, BINS) - 1;
    // The multiplication rounds: correct the bin by its exact bounds.
    while bin > 0 && confidence <= upper(bin - 1) {
        bin -= 1;
    }
    while bin + 1 < BINS && confidence > upper(bin) {
        bin += 1;
    }
    bin
}

/// Returns an item's bin and its gap: the confidence minus 1 if the prediction is right, minus
/// 0 otherwise. An item without a prediction has a confidence below 0. Its gap is 1, in bin
/// [`BINS`], where it cannot cancel another item's gap.
pub fn gap(confidence: f64, is_right: bool) -> (usize, f64) {
    if confidence < 0.0 {
        (BINS, 1.0)
    } else {
        (bin(confidence), confidence - f64::from(is_right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bin_includes_its_upper_end() {
        for (confidence, expected) in [
            (0.0, 0),
            (1e-300, 0),
            (1.0 / 15.0, 0),
            (0.067, 1),
            (0.2, 2),
            (0.4, 5),
            (0.6, 8),
            (0.8, 11),
            (1.0, 14),
        ] {
            assert_eq!(bin(confidence), expected, "{confidence}");
        }
        assert_eq!(bin(0.6_f64.next_up()), 9);
    }
}
