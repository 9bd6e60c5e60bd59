//! Answers that are distributions, in a table's memory.

use crate::error::Corrupt;

/// The options of the items, and the shares of answers that are distributions.
///
/// If the suite names the options, they are the labels from 0 on, and a distribution has one share for
/// each of them. Otherwise each distribution has its own options.
#[derive(Debug, Default)]
pub(super) struct AnswerShares {
    /// The number of options that the suite names; 0 if it names none.
    n_named: usize,
    /// The number of distributions.
    n: usize,
    /// The end of each distribution in `options` and `shares`; empty if the suite names the options.
    ends: Vec<u32>,
    /// The options of each distribution, by label; empty if the suite names the options.
    options: Vec<u32>,
    shares: Vec<f64>,
    /// The largest option count without named options.
    most: usize,
    /// The number of people behind each answer, by ordinal. Some items only may have one until the table
    /// is finished.
    people: Vec<u32>,
}

/// The answer of an item as a distribution.
#[derive(Debug, Clone, Copy)]
pub(super) enum Distribution<'t> {
    /// This label has the share 1 among the labels below the number.
    Label(u32, usize),
    /// The shares of the labels from 0 on.
    Named(&'t [f64]),
    /// The item's own options, by label, and their shares.
    Own(&'t [u32], &'t [f64]),
}

impl AnswerShares {
    /// Sets the number of options that the suite names.
    pub(super) fn set_named(&mut self, n_named: usize) {
        self.n_named = n_named;
    }

    /// Adds a distribution, and returns its number. `shares` are its options, by label.
    pub(super) fn push(&mut self, shares: &[(u32, f64)]) -> Result<u32, Corrupt> {
        let too_large = || Corrupt::new("the suite's answers have more than 4 billion shares");
        if self.n_named > 0 {
            let start = self.shares.len();
            self.shares.resize(start + self.n_named, 0.0);
            for (label, share) in shares {
                let place = self.shares[start..].get_mut(*label as usize);
                let place = place.ok_or_else(|| {
                    Corrupt::new("an answer has a label that the suite does not name")
                })?;
                *place = *share;
            }
        } else {
            self.options.extend(shares.iter().map(|(label, _)| *label));
            self.shares.extend(shares.iter().map(|(_, share)| *share));
            self.ends
                .push(u32::try_from(self.shares.len()).map_err(|_| too_large())?);
            self.most = self.most.max(shares.len());
        }
        let number = u32::try_from(self.n).map_err(|_| too_large())?;
        self.n += 1;
        Ok(number)
    }

    /// Returns the distribution with this number.
    pub(super) fn get(&self, number: u32) -> Distribution<'_> {
        let number = number as usize;
        if self.n_named > 0 {
            let start = number * self.n_named;
            return Distribution::Named(&self.shares[start..start + self.n_named]);
        }
        let start = number
            .checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize);
        let range = start..self.ends[number] as usize;
        Distribution::Own(&self.options[range.clone()], &self.shares[range])
    }

    /// Returns the number of options that the suite names; 0 if it names none.
    pub(super) fn n_named(&self) -> usize {
        self.n_named
    }

    /// Returns the largest option count.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Counts the options of other answers of the suite, too.
    pub(super) fn know_most(&mut self, most: usize) {
        self.most = self.most.max(most);
    }

    /// Returns `true` if no answer is a distribution.
    pub(super) fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Adds the number of people behind the last answer.
    pub(super) fn add_people(&mut self, n: u32) {
        self.people.push(n);
    }

    /// Returns the number of people behind each answer, by ordinal; empty unless all have one.
    pub(super) fn people(&self) -> &[u32] {
        &self.people
    }

    /// Drops spare capacity, and the numbers of people unless all `n` items have one.
    pub(super) fn finish(&mut self, n: usize) {
        if self.people.len() != n {
            self.people = Vec::new();
        }
        self.ends.shrink_to_fit();
        self.options.shrink_to_fit();
        self.shares.shrink_to_fit();
        self.people.shrink_to_fit();
    }

    /// Returns the heap memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let codes = self.ends.capacity() + self.options.capacity() + self.people.capacity();
        size_of::<u32>() * codes + size_of::<f64>() * self.shares.capacity()
    }
}

impl Distribution<'_> {
    /// Returns the number of options.
    pub(super) fn len(self) -> usize {
        match self {
            Self::Label(_, n) => n,
            Self::Named(shares) | Self::Own(_, shares) => shares.len(),
        }
    }

    /// Returns the label of the option at this place.
    #[inline]
    pub(super) fn option(self, place: usize) -> u32 {
        match self {
            Self::Label(..) | Self::Named(_) => place as u32,
            Self::Own(options, _) => options[place],
        }
    }

    /// Returns the share of the option at this place.
    #[inline]
    pub(super) fn share(self, place: usize) -> f64 {
        match self {
            Self::Label(label, _) => f64::from(place == label as usize),
            Self::Named(shares) | Self::Own(_, shares) => shares[place],
        }
    }
}
