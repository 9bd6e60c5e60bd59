//! Slices: the items with one value of a group field, such as those of one age group.

use std::collections::HashSet;

use crate::clusters::CLUSTERS_MIN;

/// The most group fields with slices.
pub const SLICED_FIELDS_MAX: usize = 5;

/// The most slices of one field.
const SLICES_PER_FIELD_MAX: usize = 20;

/// The most slices of a suite.
pub const SLICES_MAX: usize = 50;

/// The most bytes that a suite's slice names have together: each result has them.
pub const SLICE_NAMES_BYTES_MAX: usize = 1024;

/// The name of the slice with all values that are too rare for a slice of their own.
const OTHER: &str = "_other";

/// The code of an item in no slice.
pub const NO_SLICE: u8 = u8::MAX;

/// A slice of a suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The value of the group field, or `_other`.
    pub group: String,
    /// The number of items, open and sealed.
    pub n: usize,
}

/// A group field of all items, from which its slices are chosen.
pub struct FieldValues<'a> {
    /// The value of each label.
    pub values: &'a [String],
    /// Each item's label.
    pub labels: &'a [u32],
    /// Each item's cluster; empty if items are independent.
    pub clusters: &'a [u32],
    /// Set for each sealed item; empty without sealed items.
    pub is_sealed: &'a [bool],
    /// A slice's smallest item count.
    pub min: usize,
}

/// The items of one value, by part: open and sealed.
#[derive(Default, Clone)]
struct Size {
    items: [usize; 2],
    clusters: [HashSet<u32>; 2],
}

impl Size {
    fn all(&self) -> usize {
        self.items.iter().sum()
    }

    fn n_clusters(&self) -> usize {
        self.clusters[0].union(&self.clusters[1]).count()
    }

    fn add(&mut self, other: &Self) {
        for part in 0..2 {
            self.items[part] += other.items[part];
            self.clusters[part].extend(&other.clusters[part]);
        }
    }
}

impl FieldValues<'_> {
    /// Returns the slices, in byte order of their values and `_other` last, and each item's code: the
    /// place of its slice, or [`NO_SLICE`]. A value with enough items, and with clusters enough of
    /// them, is a slice. All other values are the slice `_other` if they are enough together.
    ///
    /// # Errors
    /// Returns the reason if there are fewer than two slices or too many, or if a slice is too small
    /// among the open items alone or the sealed ones.
    pub fn slices(&self) -> Result<(Vec<Slice>, Vec<u8>), String> {
        if self.values.iter().any(|value| value == OTHER) {
            return Err(format!(
                "{OTHER:?} is the name of the slice of rare values; rename this value"
            ));
        }
        let sizes = self.sizes();
        let is_slice = |size: &Size| {
            size.all() >= self.min
                && (self.clusters.is_empty() || size.n_clusters() >= CLUSTERS_MIN)
        };
        let (mut own, rare): (Vec<usize>, Vec<usize>) =
            (0..sizes.len()).partition(|label| is_slice(&sizes[*label]));
        own.sort_unstable_by_key(|label| &self.values[*label]);
        let mut other = Size::default();
        rare.iter().for_each(|label| other.add(&sizes[*label]));
        let mut slices: Vec<(&str, &Size)> = own
            .iter()
            .map(|label| (self.values[*label].as_str(), &sizes[*label]))
            .collect();
        if is_slice(&other) {
            slices.push((OTHER, &other));
        }
        let n = slices.len();
        if !(2..=SLICES_PER_FIELD_MAX).contains(&n) {
            return Err(format!(
                "it has {n} slice{}: values with at least {} items{}; 2 to {SLICES_PER_FIELD_MAX} slices are possible",
                if n == 1 { "" } else { "s" },
                self.min,
                if self.clusters.is_empty() {
                    ""
                } else {
                    " in 10 clusters"
                }
            ));
        }
        for (group, size) in &slices {
            self.check_parts(group, size)?;
        }
        let mut code_of_label = vec![
            if is_slice(&other) {
                (n - 1) as u8
            } else {
                NO_SLICE
            };
            sizes.len()
        ];
        own.iter()
            .enumerate()
            .for_each(|(code, label)| code_of_label[*label] = code as u8);
        let codes = self.labels.iter();
        let codes = codes.map(|label| code_of_label[*label as usize]).collect();
        let slice = |(group, size): (&str, &Size)| Slice {
            group: group.to_owned(),
            n: size.all(),
        };
        Ok((slices.into_iter().map(slice).collect(), codes))
    }

    fn sizes(&self) -> Vec<Size> {
        let mut sizes = vec![Size::default(); self.values.len()];
        for (item, label) in self.labels.iter().enumerate() {
            let part = usize::from(self.is_sealed.get(item).copied().unwrap_or_default());
            let size = &mut sizes[*label as usize];
            size.items[part] += 1;
            if let Some(cluster) = self.clusters.get(item) {
                size.clusters[part].insert(*cluster);
            }
        }
        sizes
    }

    fn check_parts(&self, group: &str, size: &Size) -> Result<(), String> {
        if self.is_sealed.is_empty() {
            return Ok(());
        }
        for (name, part) in [("open", 0), ("sealed", 1)] {
            let n = size.items[part];
            if n < self.min {
                return Err(format!(
                    "{group:?} has {n} {name} items, but a slice needs {} in each part",
                    self.min
                ));
            }
            let n_clusters = size.clusters[part].len();
            if !self.clusters.is_empty() && n_clusters < CLUSTERS_MIN {
                return Err(format!(
                    "{group:?} has {n_clusters} clusters of {name} items, but a slice needs {CLUSTERS_MIN} in each part"
                ));
            }
        }
        Ok(())
    }
}

