//! A compact number vector.

/// One number per item, 0 at first, stored in as few bytes each as the largest needs.
pub(super) enum PackedU32 {
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
}

impl PackedU32 {
    /// Returns `n` zeros.
    pub(super) fn new(n: usize) -> Self {
        Self::U8(vec![0; n])
    }

    #[inline]
    pub(super) fn get(&self, item: usize) -> u32 {
        match self {
            Self::U8(numbers) => u32::from(numbers[item]),
            Self::U16(numbers) => u32::from(numbers[item]),
            Self::U32(numbers) => numbers[item],
        }
    }

    /// Sets an item's number, and widens all numbers if it does not fit.
    #[inline]
    pub(super) fn set(&mut self, item: usize, number: u32) {
        loop {
            *self = match self {
                Self::U8(numbers) if number <= u32::from(u8::MAX) => {
                    return numbers[item] = number as u8;
                }
                Self::U16(numbers) if number <= u32::from(u16::MAX) => {
                    return numbers[item] = number as u16;
                }
                Self::U32(numbers) => return numbers[item] = number,
                Self::U8(numbers) => {
                    Self::U16(numbers.iter().map(|number| u16::from(*number)).collect())
                }
                Self::U16(numbers) => {
                    Self::U32(numbers.iter().map(|number| u32::from(*number)).collect())
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_number_widens_all_numbers() {
        let mut numbers = PackedU32::new(4);
        for (item, number) in [(0, 255), (1, 256), (2, 65_536), (3, u32::MAX), (1, 1)] {
            numbers.set(item, number);
            assert_eq!(numbers.get(item), number);
        }
        assert_eq!(
            [numbers.get(0), numbers.get(1), numbers.get(2)],
            [255, 1, 65_536]
        );
    }
}
