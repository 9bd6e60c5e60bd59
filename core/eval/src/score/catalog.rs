//! The catalog of a suite of rankings: the ids that a ranking can show, and how popular each one is.

use hashbrown::DefaultHashBuilder;

use super::label_set::LabelSet;

/// The most ids of a catalog: scoring a job takes 4 bytes for each.
pub const CATALOG_IDS_MAX: usize = 1 << 22;

/// Longest id, in bytes.
const ID_BYTES_MAX: usize = 512;

/// The ids that a ranking can show, with their popularities. An id with ten characters takes about 40
/// bytes.
#[derive(Debug)]
pub struct Catalog {
    ids: LabelSet,
    hash: DefaultHashBuilder,
    /// By code.
    weights: Vec<IdWeights>,
    /// A power of two: the largest popularity is less than twice as large.
    scale: f64,
}

/// The terms that an id adds to the means over the shown ids.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdWeights {
    /// The popularity over [`Catalog::scale`]: from 0 to below 2.
    pub(super) popularity: f64,
    /// −log2 of the id's share of the popularity: at least 0.
    pub(super) novelty: f64,
}

/// A catalog under construction.
#[derive(Debug, Default)]
pub struct CatalogBuilder {
    ids: LabelSet,
    hash: DefaultHashBuilder,
    popularities: Vec<f64>,
}

impl CatalogBuilder {
    /// Adds an id.
    ///
    /// # Errors
    /// Returns the reason if the id is repeated or has no accepted form, if the popularity is not above 0,
    /// or if there are too many ids.
    pub fn push(&mut self, id: &str, popularity: f64) -> Result<(), String> {
        match id {
            "" => return Err("id must not be empty".into()),
            id if id.len() > ID_BYTES_MAX => {
                return Err(format!("id must not be longer than {ID_BYTES_MAX} bytes"));
            }
            id if id.contains('\0') => {
                return Err(format!(
                    "id {id:?} has a NUL character, which no prediction may have"
                ));
            }
            _ => {}
        }
        if !(popularity.is_finite() && popularity > 0.0) {
            return Err(format!(
                "popularity is {popularity}, but must be a finite number above 0"
            ));
        }
        let n = self.popularities.len();
        if n == CATALOG_IDS_MAX {
            return Err(format!("a catalog has at most {CATALOG_IDS_MAX} ids"));
        }
        let code = self.ids.get_or_insert(&self.hash, id.as_bytes());
        let code = code.map_err(|corrupt| corrupt.to_string())?;
        if (code as usize) < n {
            return Err(format!("id {id:?} is repeated"));
        }
        self.popularities.push(popularity);
        Ok(())
    }

    /// Returns the catalog.
    ///
    /// # Errors
    /// Returns the reason if there are no ids.
    pub fn finish(self) -> Result<Catalog, String> {
        let Self {
            mut ids,
            hash,
            popularities,
        } = self;
        if popularities.is_empty() {
            return Err("a catalog needs at least one id".into());
        }
        let largest = popularities.iter().copied().fold(0.0, f64::max);
        let scale = power_of_two_below(largest);
        // A sum of large popularities would be infinite.
        let total: f64 = popularities.iter().map(|one| one / scale).sum();
        let total = total.log2() + scale.log2();
        let weights = popularities.iter().map(|one| IdWeights {
            popularity: one / scale,
            novelty: (total - one.log2()).max(0.0),
        });
        let weights = weights.collect();
        ids.shrink_to_fit();
        Ok(Catalog {
            ids,
            hash,
            weights,
            scale,
        })
    }
}

/// Returns the largest power of two that is at most a number above 0, and at least the smallest normal
/// number.
fn power_of_two_below(number: f64) -> f64 {
    const EXPONENT: u64 = 0x7ff0_0000_0000_0000;

    f64::from_bits(number.to_bits() & EXPONENT).max(f64::MIN_POSITIVE)
}

impl Catalog {
    /// Returns the number of ids.
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// Returns `true` if there are no ids.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// Returns the code of an id, which is below [`Catalog::len`]. `None` if the catalog does not have it.
    pub(super) fn code(&self, id: &str) -> Option<u32> {
        self.ids.find(&self.hash, id.as_bytes())
    }

    pub(super) fn weights(&self, code: u32) -> IdWeights {
        self.weights[code as usize]
    }

    /// Returns the unit of the popularities: a power of two.
    pub(super) fn scale(&self) -> f64 {
        self.scale
    }

    /// Returns the heap memory in bytes.
    pub fn bytes(&self) -> usize {
        self.ids.bytes() + size_of::<IdWeights>() * self.weights.capacity()
    }

    /// Returns the memory that scoring a job takes for the ids, in bytes.
    pub fn job_bytes(&self) -> usize {
        size_of::<u32>() * self.len()
    }
}
