//! The bins that confidences are put in, to be compared with how often they are right.

/// How many bins of equal width there are for items that were predicted.
pub const BINS: usize = 15;

/// The bin of a confidence from 0 to 1: each holds its upper end, the first one 0, too.
pub fn bin(confidence: f64) -> usize {
    let upper = |bin: usize| (bin + 1) as f64 / BINS as f64;
    let mut bin = ((confidence * BINS as f64).ceil() as usize).clamp(1, BINS) - 1;
    // What was rounded is put right.
    while bin > 0 && confidence <= upper(bin - 1) {
        bin -= 1;
    }
    while bin + 1 < BINS && confidence > upper(bin) {
        bin += 1;
    }
    bin
}

/// How far an item is from what was right, and in which bin. One without a prediction, whose confidence is below 0, is as far
/// as can be, in a bin behind the others, where it makes up for nothing.
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
    fn a_bin_holds_its_upper_end() {
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