/// The slices of a table's items by one group field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldSlices {
    /// The field's name.
    pub field: String,
    /// The names of the slices.
    pub groups: Vec<String>,
    /// Each item's slice, by its place in `groups`, or [`NO_SLICE`].
    pub codes: Vec<u8>,
}

impl FieldSlices {
    /// Returns the field without items.
    pub fn new(field: String, groups: Vec<String>) -> Self {
        Self {
            field,
            groups,
            codes: Vec::new(),
        }
    }

    /// Returns the places of each slice's items, in the suite's order.
    pub(crate) fn items(&self) -> Vec<Vec<u32>> {
        let mut items = vec![Vec::new(); self.groups.len()];
        for (item, code) in self.codes.iter().enumerate() {
            if let Some(items) = items.get_mut(usize::from(*code)) {
                items.push(item as u32);
            }
        }
        items
    }

    /// Returns the heap memory in bytes.
    pub fn bytes(&self) -> usize {
        let names = self.groups.iter().chain([&self.field]);
        self.codes.capacity() + names.map(String::capacity).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Found = (Vec<(String, usize)>, Vec<u8>);

    fn slices(labels: &[u32], clusters: &[u32], is_sealed: &[bool]) -> Result<Found, String> {
        let values = ["z", "b", "rare", "rarer"].map(str::to_owned);
        let values = FieldValues {
            values: &values,
            labels,
            clusters,
            is_sealed,
            min: 50,
        };
        let (slices, codes) = values.slices()?;
        let slices = slices.into_iter().map(|slice| (slice.group, slice.n));
        Ok((slices.collect(), codes))
    }

    fn labels(sizes: &[usize]) -> Vec<u32> {
        let labels = sizes.iter().enumerate();
        labels
            .flat_map(|(label, size)| std::iter::repeat_n(label as u32, *size))
            .collect()
    }

    #[test]
    fn rare_values_are_one_slice_or_none() {
        let (found, codes) = slices(&labels(&[50, 51, 30, 20]), &[], &[]).unwrap();
        let name = |group: &str, n| (group.to_owned(), n);
        assert_eq!(found, [name("b", 51), name("z", 50), name("_other", 50)]);
        assert_eq!([0, 50, 101, 131].map(|item| codes[item]), [1, 0, 2, 2]);
        let (found, codes) = slices(&labels(&[50, 51, 30, 19]), &[], &[]).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(codes[120], NO_SLICE);
    }

    #[test]
    fn slices_need_clusters_and_parts() {
        let n = 200;
        let labels: Vec<u32> = (0..n).map(|item| item % 2).collect();
        let clusters = |size: u32| -> Vec<u32> { (0..n).map(|item| item / size).collect() };
        assert!(slices(&labels, &clusters(20), &[]).is_ok());
        let error = slices(&labels, &clusters(23), &[]).unwrap_err();
        assert!(error.contains("it has 0 slices"), "{error}");
        let sealed = |share: u32| -> Vec<bool> { (0..n).map(|item| item < share).collect() };
        assert!(slices(&labels, &clusters(10), &sealed(100)).is_ok());
        let error = slices(&labels, &clusters(10), &sealed(98)).unwrap_err();
        assert!(error.contains("49 sealed items"), "{error}");
        let error = slices(&labels, &clusters(11), &sealed(100)).unwrap_err();
        assert!(error.contains("clusters of"), "{error}");
    }

    #[test]
    fn number_of_slices_is_bounded() {
        let error = slices(&labels(&[300]), &[], &[]).unwrap_err();
        assert!(error.starts_with("it has 1 slice:"), "{error}");
        let values: Vec<String> = (0..21).map(|value| value.to_string()).collect();
        let all = FieldValues {
            values: &values,
            labels: &labels(&[50; 21]),
            clusters: &[],
            is_sealed: &[],
            min: 50,
        };
        assert!(all.slices().unwrap_err().starts_with("it has 21 slices"));
        let reserved = FieldValues {
            values: &["_other".to_owned(), "b".to_owned()],
            labels: &labels(&[50, 50]),
            ..all
        };
        assert!(reserved.slices().unwrap_err().contains("_other"));
    }
}
