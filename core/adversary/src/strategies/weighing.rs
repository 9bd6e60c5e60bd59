//! Detecting matrices: they assign items to submissions so that few counts determine every item.
//!
//! After B. Lindström, "On a combinatorial problem in number theory", Canadian Mathematical
//! Bulletin 8 (1965). Row A is a non-empty bit set, written as the integer A. Set S has |S|
//! columns; column j of S holds a 1 in row A if A ∩ S is among 2^j chosen odd-sized subsets of
//! S. In the alternating sum over all rows A ⊆ T only the columns for sets S ⊇ T remain, so the
//! sets are decoded from the largest integer to the smallest.

/// A zero-one matrix with distinct images for all 0/1 vectors.
#[derive(Debug, Clone)]
pub struct Detecting {
    rows: usize,
    /// For each column its set, its index within the set, and its chosen subsets in ascending
    /// order.
    columns: Vec<(usize, usize, Vec<usize>)>,
}

/// Returns how many columns the detecting matrix has with this many rows: the one bits in the
/// integers 1 to `rows`.
pub fn columns_of(rows: usize) -> usize {
    (1..=rows).map(|set| set.count_ones() as usize).sum()
}

impl Detecting {
    /// Builds the matrix with this many rows.
    pub fn new(rows: usize) -> Self {
        let odd_subsets = |set: usize| {
            (1..=set).filter(move |subset| subset & set == *subset && subset.count_ones() % 2 == 1)
        };
        let subset_row = |set: usize| {
            (0..set.count_ones() as usize)
                .map(move |at| (set, at, odd_subsets(set).take(1 << at).collect()))
        };
        Self {
            rows,
            columns: (1..=rows).flat_map(subset_row).collect(),
        }
    }

    /// Returns `true` if the column is counted in the row; both are indexes from 0.
    pub fn has(&self, row: usize, column: usize) -> bool {
        let (set, _, chosen) = &self.columns[column];
        chosen.binary_search(&((row + 1) & set)).is_ok()
    }

    /// Decodes all rows' counts. The result is arbitrary for inconsistent counts.
    pub fn decode(&self, counts: &[i64]) -> Vec<bool> {
        let mut rest: Vec<i64> = counts.to_vec();
        let mut found = vec![false; self.columns.len()];
        let mut end = self.columns.len();
        for set in (1..=self.rows).rev() {
            let size = set.count_ones() as usize;
            let start = end - size;
            let subsets = (1..=set).filter(|subset| subset & set == *subset);
            // Odd-sized subsets have a positive sign: the chosen ones are odd.
            let sum: i64 = subsets
                .map(|subset| {
                    if subset.count_ones() % 2 == 1 {
                        rest[subset - 1]
                    } else {
                        -rest[subset - 1]
                    }
                })
                .sum();
            for (at, column) in (start..end).enumerate() {
                if sum >> at & 1 == 1 {
                    found[column] = true;
                    rest.iter_mut()
                        .enumerate()
                        .filter(|(row, _)| self.has(*row, column))
                        .for_each(|(_, count)| *count -= 1);
                }
            }
            end = start;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn every_vector_is_decoded_from_its_counts() {
        let mut random = Random::new(1);
        for rows in 1..=40 {
            let matrix = Detecting::new(rows);
            assert_eq!(matrix.columns.len(), columns_of(rows));
            for _ in 0..20 {
                let vector: Vec<bool> = (0..matrix.columns.len())
                    .map(|_| random.below(2) == 1)
                    .collect();
                let count = |row: usize| {
                    (0..vector.len())
                        .filter(|column| vector[*column] && matrix.has(row, *column))
                        .count() as i64
                };
                let counts: Vec<i64> = (0..rows).map(count).collect();
                assert_eq!(matrix.decode(&counts), vector, "{rows} rows");
            }
        }
        assert_eq!([15, 18, 39].map(columns_of), [32, 37, 100]);
    }
}
